"""check of a model of y given x, of a fitted model and of columns with bounds: seconds by the number of rows.

    python benchmarks/questions.py [--rounds 3] [--out results/benchmarks/questions-cpu.json]

Right data and data with a plain fault, no cache. Imports are not timed, a first small check goes before. The
named reference is the check of a fixed normal model on as many rows and columns, right data, in the same run.
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
from torch.distributions import Exponential

import steincritic as sc
from studies.record import Record, environment

SIZES = (200, 500, 2000)
DIM = 5
Check = Callable[[int, int, bool], Any]  # n, a seed, and whether the data are wrong


def normals(n: int, seed: int, columns: int = DIM) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(n, columns, generator=source, dtype=torch.float64)


def conditional(n: int, seed: int, wrong: bool) -> Any:
    x = normals(n, seed)
    y = x[:, :1] + normals(n, seed + 1000, 1) + wrong * 0.5 * x[:, 1:2] ** 2
    q = sc.models.Regression(lambda x: x[:, :1])
    return sc.check(q, torch.cat([x, y], 1), target=DIM, test=sc.Combined(cache=False), seed=seed)


def fitted(n: int, seed: int, wrong: bool) -> Any:
    x = normals(n, seed)
    if wrong:
        x = x / normals(n, seed + 1000).square().mean(1, keepdim=True).sqrt()  # Student's t
    return sc.check(sc.Fitted(sc.models.FitNormal(), x), x, seed=seed)


def bounded(n: int, seed: int, wrong: bool) -> Any:
    q = Exponential(torch.ones(DIM, dtype=torch.float64))
    x = sc.as_model(q).sample(n, seed=seed)
    return sc.check(q, x * (1.3 if wrong else 1.0), test=sc.Combined(cache=False), seed=seed)


def fixed(n: int, seed: int, wrong: bool) -> Any:
    q = sc.models.GaussianMixture(torch.zeros(1, DIM))
    return sc.check(q, normals(n, seed), test=sc.Combined(cache=False), seed=seed)


CHECKS: dict[str, Check] = {"conditional": conditional, "fitted": fitted, "bounded": bounded}


def timed(check: Check, n: int, wrong: bool, rounds: int) -> list[float]:
    found = []
    for seed in range(1, rounds + 1):
        start = time.perf_counter()
        check(n, seed, wrong)
        found.append(time.perf_counter() - start)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/questions-benchmark.json"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", sc.DoubtfulWarning)
    start, rows = time.perf_counter(), []
    fitted(100, 0, wrong=True)
    for n in SIZES:
        usual = statistics.median(timed(fixed, n, False, options.rounds))
        for name, check in CHECKS.items():
            for wrong in (False, True):
                seconds = timed(check, n, wrong, options.rounds)
                row = {"check": name, "n": n, "wrong": wrong, "seconds": seconds, "fixed": usual}
                row["gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
                rows.append(row)
                told = ", ".join(f"{value:.1f}" for value in seconds)
                ratio = statistics.median(seconds) / usual
                data = "wrong" if wrong else "right"
                print(
                    f"{name}, n = {n}, {data} data: {told} s, {ratio:.1f} times the fixed model's", flush=True
                )
    Record(
        name="benchmark-questions",
        command=f"python benchmarks/questions.py --rounds {options.rounds}",
        config={"rounds": options.rounds, "threads": torch.get_num_threads()},
        seed=0,
        results={"rows": rows},
        seconds={"total": time.perf_counter() - start},
        environment=environment(torch.device("cpu")),
    ).save(options.out)
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
