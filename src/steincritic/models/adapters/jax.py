"""JAX: a log-density of one point, differentiated and mapped over the rows by JAX itself."""

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import torch
import torch.utils.dlpack
from torch import Tensor

from steincritic.errors import ModelError, check_count
from steincritic.models.adapters.outside import require
from steincritic.models.base import Described
from steincritic.shapes import PerPoint, Points


class JaxDensity(Described):
    """A JAX function from one point (d,) to its log-density, a number, normalized or not.

    Args:
        log_prob: the function; `as_model` recognizes one that went through `jax.jit`.
        dim: number of coordinates, where it should be stated.
        draw: `draw(key, n)` with a JAX key, of shape (n, d); may be left out.
    """

    def __init__(
        self,
        log_prob: Callable[[Any], Any],
        *,
        dim: int | None = None,
        draw: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self._jax = require("jax", extra="jax")
        self.dim = dim
        self._values = self._jax.jit(self._jax.vmap(log_prob))
        self._slopes = self._jax.jit(self._jax.vmap(self._jax.grad(log_prob)))
        self._shape_of_answer = cache(
            lambda dim, dtype: self._jax.eval_shape(log_prob, self._jax.ShapeDtypeStruct((dim,), dtype)).shape
        )
        if draw is not None:
            self._draw = draw
            self.sample = self._sample

    @cached_property
    def like(self) -> Tensor:
        """An empty tensor of the dtype that JAX computes in."""
        double = self._jax.config.jax_enable_x64
        return torch.empty(0, dtype=torch.float64 if double else torch.float32)

    def log_prob(self, x: Points) -> PerPoint:
        return self._asked(self._values, x)

    def score(self, x: Points) -> Points:
        return self._asked(self._slopes, x)

    def _sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        return to_torch(self._draw(key(seed), n))

    def _asked(self, function: Callable[[Any], Any], x: Points) -> Tensor:
        if x.dtype == torch.float64 and not self._jax.config.jax_enable_x64:
            raise ModelError(
                "JAX would compute float64 points in float32: call jax.config.update('jax_enable_x64', True) "
                "before the model is made, or pass float32 points"
            )
        jax_points = self._as_jax(x)
        if (shape := self._shape_of_answer(x.shape[1], jax_points.dtype)) != ():
            raise ModelError(
                f"a JAX log-density takes one point ({x.shape[1]},) and returns a number, this one returned "
                f"shape {shape}; the rows are mapped here"
            )
        return to_torch(function(jax_points)).to(x)

    def _as_jax(self, x: Points) -> Any:
        x = x.detach().to(self.like.dtype).contiguous()  # the dtype of a model's own arrays
        if x.device.type != "cpu" and self._jax.default_backend() == "cpu":
            x = x.cpu()
        return self._jax.dlpack.from_dlpack(x)


def adapt(obj: Any) -> JaxDensity | None:
    return JaxDensity(obj) if callable(obj) else None


def key(seed: int) -> Any:
    return require("jax.random", extra="jax").key(seed % 2**32)


def to_torch(array: Any) -> Tensor:
    """A copy, for arrays of JAX must not be written to."""
    return torch.utils.dlpack.from_dlpack(array).clone()
