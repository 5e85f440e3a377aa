"""gof_test: the one door to every test, and the rule that picks a test where none is named."""

import warnings
from dataclasses import replace
from typing import Literal, TypeAlias

from steincritic.data.points import PointsLike, model_and_points
from steincritic.devices import DeviceLike
from steincritic.errors import DoubtfulWarning, InputError, check_level
from steincritic.gof import multiplier
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.combined import Combined
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.fssd import Fssd
from steincritic.gof.kernel import Ksd
from steincritic.gof.result import GofResult
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.models.base import Model, ModelLike, SamplingModel

TestName: TypeAlias = Literal["combined", "crossfit", "split", "ksd", "ksdagg", "fssd"]
TESTS: dict[str, GofTest] = {
    test.name: test for test in (Combined(), CrossFit(), Split(), Ksd(), KsdAgg(), Fssd())
}  # a name stands for the default value
FEWEST = 4 * CrossFit().folds  # points below which critics have nothing to learn from


def gof_test(
    model: ModelLike | None,
    x: PointsLike,
    test: GofTest | TestName | None = None,
    level: float = 0.05,
    seed: int = 0,
    device: DeviceLike = None,
) -> GofResult:
    """Does the model fit the data?

    Args:
        model: q: anything `as_model` takes; None where x is ScoredPoints and the test needs no draws.
        x: the data: tensor, array, frame, file path, or ScoredPoints.
        test: a value such as `sc.Split(train=0.3)`, or the name of one with its defaults: "combined",
            "crossfit", "split", "ksd", "ksdagg" or "fssd". None takes the combined test: exact where the
            model can be sampled, approximate where it cannot. The result says which and why.
        level: the accepted probability of a false alarm.
        seed: decides every random choice.
        device: where to compute; a GPU where there is one by default.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> sc.gof_test(q, q.sample(100, seed=1) + 1.0, "ksd").rejected
    True
    """
    check_level(level)
    adapted, points = model_and_points(model, x, device=device)
    chosen, reason = choose_test(test, adapted, len(points))
    (result,) = chosen.run(adapted, points.alone(), level=level, seeds=[seed])
    for doubt in result.doubts:
        warnings.warn(doubt, DoubtfulWarning, stacklevel=2)
    if reason is None:
        return result
    return replace(result, notes=(f"Test {chosen.name}: {reason}.", *result.notes))


def choose_test(test: GofTest | str | None, model: Model | None, n: int) -> tuple[GofTest, str | None]:
    """The test that was asked for; where none was, the one for such a model and n points, with the reason."""
    if test is None:
        return _automatic(model, n)
    if isinstance(test, str):
        if test not in TESTS:
            raise InputError(f"test must be one of {', '.join(TESTS)} or a value of one; got {test!r}")
        return TESTS[test], None
    if isinstance(test, type):
        raise InputError(f"test must be a value such as {test.__name__}(), got the class itself")
    if not hasattr(test, "run"):
        names = ", ".join(type(known).__name__ for known in TESTS.values())
        raise InputError(f"test must be a name or a value of {names}; got {test!r}")
    return test, None


def _automatic(model: Model | None, n: int) -> tuple[GofTest, str]:
    if not isinstance(model, SamplingModel):
        if n < multiplier.FEWEST:
            return Ksd(), "the model cannot be sampled, so the threshold is a wild bootstrap"
        return Combined(), "the model cannot be sampled, so lenses look at its scores under random signs"
    if n < FEWEST:
        return Combined(critics=None), f"{n} points are too few to train critics on, so quick lenses alone"
    return Combined(), "the model can be sampled, so every lens looks and the level is exact"
