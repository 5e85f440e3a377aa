"""gof_test: one door to every test."""

from collections.abc import Callable
from typing import Any

from steincritic.errors import InputError, check_level
from steincritic.gof.result import GofResult
from steincritic.gof.split import split_test


def gof_test(
    model: Any, x: Any, method: str = "auto", level: float = 0.05, seed: int = 0, **options: Any
) -> GofResult:
    """Does the model fit the data?

    Args:
        model: q: anything `as_model` takes.
        x: the data: tensor, array, frame, file path, or ScoredPoints.
        method: "auto" or "split".
        level: the accepted probability of a false alarm.
        seed: decides every random choice.
        options: passed to the method, for example `config=sc.Split(train=0.3)`.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> sc.gof_test(q, q.sample(100, seed=1) + 1.0, seed=0).rejected
    True
    """
    check_level(level)
    if method not in _METHODS:
        raise InputError(f"method must be one of {', '.join(_METHODS)}; got {method!r}")
    return _METHODS[method](model, x, level=level, seed=seed, **options)


_METHODS: dict[str, Callable[..., GofResult]] = {"auto": split_test, "split": split_test}
