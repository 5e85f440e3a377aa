"""The points of the planted digits: settings, and the sets that they are dealt to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.learning import Learning
from steincritic.models.rbm import GaussianBernoulliRBM
from steincritic.rng import derive, generator
from steincritic.training.fit import Training
from steincritic.training.staging import Staged
from steincritic_studies.digits.data import Digits
from steincritic_studies.study import Context


@dataclass(frozen=True, kw_only=True)
class PlantedDigits:
    """The paper's settings where it has one. `schemes` maps names to stagings."""

    schemes: Mapping[str, Staged]
    learning: Learning
    digits: Literal["mnist", "small"] = "mnist"
    folder: Path | None = None
    hidden: int = 100
    sweeps: int = 2000
    foreign_class: int = 1
    share: float = 0.03  # of foreign digits in p
    replicas: int = 10
    trained: int = 2000
    validated: int = 1000  # points of p, and as many draws of q, for the curves
    epochs: int = 25
    batch_size: int = 100
    learning_rate: float = 1e-3
    width: int = 512
    tested: int = 100  # points of one test
    draws: int = 500
    pool: int = 5000
    judged: int = 6000  # points that are ranked, listed and mapped
    reference: int = 20_000  # model draws that they are compared with
    fdr: float = 0.1
    shown: int = 12  # images at either end
    mapped: int = 1500  # points of the map that the record keeps

    @property
    def training(self) -> Training:
        return Training(epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate)

    def foreign(self, n: int) -> int:
        return round(self.share * n)

    @property
    def model_draws(self) -> int:
        """All chains that are needed; no draw is used twice."""
        mixed = [*[self.trained, self.validated] * self.replicas, self.tested, self.judged]
        return (
            sum(n - self.foreign(n) for n in mixed)
            + self.replicas * self.validated
            + self.pool
            + self.reference
        )


@dataclass(frozen=True, eq=False)
class PointSets:
    """All points of the study, scored; the foreign ones stand first in every set."""

    train: ScoredPoints  # (replicas, n, d)
    validation: ScoredPoints  # (replicas, n, d)
    null: ScoredPoints  # (replicas, n, d)
    tested: ScoredPoints
    judged: ScoredPoints
    pool: ScoredPoints
    reference: ScoredPoints


def deal(
    config: PlantedDigits,
    model: GaussianBernoulliRBM,
    draws: Tensor,
    train: Digits,
    test: Digits,
    context: Context,
) -> PointSets:
    draws_left = UnusedRows(draws.float(), "draws of the model")
    ones = [
        UnusedRows(
            _shuffled(part, config, derive(context.seed, name)).to(context.device), f"foreign {name} digits"
        )
        for name, part in (("train", train), ("test", test))
    ]

    def scored(x: Tensor) -> ScoredPoints:
        return ScoredPoints(x, model.score(x))

    def mixed(n: int, foreign: UnusedRows) -> Tensor:
        count = config.foreign(n)
        return torch.cat([foreign.take(count), draws_left.take(n - count)])

    replicas = range(config.replicas)
    return PointSets(
        train=scored(torch.stack([mixed(config.trained, ones[0]) for _ in replicas])),
        validation=scored(torch.stack([mixed(config.validated, ones[1]) for _ in replicas])),
        null=scored(torch.stack([draws_left.take(config.validated) for _ in replicas])),
        tested=scored(mixed(config.tested, ones[1])),
        judged=scored(mixed(config.judged, ones[1])),
        pool=scored(draws_left.take(config.pool)),
        reference=scored(draws_left.take(config.reference)),
    )


def foreign_rows(config: PlantedDigits, n: int) -> Tensor:
    return torch.arange(n) < config.foreign(n)


class UnusedRows:
    """Rows of which none is taken twice."""

    def __init__(self, rows: Tensor, name: str) -> None:
        self._rows, self._name, self._taken = rows, name, 0

    def take(self, n: int) -> Tensor:
        if self._taken + n > len(self._rows):
            raise InputError(f"{len(self._rows)} {self._name} are too few: {self._taken + n} are needed")
        self._taken += n
        return self._rows[self._taken - n : self._taken]


def _shuffled(part: Digits, config: PlantedDigits, seed: int) -> Tensor:
    foreign = part.only(config.foreign_class)
    order = torch.randperm(len(foreign), generator=generator(seed, "order"))
    return foreign[order].logits(seed=derive(seed, "noise"))
