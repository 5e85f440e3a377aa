"""Where another program holds a core: torch's default threads against one thread, in one run.

    python benchmarks/busy.py --out results/benchmarks/busy-cpu.json

A process that only counts runs beside all of it. Each piece of work is done in turn by two fresh Pythons,
one as it comes and one with OMP_NUM_THREADS=1; the times are without imports. The project promises a ratio
of at most 1.3. Run this where nothing else runs.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from steincritic import Combined, gof_test
from steincritic.critics import MLP
from steincritic.data import ScoredPoints
from steincritic.models import GaussianMixture
from steincritic.rng import generator
from steincritic.training import Training, fit_bank, fixed
from studies.record import Record, environment


def trained(members: int, width: int, batch: int) -> None:
    """A hundred steps of a bank at d = 25."""
    x = torch.randn(members, 10 * batch, 25, generator=generator(0, "busy"))
    fit_bank(
        ScoredPoints(x, -x),
        staging=fixed(0.1),
        seeds=range(members),
        network=MLP(hidden=(width, width)),
        training=Training(epochs=10, batch_size=batch),
    )


def tested(n: int) -> None:
    """The default test of ten columns that the model fits, so that it runs to its end."""
    q = GaussianMixture([[0.0] * 10])
    gof_test(q, q.sample(n, seed=n), Combined(cache=False), seed=0)


WORK: dict[str, Callable[[], None]] = {
    "training of 90 critics, width 128, batch 40": lambda: trained(90, 128, 40),
    "training of 10 critics, width 128, batch 40": lambda: trained(10, 128, 40),
    "training of one critic, width 512, batch 200": lambda: trained(1, 512, 200),
    "test of 300 x 10": lambda: tested(300),
    "test of 800 x 10": lambda: tested(800),
}


def seconds(name: str, threads: str | None) -> float:
    """Of the work in a fresh Python."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment |= {} if threads is None else {"OMP_NUM_THREADS": threads}
    done = subprocess.run(
        [sys.executable, __file__, "--work", name],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout.split()[-1])


@contextmanager
def busy_core() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            yield
        finally:
            spinning.kill()


def measured(name: str, rounds: int) -> dict[str, Any]:
    times = [(seconds(name, None), seconds(name, "1")) for _ in range(rounds)]
    default, one = (median(column) for column in zip(*times, strict=True))
    print(
        f"{name:46s} default {default:7.2f} s  one thread {one:7.2f} s  ratio {default / one:5.2f}",
        flush=True,
    )
    return {"work": name, "default_s": default, "one_thread_s": one, "ratio": default / one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("out/busy-benchmark.json"))
    arguments = parser.parse_args()
    if arguments.work:
        start = time.perf_counter()
        WORK[arguments.work]()
        print(time.perf_counter() - start)
        return
    start = time.perf_counter()
    with busy_core():
        rows = [measured(name, arguments.rounds if "training" in name else 1) for name in WORK]
    Record(
        name="benchmark-busy",
        command=f"python benchmarks/busy.py --rounds {arguments.rounds}",
        config={"rounds": arguments.rounds, "cores": os.cpu_count(), "load": os.getloadavg()[0]},
        seed=0,
        results={"rows": rows},
        seconds={"total": time.perf_counter() - start},
        environment=environment(torch.device("cpu")),
    ).save(arguments.out)
    print(f"record: {arguments.out}")


if __name__ == "__main__":
    main()
