"""An energy that is a Gaussian's plus a perceptron: score in closed form, always normalizable."""

import math
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from steincritic.errors import InputError, check_count, check_positive
from steincritic.models.base import Described, SamplingModel
from steincritic.models.grid import GridModel
from steincritic.models.langevin import LangevinModel
from steincritic.models.mixture import as_parameter
from steincritic.shapes import Numbers, PerPoint, Points, counted

_WIDE = (12.0, 48.0, 192.0)  # standard deviations of the base that a grid looks at, until one holds q


class PerceptronEnergy(Described):
    r"""$q(x) \propto \exp(-\tfrac{1}{2\tau^2}|y|^2 - g(y))$ with $y = (x - m)/s$, g a perceptron with SiLU.

    g grows at most linearly, so the Gaussian base makes q a density whatever the weights are.

    Args:
        weights: `w1` (d, h1), `b1` (h1,), ..., the last `w` (h, 1) without bias.
        location, scale: m and s, (d,) each.
        spread: τ, standard deviation of the base in units of the scale.

    Draws come from a grid in one and two dimensions (exact), from Langevin chains beyond.
    """

    def __init__(
        self, weights: Mapping[str, Numbers], *, location: Numbers, scale: Numbers, spread: float = 1.0
    ) -> None:
        self.weights = {name: as_parameter(value, name) for name, value in weights.items()}
        _check_weights(self.weights)
        self.like = torch.empty(0).to(self.weights["w1"])
        self.location = as_parameter(location, "location").to(self.like)
        self.scale = as_parameter(scale, "scale").to(self.like)
        check_positive(spread, name="spread")
        self.spread = float(spread)
        check_positive(self.spread * self.spread, name="square of the spread")
        self.dim = self.weights["w1"].shape[0]
        if self.location.shape != (self.dim,) or self.scale.shape != (self.dim,):
            raise InputError(f"location and scale must have shape ({self.dim},), as w1 has {self.dim} rows")
        if not bool((self.scale > 0).all()):
            raise InputError("every scale must be positive")

    def _about(self) -> str:
        return counted(_depth(self.weights), "hidden layer")

    def to(self, *args: Any) -> "PerceptronEnergy":
        moved = {name: value.to(*args) for name, value in self.weights.items()}
        return PerceptronEnergy(moved, location=self.location, scale=self.scale, spread=self.spread)

    def log_prob(self, x: Points) -> PerPoint:
        """Up to its constant: minus the energy."""
        y = self._standard(x)
        return -0.5 * (y * y).sum(-1) / self.spread**2 - perceptron(self._weights(x), y)

    def score(self, x: Points) -> Points:
        y = self._standard(x)
        return standard_score(self._weights(x), y, self.spread) / self.scale.to(x)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        return self.sampler.sample(n, seed=seed)

    @cached_property
    def grid(self) -> GridModel:
        """In one and two dimensions: exact draws, and the normalized density."""
        for wide in _WIDE:
            reach = wide * self.spread * self.scale
            grid = GridModel(self, low=self.location - reach, high=self.location + reach)
            if not grid.cuts:
                break
        return grid

    @cached_property
    def sampler(self) -> SamplingModel:
        """What the draws come from."""
        return self.grid if self.dim <= 2 else LangevinModel(self, start=self._from_base)

    def _from_base(self, n: int, source: torch.Generator) -> Tensor:
        z = torch.randn(n, self.dim, generator=source, dtype=self.like.dtype).to(self.like)
        return self.location + self.spread * self.scale * z

    def _standard(self, x: Points) -> Points:
        return (x - self.location.to(x)) / self.scale.to(x)

    def _weights(self, x: Points) -> dict[str, Tensor]:
        return {name: value.to(x) for name, value in self.weights.items()}


def perceptron(weights: Mapping[str, Tensor], y: Points) -> PerPoint:
    """g(y)."""
    for layer in range(1, _depth(weights) + 1):
        y = torch.nn.functional.silu(torch.addmm(weights[f"b{layer}"], y, weights[f"w{layer}"]))
    return (y @ weights[f"w{_depth(weights) + 1}"])[:, 0]


def standard_score(weights: Mapping[str, Tensor], y: Points, spread: float) -> Points:
    r"""$-y/\tau^2 - \nabla g(y)$, differentiable in the weights without a second backward pass.

    With slopes $d_l = a'(z_l)$ the gradient is $W_1 (d_1 \odot W_2 (d_2 \odot \dots))$.
    """
    depth, z, slopes = _depth(weights), y, []
    for layer in range(1, depth + 1):
        pre = torch.addmm(weights[f"b{layer}"], z, weights[f"w{layer}"])
        s = torch.sigmoid(pre)
        z = pre * s
        slopes.append(s + z * (1 - s))  # SiLU and its derivative
    gradient = weights[f"w{depth + 1}"].mT  # (1, h)
    for layer in range(depth, 0, -1):
        gradient = (slopes[layer - 1] * gradient) @ weights[f"w{layer}"].mT
    return -y / spread**2 - gradient


def first_weights(dim: int, hidden: tuple[int, ...], source: torch.Generator) -> dict[str, Tensor]:
    """Uniform weights and biases as PyTorch takes them, and a last layer of zeros: q starts as the base."""
    weights: dict[str, Tensor] = {}
    for layer, (rows, columns) in enumerate(pairwise((dim, *hidden)), start=1):
        for name, shape in ((f"w{layer}", (rows, columns)), (f"b{layer}", (columns,))):
            uniform = torch.rand(shape, generator=source, dtype=torch.float64)
            weights[name] = (2 * uniform - 1) / math.sqrt(rows)
    weights[f"w{len(hidden) + 1}"] = torch.zeros(hidden[-1], 1, dtype=torch.float64)
    return weights


def _depth(weights: Mapping[str, Tensor]) -> int:
    """Number of hidden layers."""
    return len(weights) // 2


def _check_weights(weights: Mapping[str, Tensor]) -> None:
    depth = _depth(weights)
    check_count(depth, name="number of hidden layers")
    wanted = [f"{kind}{k}" for k in range(1, depth + 1) for kind in "wb"] + [f"w{depth + 1}"]
    if sorted(weights) != sorted(wanted):
        raise InputError(f"weights must be named {', '.join(wanted)}; got {', '.join(weights)}")
    matrices = [weights[f"w{k}"] for k in range(1, depth + 2)]
    fits = all(w.ndim == 2 for w in matrices) and matrices[-1].shape[1] == 1
    fits = fits and all(a.shape[1] == b.shape[0] for a, b in pairwise(matrices))
    fits = fits and all(weights[f"b{k}"].shape == matrices[k - 1].shape[1:] for k in range(1, depth + 1))
    if not fits:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in weights.items())
        raise InputError(f"the weights' shapes do not follow one another, down to (h, 1): {shapes}")
