"""What the combined test compares data with: how null sets come about, and how lenses look at them.

| H0 | null sets | where |
|---|---|---|
| the model is one law | n draws | here |
| y follows the model at each x | the same x, with y drawn anew | `gof/conditional.py` |
| the model is of a family, and was fitted to the data | n draws, each set fitted anew | `gof/fitted.py` |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from steincritic.data.points import ScoredPoints, sample_points
from steincritic.gof.bench import Column, Setting, loudness
from steincritic.gof.result import DATA, Subject
from steincritic.models.base import SamplingModel

if TYPE_CHECKING:
    from steincritic.gof.combined import Combined

_DRAWS = 4000  # of the model, for its scale, its cells and its distances


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
