"""`steincritic witness` on larger and larger files: rows per second and peak memory.

    python benchmarks/witness.py --rows 1000000 10000000 --out results/benchmarks/witness-cpu.json

Each entry of the record is one run of the command on a temporary npy file, with --out as a user would give
it. The time of a run on a thousand rows, which is that of starting Python and torch, is subtracted before
rows are divided by seconds; memory is the peak of the whole process. On a busy machine look at
cpu_seconds and set OMP_NUM_THREADS=1.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steincritic import Training, fit_critic
from steincritic.data import mixture
from studies.record import Record, environment

START = 1000  # rows of the run that measures the start
_BLOCK = 100_000
_MODEL = "from steincritic.data import mixture\n\nmodel = mixture({dim}).model\n"

# The process reports its own peak: what the system reports to its parent counts the parent's memory too.
_RUN = """
import sys, time
from pathlib import Path
from steincritic.cli import main

try:
    main(sys.argv[1:])
finally:
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    print(time.process_time(), peak, file=sys.stderr)
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run of the command."""

    rows: int
    dim: int = 20
    dtype: str = "float32"
    chunk: int = 100_000


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Make the data, run the command on them in a process of its own, remove them."""
    data, out = folder / "data.npy", folder / "witness.csv"
    write_data(case, data)
    command = [sys.executable, "-c", _RUN, "witness", str(data), "--critic", str(folder / "critic")]
    command += ["--model", f"{folder / 'model.py'}:model", "--out", str(out)]
    command += ["--chunk", str(case.chunk), "--json"]
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{case} failed: {done.stderr.strip().splitlines()[0]}")
    cpu, peak = done.stderr.split()
    size = out.stat().st_size
    data.unlink()
    out.unlink()
    return {
        **asdict(case),
        "seconds": seconds,
        "cpu_seconds": float(cpu),
        "peak_mib": int(peak) / 1024,
        "csv_bytes": size,
        "mean": json.loads(done.stdout)["mean"],
    }


def write_data(case: Case, path: Path) -> None:
    shape = (case.rows, case.dim)
    data = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(case.dtype), shape=shape)
    pair = mixture(case.dim)
    for start in range(0, case.rows, _BLOCK):
        count = min(_BLOCK, case.rows - start)
        data[start : start + count] = pair.data.sample(count, seed=start).numpy()
    data.flush()


def prepare(folder: Path, dim: int) -> None:
    pair = mixture(dim)
    x = pair.data.sample(500, seed=0)
    fit_critic(pair.model, x, training=Training(epochs=2), seed=0, callbacks=()).save(folder / "critic")
    (folder / "model.py").write_text(_MODEL.format(dim=dim))


def run(rows: list[int], dim: int, dtype: str, chunk: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, dim)
        start = measure(Case(rows=START, dim=dim, dtype=dtype, chunk=chunk), folder)
        results = []
        for n in rows:
            row = measure(Case(rows=n, dim=dim, dtype=dtype, chunk=chunk), folder)
            for key in ("seconds", "cpu_seconds"):
                spent = max(row[key] - start[key], 1e-9)
                row[f"rows_per_{key.removesuffix('s')}"] = (n - START) / spent
            results.append(row)
            print(
                f"{n:9d} rows  {row['seconds']:7.1f} s  {row['rows_per_second']:9.0f} rows/s  "
                f"{row['rows_per_cpu_second']:9.0f} rows/s of one core  {row['peak_mib']:6.0f} MiB",
                flush=True,
            )
        return {"start": start, "runs": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--chunk", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path("out/witness-benchmark.json"))
    arguments = parser.parse_args()
    start = time.perf_counter()
    results = run(arguments.rows, arguments.dim, arguments.dtype, arguments.chunk)
    Record(
        name="benchmark-witness",
        command=f"python benchmarks/witness.py --rows {' '.join(map(str, arguments.rows))} "
        f"--dim {arguments.dim} --dtype {arguments.dtype} --chunk {arguments.chunk}",
        config={"dim": arguments.dim, "dtype": arguments.dtype, "chunk": arguments.chunk},
        seed=0,
        results=results,
        seconds={"total": time.perf_counter() - start},
        environment=environment(torch.device("cpu")),
    ).save(arguments.out)
    print(f"record: {arguments.out}")


if __name__ == "__main__":
    main()
