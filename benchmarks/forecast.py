"""How long a check takes: what is said beforehand, and the truth.

    python benchmarks/forecast.py [--limit 300] [--cpu] [--out results/benchmarks/forecast-cpu.json]

Each case runs in a process of its own, without a cache unless it says so. `expected` is the first number of
the line, `most` the second; `seconds` is what test and diagnosis then took, without report; `estimating` what
passed before the line was there, most of which the test needs anyway (lenses that learn q, null sets).
`right` is within a factor of two. With --cpu everything, the forecast's own clock too, is in seconds that one
thread worked: for a machine that others use as well. `others` are the cores that they used meanwhile.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import steincritic as sc
from default import used
from steincritic.diagnosis.forecast import part_of_diagnosis
from steincritic_studies.record import Record, environment

Case = tuple[Any, torch.Tensor, Any]
FREE = sc.Combined(cache=False)
CPU = "STEINCRITIC_BENCHMARK_CPU" in os.environ
SLOW = 5e-4  # seconds of one draw of the slow sampler


def normal(n: int, dim: int, *, wider: float = 1.0, test: Any = FREE) -> Case:
    """A standard normal, and draws of it, one column of them wider."""
    model = sc.models.GaussianMixture(torch.zeros(1, dim))
    x = model.sample(n, seed=1)
    x[:, 0] *= wider
    return model, x, test


def machine() -> Case:
    """A restricted Boltzmann machine, which is sampled by Gibbs steps."""
    random = torch.Generator().manual_seed(1)
    weights = torch.randn(20, 10, generator=random, dtype=torch.float64)
    model = sc.models.GaussianBernoulliRBM(weights.sign(), torch.zeros(20).double(), torch.zeros(10).double())
    return model, model.sample(300, seed=1), FREE


def slow() -> Case:
    """A sampler that takes its time."""
    plain = sc.models.GaussianMixture(torch.zeros(1, 3))

    def sample(n: int, seed: int = 0) -> torch.Tensor:
        end = time.perf_counter() + SLOW * n
        while time.perf_counter() < end:
            pass
        return plain.sample(n, seed=seed)

    return (plain.score, sample), plain.sample(100, seed=1), sc.Combined(critics=None, cache=False)


def cached() -> Case:
    model, x, _ = normal(500, 5)
    test = sc.Combined(cache=Path(tempfile.mkdtemp()))
    sc.gof_test(model, x, test)
    return model, x, test


CASES: dict[str, Callable[[], Case]] = {
    "100 x 2, no fault": lambda: normal(100, 2),
    "100 x 2, a wrong spread": lambda: normal(100, 2, wider=2.0),
    "1,000 x 10, no fault": lambda: normal(1000, 10),
    "1,000 x 10, a wrong spread": lambda: normal(1000, 10, wider=1.5),
    "1,000 x 10, a fault near the edge": lambda: normal(1000, 10, wider=1.08),
    "500 x 50, no fault": lambda: normal(500, 50),
    "500 x 5, null sets in the cache": cached,
    "Boltzmann machine by Gibbs, 300 x 20": machine,
    "a slow sampler, 100 x 3, quick lenses": slow,
    "5,000 x 10, split": lambda: normal(5000, 10, test="split"),
    "3,000 x 10, ksd": lambda: normal(3000, 10, test="ksd"),
    "200 x 5, scores alone": lambda: ((normal(200, 5)[0].score, None), normal(200, 5)[1], FREE),
    "10,000 x 20, no fault": lambda: normal(10_000, 20),
    "10,000 x 20, a wrong spread": lambda: normal(10_000, 20, wider=1.3),
    "100,000 x 20, a wrong spread": lambda: normal(100_000, 20, wider=1.3),
}


def one(name: str) -> dict[str, Any]:
    if CPU:
        torch.set_num_threads(1)
        time.perf_counter = time.process_time  # everywhere
    model, x, test = CASES[name]()
    sc.gof_test(sc.models.GaussianMixture(torch.zeros(1, 2)), torch.randn(30, 2).double(), "ksd")  # loads all
    told: list[Any] = []

    def tell(forecast: Any) -> None:
        told.append(forecast + part_of_diagnosis(sc.as_model(model), x))
        told.append((time.perf_counter(), time.process_time(), used()))

    began = time.perf_counter()
    result = sc.gof_test(model, x, test, before=tell)
    sc.check(model, x, test=result)
    forecast, (start, own, before) = told
    seconds, own, after = time.perf_counter() - start, time.process_time() - own, used()
    ratio = forecast.seconds / seconds
    return {
        "name": name,
        "expected": forecast.seconds,
        "most": forecast.most,
        "seconds": seconds,
        "ratio": ratio,
        "right": 0.5 <= ratio <= 2,
        "estimating": start - began,
        "line": str(forecast),
        "pvalue": result.pvalue,
        "null_sets": len(result.null_distribution),
        "others": None if before is None or after is None else (after - before - own) / seconds,
    }


def fresh(name: str, limit: float, cpu: bool) -> dict[str, Any]:
    alone = {"STEINCRITIC_BENCHMARK_CPU": "1", "OMP_NUM_THREADS": "1"} if cpu else {}
    command = [sys.executable, "-W", "ignore", __file__, "--one", name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, env=os.environ | alone
        )
    except subprocess.TimeoutExpired:
        return {"name": name, "over": limit}
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr.strip().splitlines()[-1]}")
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def _recorded(rows: list[dict[str, Any]], options: argparse.Namespace, seconds: float) -> Record:
    right = [row["right"] for row in rows if "right" in row]
    return Record(
        name="benchmark-forecast",
        command=f"python benchmarks/forecast.py{' --cpu' if options.cpu else ''}",
        config={"limit": options.limit, "cpu": options.cpu, "slow_draw": SLOW},
        seed=1,
        results={"rows": rows, "right": sum(right), "of": len(right), "cases": list(CASES)},
        seconds={"total": seconds},
        environment=environment(torch.device("cpu")),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds per case")
    parser.add_argument("--cpu", action="store_true", help="seconds that one thread worked")
    parser.add_argument("--out", type=Path, default=Path("out/forecast-benchmark.json"))
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one)))
        return
    began, rows = time.perf_counter(), []
    for name in CASES:
        row = fresh(name, options.limit, options.cpu)
        rows.append(row)
        if "over" in row:
            print(f"{name:40s} over {options.limit:.0f} s", flush=True)
            continue
        print(
            f"{name:40s} said {row['expected']:6.1f} s (at most {row['most']:6.1f})  "
            f"took {row['seconds']:6.1f} s  ratio {row['ratio']:5.2f}  estimating {row['estimating']:4.1f} s",
            flush=True,
        )
        _recorded(rows, options, time.perf_counter() - began).save(options.out)
    right = [row["right"] for row in rows if "right" in row]
    print(f"{sum(right)} of {len(right)} within a factor of two")
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
