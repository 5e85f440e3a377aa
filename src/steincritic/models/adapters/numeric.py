"""A log-density of NumPy arrays that nothing can differentiate: its score by finite differences."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from steincritic.errors import InputError, ModelError, check_count
from steincritic.models.adapters.outside import by_numpy
from steincritic.models.base import Described
from steincritic.rng import derive
from steincritic.shapes import Numbers, PerPoint, Points

_STEP = np.finfo(np.float64).eps ** 0.2  # balances the error h⁴ of the rule with rounding eps / h
_MARGIN = 1e-10  # of an end of the support: nearer to it there is no room for steps


class NumericDensity(Described):
    """A black-box log-density (n, d) -> (n,) in float64; 4d evaluations per score, errors near 1e-10 of it.

    Args:
        log_prob: the log-density, normalized or not, finite around every point that is scored.
        dim: number of coordinates.
        scale: width of the density along each coordinate, a number or (d,); steps are a thousandth of it.
        draw: `draw(n, rng)` with a NumPy generator; may be left out.
        support: (low, high) that steps stay within, shorter the nearer a point is to an end.
    """

    def __init__(
        self,
        log_prob: Callable[[np.ndarray], Any],
        dim: int,
        *,
        scale: Numbers = 1.0,
        draw: Callable[[int, np.random.Generator], Any] | None = None,
        support: tuple[float, float] = (-math.inf, math.inf),
    ) -> None:
        self._support = support
        check_count(dim, name="dim")
        self.dim = dim
        self._log_prob = log_prob
        self._steps = _STEP * np.broadcast_to(np.asarray(scale, dtype=np.float64), (dim,))
        if not (np.isfinite(self._steps) & (self._steps > 0)).all():
            raise InputError(f"scale must be positive and finite, got {scale}")
        if draw is not None:
            self._draw = draw
            self.sample = self._sample

    def log_prob(self, x: Points) -> PerPoint:
        return by_numpy(self._values, x)

    def score(self, x: Points) -> Points:
        return by_numpy(self._slopes, x)

    def _values(self, x: np.ndarray) -> np.ndarray:
        values = np.asarray(self._log_prob(x), dtype=np.float64)
        if values.shape == () and len(x) == 1:  # scipy drops the axis of a single row
            values = values[None]
        if values.shape != (len(x),):
            raise ModelError(f"the log-density must return shape ({len(x)},), got {values.shape}")
        return values

    def _slopes(self, x: np.ndarray) -> np.ndarray:
        """(8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h, coordinate by coordinate."""
        slopes = np.empty_like(x)
        low, high = self._support
        ends = [v if math.isinf(v) else v + way * _MARGIN * abs(v) for v, way in ((low, 1), (high, -1))]
        x = np.clip(x, ends[0], ends[1])
        room = np.minimum(x - low, high - x)
        for j, step in enumerate(self._steps):
            h = np.minimum(step, _STEP * room[:, j])
            away = h[:, None] * np.eye(self.dim)[j]
            near = self._values(x + away) - self._values(x - away)
            far = self._values(x + 2 * away) - self._values(x - 2 * away)
            slopes[:, j] = (8 * near - far) / (12 * h)
        return slopes

    def _sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        values = self._draw(n, np.random.default_rng(derive(seed, "numeric density")))
        return torch.as_tensor(np.array(values, dtype=np.float64)).view(n, self.dim)
