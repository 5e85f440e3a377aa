"""Cost of one training step of one critic: the plain way of research code against a bank, in one run.

    python benchmarks/training.py --out results/benchmarks/training-cpu.json
    python benchmarks/training.py --before CHECKOUT --out results/benchmarks/training-before-cpu.json
    python benchmarks/training.py --device cuda --out results/benchmarks/training-h200.json

Plain: the score by automatic differentiation of log q in every step, Hutchinson's trace by double
backward, torch.optim.Adam as it comes, one critic at a time. Bank: `fit_bank`, with the same loss and
batch; its time includes shuffling, probes and staging. They are timed in turn, and the median over rounds is
reported.

`--before` does something else: it names a checkout of an earlier state, whose `fit_bank` and ours, each in a
process of its own, train the same banks in turn. Run this where nothing else runs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from steincritic.critics import MLP
from steincritic.data import ScoredPoints, mixture
from steincritic.training import Staged, Training, fit_bank
from studies.record import Record, environment


@dataclass(frozen=True, kw_only=True)
class Case:
    """One size. The two that the project promises a ratio for come first."""

    width: int
    batch: int
    dim: int
    members: int
    divergence: str = "gaussian"


PROMISED = [
    Case(width=512, batch=200, dim=25, members=1),
    Case(width=128, batch=40, dim=50, members=10),
]
BASE = Case(width=128, batch=40, dim=25, members=10)
GROWTH = {
    "members": [1, 10, 30, 90, 300],
    "dim": [2, 10, 25, 50, 100],
    "width": [32, 128, 512],
    "batch": [40, 200, 1000],
}
AGAINST = [Case(width=128, batch=40, dim=dim, members=90) for dim in (25, 50)] + PROMISED
TABLE_10D = Case(width=512, batch=200, dim=10, members=90)
STEPS = 20  # of the plain way per round; the bank takes 100, or 20 where they are heavy
_HEAVY = 10**7


def plain_way(case: Case, device: torch.device) -> Callable[[], None]:
    """STEPS steps of one critic, as research code takes them."""
    means = torch.stack([torch.zeros(case.dim), torch.full((case.dim,), 0.5)]).to(device)
    q = MixtureSameFamily(
        Categorical(torch.ones(2, device=device)),
        MultivariateNormal(means, torch.eye(case.dim, device=device).expand(2, -1, -1)),
    )
    net = nn.Sequential(
        nn.Linear(case.dim, case.width),
        nn.SiLU(),
        nn.Linear(case.width, case.width),
        nn.SiLU(),
        nn.Linear(case.width, case.dim),
    ).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    data = torch.randn(STEPS, case.batch, case.dim, device=device)

    def step(x: Tensor) -> None:
        x = x.clone().requires_grad_()
        (score,) = torch.autograd.grad(q.log_prob(x).sum(), x)
        f = net(x)
        z = torch.randn_like(x)
        (vjp,) = torch.autograd.grad(f, x, z, create_graph=True)
        stein = (score * f).sum(-1) + (vjp * z).sum(-1)
        loss = (-stein + 0.05 * (f * f).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def steps() -> None:
        for x in data:
            step(x)
        if device.type == "cuda":
            torch.cuda.synchronize()

    return steps


def bank_way(case: Case, device: torch.device) -> Callable[[], float]:
    """A short training of a bank, through the public door; its first steps make buffers and moments."""
    q = mixture(case.dim).model.to(device, torch.float32)
    x = torch.randn(case.members, STEPS * case.batch // 2, case.dim, device=device)
    points = ScoredPoints(x, q.score(x))
    epochs = 2 if case.members * case.width**2 > _HEAVY else 10  # ten batches each
    training = Training(epochs=epochs, batch_size=case.batch, learning_rate=1e-3, divergence=case.divergence)

    def steps() -> float:
        """Milliseconds of one step of one critic."""
        fitted = fit_bank(
            points,
            staging=Staged(initial=0.1, floor=1e-3, decay=0.9),
            seeds=range(case.members),
            network=MLP(hidden=(case.width, case.width)),
            training=training,
        )
        return fitted.seconds["training"] / (epochs * STEPS // 2) / case.members * 1e3

    return steps


def measure(case: Case, device: torch.device, rounds: int) -> dict[str, Any]:
    plain, bank = plain_way(case, device), bank_way(case, device)
    plain()
    bank()
    plain_ms, bank_ms = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        plain()
        plain_ms.append((time.perf_counter() - start) / STEPS * 1e3)
        bank_ms.append(bank())
    return {
        **asdict(case),
        "plain_ms": median(plain_ms),
        "bank_ms": median(bank_ms),
        "ratio": median(plain_ms) / median(bank_ms),
        "plain_peak_mib": peak_mib(plain, device),
        "bank_peak_mib": peak_mib(bank, device),
    }


class Process:
    """Another Python, which trains a bank with the library of a checkout whenever it is asked to."""

    def __init__(self, case: Case, checkout: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--train", json.dumps(asdict(case))],
            env=os.environ | {"PYTHONPATH": str(checkout / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def train_when_asked(case: Case) -> None:
    """In such a process: milliseconds of one critic-step for every line read."""
    bank = bank_way(case, torch.device("cpu"))
    for _ in sys.stdin:
        print(bank(), flush=True)


def measure_against(case: Case, before: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds per critic-step of the checkout and of this code, in turn."""
    processes = [Process(case, before), Process(case, Path(__file__).parents[1])]
    timed = [[process() for process in processes] for _ in range(rounds + 1)][1:]  # the first one warms up
    for process in processes:
        process.close()
    before_ms, now_ms = (median(column) for column in zip(*timed, strict=True))
    return {**asdict(case), "before_ms": before_ms, "bank_ms": now_ms, "ratio": before_ms / now_ms}


def peak_mib(work: Callable[[], object], device: torch.device) -> float | None:
    """Memory that the work adds at its peak: of the GPU, or of the process where Linux tells."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    except OSError:
        return None
    before = _status("VmRSS")
    work()
    return (_status("VmHWM") - before) / 2**10


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def against(before: Path, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for case in AGAINST:
        rows.append(row := measure_against(case, before, rounds))
        print(
            f"before    width {case.width:4d} batch {case.batch:4d} d {case.dim:3d} members "
            f"{case.members:3d} "
            f"before {row['before_ms']:7.4f} ms  now {row['bank_ms']:7.4f} ms per critic-step  "
            f"ratio {row['ratio']:5.2f}",
            flush=True,
        )
    return rows


def all_sizes(device: torch.device, rounds: int) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {"promised": [], "table_10d": []}

    def add(group: str, case: Case, rounds: int) -> None:
        row = measure(case, device, rounds)
        rows.setdefault(group, []).append(row)
        print(
            f"{group:9s} width {case.width:4d} batch {case.batch:4d} d {case.dim:3d} members "
            f"{case.members:3d} {case.divergence:9s} plain {row['plain_ms']:7.3f} ms  bank "
            f"{row['bank_ms']:7.4f} ms per critic-step  ratio {row['ratio']:7.1f}",
            flush=True,
        )

    for case in PROMISED:
        add("promised", case, rounds)
        add("promised", Case(**{**asdict(case), "divergence": "exact"}), rounds)
    add("table_10d", TABLE_10D, 3)
    for key, values in GROWTH.items():
        for value in values:
            add(key, Case(**{**asdict(BASE), key: value}), max(3, rounds // 3))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--train", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("out/training-benchmark.json"))
    arguments = parser.parse_args()
    if arguments.train:
        return train_when_asked(Case(**arguments.train))
    device = torch.device(arguments.device)
    start = time.perf_counter()
    if arguments.before:
        rows = {"before": against(arguments.before, arguments.rounds)}
    else:
        rows = all_sizes(device, arguments.rounds)
    Record(
        name="benchmark-training",
        command=f"python benchmarks/training.py --device {arguments.device} --rounds {arguments.rounds}"
        + (" --before CHECKOUT" if arguments.before else ""),
        config={"steps": STEPS, "rounds": arguments.rounds, "load": os.getloadavg()[0]},
        seed=0,
        results=rows,
        seconds={"total": time.perf_counter() - start},
        environment=environment(device),
    ).save(arguments.out)
    print(f"record: {arguments.out}")


if __name__ == "__main__":
    main()
