"""Data larger than memory: seconds and memory of a check by quick lenses against the number of rows.

    python benchmarks/scale.py [--rows 100000 ... ] [--columns 20] [--out results/benchmarks/scale-cpu.json]

Rows of a standard normal are written to an npy file in a temporary folder, block by block, and tested from
there in a process of its own, without a cache; below 200,000 rows in one pass as well, so that one path is
measured. Seconds are those of the test alone, by the clock and of all cores together; memory is the peak of
the process, imports included. Exponents are slopes of log seconds over log rows. At the largest size one more
file has a mean that is off by eight standard errors. `others` are the cores that other programs used.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import steincritic as sc
from default import used  # beside this file
from steincritic_studies.record import Record, environment

_BLOCK = 2**16
SEED, SHIFT = 11, 8.0  # of the data; standard errors by which a mean is off in the file with a fault


def normal(columns: int) -> sc.models.GaussianMixture:
    return sc.models.GaussianMixture(torch.zeros(1, columns))


def written(path: Path, rows: int, columns: int, shift: float) -> None:
    model = normal(columns)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, columns))
    for k, start in enumerate(range(0, rows, _BLOCK)):
        part = model.sample(min(_BLOCK, rows - start), seed=1000 * SEED + k).float().numpy()
        part[:, -1] += shift
        file[start : start + len(part)] = part
    file.flush()


def one(path: Path, columns: int) -> dict[str, Any]:
    """In a process of its own."""
    model = normal(columns)
    sc.gof_test(model, model.sample(30), "ksd")  # modules are loaded on first use
    test = sc.Combined(critics=None, cache=False, exact_up_to=50_000)
    start, own, before = time.perf_counter(), time.process_time(), used()
    result = sc.gof_test(model, path, test)
    seconds, own, after = time.perf_counter() - start, time.process_time() - own, used()
    others = None if before is None or after is None else round((after - before - own) / seconds, 2)
    return {
        "seconds": seconds,
        "cpu_seconds": own,
        "others": others,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "pvalue": result.pvalue,
        "null_rows": result.settings["sets"] * result.settings["rows_of_a_set"],
    }


def fresh(rows: int, columns: int, shift: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        written(path, rows, columns, shift)
        command = [sys.executable, __file__, "--one", str(path), "--columns", str(columns)]
        found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def exponent(rows: list[dict[str, Any]], of: str) -> float:
    x, y = (np.log([row[name] for row in rows]) for name in ("rows", of))
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    counts = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000]
    parser.add_argument("--rows", type=int, nargs="+", default=counts)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("out/scale-benchmark.json"))
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.columns)))
        return
    began, found = time.perf_counter(), []
    for n in options.rows:
        row = {"rows": n} | fresh(n, options.columns, 0.0)
        found.append(row)
        print(
            f"{n:>12,} rows  {row['seconds']:7.1f} s  {row['cpu_seconds']:7.1f} s of a core  "
            f"{row['gib']:.2f} GiB  p = {row['pvalue']:.2g}",
            flush=True,
        )
    shift = SHIFT / math.sqrt(options.rows[-1])
    wrong = fresh(options.rows[-1], options.columns, shift)
    slopes = {of: exponent(found, of) for of in ("seconds", "cpu_seconds")}
    print(
        f"exponents {slopes}; a mean off by {shift:.4g} at {options.rows[-1]:,} rows: p = {wrong['pvalue']}"
    )
    Record(
        name="benchmark-scale",
        command=f"python benchmarks/scale.py --columns {options.columns}",
        config={"columns": options.columns, "threads": torch.get_num_threads()},
        seed=SEED,
        results={"rows": found, "exponents": slopes, "shift": shift, "with_shift": wrong},
        seconds={"total": time.perf_counter() - began},
        environment=environment(torch.device("cpu")),
    ).save(options.out)
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
