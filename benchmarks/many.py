"""Exact tests of the paper's 50-D mixture, n = 500: one at a time, and many in one call that share null sets.

    python benchmarks/many.py --device cuda --out results/benchmarks/many-h200.json

The default test with all its lenses and without a cache. Each test alone has data and null sets of its own.
The first call, which loads and compiles programs, is timed apart. One by one is the named reference of many
in one call: `ratio` is how many times as long they would take.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import steincritic as sc
from steincritic.data.points import ScoredPoints
from steincritic.data.problems import problem
from studies.record import Record, environment


def timed(pair: Any, fault: bool, seeds: range, n: int, device: torch.device) -> dict[str, Any]:
    """One call for datasets of these seeds."""
    model = pair.model.to(device, torch.float64)
    x = torch.stack([(pair.data if fault else pair.model).sample(n, seed=seed) for seed in seeds]).to(device)
    datasets = ScoredPoints(x, model.score(x))
    test = sc.Combined(cache=False, null_seed=seeds[0])
    start = time.perf_counter()
    results = test.run(model, datasets, level=0.05, seeds=list(seeds))
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "rejected": sum(result.rejected for result in results), "of": len(results)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/many-benchmark.json"))
    options = parser.parse_args()
    device, began, pair = torch.device(options.device), time.perf_counter(), problem("gm-50d")
    rows = {}
    for name, fault in {"the paper's fault": True, "no fault": False}.items():
        alone = [timed(pair, fault, range(k, k + 1), options.n, device) for k in range(1 + options.rounds)]
        many = timed(pair, fault, range(1000, 1000 + options.tests), options.n, device)
        one = statistics.median(run["seconds"] for run in alone[1:])
        rows[name] = {"first": alone[0], "one": one, "alone": alone[1:], "many": many}
        rows[name]["ratio"] = one * options.tests / many["seconds"]
        print(
            f"{name:18s} first {alone[0]['seconds']:.2f} s, then {one:.2f} s; {options.tests} in one call "
            f"{many['seconds']:.2f} s, {rows[name]['ratio']:.1f} times as fast; {many['rejected']} rejected",
            flush=True,
        )
    Record(
        name="benchmark-many",
        command=f"python benchmarks/many.py --device {device} --n {options.n} --tests {options.tests}"
        f" --rounds {options.rounds}",
        config={"n": options.n, "tests": options.tests, "rounds": options.rounds},
        seed=0,
        results=rows,
        seconds={"total": time.perf_counter() - began},
        environment=environment(device),
    ).save(options.out)
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
