"""Null runs on two Dask workers of the loopback interface, beside one process with one thread.

    python benchmarks/cluster.py [--draws 47] [--rounds 2] [--out results/benchmarks/cluster-cpu.json]

Null runs of the cross-fit test, which trains 5 critics for each. Every round takes the engines in turn: one
thread, two workers at a scheduler that is there, and the same while one of them is killed in the middle. Two
plain processes of this machine, which have been started before, say what can be had: two cores share a cache
and memory. The cluster is started once, before; how long that takes is in the record too, and what one more
spread costs.
Numbers must agree to the last bit. `others` are the cores that other programs used meanwhile; where these are
many, twice the ratio of processor seconds tells more than that of seconds.
"""

import argparse
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

import steincritic as sc
from steincritic.engine import spread, using
from studies.record import Record, environment

_TICKS = os.sysconf("SC_CLK_TCK")


def same(k: int) -> int:
    return k


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    made = work()
    return time.perf_counter() - start, made


def cpu_seconds(client: Any) -> float:
    """Of the workers and of this process, which holds the scheduler too."""
    return float(sum(client.run(time.process_time).values()) + time.process_time())


def busy() -> float:
    """Core-seconds that this machine has spent, where Linux tells."""
    try:
        spent = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return 0.0
    return (sum(map(int, spent)) - int(spent[3]) - int(spent[4])) / _TICKS


@contextmanager
def killing(client: Any, after: float) -> Any:
    """One worker dies, so many seconds from now."""
    pid = next(iter(client.run(os.getpid).values()))
    timer = threading.Timer(after, os.kill, (pid, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def run(draws: int, rounds: int, n: int, dim: int) -> dict[str, Any]:
    from distributed import Client, LocalCluster

    torch.set_num_threads(1)
    model = sc.models.GaussianMixture(torch.zeros(1, dim))
    test = sc.CrossFit(draws=draws, cache=False)
    x = model.sample(n, seed=1)
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": None}
    start, cluster = seconds_of(lambda: LocalCluster(n_workers=2, threads_per_worker=1, **options))
    with cluster, Client(cluster, set_as_default=False) as client:
        address = cluster.scheduler_address

        def tested(engine: Any) -> sc.GofResult:
            return sc.gof_test(model, x, test, engine=engine, address=address if engine == "dask" else None)

        for engine in ("dask", "local"):  # warm
            at = address if engine == "dask" else None
            sc.gof_test(model, x, sc.CrossFit(draws=19, cache=False), engine=engine, address=at)
        with using("dask", address):
            spreads = [seconds_of(lambda: dict(spread(same, range(2))))[0] for _ in range(10)]
        found = []
        for _ in range(rounds):
            begin = time.perf_counter(), busy()
            own = time.process_time()
            alone, wanted = seconds_of(lambda: tested("serial"))
            spent = {"cpu_one_thread": time.process_time() - own}
            others = (busy() - begin[1]) / (time.perf_counter() - begin[0]) - 1
            own = cpu_seconds(client)
            two, plain = seconds_of(lambda: tested("dask"))
            spent["cpu_two_workers"] = cpu_seconds(client) - own
            plainly, _ = seconds_of(lambda: tested("local"))
            during: AbstractContextManager[None] = killing(client, 0.4 * two)
            with during:
                killed, after = seconds_of(lambda: tested("dask"))
            client.wait_for_workers(2, timeout=60)
            bits = [torch.equal(r.null_distribution, wanted.null_distribution) for r in (plain, after)]
            row = {"one_thread": alone, "two_workers": two, "ratio": alone / two, "one_killed": killed}
            row |= {"two_processes": plainly, "ratio_of_processes": alone / plainly}
            row |= spent | {
                "same_bits": bits[0],
                "same_bits_after_a_kill": bits[1],
                "others": round(others, 2),
            }
            found.append(row)
            print(row, flush=True)
    return {
        "rounds": found,
        "ratio": statistics.median(row["ratio"] for row in found),
        "ratio_of_processes": statistics.median(row["ratio_of_processes"] for row in found),
        "cost_of_a_kill": statistics.median(row["one_killed"] - row["two_workers"] for row in found),
        "start_of_two_workers": start,
        "one_spread": statistics.median(spreads),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--draws", type=int, default=47)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--dim", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("out/cluster-benchmark.json"))
    arguments = parser.parse_args()
    config = {"draws": arguments.draws, "rounds": arguments.rounds, "n": arguments.n, "dim": arguments.dim}
    start = time.perf_counter()
    results = run(**config)
    Record(
        name="benchmark-cluster",
        command="python benchmarks/cluster.py " + " ".join(f"--{k} {v}" for k, v in config.items()),
        config=config,
        seed=1,
        results=results,
        seconds={"total": time.perf_counter() - start},
        environment=environment(torch.device("cpu")),
    ).save(arguments.out)
    print(f"ratio {results['ratio']:.2f}; record: {arguments.out}")


if __name__ == "__main__":
    main()
