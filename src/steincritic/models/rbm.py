"""The Gaussian-Bernoulli restricted Boltzmann machine: score, log-density, block Gibbs."""

from typing import Any

import torch
from torch import Tensor

from steincritic.errors import InputError, check_count
from steincritic.models.base import Described
from steincritic.models.mixture import as_parameter
from steincritic.rng import Source, generator
from steincritic.shapes import Numbers, PerPoint, Points, counted


class GaussianBernoulliRBM(Described):
    r"""$q(x) \propto \sum_{h = \pm 1} \exp(\tfrac12 x^\top B h + b^\top x + c^\top h - \tfrac12 |x|^2)$.

    Args:
        weights: B, (d, m).
        visible_bias: b, (d,).
        hidden_bias: c, (m,).
        sweeps: Gibbs sweeps from a standard normal start before a chain's state is a draw; every draw
            comes from a chain of its own.
    """

    def __init__(
        self, weights: Numbers, visible_bias: Numbers, hidden_bias: Numbers, *, sweeps: int = 2000
    ) -> None:
        self.weights = as_parameter(weights, "weights")
        self.visible_bias = as_parameter(visible_bias, "visible_bias").to(self.weights)
        self.hidden_bias = as_parameter(hidden_bias, "hidden_bias").to(self.weights)
        check_count(sweeps, name="sweeps")
        self.sweeps = sweeps
        shapes = tuple(t.shape for t in (self.weights, self.visible_bias, self.hidden_bias))
        if self.weights.ndim != 2 or shapes[1:] != (self.weights.shape[:1], self.weights.shape[1:]):
            raise InputError(
                "need weights (d, m), visible_bias (d,) and hidden_bias (m,); got "
                + ", ".join(str(tuple(s)) for s in shapes)
            )
        self.dim = self.weights.shape[0]

    def _about(self) -> str:
        return counted(self.weights.shape[1], "hidden unit")

    def to(self, *args: Any) -> "GaussianBernoulliRBM":
        moved = [t.to(*args) for t in (self.weights, self.visible_bias, self.hidden_bias)]
        return GaussianBernoulliRBM(*moved, sweeps=self.sweeps)

    def log_prob(self, x: Points) -> PerPoint:
        r"""Up to its constant: $b^\top x - \tfrac12|x|^2 + \sum_j \log 2\cosh(\tfrac12 B^\top x + c)_j$."""
        field = self._hidden_field(x)
        log_two_cosh = field.abs() + torch.log1p(torch.exp(-2 * field.abs()))
        return x @ self.visible_bias.to(x) - 0.5 * (x * x).sum(-1) + log_two_cosh.sum(-1)

    def score(self, x: Points) -> Points:
        r"""$b - x + \tfrac12 B \tanh(\tfrac12 B^\top x + c)$."""
        return self.visible_bias.to(x) - x + 0.5 * torch.tanh(self._hidden_field(x)) @ self.weights.to(x).T

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        source = Source(seed, "gibbs", device=self.weights.device)
        return block_gibbs(
            self.weights[None], self.visible_bias, self.hidden_bias, n, sweeps=self.sweeps, source=source
        )[0]

    def _hidden_field(self, x: Points) -> Tensor:
        return 0.5 * x @ self.weights.to(x) + self.hidden_bias.to(x)


def block_gibbs(
    weights: Tensor,
    visible_bias: Tensor,
    hidden_bias: Tensor,
    n: int,
    *,
    sweeps: int,
    source: Source,
) -> Tensor:
    r"""(e, n, d) draws of e machines with their own weights (e, d, m): n parallel chains each.

    The hidden units see x only through B'x. With B = QR, that is R'y for y = Q'x, and y given h is normal
    with mean Q'b + Rh/2 and unit covariance: a machine with m visible units instead of d, whose hidden
    chain has the same law. Where m is small the chain runs there, and x is drawn in the last sweep only.
    """
    machines, d, m = weights.shape
    bias = visible_bias.expand(machines, 1, d)
    inner, inner_bias = weights, bias
    if 2 * m <= d:
        basis, inner = torch.linalg.qr(weights)
        inner_bias = bias @ basis
    # with states 1 for up and 0 for down the mean of x is b - B1/2 + Bh; x is held less the constant part
    constant = inner_bias - 0.5 * inner.sum(-1)[:, None]  # (e, 1, .)
    threshold = constant @ inner + 2 * hidden_bias  # P(h up) = sigmoid(B'x + 2c)
    dtype, shape = weights.dtype, (machines, n, inner.shape[1])
    y = source.normals(*shape, dtype=dtype).sub_(constant)
    field, h = weights.new_empty(machines, n, m), weights.new_empty(machines, n, m)
    back = inner.mT.contiguous()
    for sweep in range(sweeps):
        if sweep:
            y = source.normals(*shape, dtype=dtype).baddbmm_(h, back)
        torch.baddbmm(threshold, y, inner, out=field).sigmoid_()
        torch.lt(source.uniforms(machines, n, m, dtype=dtype), field, out=h)
    x = source.normals(machines, n, d, dtype=dtype)
    return x.add_(bias - 0.5 * weights.sum(-1)[:, None]).baddbmm_(h, weights.mT)


def random_rbm(dim: int, hidden: int, *, seed: int, sweeps: int = 2000) -> GaussianBernoulliRBM:
    """The field's benchmark machine: weights of random sign, standard normal biases [liu2016]."""
    if dim < 1 or hidden < 1:
        raise InputError(f"need at least one visible and one hidden unit, got {dim} and {hidden}")
    source = generator(seed, "random rbm")
    signs = 2 * torch.randint(0, 2, (dim, hidden), generator=source).double() - 1
    return GaussianBernoulliRBM(
        signs,
        torch.randn(dim, generator=source, dtype=torch.float64),
        torch.randn(hidden, generator=source, dtype=torch.float64),
        sweeps=sweeps,
    )
