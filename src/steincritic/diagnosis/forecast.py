"""forecast: how long a check takes, said before it starts."""

from typing import Any

from torch import Tensor

from steincritic.data.points import PointsLike
from steincritic.diagnosis.halves import FEWEST, draw_count
from steincritic.gof.choose import TestName, gof_test
from steincritic.gof.forecast import (
    Forecast,
    Part,
    seconds_of_draws,
    seconds_of_training,
    seconds_of_witness,
)
from steincritic.gof.test import GofTest
from steincritic.models.base import Model, ModelLike, SamplingModel
from steincritic.training.pacing import paced

_LOOKS = 2  # witnesses, one of them by coordinates, that critics have of each point
_REST = 0.4  # seconds: a glance at the model, regions, sentences


class _Enough(Exception):
    """The test need not be done."""


def forecast(
    model: ModelLike | None, x: PointsLike, test: GofTest | TestName | None = None, **options: Any
) -> Forecast:
    """How long `gof_test` takes for these data, here and now; a small part of the work is done for it.

    Null sets that are made stay in the cache, where the test finds them.

    Args:
        model, x, test, options: as for `gof_test`.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> sc.forecast(q, q.sample(100, seed=1), "ksd").seconds < 10
    True
    """
    found: list[Forecast] = []

    def stop(forecast: Forecast) -> None:
        found.append(forecast)
        raise _Enough

    try:
        gof_test(model, x, test, before=stop, **options)
    except _Enough:
        pass
    return found[0]


def part_of_diagnosis(model: Model | None, x: Tensor) -> Part:
    """What `check` does after the test: two critics, draws of the model, and what they say of all points."""
    n, dim = x.shape
    if n < FEWEST:
        return Part("no diagnosis of so few points", 0.0, 0.0)
    half = n // 2
    seconds = _REST + seconds_of_training(x, half, 2, paced(half)[0])
    count = draw_count(n, dim) if isinstance(model, SamplingModel) else 0
    seconds += seconds_of_draws(model, x, count) if count else 0.0
    seconds += 2 * _LOOKS * seconds_of_witness(x, count + n)
    return Part("two critics for the diagnosis", seconds, seconds)
