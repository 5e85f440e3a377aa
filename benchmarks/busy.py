"""What another program costs: seconds on a quiet machine, and while one process keeps a core busy.

    python benchmarks/busy.py [--rounds 3] [--draws 59] [--out results/benchmarks/busy-cpu.json]

Each work is timed in turn with and without the busy process, which this program starts and ends; the ratio
is the median over rounds of (busy seconds / quiet seconds of that round). `others` are the cores that
programs besides this one used meanwhile, where Linux tells: a round is quiet if it is near zero.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

import steincritic as sc
from steincritic.engine import EngineName
from steincritic_studies.record import Record, environment

SIZES = ((800, 6), (1000, 10))  # n, d of the null runs
TRAINING = sc.Training(epochs=30, batch_size=80, learning_rate=4e-3)
ENGINES: tuple[EngineName, ...] = ("threads", "serial")
_TICKS = 100  # of /proc/stat in a second


def shifted(n: int, dim: int) -> tuple[sc.models.GaussianMixture, torch.Tensor]:
    """A standard normal, and data whose first mean is off by a half."""
    model = sc.models.GaussianMixture(torch.zeros(1, dim))
    x = model.sample(n, seed=1)
    x[:, 0] += 0.5
    return model, x


def check(result: sc.GofResult) -> None:
    """All of a check but its test."""
    sc.check(*shifted(1000, 10), test=result)


def null_runs(n: int, dim: int, draws: int, engine: EngineName) -> None:
    test = sc.CrossFit(draws=draws, training=TRAINING, cache=False, engine=engine)
    sc.gof_test(*shifted(n, dim), test)


def works(draws: int) -> dict[str, Callable[[], None]]:
    tested = sc.gof_test(*shifted(1000, 10), "ksd")
    runs = {
        f"cross-fit test, n = {n}, d = {dim}, {engine}": partial(null_runs, n, dim, draws, engine)
        for n, dim in SIZES
        for engine in ENGINES
    }
    return {"check apart from its test, n = 1000, d = 10": partial(check, tested), **runs}


@contextmanager
def busy_core() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def timed(work: Callable[[], None]) -> tuple[float, float | None]:
    """Seconds, and cores that other programs used."""
    start, own, all_programs = time.perf_counter(), time.process_time(), used()
    work()
    seconds, own = time.perf_counter() - start, time.process_time() - own
    ended = used()
    others = None if ended is None or all_programs is None else (ended - all_programs - own) / seconds
    return seconds, others


def used() -> float | None:
    """Seconds that all cores together have worked."""
    try:
        numbers = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    except OSError:
        return None
    return (sum(numbers[:8]) - numbers[3] - numbers[4]) / _TICKS  # less idle, less waiting for files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=59)
    parser.add_argument("--out", type=Path, default=Path("out/busy-benchmark.json"))
    options = parser.parse_args()
    began, rows = time.perf_counter(), []
    for name, work in works(options.draws).items():
        quiet, busy = [], []
        for _ in range(options.rounds):
            quiet.append(timed(work))
            with busy_core():
                busy.append(timed(work))
        row = {
            "name": name,
            "quiet_seconds": statistics.median(seconds for seconds, _ in quiet),
            "busy_seconds": statistics.median(seconds for seconds, _ in busy),
            "ratio": statistics.median(b / q for (q, _), (b, _) in zip(quiet, busy, strict=True)),
            "quiet": quiet,
            "busy": busy,
        }
        rows.append(row)
        print(
            f"{name:46s} quiet {row['quiet_seconds']:6.2f} s  busy {row['busy_seconds']:6.2f} s  "
            f"ratio {row['ratio']:5.2f}  others {[others for _, others in quiet]}",
            flush=True,
        )
    Record(
        name="benchmark-busy",
        command=f"python benchmarks/busy.py --rounds {options.rounds} --draws {options.draws}",
        config={"rounds": options.rounds, "draws": options.draws, "threads": torch.get_num_threads()},
        seed=0,
        results={"rows": rows},
        seconds={"total": time.perf_counter() - began},
        environment=environment(torch.device("cpu")),
    ).save(options.out)
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
