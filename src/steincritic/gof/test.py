"""What a test is: a frozen value that can run itself on a stack of datasets.

`gof_test` runs a stack of one; `power` and `calibrate` run many. There is one code path, so what is measured
is what is used. To add a test, copy `gof/kernel.py`: a frozen dataclass with `name`, `draws` and `run`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from steincritic.data.points import ScoredPoints
from steincritic.errors import ModelError
from steincritic.gof.null import reaching
from steincritic.gof.result import GofResult
from steincritic.models.base import Model, SamplingModel


class GofTest(Protocol):
    """A goodness-of-fit test of H0: the data are independent draws from the model."""

    name: ClassVar[str]

    @property
    def draws(self) -> int | None:
        """Null draws; None where the test decides."""
        ...

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        """The result for each of (r, n, d) datasets, as if it had been tested alone.

        Args:
            model: q; None where only the scores are known, for tests that need no draws.
            seeds: one per dataset; decides every random choice of its test.
        """
        ...


class EachAlone:
    """For tests that look at one dataset after the other, by a method `_one`."""

    def _reaching(self, level: float) -> Any:
        return reaching(self, level)

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        test = self._reaching(level)
        pairs = zip(datasets.each(), seeds, strict=True)
        return [test._one(model, points, seed, level=level) for points, seed in pairs]


def sampling_model(model: Model | None, *, why: str, way_out: str) -> SamplingModel:
    """The model, if it can be sampled."""
    if not isinstance(model, SamplingModel):
        raise ModelError(f"{why} draws from the model, which has no sample(n, seed=0); {way_out}")
    return model
