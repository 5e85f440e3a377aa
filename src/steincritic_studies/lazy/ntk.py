r"""The matrix tangent kernel of a critic, $K(x, x') = \partial_\theta f(x)\, \partial_\theta f(x')^\top$.

[repasky2023] eq. (22). With J(x) the (d, m) Jacobian in the m parameters, everything here is a product of
J with something: J v forwards, J' w backwards, J J' where the whole kernel is wanted. Jacobians are only
formed in tiles. Its eigenvalues and eigenfunctions under a law say which parts of a field it learns first.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import grad, jacrev, jvp, vjp, vmap

from steincritic.critics.activation import ACTIVATIONS
from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.critics.module import ModuleNetwork
from steincritic.critics.network import Parameters
from steincritic.errors import DoubtfulWarning, InputError, check_count
from steincritic.shapes import PerPoint, Points
from steincritic_studies.lazy.law import Law

_TILE = 2**24  # numbers in one tile of a Jacobian: 128 MiB


@dataclass(frozen=True, eq=False)
class TangentKernel:
    """The tangent kernel of one critic at its present parameters, in float64."""

    bank: Bank  # of one member

    @cached_property
    def theta(self) -> Tensor:
        """The parameters as one vector (m,)."""
        return torch.cat([value[0].detach().reshape(-1) for value in self.bank.parameters.values()])

    @property
    def size(self) -> int:
        """The number m of parameters; the kernel's rank is at most this."""
        return len(self.theta)

    def field(self, x: Points, theta: Tensor | None = None) -> Points:
        """f at these parameters, or at others."""
        parameters = self._unflatten(self.theta if theta is None else theta)
        return self.bank.network.field(parameters, x[None])[0]

    def divergence(self, x: Points, theta: Tensor | None = None) -> PerPoint:
        parameters = self._unflatten(self.theta if theta is None else theta)
        return self.bank.network.field_and_divergence(parameters, x[None])[1][0]

    def forward(self, x: Points, direction: Tensor) -> Points:
        """J(x) v: how the field changes along a direction (m,) in the parameters."""
        change: Tensor = jvp(lambda theta: self.field(x, theta), (self.theta,), (direction,))[1]
        return change

    def backward(self, x: Points, values: Points) -> Tensor:
        """Sum over the points of J(x)' w(x), (m,)."""
        gradient: Tensor = vjp(lambda theta: self.field(x, theta), self.theta)[1](values)[0]
        return gradient

    def jacobian(self, x: Points) -> Tensor:
        """J at each point, (n, d, m)."""
        result: Tensor = vmap(jacrev(lambda theta, y: self.field(y[None], theta)[0]), in_dims=(None, 0))(
            self.theta, x
        )
        return result

    def divergence_gradient(self, x: Points) -> Tensor:
        """The gradient of ∇·f in the parameters at each point, (n, m)."""
        result: Tensor = vmap(grad(lambda theta, y: self.divergence(y[None], theta)[0]), in_dims=(None, 0))(
            self.theta, x
        )
        return result

    def gram(self, x: Points, y: Points | None = None) -> Tensor:
        """K(x, y) for all pairs, (n, d, n', d). Layer by layer for a perceptron, in tiles otherwise."""
        network = self.bank.network
        y = x if y is None else y
        if isinstance(network, MLP) and not network.learnable_slope:
            return _perceptron_gram(network, self._unflatten(self.theta), x, y)
        return torch.cat(
            [
                torch.cat([_pairs(rows, columns) for columns in map(self.jacobian, self._tiles(y))], dim=2)
                for rows in map(self.jacobian, self._tiles(x))
            ]
        )

    def gram_divergence(self, x: Points, y: Points) -> Tensor:
        r"""$\nabla_{y} \cdot K(x, y)$, (n, d, n'): what finite-sample training has beside K itself.

        [repasky2023] eq. (38): the divergence acts on the second argument and its column index.
        """
        blocks = []
        for rows in map(self.jacobian, self._tiles(x)):
            parts = [
                torch.einsum("nim,km->nik", rows, self.divergence_gradient(tile)) for tile in self._tiles(y)
            ]
            blocks.append(torch.cat(parts, dim=2))
        return torch.cat(blocks)

    def parameter_gram(self, law: Law) -> Tensor:
        """E_p J' J, (m, m): the same non-zero spectrum as K under the law, the smaller form if m < n d."""
        total = law.x.new_zeros(self.size, self.size)
        rows_held = len(self._tiles(law.x)[0])
        for x, weights in zip(law.x.split(rows_held), law.weights.split(rows_held), strict=True):
            rows = (self.jacobian(x) * weights.sqrt()[:, None, None]).reshape(-1, self.size)
            total.addmm_(rows.T, rows)
        return total

    def _tiles(self, x: Points) -> tuple[Tensor, ...]:
        tiles: tuple[Tensor, ...] = x.split(max(1, _TILE // (self.size * x.shape[1])))
        return tiles

    def _unflatten(self, theta: Tensor) -> Parameters:
        shapes = {name: value.shape[1:] for name, value in self.bank.parameters.items()}
        parts = theta.split([shape.numel() for shape in shapes.values()])
        return {name: part.view(1, *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def tangent_kernel(critic: Bank | nn.Module, *, dim: int | None = None) -> TangentKernel:
    """The tangent kernel of a bank with one member, or of a module that maps (n, dim) to (n, dim).

    Single precision is turned into double, with a warning: a slope fitted to differences of 1e-6 needs it.
    """
    if isinstance(critic, nn.Module):
        if dim is None:
            raise InputError("pass dim= with a module: it does not say how many coordinates it takes")
        check_count(dim, name="dim")
        network = ModuleNetwork(critic)
        first = next(critic.parameters())
        critic = Bank(network, network.init(dim, [0], dtype=first.dtype, device=first.device))
    if len(critic) != 1:
        raise InputError(
            f"a tangent kernel is of one critic, got a bank of {len(critic)}: pass bank[k : k + 1]"
        )
    if critic.dtype != torch.float64:
        warnings.warn(
            f"the critic is in {str(critic.dtype).removeprefix('torch.')}; its tangent kernel is computed in "
            "float64",
            DoubtfulWarning,
            stacklevel=2,
        )
    return TangentKernel(
        Bank(critic.network, {k: v.detach().to(torch.float64) for k, v in critic.parameters.items()})
    )


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""The positive part of a kernel's spectrum; no more modes than points times d, or parameters.

    $$\int K(x, x')\, v_k(x')\, p(dx') = \mu_k v_k(x), \qquad \langle v_k, v_l \rangle_p = \delta_{kl}$$

    [repasky2023] eq. (26).
    """

    kernel: TangentKernel
    law: Law
    values: Tensor  # (k,) falling
    functions: Tensor  # (k, n, d) at the law's points, orthonormal in L²(p)

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, x: Points) -> Tensor:
        """The eigenfunctions at other points, (k, n', d): the kernel applied to them, over its eigenvalue."""
        weighted = self.functions * self.law.weights[:, None]
        applied = [self.kernel.forward(x, self.kernel.backward(self.law.x, v)) for v in weighted]
        return torch.stack(applied) / self.values[:, None, None]

    def coefficients(self, f: Points) -> Tensor:
        """⟨f, v_k⟩_p, (k,)."""
        return self.law.inner(self.functions, f)

    def alignment(self, f: Points) -> Tensor:
        """Share of |f|²_p within the first 1, 2, ... modes, (k,)."""
        return self.coefficients(f).square().cumsum(0) / self.law.inner(f, f)

    def bound(self, f: Points, scaled_time: float) -> Tensor:
        r"""$e^{-t \lambda \mu_m} |f_1|_p + |f_2|_p$ for m = 1, 2, ..., (k,), [repasky2023] eq. (27).

        f_1 is the part of f within the first m modes and f_2 the rest; the scaled time is t λ.
        """
        within = self.coefficients(f).square().cumsum(0)
        beyond = (self.law.inner(f, f) - within).clamp_min(0)
        return torch.exp(-scaled_time * self.values) * within.sqrt() + beyond.sqrt()


def spectrum(kernel: TangentKernel, law: Law, *, count: int | None = None) -> Spectrum:
    """All modes, or the leading ones, from whichever matrix is smaller: (n d)² or (m)².

    Modes whose eigenvalue is rounding beside the largest one do not count towards the rank.
    """
    n, d = law.x.shape
    by_points = n * d <= kernel.size
    root = law.weights.sqrt()
    if by_points:
        gram = kernel.gram(law.x) * root[:, None, None, None] * root[:, None]
        matrix = gram.reshape(n * d, n * d)
    else:
        matrix = kernel.parameter_gram(law)
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(0), vectors.flip(1)
    rank = int((values > values[0] * len(values) * torch.finfo(values.dtype).eps).sum())
    if count is not None:
        check_count(count, name="count")
        if count > rank:
            raise InputError(f"the kernel has rank {rank} under this law, so {count} modes do not exist")
    kept = rank if count is None else count
    values, vectors = values[:kept], vectors[:, :kept].T
    if by_points:
        functions = vectors.reshape(kept, n, d) / root[:, None]
    else:
        functions = torch.stack([kernel.forward(law.x, v) for v in vectors]) / values.sqrt()[:, None, None]
    return Spectrum(kernel, law, values, functions)


def drift(before: Tensor, after: Tensor, law: Law) -> float:
    """|K_t - K_0| over |K_0| in the Hilbert-Schmidt norm of L²(p), from two Gram arrays (n, d, n, d)."""
    root = law.weights.sqrt()
    scale = root[:, None, None, None] * root[:, None]
    return float(((after - before) * scale).norm() / (before * scale).norm())


def _pairs(rows: Tensor, columns: Tensor) -> Tensor:
    return torch.einsum("nim,kjm->nikj", rows, columns)


def _perceptron_gram(network: MLP, parameters: Parameters, x: Points, y: Points) -> Tensor:
    """Sum over layers of (1 + z·z') times b·b', with z the layer's input and b = ∂f_i/∂(its output)."""
    d, same = x.shape[1], y is x
    gram = x.new_zeros(len(x) * d, len(y) * d)
    ours = _layer_factors(network, parameters, x)
    theirs = ours if same else _layer_factors(network, parameters, y)
    for (z, b), (z_, b_) in zip(ours, theirs, strict=True):
        inputs = torch.addmm(z.new_ones(()), z, z_.T)  # the bias is a weight whose input is one
        outputs = b.reshape(-1, b.shape[2]) @ b_.reshape(-1, b.shape[2]).T
        outputs.view(len(x), d, len(y), d).mul_(inputs[:, None, :, None])
        gram += outputs
    return gram.view(len(x), d, len(y), d)


def _layer_factors(network: MLP, parameters: Parameters, x: Points) -> list[tuple[Tensor, Tensor]]:
    """For each layer its input (n, h) and the derivative of the field in its output (n, d, h')."""
    inputs, slopes = [x], []
    for layer in range(1, len(network.hidden) + 1):
        pre = inputs[-1] @ parameters[f"w{layer}"][0] + parameters[f"b{layer}"][0]
        value, first = ACTIVATIONS[network.activation].with_first(pre)
        inputs.append(value)
        slopes.append(first)
    back = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand(len(x), -1, -1)
    factors = [(inputs[-1], back)]
    for layer in range(len(network.hidden), 0, -1):
        back = (back @ parameters[f"w{layer + 1}"][0].T) * slopes[layer - 1][:, None, :]
        factors.append((inputs[layer - 1], back))
    return factors
