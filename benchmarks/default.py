"""The default test: seconds of a first call without a cache, quiet and while one process keeps a core busy.

    python benchmarks/default.py [--rounds 3] [--out results/benchmarks/default-cpu.json]

Each case runs in a process of its own; imports and the making of the data are not timed. Each round has data
of its own: where there is no fault, most tests stop early, and some do not. Memory is the peak of the
process, imports included. The ratio is the median over rounds of (busy seconds / quiet seconds
of that round). The cross-fit test, with 59 trainings, is the named reference. `others` are the cores that
programs besides the case used meanwhile, where Linux tells: a quiet round is one with about 0.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import steincritic as sc
from steincritic.data.problems import problem
from studies.record import Record, environment

_TICKS = 100  # of /proc/stat in a second
Case = tuple[sc.models.GaussianMixture, torch.Tensor, sc.GofTest]


def normal(seed: int, n: int, dim: int, *, wider: float = 1.0, test: sc.GofTest | None = None) -> Case:
    """A standard normal, and draws of it, one column of them wider."""
    model = sc.models.GaussianMixture(torch.zeros(1, dim))
    x = model.sample(n, seed=seed)
    x[:, 0] *= wider
    return model, x, test or sc.Combined(cache=False)


def fifty(seed: int, *, fault: bool) -> Case:
    pair = problem("gm-50d")
    return pair.model, (pair.data if fault else pair.model).sample(500, seed=seed), sc.Combined(cache=False)


CASES: dict[str, Callable[[int], Case]] = {
    "1,000 x 10, a wrong spread": lambda seed: normal(seed, 1000, 10, wider=1.3),
    "1,000 x 10, no fault": lambda seed: normal(seed, 1000, 10),
    "1,000 x 10, no fault, cross-fit": lambda seed: normal(seed, 1000, 10, test=sc.CrossFit(cache=False)),
    "paper's 50-D mixture, n = 500": lambda seed: fifty(seed, fault=True),
    "paper's 50-D mixture, n = 500, no fault": lambda seed: fifty(seed, fault=False),
    "10,000 x 20, no fault": lambda seed: normal(seed, 10_000, 20),
    "100,000 x 20, no fault": lambda seed: normal(seed, 100_000, 20),
}


REFERENCE = "1,000 x 10, no fault, cross-fit"  # slow, so one round, and a quiet one


def one(name: str, seed: int) -> dict[str, Any]:
    model, x, test = CASES[name](seed)
    sc.gof_test(model, x[:30], "ksd")  # modules are loaded on first use
    start, own, before = time.perf_counter(), time.process_time(), used()
    result = sc.gof_test(model, x, test)
    seconds, own, after = time.perf_counter() - start, time.process_time() - own, used()
    others = None if before is None or after is None else round((after - before - own) / seconds, 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": seconds, "gib": peak, "pvalue": result.pvalue, "others": others}


def used() -> float | None:
    """Seconds that all cores together have worked."""
    try:
        numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    except OSError:
        return None
    return (sum(numbers[:8]) - numbers[3] - numbers[4]) / _TICKS  # less idle, less waiting for files


@contextmanager
def busy_core() -> Iterator[None]:
    spin = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with this program
    process = subprocess.Popen([sys.executable, "-c", spin])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def fresh(name: str, seed: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", name, "--seed", str(seed)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("out/default-benchmark.json"))
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.seed)))
        return
    began, rows = time.perf_counter(), []
    for name in CASES:
        quiet, busy = [], []
        for seed in range(1, 1 + (options.rounds if name != REFERENCE else 1)):
            quiet.append(fresh(name, seed))
            if name != REFERENCE:
                with busy_core():
                    busy.append(fresh(name, seed))
        pairs = zip(quiet, busy or quiet, strict=True)
        rows.append(
            {
                "name": name,
                "quiet_seconds": statistics.median(run["seconds"] for run in quiet),
                "busy_seconds": statistics.median(run["seconds"] for run in busy or quiet),
                "busy_over_quiet": statistics.median(b["seconds"] / q["seconds"] for q, b in pairs),
                "gib": max(run["gib"] for run in quiet),
                "quiet": quiet,
                "busy": busy,
            }
        )
        row = rows[-1]
        each = [round(run["seconds"], 1) for run in quiet]
        print(
            f"{name:42s} quiet {row['quiet_seconds']:6.2f} s  busy {row['busy_seconds']:6.2f} s  ratio "
            f"{row['busy_over_quiet']:4.2f}  {row['gib']:.2f} GiB  all {each}",
            flush=True,
        )
    Record(
        name="benchmark-default",
        command=f"python benchmarks/default.py --rounds {options.rounds}",
        config={"rounds": options.rounds, "threads": torch.get_num_threads()},
        seed=0,
        results={"rows": rows},
        seconds={"total": time.perf_counter() - began},
        environment=environment(torch.device("cpu")),
    ).save(options.out)
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
