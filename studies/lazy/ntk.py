r"""The matrix tangent kernel of a critic, $K(x, x') = \partial_\theta f(x)\, \partial_\theta f(x')^\top$.

[repasky2023] eq. (22). With J(x) the (d, m) Jacobian in the m parameters, everything here is a product of
J with something: J v forwards, J' w backwards, J J' where the whole kernel is wanted. Its eigenvalues and
eigenfunctions under a law say which parts of a field it learns first. All numbers are in double precision.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import jacrev, jvp, vjp, vmap

from steincritic.critics import Bank, Parameters
from steincritic.critics.pullback import swish
from steincritic.models.base import DensityModel
from steincritic.shapes import PerPoint, Points


@dataclass(frozen=True, eq=False)
class Law:
    """p as points (n, d) with positive weights (n,) that sum to one: those of a sample, or a quadrature."""

    x: Points
    weights: PerPoint

    def inner(self, f: Tensor, g: Tensor) -> Tensor:
        """⟨f, g⟩_p of vector fields (..., n, d) by their values at the points."""
        return ((f * g).sum(-1) * self.weights).sum(-1)

    def norm(self, f: Tensor) -> Tensor:
        return self.inner(f, f).sqrt()

    def sd(self, values: PerPoint) -> float:
        """The standard deviation of numbers at the points."""
        mean = (self.weights * values).sum()
        return float((self.weights * (values - mean).square()).sum().sqrt())


def quadrature(density: DensityModel, *, center: float, reach: float, spacing: float, dim: int) -> Law:
    """A grid over center ± reach that integrates smooth functions against a density.

    The trapezoidal rule converges faster than any power of the spacing for analytic integrands that
    decay: about half the smallest standard deviation gives ten digits, so that the Stein identity holds
    to rounding. Points that carry less than 1e-12 of the mass are left out.
    """
    steps = int(reach / spacing)
    axis = center + spacing * torch.arange(-steps, steps + 1, dtype=torch.float64)
    x = torch.cartesian_prod(*[axis] * dim).reshape(-1, dim)
    weights = density.log_prob(x).exp() * spacing**dim
    kept = weights > 1e-12
    return Law(x[kept], weights[kept] / weights[kept].sum())


@dataclass(frozen=True, eq=False)
class TangentKernel:
    """The tangent kernel of one perceptron at its present parameters."""

    bank: Bank  # of one member

    @classmethod
    def of(cls, bank: Bank, member: int = 0) -> "TangentKernel":
        """That of a member, in double precision."""
        parameters = bank[member : member + 1].parameters
        return cls(Bank(bank.network, {k: v.detach().double() for k, v in parameters.items()}))

    @cached_property
    def theta(self) -> Tensor:
        """The parameters as one vector (m,); the kernel's rank is at most m."""
        return flatten(self.bank.parameters)[0]

    def field(self, x: Points, theta: Tensor) -> Points:
        """f at other parameters."""
        return self.bank.network.field(unflatten(theta[None], self.bank.parameters), x[None])[0]

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
        of_point = jacrev(lambda theta, y: self.field(y[None], theta)[0])
        result: Tensor = vmap(of_point, in_dims=(None, 0))(self.theta, x)
        return result

    def divergence_jacobian(self, x: Points) -> Tensor:
        """∂_θ ∇·f at each point, (n, 1, m)."""

        def divergence(theta: Tensor, y: Tensor) -> Tensor:
            parameters = unflatten(theta[None], self.bank.parameters)
            return self.bank.network.field_and_divergence(parameters, y[None, None])[1][0]

        result: Tensor = vmap(jacrev(divergence), in_dims=(None, 0))(self.theta, x)
        return result

    def gram(self, x: Points) -> Tensor:
        """K for all pairs, (n d, n d): the sum over layers of (1 + z·z') times b·b'.

        Here z is a layer's input and b = ∂f/∂(its output). No Jacobian is formed, which for wide layers
        would not fit into memory.
        """
        (n, d), weights = x.shape, {name: value[0] for name, value in self.bank.parameters.items()}
        layers = len(weights) // 2
        inputs, slopes = [x], []
        for layer in range(1, layers):
            value, slope = swish(inputs[-1] @ weights[f"w{layer}"] + weights[f"b{layer}"])
            inputs.append(value)
            slopes.append(slope[:, None, :])
        gram, b = x.new_zeros(n, d, n, d), torch.eye(d, dtype=x.dtype).expand(n, -1, -1)
        for layer in range(layers, 0, -1):
            z, outputs = inputs[layer - 1], b.flatten(0, 1) @ b.flatten(0, 1).T
            gram += outputs.view(n, d, n, d).mul_((1 + z @ z.T)[:, None, :, None])
            if layer > 1:
                b = (b @ weights[f"w{layer}"].T) * slopes[layer - 2]
        return gram.view(n * d, n * d)

    def operator(self, law: Law) -> Tensor:
        """K as an operator on L²(p), (n d, n d): its eigenvalues and its Hilbert-Schmidt norm are K's."""
        root = law.weights.sqrt().repeat_interleave(law.x.shape[1])
        return self.gram(law.x) * root[:, None] * root


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

    def coefficients(self, f: Points) -> Tensor:
        """⟨f, v_k⟩_p, (k,)."""
        return self.law.inner(self.functions, f)

    def alignment(self, f: Points) -> Tensor:
        """Share of |f|²_p within the first 1, 2, ... modes, (k,)."""
        return self.coefficients(f).square().cumsum(0) / self.law.inner(f, f)

    def residual(self, f: Points) -> Tensor:
        """ε = |f_2|_p / |f|_p, with f_2 what is beyond the first 1, 2, ... modes, (k,)."""
        return (1 - self.alignment(f)).clamp_min(0).sqrt()

    def bound(self, f: Points, scaled_time: float) -> Tensor:
        r"""$e^{-t \lambda \mu_m} |f_1|_p + |f_2|_p$ for m = 1, 2, ..., (k,), [repasky2023] eq. (27).

        f_1 is the part of f within the first m modes and f_2 the rest; the scaled time is t λ.
        """
        within = self.coefficients(f).square().cumsum(0)
        beyond = (self.law.inner(f, f) - within).clamp_min(0)
        return torch.exp(-scaled_time * self.values) * within.sqrt() + beyond.sqrt()


def spectrum(kernel: TangentKernel, law: Law) -> Spectrum:
    """All modes, from whichever matrix is smaller: (n d)² or (m)².

    Modes whose eigenvalue is rounding beside the largest one do not count towards the rank.
    """
    (n, d), root = law.x.shape, law.weights.sqrt()[:, None]
    if n * d <= len(kernel.theta):
        values, vectors = torch.linalg.eigh(kernel.operator(law))
    else:
        rows = (kernel.jacobian(law.x) * root[:, None]).flatten(0, 1)
        values, right = torch.linalg.eigh(rows.T @ rows)
        vectors = rows @ right / values.sqrt()
    values = values.flip(0)
    rank = int((values > values[0] * len(values) * torch.finfo(values.dtype).eps).sum())
    functions = vectors.flip(1)[:, :rank].T.reshape(rank, n, d) / root
    return Spectrum(kernel, law, values[:rank], functions)


def flatten(parameters: Parameters) -> Tensor:
    """All weights of each member as one row, (e, m)."""
    return torch.cat([value.flatten(1) for value in parameters.values()], dim=1)


def unflatten(theta: Tensor, like: Parameters) -> Parameters:
    """The weights of all members again, named and shaped as others."""
    parts = theta.split([value[0].numel() for value in like.values()], dim=1)
    return {
        name: part.reshape(len(theta), *value.shape[1:])
        for (name, value), part in zip(like.items(), parts, strict=True)
    }
