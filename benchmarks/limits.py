"""Hot paths as a share of what this machine can do: its matrix products and its memory.

    python benchmarks/limits.py [--device cuda] [--tiny] [--out results/benchmarks/limits-cpu.json]

The limits are measured: a large product in single precision, and a = b + 2 c over arrays larger than every
cache. Each path has its operations counted, those of its products, and its bytes, those that must move once:
so a share of 1 cannot be passed, and a small one says how much there is to gain at most. On a CPU one thread
does all, and seconds are those that it worked; on a GPU they are those of events. For two threads the limits
alone are measured, by the clock on the wall.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import steincritic as sc
from steincritic.data.tables import read_table
from steincritic.gof.combined import Combined, CombinedRun
from steincritic.gof.hypothesis import Hypothesis
from steincritic.rng import Source
from steincritic.stein.kernels import RBF
from steincritic.stein.tiles import random_signs, stein_sums
from studies.record import Record, environment
from training import Case, bank_way

_SECONDS = 1.0


@dataclass(frozen=True)
class HotPath:
    """Work whose operations and bytes are counted."""

    name: str
    work: Callable[[], object]
    flops: float
    bytes: float
    counted: str


def seconds_of(
    work: Callable[[], object], device: torch.device, rounds: int = 3, wall: bool = False
) -> float:
    """The median of three rounds, or of those of some seconds, after one that is not counted."""
    work()
    found: list[float] = []
    while len(found) < 3 and sum(found) < _SECONDS:
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            found.append(start.elapsed_time(end) / 1e3)
        else:
            clock = time.perf_counter if wall else time.process_time
            began = clock()
            work()
            found.append(clock() - began)
    return median(found)


def limits(device: torch.device, size: int, wall: bool = False) -> dict[str, float]:
    """GFLOP/s of a product, GB/s of a triad."""
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    product = torch.empty_like(a)
    out, x, y = (torch.ones(16 * size * size, device=device) for _ in range(3))
    return {
        "gflops": 2 * size**3 / seconds_of(lambda: torch.mm(a, b, out=product), device, wall=wall) / 1e9,
        "gbs": 12 * len(x) / seconds_of(lambda: torch.add(x, y, alpha=2.0, out=out), device, wall=wall) / 1e9,
    }


def training(device: torch.device, width: int, batch: int, dim: int, members: int) -> HotPath:
    """Products forward, of the derivative along a probe, and twice that backward; weights and moments."""
    case = Case(width=width, batch=batch, dim=dim, members=members)
    epochs = 2 if members * width**2 > 10**7 else 10  # as `bank_way` has it, of ten batches each
    weights = 2 * dim * width + width**2
    steps = 10 * epochs * members
    return HotPath(
        f"critic-steps, width {width}, batch {batch}, bank of {members}, d = {dim}",
        bank_way(case, device),
        12.0 * batch * weights * steps,
        24.0 * weights * steps,
        "6 products per layer; weights and both moments read and written",
    )


def kernel(device: torch.device, n: int, dim: int, draws: int) -> HotPath:
    x = torch.randn(n, dim, device=device)
    points = sc.ScoredPoints(x, -x)
    signs = random_signs(n, draws, flip=0.5, source=Source(0, "signs", device=device))
    return HotPath(
        f"kernel tiles, n = {n:,}, d = {dim}, {draws} sign draws",
        lambda: stein_sums(points, [RBF()], signs=signs),
        n**2 * (6.0 * dim + 2.0 * draws),
        4.0 * (2 * n * dim + n * draws),
        "3 products of points and scores, one with the signs, over all pairs; each read once",
    )


def lenses(device: torch.device, n: int, dim: int, sets: int) -> HotPath:
    model = sc.models.GaussianMixture(torch.zeros(1, dim)).to(device, torch.float64)
    x = model.sample(n, seed=1).to(device)
    null = Hypothesis(Combined(critics=None, cache=False), model, sc.ScoredPoints(x, model.score(x)).alone())
    run = CombinedRun(null, level=0.05, seeds=(0,))
    stack = sc.ScoredPoints(x, model.score(x)).expand(sets)
    return HotPath(
        f"quick lenses, {sets} null sets of {n:,} x {dim}",
        lambda: run.bench.entries(stack, range(sets)),
        4.0 * sets * n * dim**2,
        16.0 * sets * n * dim,
        "second moments and their Stein values; points and scores read once",
    )


def witness(device: torch.device, n: int, dim: int) -> HotPath:
    model = sc.models.GaussianMixture(torch.zeros(1, dim)).to(device, torch.float64)
    short = sc.Training(epochs=1, batch_size=100)
    critic = sc.fit_critic(model, model.sample(200, seed=1).to(device), training=short)
    x = model.sample(n, seed=2).to(device)
    points, width = sc.ScoredPoints(x, model.score(x)), 128
    return HotPath(
        f"witness of {n:,} rows, d = {dim}",
        lambda: critic.witness(points),
        n * (4.0 * dim * width + 4.0 * width**2),
        16.0 * n * dim,
        "forward, and one product more for the divergence; points and scores read once",
    )


def reading(folder: Path, n: int, dim: int) -> list[HotPath]:
    x = np.random.default_rng(0).normal(size=(n, dim))
    np.save(folder / "x.npy", x)
    np.savetxt(folder / "x.csv", x, delimiter=",", header=",".join(f"c{j}" for j in range(dim)), comments="")
    return [
        HotPath(
            f"reading {n:,} x {dim} from {file.suffix[1:]}",
            lambda file=file: read_table(file),  # type: ignore[misc]
            0.0,
            float(os.path.getsize(file)),
            "bytes of the file",
        )
        for file in (folder / "x.npy", folder / "x.csv")
    ]


def paths(device: torch.device, tiny: bool, folder: Path) -> list[HotPath]:
    if tiny:
        return [
            training(device, 8, 10, 2, 2),
            kernel(device, 100, 2, 10),
            lenses(device, 50, 2, 3),
            witness(device, 100, 2),
            *reading(folder, 100, 2),
        ]
    return [
        training(device, 128, 40, 25, 90),
        training(device, 512, 200, 10, 2),
        kernel(device, 4000, 50, 500),
        lenses(device, 1000, 10, 20),
        lenses(device, 10_000, 20, 2),
        witness(device, 50_000, 20),
        *(reading(folder, 100_000, 10) if device.type == "cpu" else []),
    ]


def measure(path: HotPath, device: torch.device, limit: dict[str, float]) -> dict[str, Any]:
    seconds = seconds_of(path.work, device)
    products, memory = path.flops / seconds / 1e9, path.bytes / seconds / 1e9
    row = {"name": path.name, "seconds": seconds, "flops": path.flops, "bytes": path.bytes}
    row |= {"counted": path.counted, "gflops": products, "gbs": memory}
    row |= {"share_of_products": products / limit["gflops"], "share_of_memory": memory / limit["gbs"]}
    print(
        f"{path.name:55s} {seconds:8.3f} s  {row['share_of_products']:6.1%} of products  "
        f"{row['share_of_memory']:6.1%} of memory",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("out/limits-benchmark.json"))
    options = parser.parse_args()
    device, size, began = torch.device(options.device), 64 if options.tiny else 2048, time.perf_counter()
    all_threads, several = torch.get_num_threads(), {}
    if device.type == "cpu":
        several = limits(device, size, wall=True)
        torch.set_num_threads(1)
    limit = limits(device, size)
    print(f"limits: {limit['gflops']:.0f} GFLOP/s, {limit['gbs']:.1f} GB/s; {all_threads} threads: {several}")
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(path, device, limit) for path in paths(device, options.tiny, Path(folder))]
    Record(
        name="benchmark-limits",
        command=f"python benchmarks/limits.py --device {options.device}",
        config={"size": size, "threads": all_threads, "tiny": options.tiny},
        seed=0,
        results={"limit": limit, "limit_of_all_threads": several, "rows": rows, "load": os.getloadavg()[0]},
        seconds={"total": time.perf_counter() - began},
        environment=environment(device),
    ).save(options.out)
    print(f"record: {options.out}")


if __name__ == "__main__":
    main()
