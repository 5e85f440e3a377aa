r"""Lazy training: a critic's gradient flow beside the kernel regression that it is close to.

With u = f(., θ(t)) - f(., θ(0)), so that training starts at zero, gradient flow of the loss obeys

$$\partial_t u = -E_p K_t (\lambda u - f^*), \qquad \partial_t \bar u = -E_p K_0 (\lambda \bar u - f^*)$$

and the second has a closed form. λū depends on t and λ through τ = λt alone, so times are given as
τ ("scaled time") throughout, and critics with many λ share one clock. [repasky2023] section 4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.network import Buffers, Parameters
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_positive
from steincritic.shapes import PerMember, Points
from steincritic_studies.lazy.law import Law
from steincritic_studies.lazy.ntk import Spectrum, TangentKernel, spectrum

# Dormand and Prince (1980): stages, the fifth-order weights (= the last stage), and fifth less fourth order
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
_MOST_STEPS = 100_000


@dataclass(frozen=True, eq=False)
class Objective:
    """The loss E_p[λ/2 |u|² - target·u - (∇·u)], the last term only where p is a sample.

    Under the whole of p the target is f*; from a sample it is s_q, and the divergence stands for the
    score of p that nobody knows (integration by parts).
    """

    x: Tensor  # (n, d), or (e, n, d) with own points for each member
    weights: Tensor  # (n,)
    target: Tensor  # as x
    with_divergence: bool

    @classmethod
    def population(cls, law: Law, gap: Points) -> "Objective":
        """p known in full, through f* = s_q - s_p at its points."""
        return cls(law.x, law.weights, gap, with_divergence=False)

    @classmethod
    def sample(cls, points: ScoredPoints) -> "Objective":
        """p known by points, the model by its score there: what training really does."""
        points = points.to(torch.float64)
        weights = points.x.new_full((len(points),), 1 / len(points))
        return cls(points.x, weights, points.score, with_divergence=True)

    def gradient(self, bank: Bank, start: Tensor, lam: PerMember, buffers: Buffers, into: Parameters) -> None:
        """Write the gradient of every member's loss; `start` holds the fields (e, n, d) at time zero."""
        x = self.x.expand(len(bank), *self.x.shape[-2:])
        if self.with_divergence:
            f, div_f, pull = bank.network.pullback(bank.parameters, x, None, buffers)
            pull(self._residual(f - start, lam), -self.weights.expand_as(div_f), into)
            return
        leaves = {name: value.detach().requires_grad_() for name, value in bank.parameters.items()}
        with torch.enable_grad():
            f = bank.network.field(leaves, x)
        gradients = torch.autograd.grad(f, list(leaves.values()), self._residual(f.detach() - start, lam))
        for name, gradient in zip(leaves, gradients, strict=True):
            into[name].copy_(gradient)

    def _residual(self, u: Tensor, lam: PerMember) -> Tensor:
        """The derivative of the loss in u at the points."""
        return (lam[:, None, None] * u - self.target) * self.weights[:, None]

    def drive(self, kernel: TangentKernel) -> Tensor:
        """The velocity of the parameters at time zero, (m,): minus the gradient where u = 0."""
        bank, into = kernel.bank, _like(kernel.bank.parameters)
        start = bank.network.field(bank.parameters, self.x.expand(1, *self.x.shape[-2:]))
        self.gradient(bank, start, start.new_ones(1), Buffers(), into)
        return -torch.cat([value.reshape(-1) for value in into.values()])


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
        if objective.x.ndim != 2:
            raise InputError("the kernel solution is of one critic: its objective has points (n, d)")
        return cls(
            spectrum(kernel, Law(objective.x, objective.weights)),
            objective.drive(kernel),
        )

    def displacement(self, scaled_time: float) -> Tensor:
        """λ(θ̄ - θ(0)), (m,), at scaled time τ = λt."""
        check_positive(scaled_time, name="scaled time (lambda times t)")
        modes, law, kernel = self.spectrum, self.spectrum.law, self.spectrum.kernel
        h = modes.coefficients(kernel.forward(law.x, self.drive))
        memory = _memory(modes.values, scaled_time) * h  # λ² times the time integral of ū, by mode
        values = torch.tensordot(memory, modes.functions, dims=1)
        return scaled_time * self.drive - kernel.backward(law.x, values * law.weights[:, None])

    def field(self, x: Points, scaled_time: float) -> Points:
        """λū at any points."""
        return self.spectrum.kernel.forward(x, self.displacement(scaled_time))


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
    tolerance: float = 1e-8,
) -> NetworkFlow:
    """Integrate θ' = -∇L_λ from one critic's parameters, for every λ at once.

    Args:
        start: a bank of one, in float64.
        objective: its points may be shared, or one set for each λ.
        scaled_times: rising values of τ = λt to stop at.
        tolerance: error of one step, relative to how far the parameters have moved.
    """
    for value in lam:
        check_positive(value, name="lambda")
    for value in scaled_times:
        check_positive(value, name="scaled time (lambda times t)")
    if list(scaled_times) != sorted(set(scaled_times)):
        raise InputError("scaled times must rise")
    if len(start) != 1 or start.dtype != torch.float64:
        raise InputError(f"a flow starts at one critic in float64, got {len(start)} in {start.dtype}")
    if objective.x.ndim == 3 and len(objective.x) != len(lam):
        raise InputError(f"got {len(objective.x)} sets of points for {len(lam)} values of lambda")
    shapes = {name: value.shape[1:] for name, value in start.parameters.items()}
    whole = Bank(start.network, {k: v.expand(len(lam), *v.shape[1:]) for k, v in start.parameters.items()})
    lams = torch.tensor(lam, dtype=torch.float64, device=start.device)
    first, buffers = whole.field(objective.x), Buffers()

    def at(theta: Tensor) -> Bank:
        parts = theta.split([shape.numel() for shape in shapes.values()], dim=1)
        return Bank(
            start.network,
            {k: p.reshape(len(lam), *s) for (k, s), p in zip(shapes.items(), parts, strict=True)},
        )

    def velocity(theta: Tensor) -> Tensor:
        bank = at(theta)
        into = _like(bank.parameters)
        objective.gradient(bank, first, lams, buffers, into)
        return -flatten(into) / lams[:, None]

    path = integrate(velocity, flatten(whole.parameters), scaled_times, tolerance=tolerance)
    return NetworkFlow(whole, lams, tuple(scaled_times), tuple(map(at, path)))


def integrate(
    velocity: Callable[[Tensor], Tensor], start: Tensor, times: Sequence[float], *, tolerance: float
) -> list[Tensor]:
    """States (e, m) at rising times, by the pair of Dormand and Prince.

    The step is common to all rows and set by the worst of them: the estimated error of a step stays
    below the tolerance times the distance that the row has moved from its start.
    """
    y, now, path = start, 0.0, []
    first = velocity(y)
    step = times[0] / 10
    for stop in times:
        for _ in range(_MOST_STEPS):
            if now >= stop:
                break
            last = now + step >= stop
            h = stop - now if last else step
            slopes = [first]
            for row in _STAGES:
                proposal = torch.add(y, _combined(row, slopes), alpha=h)
                slopes.append(velocity(proposal))
            moved = torch.maximum((proposal - start).norm(dim=1), h * slopes[0].norm(dim=1))
            ratio = h * _combined(_ERROR, slopes).norm(dim=1) / (tolerance * moved.clamp_min(1e-300))
            worst = float(ratio.nan_to_num(nan=1e10, posinf=1e10).max())
            if worst <= 1:
                y, first, now = proposal, slopes[-1], stop if last else now + h
            grown = h * min(5.0, max(0.2, 0.9 * max(worst, 1e-10) ** -0.2))
            step = max(step, grown) if last and worst <= 1 else grown
        else:
            raise RuntimeError(f"the flow took more than {_MOST_STEPS} steps; raise the tolerance")
        path.append(y)
    return path


def flatten(parameters: Parameters) -> Tensor:
    """All weights of each member as one row, (e, m)."""
    return torch.cat([value.flatten(1) for value in parameters.values()], dim=1)


def slope(x: Sequence[float] | Tensor, y: Sequence[float] | Tensor) -> float:
    """The exponent b of y ∝ x^b, by least squares in logarithms."""
    log_x, log_y = (torch.as_tensor(v, dtype=torch.float64).log() for v in (x, y))
    centered = log_x - log_x.mean()
    return float((centered * log_y).sum() / centered.square().sum())


def _memory(mu: Tensor, tau: float) -> Tensor:
    """(τ - (1 - e^{-μτ})/μ)/μ, by its series where the difference would cancel."""
    z = mu * tau
    series = tau**2 * (0.5 - z / 6 + z**2 / 24 - z**3 / 120)
    return torch.where(z < 1e-3, series, (tau + torch.expm1(-z) / mu) / mu)


def _like(parameters: Parameters) -> Parameters:
    return {name: torch.empty_like(value) for name, value in parameters.items()}


def _combined(weights: Sequence[float], slopes: Sequence[Tensor]) -> Tensor:
    total = slopes[0] * weights[0]
    for weight, slope in zip(weights[1:], slopes[1:], strict=True):
        if weight:
            total = total.add_(slope, alpha=weight)
    return total
