"""check_draws: seconds and memory of a whole check by the score, in ten dimensions, by the number of draws.

    python benchmarks/draws.py [--rounds 3] [--out results/benchmarks/draws-cpu.json]

Right draws and draws with one spread too small, independent and from four autoregressive chains. Imports are
not timed, a first small check goes before. The kernel test of the same draws (`ksd`, 999 bootstrap draws) is
the named reference; ratios are of one run.
"""

import argparse
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import steincritic as sc
from studies.record import Record, environment

DIM, CHAINS, RHO = 10, 4, 0.6
SIZES = (500, 2000, 8000)


class Normal:
    """A posterior that cannot be sampled."""

    dim = DIM

    def score(self, x: Tensor) -> Tensor:
        return -x

    def log_prob(self, x: Tensor) -> Tensor:
        return -0.5 * x.square().sum(-1)


def draws(n: int, seed: int, *, rho: float, spread: float) -> Tensor:
    """(chains, n / chains, d)"""
    source = torch.Generator().manual_seed(seed)
    noise = torch.randn(CHAINS, n // CHAINS, DIM, generator=source, dtype=torch.float64)
    x = noise.clone()
    for step in range(1, x.shape[1]):
        x[:, step] = rho * x[:, step - 1] + (1 - rho**2) ** 0.5 * noise[:, step]
    x[..., 0] *= spread
    return x


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(n: int, rho: float, spread: float, rounds: int) -> dict[str, Any]:
    checks, kernels = [], []
    for seed in range(1, rounds + 1):
        x = draws(n, seed, rho=rho, spread=spread)
        checks.append(timed(lambda x=x, seed=seed: sc.check_draws(Normal(), x, seed=seed)))
        kernels.append(timed(lambda x=x, seed=seed: sc.gof_test(Normal(), x.flatten(0, 1), "ksd", seed=seed)))
    return {
        "n": n,
        "rho": rho,
        "spread": spread,
        "seconds": statistics.median(checks),
        "all": checks,
        "over_ksd": statistics.median(a / b for a, b in zip(checks, kernels, strict=True)),
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/draws-benchmark.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", sc.DoubtfulWarning)
    measure(200, 0.0, 0.5, 1)
    start, rows = time.perf_counter(), []
    for n in SIZES:
        for rho in (0.0, RHO):
            for spread in (1.0, 0.8):
                row = measure(n, rho, spread, options.rounds)
                rows.append(row)
                print(
                    f"n = {n}, rho {rho}, one spread times {spread}: {row['seconds']:.2f} s, "
                    f"{row['over_ksd']:.1f} times ksd, {row['gib']:.2f} GiB",
                    flush=True,
                )
    Record(
        name="benchmark-draws",
        command=f"python benchmarks/draws.py --rounds {options.rounds}",
        config={"rounds": options.rounds, "threads": torch.get_num_threads()},
        seed=0,
        results={"rows": rows},
        seconds={"total": time.perf_counter() - start},
        environment=environment(torch.device("cpu")),
    ).save(options.out)
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
