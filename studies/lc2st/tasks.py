"""Four posteriors of the simulation-based inference benchmark [lueckmann2021], written out in torch.

Stein's identity needs a density that vanishes where its support ends. A uniform prior does not, so each
posterior has coordinates on all of R^d: logits of a box, and where the posterior is a mirror image of itself,
its two halves are put together along the edge at which both of them end (`TwoMoons`, `Slcp`). That is one to
one, and it lets the score see how much weight each half has, which in separate modes no score sees.
"""

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import biject_to, constraints

from steincritic.models import LogDensity
from steincritic.shapes import PerPoint, Points


class TaskPosterior(LogDensity):
    """A posterior of theta, as a density of unconstrained coordinates y."""

    bound = math.inf  # of every theta, where the prior is uniform

    def __init__(self, observation: Tensor, dim: int) -> None:
        self.observation = observation.to(torch.float64)
        super().__init__(self._joint, dim=dim)

    def inside(self, theta: Points) -> Tensor:
        """(n,) whether the posterior's density is positive there."""
        return (theta.abs() < self.bound).all(1)

    @abstractmethod
    def unconstrain(self, theta: Points) -> Points: ...

    @abstractmethod
    def _joint(self, y: Points) -> PerPoint: ...


def to_line(x: Tensor, bound: float) -> Tensor:
    """The logit of (-bound, bound)."""
    y: Tensor = biject_to(constraints.interval(-bound, bound)).inv(x)
    return y


def from_line(y: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """`to_line` undone, and the logarithm of its slope."""
    transform = biject_to(constraints.interval(-bound, bound))
    x = transform(y)
    return x, transform.log_abs_det_jacobian(y, x)


class BernoulliGlm(TaskPosterior):
    """Spikes b_i ~ Bernoulli(sigmoid(x_i . theta)); the prior of the filter prefers smooth ones.

    Args:
        observation: (m,) zeros and ones.
        design: (m, d), of ones and of the stimulus at lags 0, 1, ...
    """

    def __init__(self, observation: Tensor, design: Tensor) -> None:
        self.design = design.to(torch.float64)
        self.precision = smooth_precision(design.shape[1])
        super().__init__(observation, design.shape[1])

    def unconstrain(self, theta: Points) -> Points:
        return theta

    def _joint(self, y: Points) -> PerPoint:
        drive = y @ self.design.T.to(y)  # (n, m)
        fit = drive @ self.observation.to(y) - F.softplus(drive).sum(1)
        return fit - 0.5 * ((y @ self.precision.to(y)) * y).sum(1)


def smooth_precision(dim: int) -> Tensor:
    """Of the prior: 1/2 for the offset; second differences of the filter, and more at later lags."""
    m = dim - 1
    difference = torch.eye(m, dtype=torch.float64) - torch.diag(torch.ones(m - 1, dtype=torch.float64), -1)
    rough = difference @ difference + torch.diag((torch.arange(m, dtype=torch.float64) / m).sqrt())
    precision = 0.5 * torch.eye(dim, dtype=torch.float64)
    precision[1:, 1:] = rough.T @ rough
    return precision


class GaussianLinearUniform(TaskPosterior):
    """x ~ N(theta, 0.1 I), theta uniform in [-1, 1]^d. Coordinates: logits."""

    bound, variance = 1.0, 0.1

    def __init__(self, observation: Tensor) -> None:
        super().__init__(observation, len(observation))

    def unconstrain(self, theta: Points) -> Points:
        return to_line(theta, self.bound)

    def _joint(self, y: Points) -> PerPoint:
        theta, log_slope = from_line(y, self.bound)
        return -0.5 * (theta - self.observation.to(y)).square().sum(1) / self.variance + log_slope.sum(1)


class Slcp(TaskPosterior):
    """Four points ~ N((t1, t2), S), S of standard deviations t3^2, t4^2 and correlation tanh(t5).

    The prior is uniform in [-3, 3]^5. The density vanishes at t3 = 0 and is the same at t3 and -t3; so the
    coordinate is what t3 lacks to the edge of the box, sign(t3) (3 - |t3|), which is continuous there. The
    same for t4; logits for the others.
    """

    bound, jitter = 3.0, 1e-6  # on the diagonal of S, as the benchmark has it

    def __init__(self, observation: Tensor) -> None:
        super().__init__(observation.view(4, 2), 5)

    def unconstrain(self, theta: Points) -> Points:
        line, root = to_line(theta, self.bound), theta[:, 2:4]
        turned = root.sign() * (self.bound - root.abs())
        return torch.cat([line[:, :2], turned, line[:, 4:]], 1)

    def _joint(self, y: Points) -> PerPoint:
        rest, log_slope = from_line(y[:, [0, 1, 4]], self.bound)
        s1, s2 = (self.bound - y[:, 2:4].abs()).square().unbind(1)
        mean, rho = rest[:, :2], rest[:, 2].tanh()
        a, b, c = s1.square() + self.jitter, s2.square() + self.jitter, rho * s1 * s2
        determinant = a * b - c.square()
        u, v = (self.observation.to(y) - mean[:, None]).unbind(2)  # (n, 4) each
        squares = b * u.square().sum(1) - 2 * c * (u * v).sum(1) + a * v.square().sum(1)
        return -0.5 * squares / determinant - 2 * determinant.log() + log_slope.sum(1)


class TwoMoons(TaskPosterior):
    """x = (0.25 + r cos a - |z1|, r sin a + z2), z = theta turned by 45 degrees; r ~ N(0.1, 0.01), a uniform.

    a is in (-pi/2, pi/2) and theta uniform in [-1, 1]^2. Given x, the posterior is half a ring at either side
    of z1 = 0, with cut ends. Moved together along the cuts they are one ring, if they do not touch and its
    center is in the box. Coordinates are its radius, its logarithm stretched to infinity where the box ends,
    and the logit of its angle from -pi to pi.
    """

    bound, offset, radius, width = 1.0, 0.25, 0.1, 0.01
    power = 8  # of the stretching, which radii below half the way to the edge hardly feel

    def __init__(self, observation: Tensor) -> None:
        super().__init__(observation, 2)
        self.gap = self.offset - float(self.observation[0])  # |z1| is at least this
        self.side = math.sqrt(2) - self.gap  # the box is |z1| + |z2| < sqrt 2
        self.height = float(self.observation[1])

    def inside(self, theta: Points) -> Tensor:
        return super().inside(theta) & (_turned(theta)[0].abs() > self.gap)

    def unconstrain(self, theta: Points) -> Points:
        z1, z2 = _turned(theta)
        u, v = z1.sign() * (z1.abs() - self.gap), self.height - z2
        r, angle = (u.square() + v.square()).sqrt(), torch.atan2(v, u)
        stretched = r.log() - torch.log1p(-((r * self._curb(angle)) ** self.power)) / self.power
        return torch.stack([stretched, to_line(angle, math.pi)], 1)

    def _joint(self, y: Points) -> PerPoint:
        angle, log_slope = from_line(y[:, 1], math.pi)
        ends = torch.stack([-y[:, 0], self._curb(angle).log()])
        log_r = -torch.logsumexp(self.power * ends, 0) / self.power
        stretching = (self.power + 1) * log_r - self.power * y[:, 0]  # log dr/dy
        return -0.5 * ((log_r.exp() - self.radius) / self.width).square() + stretching + log_slope

    def _curb(self, angle: Tensor) -> Tensor:
        """One over the radius at which the ring's ray leaves the box."""
        across, up = angle.cos().abs(), angle.sin()
        lower, upper = (across - up) / (self.side - self.height), (across + up) / (self.side + self.height)
        return torch.max(lower, upper)


def _turned(theta: Points) -> tuple[Tensor, Tensor]:
    t1, t2 = theta.unbind(1)
    return (t1 + t2) / math.sqrt(2), (t2 - t1) / math.sqrt(2)
