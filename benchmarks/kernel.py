"""One KSD test, statistic and wild bootstrap: the plain way of research code against ours, in one run.

    python benchmarks/kernel.py --out results/benchmarks/kernel-cpu.json
    python benchmarks/kernel.py --device cuda --max-n 100000 --out results/benchmarks/kernel-h200.json

Loop: the RBF kernel formed anew for each coordinate, the terms of the Stein kernel added up coordinate
by coordinate, and one pass over the n x n matrix for each sign vector, in numpy and float64. Ours:
`stein_sums` with all signs at once, in float64 and float32. Both include the median distance. Every
row is measured in a process of its own, the ways in turn; the ratio is that of the fastest rounds, as a
busy machine only ever adds to the time; memory is what the first round adds at its peak.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import pdist, squareform

from steincritic.data import ScoredPoints, mixture
from steincritic.rng import Source
from steincritic.stein.kernels import RBF
from steincritic.stein.tiles import random_signs, stein_sums
from studies.record import Record, environment

COMPARED = [500, 1000, 2500]
GROWTH = [5000, 10_000, 20_000, 50_000, 100_000]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way at one size."""

    way: str  # "loop", "float64" or "float32"
    n: int
    dim: int = 50
    draws: int = 500
    device: str = "cpu"
    rounds: int = 3


def loop_way(x: np.ndarray, score: np.ndarray, draws: int) -> tuple[float, np.ndarray]:
    """The V-statistic and its bootstrap draws, one coordinate and one sign vector at a time."""
    n, d = x.shape
    squared = np.median(pdist(x)) ** 2
    u = np.zeros((n, n))
    for j in range(d):
        kernel = np.exp(-(squareform(pdist(x)) ** 2) / (2 * squared))
        away = x[:, j][:, None] - x[:, j][None, :]
        by_y = kernel * away / squared
        trace = kernel * (1 / squared - away**2 / squared**2)
        s = score[:, j]
        u += s[:, None] * s[None, :] * kernel + s[:, None] * by_y - s[None, :] * by_y + trace
    random = np.random.default_rng(0)
    null = np.empty(draws)
    for b in range(draws):
        signs = random.choice([-1.0, 1.0], n)
        null[b] = np.mean(u * np.outer(signs, signs))
    return float(u.mean()), null


def our_way(points: ScoredPoints, draws: int) -> tuple[float, torch.Tensor]:
    source = Source(0, "signs", device=points.x.device)
    signs = random_signs(len(points), draws, flip=0.5, source=source)
    sums = stein_sums(points, [RBF()], signs=signs)
    return float(sums.statistic("v")[0]), sums.bootstrap("v")[0].cpu()


def prepared(case: Case, n: int) -> Callable[[], tuple[float, Any]]:
    """The work of a case on n points of the paper's 50-D problem, data and scores ready."""
    pair = mixture(case.dim, omega=0.5)
    x = pair.data.sample(n, seed=0)
    score = torch.cat([pair.model.score(part) for part in x.split(10_000)])
    if case.way == "loop":
        return lambda: loop_way(x.numpy(), score.numpy(), case.draws)
    points = ScoredPoints(x, score).to(case.device, getattr(torch, case.way))
    return lambda: our_way(points, case.draws)


def measure(case: Case) -> dict[str, Any]:
    """Runs in the process of the row."""
    device = torch.device(case.device)
    prepared(case, 64)()  # libraries loaded, threads started
    work = prepared(case, case.n)
    before = start_of_peak(device)
    seconds = []
    peak = 0.0
    for k in range(case.rounds):
        start = time.perf_counter()
        statistic, null = work()
        seconds.append(time.perf_counter() - start)
        peak = peak_mib(device, before) if k == 0 else peak
    spread = float(np.std(np.asarray(null)))
    return {
        **asdict(case),
        "seconds": min(seconds),
        "median_seconds": median(seconds),
        "peak_mib": peak,
        "statistic": statistic,
        "null_sd": spread,
    }


def start_of_peak(device: torch.device) -> int:
    """Memory in use now, in bytes; the peak starts again from here."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak_mib(device: torch.device, before: int) -> float:
    after = torch.cuda.max_memory_allocated() if device.type == "cuda" else _status("VmHWM")
    return (after - before) / 2**20


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def in_own_process(case: Case) -> dict[str, Any]:
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case} failed: {done.stderr.strip().splitlines()[-1]}")
    row: dict[str, Any] = json.loads(done.stdout)
    print(
        f"{case.way:8s} n {case.n:6d} d {case.dim} draws {case.draws}  {row['seconds']:9.3f} s  "
        f"{row['peak_mib']:8.1f} MiB  V = {row['statistic']:.7f}  sd of the null {row['null_sd']:.6f}",
        flush=True,
    )
    return row


def run(device: str, max_n: int, rounds: int) -> dict[str, list[dict[str, Any]]]:
    compared, growth = [], []
    for n in (n for n in COMPARED if n <= max_n):
        loop = in_own_process(Case(way="loop", n=n, rounds=min(rounds, 2) if n > 1000 else rounds))
        compared.append(loop)
        for way in ("float64", "float32"):
            ours = in_own_process(Case(way=way, n=n, device=device, rounds=3 * rounds))
            compared.append({**ours, "ratio": loop["seconds"] / ours["seconds"]})
            print(f"         {compared[-1]['ratio']:.0f} times as fast as the loop", flush=True)
    for n in (n for n in GROWTH if n <= max_n):
        for way in ("float64", "float32"):
            growth.append(in_own_process(Case(way=way, n=n, device=device, rounds=2)))
    return {"compared": compared, "growth": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--max-n", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/kernel-benchmark.json"))
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case is not None:
        print(json.dumps(measure(Case(**arguments.case))))
        return
    start = time.perf_counter()
    results = run(arguments.device, arguments.max_n, arguments.rounds)
    Record(
        name="benchmark-kernel",
        command=f"python benchmarks/kernel.py --device {arguments.device} --max-n {arguments.max_n} "
        f"--rounds {arguments.rounds}",
        config={"rounds": arguments.rounds, "compared": COMPARED, "growth": GROWTH},
        seed=0,
        results=results,
        seconds={"total": time.perf_counter() - start},
        environment=environment(torch.device(arguments.device)),
    ).save(arguments.out)
    print(f"record: {arguments.out}")


if __name__ == "__main__":
    main()
