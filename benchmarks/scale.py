"""Data larger than memory: seconds and memory of a check by quick lenses against the number of rows.

    python benchmarks/scale.py [--rows 100000 ... ] [--columns 20] [--out results/benchmarks/scale-cpu.json]

Rows of a standard normal are written to an npy file in a temporary folder, block by block, and tested from
there in a process of its own, without a cache; below 200,000 rows in one pass as well, so that one path is
measured. Seconds are those of the test alone, by the clock and of all cores together; memory is the peak of
the process, imports included. Exponents are slopes of log seconds over log rows. At a million rows
one more file has a mean that is off by eight standard errors. `others` are cores that other programs used.
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
from steincritic.gof import combined
from studies.record import Record, environment

_BLOCK = 2**16
SEED, SHIFT = 11, 8.0  # of the data; standard errors by which a mean is off in the file with a fault


def normal(columns: int) -> sc.models.GaussianMixture:
    return sc.models.GaussianMixture(torch.zeros(1, columns))


def written(path: Path, rows: int, columns: int, shift: float) -> None:
    """Not mapped: a child's peak of memory begins with its parent's."""
    random = np.random.default_rng(SEED)
    with path.open("wb") as file:
        about = {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, about)
        for start in range(0, rows, _BLOCK):
            part = random.standard_normal((min(_BLOCK, rows - start), columns), dtype=np.float32)
            part[:, -1] += shift
            part.tofile(file)


def one(path: Path, columns: int) -> dict[str, Any]:
    """In a process of its own."""
    model = normal(columns)
    sc.gof_test(model, model.sample(30), "ksd")  # modules are loaded on first use
    combined.EXACT_UP_TO = 50_000  # smaller files go by as well
    test = sc.Combined(critics=None, cache=False)
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
    counts = [10_000_000, 3_000_000, 1_000_000, 300_000, 100_000]
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
        found.append({"rows": n, "shift": 0.0} | fresh(n, options.columns, 0.0))
        tell(found, options, time.perf_counter() - began)
    n = min(options.rows, key=lambda n: abs(n - 1_000_000))
    shift = SHIFT / math.sqrt(n)
    found.append({"rows": n, "shift": shift} | fresh(n, options.columns, shift))
    tell(found, options, time.perf_counter() - began)
    print(f"record: {options.out}")


def tell(found: list[dict[str, Any]], options: argparse.Namespace, seconds: float) -> None:
    """The last row, and a record of all so far."""
    row = found[-1]
    print(
        f"{row['rows']:>12,} rows, a mean off by {row['shift']:.3g}  {row['seconds']:7.1f} s  "
        f"{row['cpu_seconds']:7.1f} s of a core  {row['gib']:.2f} GiB  p = {row['pvalue']:.2g}  others "
        f"{row['others']}",
        flush=True,
    )
    right = [row for row in found if not row["shift"]]
    several = len(right) > 1
    slopes = {of: exponent(right, of) for of in ("seconds", "cpu_seconds")} if several else {}
    print(f"exponents {slopes}", flush=True)
    Record(
        name="benchmark-scale",
        command=f"python benchmarks/scale.py --columns {options.columns}",
        config={"columns": options.columns, "threads": torch.get_num_threads()},
        seed=SEED,
        results={"rows": found, "exponents": slopes},
        seconds={"total": seconds},
        environment=environment(torch.device("cpu")),
    ).save(options.out)


if __name__ == "__main__":
    main()
