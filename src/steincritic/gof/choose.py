"""gof_test: one door to every test, and the rule by which "auto" picks one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from steincritic.data.points import ScoredPoints, scored
from steincritic.errors import InputError, check_level
from steincritic.gof.aggregated import KsdAgg, ksdagg_test
from steincritic.gof.crossfit import crossfit_test
from steincritic.gof.fssd import Fssd, fssd_test
from steincritic.gof.kernel import Ksd, ksd_test
from steincritic.gof.panel import CrossFit
from steincritic.gof.result import GofResult
from steincritic.gof.split import Split, split_test
from steincritic.models.base import SamplingModel, as_model

PLENTIFUL = 5_000  # points from which on half of them are enough to test
FEWEST = 4 * CrossFit().folds  # points below which critics have nothing to learn from


def gof_test(
    model: Any, x: Any, method: str = "auto", level: float = 0.05, seed: int = 0, **options: Any
) -> GofResult:
    """Does the model fit the data?

    Args:
        model: q: anything `as_model` takes; None where x is ScoredPoints and the method needs no draws.
        x: the data: tensor, array, frame, file path, or ScoredPoints.
        method: "auto", "crossfit", "split", "ksd", "ksdagg" or "fssd". "auto" takes the cross-fit test
            when the model can be sampled and n is moderate, the split test when data are plentiful, and
            a test that needs no draws when the model cannot be sampled; the result says which and why.
        level: the accepted probability of a false alarm.
        seed: decides every random choice.
        options: passed to the method, for example `config=sc.Split(train=0.3)`.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> sc.gof_test(q, q.sample(100, seed=1) + 1.0, method="ksd", seed=0).rejected
    True
    """
    check_level(level)
    if method == "auto":
        return _automatic(model, x, level=level, seed=seed, **options)
    if method not in _METHODS:
        raise InputError(f"method must be one of auto, {', '.join(_METHODS)}; got {method!r}")
    return _run(method, model, x, level=level, seed=seed, **options)


_METHODS: dict[str, Callable[..., GofResult]] = {
    "crossfit": crossfit_test,
    "split": split_test,
    "ksd": ksd_test,
    "ksdagg": ksdagg_test,
    "fssd": fssd_test,
}
_CONFIGS = {"crossfit": CrossFit, "split": Split, "ksd": Ksd, "ksdagg": KsdAgg, "fssd": Fssd}


def _run(method: str, model: Any, x: Any, **options: Any) -> GofResult:
    kind, config = _CONFIGS[method], options.get("config")
    if config is not None and not isinstance(config, kind):
        raise InputError(f"the settings of method {method!r} are a {kind.__name__}, got {config!r}")
    return _METHODS[method](model, x, **options)


def _automatic(model: Any, x: Any, **options: Any) -> GofResult:
    points = scored(model, x)
    method, reason = choose_method(model, points, options.get("config"))
    result = _run(method, model, points, **options)
    return replace(result, notes=(f"Method {method}: {reason}.", *result.notes))


def choose_method(model: Any, points: ScoredPoints, config: object = None) -> tuple[str, str]:
    """The method and the reason; a configuration that is given decides by its kind."""
    n = len(points)
    for method, kind in _CONFIGS.items():
        if isinstance(config, kind):
            return method, "its settings were given"
    if model is None or not isinstance(as_model(model), SamplingModel):
        if model is not None and n >= 2 * FEWEST:
            return "split", "the model cannot be sampled, so the threshold is a bootstrap of the witness"
        return "ksd", "the model cannot be sampled, so the threshold is a wild bootstrap"
    if n < FEWEST:
        return "ksdagg", f"{n} points are too few to train critics on"
    if n >= PLENTIFUL:
        return "split", f"{n} points are plenty, so half of them train one critic and half are tested"
    return "crossfit", "the model can be sampled, so every point is tested and the level is exact"
