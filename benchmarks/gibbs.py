"""Block Gibbs sampling of the MNIST-sized machine, beside the bare matrix products of the same sweeps.

    python benchmarks/gibbs.py --out results/benchmarks/gibbs-cpu.json
    python benchmarks/gibbs.py --sweeps 20 --out out/gibbs-benchmark.json

The floor is what a chain in x cannot do without: x B and h B', (n, d) by (d, m) and back, once per sweep,
into arrays that exist already. `block_gibbs` runs its chain in m coordinates instead of d (same
law), so a second floor holds the products of that chain. Products and sampler are measured in turn in one
process, the products over `--products` sweeps; the ratio is that of the times per sweep, each the fastest
of its rounds.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic.models.rbm import block_gibbs
from steincritic.rng import Source
from studies.record import Record, environment


@dataclass(frozen=True, kw_only=True)
class Case:
    chains: int = 30_000
    visible: int = 784
    hidden: int = 100
    sweeps: int = 2000
    products: int = 20  # sweeps of bare products per round
    rounds: int = 3
    device: str = "cpu"


def products(x: Tensor, weights: Tensor, sweeps: int) -> Callable[[], Any]:
    """The two products of a sweep, again and again."""
    h = torch.ones(len(x), weights.shape[1], device=x.device)
    into, back = torch.empty_like(h), torch.empty_like(x)

    def work() -> None:
        for _ in range(sweeps):
            torch.mm(x, weights, out=into)
            torch.mm(h, weights.T, out=back)

    return work


def sampler(case: Case, weights: Tensor) -> Callable[[], Any]:
    source = Source(1, "chains", device=case.device)
    zeros = [torch.zeros(size, device=case.device) for size in weights.shape]
    return lambda: block_gibbs(weights[None], *zeros, case.chains, sweeps=case.sweeps, source=source)


def seconds(work: Callable[[], Any], device: str) -> float:
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(case: Case) -> dict[str, Any]:
    source = Source(0, "weights", device=case.device)
    weights = 0.05 * source.normals(case.visible, case.hidden)
    x = source.normals(case.chains, case.visible)
    inner = min(case.visible, case.hidden)
    ways = {
        "products": (products(x, weights, case.products), case.products),
        "inner_products": (
            products(x[:, :inner].contiguous(), weights[:inner].contiguous(), case.products),
            case.products,
        ),
        "sampler": (sampler(case, weights), case.sweeps),
    }
    for work, sweeps in ways.values():
        if sweeps == case.products:
            work()  # threads started, libraries loaded
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(case.rounds):
        for name, (work, sweeps) in ways.items():
            taken[name].append(seconds(work, case.device) / sweeps)
            print(f"{name:15s} {1e3 * taken[name][-1]:8.2f} ms per sweep", flush=True)
    best = {name: min(values) for name, values in taken.items()}
    return {
        **asdict(case),
        "seconds": best["sampler"] * case.sweeps,
        "seconds_a_sweep": best,
        "ratio_to_products": best["sampler"] / best["products"],
        "ratio_to_inner_products": best["sampler"] / best["inner_products"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--chains", type=int, default=Case.chains)
    parser.add_argument("--sweeps", type=int, default=Case.sweeps)
    parser.add_argument("--rounds", type=int, default=Case.rounds)
    parser.add_argument("--out", type=Path, default=Path("out/gibbs-benchmark.json"))
    given = parser.parse_args()
    case = Case(device=given.device, chains=given.chains, sweeps=given.sweeps, rounds=given.rounds)
    start = time.perf_counter()
    row = measure(case)
    print(
        f"{row['seconds']:.1f} s for {case.chains} chains of {case.sweeps} sweeps: "
        f"{row['ratio_to_products']:.2f} times the products in x, "
        f"{row['ratio_to_inner_products']:.2f} times those of its own chain"
    )
    Record(
        name="benchmark-gibbs",
        command=f"python benchmarks/gibbs.py --device {given.device} --chains {given.chains} "
        f"--sweeps {given.sweeps} --rounds {given.rounds}",
        config=asdict(case),
        seed=0,
        results={"rows": [row]},
        seconds={"total": time.perf_counter() - start},
        environment=environment(torch.device(given.device)),
    ).save(given.out)
    print(f"record: {given.out}")


if __name__ == "__main__":
    main()
