"""Staging seen with the tangent kernel: how far training leaves it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.data.problems import problem
from steincritic.rng import derive
from steincritic.shapes import PerMember
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Staged, Staging
from steincritic_studies.lazy.law import Law
from steincritic_studies.lazy.ntk import drift, spectrum, tangent_kernel

_MODES = 10


@dataclass(frozen=True, kw_only=True)
class SchemeRun:
    """Critics of the two-dimensional mixture trained with Adam, as users train them."""

    schemes: Mapping[str, Staged]
    width: int
    trained: int
    epochs: int
    replicas: int
    batch_size: int = 100
    learning_rate: float = 2e-3


def staged_runs(config: SchemeRun, law: Law, seed: int) -> list[dict[str, Any]]:
    """By scheme and epoch: λ, error, K_t's drift from K_0, and the share of f* in its leading modes."""
    pair = problem("gm-2d")
    x = torch.stack(
        [pair.data.sample(config.trained, seed=derive(seed, "staged", r)) for r in range(config.replicas)]
    ).repeat(len(config.schemes), 1, 1)
    watch = _Watch(law, pair.gap(law.x))
    stagings: list[Staging] = [s for s in config.schemes.values() for _ in range(config.replicas)]
    seeds = [derive(seed, "staged critic", r) for r in range(config.replicas)] * len(config.schemes)
    network = MLP(hidden=(config.width, config.width))
    start = network.init(2, seeds, dtype=torch.float64, device=torch.device("cpu"))
    lam = torch.tensor([s.initial for s in config.schemes.values() for _ in range(config.replicas)])
    watch(-1, Bank(network, start), lam.double())
    fit_bank(
        ScoredPoints(x, pair.model.score(x)),
        staging=stagings,
        seeds=seeds,
        network=network,
        training=Training(
            epochs=config.epochs,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            dtype="float64",
        ),
        observers=[watch],
    ).require_success()
    curves = {
        name: torch.stack(values).unflatten(1, (-1, config.replicas)) for name, values in watch.rows.items()
    }
    return [
        {"scheme": name, "curves": {key: value[:, k].mean(1) for key, value in curves.items()}}
        for k, name in enumerate(config.schemes)
    ]


class _Watch:
    """Looks at every member after an epoch; the first look, before training, sets K_0."""

    def __init__(self, law: Law, gap: Tensor) -> None:
        self.law, self.gap = law, gap
        self.before: list[Tensor] = []
        self.rows: dict[str, list[Tensor]] = {key: [] for key in ("lam", "error", "drift", "alignment")}

    def __call__(self, epoch: int, bank: Bank, lam: PerMember) -> None:
        kernels = [tangent_kernel(bank[k : k + 1]) for k in range(len(bank))]
        grams = [kernel.gram(self.law.x) for kernel in kernels]
        self.before = self.before or grams
        error = self.law.norm(lam[:, None, None] * bank.field(self.law.x) - self.gap)
        aligned = [float(spectrum(k, self.law, count=_MODES).alignment(self.gap)[-1]) for k in kernels]
        self.rows["lam"].append(lam)
        self.rows["error"].append(error / self.law.norm(self.gap))
        self.rows["drift"].append(
            torch.tensor([drift(b, g, self.law) for b, g in zip(self.before, grams, strict=True)])
        )
        self.rows["alignment"].append(torch.tensor(aligned))
