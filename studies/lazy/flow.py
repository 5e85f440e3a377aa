r"""Lazy training: a critic's gradient flow beside the kernel regression that it is close to.

With u = f(., θ(t)) - f(., θ(0)), so that training starts at zero, gradient flow of the loss obeys

$$\partial_t u = -E_p K_t (\lambda u - f^*), \qquad \partial_t \bar u = -E_p K_0 (\lambda \bar u - f^*)$$

and the second has a closed form. λū depends on t and λ through τ = λt alone, so times are given as
τ ("scaled time") throughout, and critics with many λ share one clock. [repasky2023] section 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from steincritic.critics import Bank
from steincritic.data.points import ScoredPoints
from steincritic.shapes import PerMember, PerPoint, Points
from studies.lazy.ntk import Law, Spectrum, TangentKernel, flatten, spectrum, unflatten


@dataclass(frozen=True, eq=False)
class Objective:
    """The loss E_p[λ/2 |u|² - target·u - (∇·u)], the last term only where p is a sample.

    Under the whole of p the target is f* = s_q - s_p; from a sample it is s_q, and the divergence stands
    for the score of p that nobody knows (integration by parts).
    """

    law: Law  # its points (n, d), or (e, n, d) with a sample for each member
    target: Tensor  # at these points
    with_divergence: bool = False

    @classmethod
    def sample(cls, points: ScoredPoints) -> "Objective":
        """p known by points, the model by its score there: what training really does."""
        weights = points.x.new_full((len(points),), 1 / len(points))
        return cls(Law(points.x, weights), points.score, with_divergence=True)

    def gradient(self, bank: Bank, start: Tensor, lam: PerMember) -> Tensor:
        """Of every member's loss in its parameters, (e, m); `start` holds the fields at time zero."""
        leaves = {name: value.detach().requires_grad_() for name, value in bank.parameters.items()}
        x = self.law.x.expand(len(lam), *self.law.x.shape[-2:])
        with torch.enable_grad():
            if self.with_divergence:
                f, div_f = bank.network.field_and_divergence(leaves, x)
            else:
                f, div_f = bank.network.field(leaves, x), lam.new_zeros(())
            u = f - start
            density = 0.5 * lam[:, None] * (u * u).sum(-1) - (self.target * u).sum(-1) - div_f
            loss = (density * self.law.weights).sum()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        return flatten(dict(zip(leaves, gradients, strict=True)))

    def drive(self, kernel: TangentKernel) -> Tensor:
        """The velocity of the parameters at time zero, (m,): minus the gradient where u = 0."""
        start = kernel.bank.field(self.law.x)
        return -self.gradient(kernel.bank, start, start.new_ones(1))[0]


@dataclass(frozen=True, eq=False)
class KernelSolution:
    r"""ū in closed form, by the eigendecomposition of K_0.

    In the parameters, with g the drive, $\lambda\bar\theta(\tau) = \tau g - \sum_k \mu_k^{-1} h_k
    (\tau - \phi_k)\, E_p[J^\top v_k]$, where $h_k = \langle v_k, J g \rangle_p$ and $\phi_k = (1 -
    e^{-\mu_k \tau})/\mu_k$. That holds for any drive, also one with a part that no mode of K_0 can see.
    """

    spectrum: Spectrum
    drive: Tensor  # (m,)

    @classmethod
    def of(cls, kernel: TangentKernel, objective: Objective) -> "KernelSolution":
        return cls(spectrum(kernel, objective.law), objective.drive(kernel))

    def displacement(self, scaled_time: float) -> Tensor:
        """λ(θ̄ - θ(0)), (m,), at scaled time τ = λt."""
        modes, law, kernel = self.spectrum, self.spectrum.law, self.spectrum.kernel
        h = modes.coefficients(kernel.forward(law.x, self.drive))
        memory = _memory(modes.values, scaled_time) * h  # λ² times the time integral of ū, by mode
        values = torch.tensordot(memory, modes.functions, dims=1)
        return scaled_time * self.drive - kernel.backward(law.x, values * law.weights[:, None])

    def field(self, x: Points, scaled_time: float) -> Points:
        """λū at any points."""
        return self.spectrum.kernel.forward(x, self.displacement(scaled_time))


def _memory(mu: Tensor, tau: float) -> Tensor:
    """(τ - (1 - e^{-μτ})/μ)/μ, by its series where the difference would cancel."""
    z = mu * tau
    series = tau**2 * (0.5 - z / 6 + z**2 / 24 - z**3 / 120)
    return torch.where(z < 1e-3, series, (tau + torch.expm1(-z) / mu) / mu)


@dataclass(frozen=True, eq=False)
class NetworkFlow:
    """Critics along their gradient flow, one per λ, at recorded scaled times."""

    start: Bank
    lam: PerMember
    scaled_times: tuple[float, ...]
    banks: tuple[Bank, ...]  # one per time

    def fields(self, x: Points) -> Tensor:
        """λu at shared points, (times, e, n, d)."""
        lam, before = self.lam[:, None, None], self.start.field(x)
        return torch.stack([lam * (bank.field(x) - before) for bank in self.banks])

    @property
    def tau(self) -> Tensor:
        """The scaled times, (times,)."""
        return torch.tensor(self.scaled_times, dtype=torch.float64)

    def critic(self, x: Points, *, time: int = -1, member: int = 0) -> tuple[Points, PerPoint]:
        """u and its divergence, of a member at a recorded time."""
        f, div_f = self.banks[time][[member]].field_and_divergence(x)
        f_0, div_0 = self.start.field_and_divergence(x)
        return (f - f_0)[0], (div_f - div_0)[0]

    def moved(self) -> Tensor:
        """|θ(t) - θ(0)|, (times, e)."""
        before = flatten(self.start.parameters)
        return torch.stack([(flatten(bank.parameters) - before).norm(dim=1) for bank in self.banks])


def gradient_flow(
    start: Bank,
    objective: Objective,
    *,
    lam: Sequence[float],
    scaled_times: Sequence[float],
    tolerance: float,
) -> NetworkFlow:
    """Integrate θ' = -∇L_λ from one critic's parameters, for every λ at once.

    Args:
        start: a bank of one, in float64.
        scaled_times: rising values of τ = λt to stop at.
        tolerance: error of one step, relative to how far the parameters have moved.
    """
    from scipy.integrate import solve_ivp

    lams, origin, x = torch.tensor(lam, dtype=torch.float64), flatten(start.parameters), objective.law.x
    before = start.field(x.flatten(0, -2)).view(-1, *x.shape[-2:])

    def at(moved: np.ndarray) -> Bank:
        theta = origin + torch.from_numpy(moved).view(len(lam), -1) / lams[:, None]
        return Bank(start.network, unflatten(theta, start.parameters))

    def velocity(_: float, moved: np.ndarray) -> np.ndarray:
        """Of λ(θ - θ(0)) in scaled time."""
        return -objective.gradient(at(moved), before, lams).flatten().numpy()

    moved, now, banks = np.zeros(len(lam) * origin.shape[1]), 0.0, []
    least = tolerance * scaled_times[0] * float(np.sqrt(np.mean(velocity(0.0, moved) ** 2)))
    for stop in scaled_times:
        path = solve_ivp(velocity, (now, stop), moved, t_eval=[stop], rtol=tolerance, atol=least)
        if not path.success:  # few points and a small λ: the loss has no minimum
            raise RuntimeError(f"the flow cannot be followed to {stop:.3g}: {path.message}")
        moved, now = path.y[:, -1], stop
        banks.append(at(moved))
    return NetworkFlow(start, lams, tuple(scaled_times), tuple(banks))


def slope(x: Sequence[float] | Tensor, y: Sequence[float] | Tensor) -> float:
    """The exponent b of y ∝ x^b, by least squares in logarithms."""
    return float(np.polyfit(np.log(np.asarray(x)), np.log(np.asarray(y)), 1)[0])


def rate(sizes: Sequence[int], squares: Tensor) -> tuple[float, float]:
    """The exponent in n of the root mean square over independent replicates, and its standard error.

    A logarithm of a root mean square has error sd(squares) / (2 mean(squares) √replicates); least squares
    adds the errors at the sizes by its own weights.

    Args:
        squares: (sizes, replicates) squared distances.
    """
    logs, means = torch.tensor(sizes, dtype=torch.float64).log(), squares.mean(1)
    errors = squares.std(1) / (2 * means * squares.shape[1] ** 0.5)
    weights = (logs - logs.mean()) / (logs - logs.mean()).square().sum()
    return slope(sizes, means.sqrt()), float((weights * errors).norm())
