"""What the combined test compares data with: null sets, how lenses look at them, and how many there are.

| H0 | null sets | where |
|---|---|---|
| the model is one law | n draws | here |
| y follows the model at each x | the same x, with y drawn anew | `gof/conditional.py` |
| the model is of a family, and was fitted to the data | n draws, each set fitted anew | `gof/fitted.py` |
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from steincritic.data.points import ScoredPoints, sample_points
from steincritic.gof.bench import Column, Setting, loudness
from steincritic.gof.null import check_draws, draws_for, unasked
from steincritic.gof.result import DATA, Subject
from steincritic.models.base import SamplingModel

if TYPE_CHECKING:
    from steincritic.gof.combined import Combined

_FIRST = 0.1  # share of the level for the quick lenses alone
PLENTIFUL = 5_000  # points from which on one critic, trained on half of them, is enough
_DRAWS = 4000  # of the model, for its scale, its cells and its distances
_REJECTING = {"cpu": 3, "cuda": 9}  # sets, the data among them, that may reach a value that is rejected
_REFERENCE = (400, 100, 2**27)  # most and fewest reference sets, and their coordinates
_SETS = (999, 199, 2**29)  # the same of ranked ones


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """The model is one law."""

    config: "Combined"  # with the lenses that can look
    model: SamplingModel
    datasets: ScoredPoints  # (r, n, d), scored as null sets are

    threshold: ClassVar[str] = "fresh"
    subject: ClassVar[Subject] = DATA

    @property
    def exact(self) -> bool:
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def draws(self, seed: int) -> ScoredPoints:
        """From which lenses learn what the model is like."""
        return sample_points(self.model, _DRAWS, seed=seed, like=self.datasets.x)

    def setting(self, draws: ScoredPoints) -> Setting:
        return Setting.of(draws)

    def loudness(self, columns: Sequence[Column]) -> Tensor:
        return loudness(columns)

    def counted(self, evidence: Tensor, reference: int) -> Tensor:
        """As much of the evidence as so many reference sets can tell."""
        return evidence

    def ordered(self, points: ScoredPoints, seed: int) -> ScoredPoints:
        """Rows in an order that null sets may have as well."""
        return points.shuffled(seed=seed)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many null sets, and how the level is shared; decided by shapes alone."""

    spent: float  # level of the quick lenses
    sets: int  # ranked by quick lenses
    draws: int  # ranked by critics
    reference: int
    split: bool  # one critic on half of the data

    @classmethod
    def of(cls, config: "Combined", n: int, dim: int, level: float, device: str) -> "Plan":
        split = n >= PLENTIFUL
        spent = 0.0 if config.critics is None else level * (0.5 if split else _FIRST)
        if config.draws is not None:
            draws = sets = config.draws
            spent = spent if 1 / (sets + 1) <= spent else 0.0  # too few for the quick lenses to decide
        else:
            rejecting = _REJECTING.get(device, _REJECTING["cpu"])
            draws, sets = math.ceil(rejecting / (level - spent) - 1e-9) - 1, within(_SETS, n * dim)
            sets = max(sets, math.ceil(1 / spent - 1e-9) - 1) if spent else draws_for(level, sets)
            unasked(max(sets, draws), level)
        check_draws(sets if config.critics is None else draws, level - spent)
        reference = config.reference or within(_REFERENCE, n * dim)
        return cls(spent=spent, sets=sets, draws=draws, reference=reference, split=split)


def within(bounds: tuple[int, int, int], width: int) -> int:
    """Numbers per width, between bounds: the most, the fewest, and how many numbers there may be."""
    most, fewest, numbers = bounds
    return max(fewest, min(most, numbers // width))
