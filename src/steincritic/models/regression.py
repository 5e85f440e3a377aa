"""Regressions: y is normal around a mean, both its mean and its scale functions of x."""

import math
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from steincritic.errors import ModelError
from steincritic.models.adapters.outside import by_numpy, fitted_names
from steincritic.models.base import Described
from steincritic.rng import Source
from steincritic.shapes import PerPoint, Points

OfX: TypeAlias = Callable[[Tensor], Tensor]


class Regression(Described):
    """y given x is normal; the coordinates of y are independent of each other.

    Args:
        mean: a function of x, (n, dx) to (n,) or (n, dy); a module; or a fitted estimator with `predict`
            (scikit-learn), asked with NumPy arrays.
        scale: the standard deviation of y around its mean: a number, one per coordinate of y, or what
            `mean` can be.

    >>> q = Regression(lambda x: 1 + x, scale=lambda x: 1 + x.abs())
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> q.score(x, torch.tensor([[2.0], [0.0]]))
    tensor([[-1.0000],
            [ 0.5000]])
    >>> q.sample(x, seed=1).shape
    torch.Size([2, 1])
    """

    def __init__(self, mean: Any, scale: Any = 1.0) -> None:
        self._mean, self.columns = _function(mean), fitted_names(mean)
        self._scale = _function(scale) if callable(scale) or hasattr(scale, "predict") else None
        self._number = None if self._scale is not None else torch.as_tensor(scale, dtype=torch.float64)

    def moments(self, x: Points) -> tuple[Points, Points]:
        """Mean and standard deviation of y at each row of x, both (n, dy)."""
        mean = _rows(self._mean(x), x, "mean")
        if self._scale is not None:
            scale = _rows(self._scale(x), x, "scale")
        else:
            assert self._number is not None
            scale = self._number.to(mean)
        if not bool((scale > 0).all()):
            raise ModelError(f"the scale of a regression must be positive, got {float(scale.min()):.3g}")
        return mean, scale.expand_as(mean)

    def score(self, x: Points, y: Points) -> Points:
        mean, scale = self.moments(x)
        return (mean - y) / scale**2

    def log_prob(self, x: Points, y: Points) -> PerPoint:
        mean, scale = self.moments(x)
        return (-0.5 * ((y - mean) / scale) ** 2 - scale.log() - 0.5 * math.log(2 * math.pi)).sum(-1)

    def sample(self, x: Points, *, seed: int = 0) -> Points:
        mean, scale = self.moments(x)
        source = Source(seed, "regression", device=x.device)
        return mean + scale * source.normals(*mean.shape, dtype=mean.dtype)


def _function(given: Any) -> OfX:
    """A function of tensors; an estimator of scikit-learn is asked with arrays."""
    if hasattr(given, "predict"):
        return lambda x: by_numpy(lambda array: _predicted(given, array), x)
    if isinstance(given, torch.nn.Module):
        return lambda x: in_module_precision(given, x).to(x)
    return given  # type: ignore[no-any-return]


def in_module_precision(module: torch.nn.Module, x: Tensor) -> Any:
    """What the module makes of x in the precision of its own parameters."""
    like = next((p for p in module.parameters() if p.is_floating_point()), x)
    with torch.no_grad():
        return module(x.to(like))


def _predicted(estimator: Any, x: Any) -> Any:
    with warnings.catch_warnings():  # one that was fitted on a frame misses the names, not the order
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return estimator.predict(x)


def _rows(value: Tensor, x: Points, what: str) -> Points:
    """One row per row of x, also of a function that returns one number each."""
    value = value[:, None] if value.ndim == 1 else value
    if value.ndim != 2 or len(value) != len(x):
        raise ModelError(
            f"the {what} of a regression must have one row per row of x, ({len(x)},) or ({len(x)}, dy); "
            f"got {tuple(value.shape)}"
        )
    return value.detach()
