"""What the paper promises of lazy training, evaluated where its constants can be computed.

The bounds on the distance from lazy training, what they ask of λ, of time and of n, and the corollary on
the power of a test. L_1 to L_4 are suprema over a ball of parameters and all of space in the paper; for
unbounded data these do not exist. The proofs need them along the path from θ(0) alone, so they are the
largest values there: over the law's points and the recorded times so far.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.data import Problem
from steincritic.shapes import PerMember, Points
from steincritic.stein import VectorField, stein_values
from studies.lazy.flow import NetworkFlow
from studies.lazy.ntk import Law, Spectrum, TangentKernel

_Z_SQUARED = 20  # √(20 log n) standard deviations are exceeded with probability n^-10


def largest_discrepancy(pair: Problem, law: Law, radius: float) -> tuple[float, VectorField]:
    r"""$SD_r = r |f^*|_p$ and the critic $(r / |f^*|_p) f^*$ that attains it, [repasky2023] lemma 2.1."""
    size = float(law.norm(pair.gap(law.x)))
    return radius * size, lambda x: pair.gap(x) * (radius / size)


@dataclass(frozen=True, kw_only=True)
class Span:
    """The first modes of K_0 as theorems 4.6 and 4.10 of [repasky2023] use them.

    Scaled time is λt; the reach is r / |f*|_p, with r the radius of the ball that holds the path.
    """

    eps: float  # |f_2*| / |f*|: what these modes leave of f*
    delta: float  # the smallest of their eigenvalues

    @classmethod
    def of(cls, modes: Spectrum, gap: Points, count: int) -> "Span":
        return cls(eps=float(modes.residual(gap)[count - 1]), delta=float(modes.values[count - 1]))

    @property
    def wait(self) -> float:
        """The scaled time log(1/ε)/δ from which eq. (28) promises an error of 2ε |f*|_p."""
        return math.log(1 / self.eps) / self.delta

    def least_lambda(self, reach: float, *, sampled: bool = False) -> float:
        """λ from which the window of t_0 is not empty: theorem 4.6, or 4.10 for samples."""
        return math.sqrt((4 if sampled else 2) * self.wait) / reach

    def latest(self, reach: float, lam: PerMember, *, sampled: bool = False) -> Tensor:
        """The end of the window 1 ≤ t_0 ≤ ..., with λt = t_0 log(1/ε)/δ: eq. (31), or (41) for samples."""
        return (lam / self.least_lambda(reach, sampled=sampled)) ** 2


def along_path(flow: NetworkFlow, matrices: Callable[[TangentKernel], Tensor]) -> tuple[Tensor, Tensor]:
    """The largest operator norm of matrices that depend on θ, and their Lipschitz constant, (times, e) each.

    Args:
        matrices: (n, a, m) at n points; as a is small, norms come from the (a, a) products.
    """

    def largest(matrix: Tensor) -> float:
        return math.sqrt(float(torch.linalg.eigvalsh(matrix @ matrix.mT).max()))

    before, moved = matrices(TangentKernel.of(flow.start)), flow.moved()
    norm, change = torch.full_like(moved, largest(before)), torch.zeros_like(moved)
    for k, bank in enumerate(flow.banks):
        for member in range(len(bank)):
            now = matrices(TangentKernel.of(bank, member))
            norm[k, member] = max(largest(before), largest(now))
            change[k, member] = largest(now - before) / moved[k, member]
    return norm.cummax(0).values, change.cummax(0).values


def envelope(flow: NetworkFlow, law: Law, gap: Points) -> Tensor:
    r"""$\frac{4\sqrt 2}{3} L_1 L_2 \sqrt\lambda\, t^{3/2} |f^*|_p^2$, (times, e), [repasky2023] eq. (30).

    Divided by |f*|_p it is the term with C_1 of theorem 4.6, eq. (32), whose other term is 2ε.
    """
    first, second = along_path(flow, lambda kernel: kernel.jacobian(law.x))
    factor = 4 * math.sqrt(2) / 3 * first * second * law.inner(gap, gap)
    return factor * flow.tau[:, None] ** 1.5 / flow.lam  # √λ t^1.5 = (λt)^1.5 / λ


@dataclass(frozen=True, kw_only=True)
class SampleBound:
    r"""$C_2 (1 + \tau) (\tau^{3/2} |f^*|_p / \lambda + (1 + \tau) \tau \sqrt{(\log n + \log M) / n})$.

    It bounds |λû - λū|_p at τ = λt, [repasky2023] proposition 4.9, eq. (40); C_2 is that of the proof. With
    2ε |f*|_p it is theorem 4.10, where τ = t_0 log(1/ε)/δ and its powers are κ_1 and κ_2.
    """

    jacobian: tuple[float, float]  # L_1 and L_2, of J
    divergence: tuple[float, float]  # L_3 and L_4, of ∇·J
    b_q: float
    size: float  # |f*|_p
    parameters: int  # M

    @classmethod
    def along(cls, flow: NetworkFlow, pair: Problem, law: Law, *, time: int, member: int) -> "SampleBound":
        """With the constants along a member's path until a recorded time.

        b_q is the largest of what the proof of (40) uses it for, from (C6): |s_q|_p, the largest |Jᵀs_q| /
        L_1, and the root of the standard deviation of |s_q|², which concentration needs as n grows.
        """
        score = pair.model.score(law.x)
        path = NetworkFlow(
            flow.start,
            flow.lam[[member]],
            flow.scaled_times[: time + 1],
            tuple(bank[[member]] for bank in flow.banks[: time + 1]),
        )

        def constants(matrices: Callable[[TangentKernel], Tensor]) -> tuple[float, float]:
            norm, change = along_path(path, matrices)
            return float(norm[-1, 0]), float(change[-1, 0])

        jacobian = constants(lambda kernel: kernel.jacobian(law.x))
        pull, _ = constants(lambda kernel: score[:, None] @ kernel.jacobian(law.x))  # of Jᵀs_q
        spread = law.sd(score.square().sum(1)) ** 0.5
        return cls(
            jacobian=jacobian,
            divergence=constants(lambda kernel: kernel.divergence_jacobian(law.x)),
            b_q=max(float(law.norm(score)), pull / jacobian[0], spread),
            size=float(law.norm(pair.gap(law.x))),
            parameters=len(TangentKernel.of(flow.start).theta),
        )

    @property
    def factor(self) -> float:
        """C_2."""
        (l_1, l_2), (l_3, l_4) = self.jacobian, self.divergence
        inner = (2 + l_1**2) * self.size + 2 * self.b_q  # C_{2,2}
        root = 2 * math.sqrt(11)
        largest = max(
            2 * l_1 * l_2 * inner + l_2 * l_3 + l_1 * l_4,
            root * l_1**4 * self.size,
            root * (l_1**2 * self.b_q + 2 * l_1 * l_3),
        )
        return 2 * largest * max(1, 2 * l_1**2)

    def kappas(self, tau: float) -> tuple[float, float]:
        return (1 + tau) * tau**1.5, (1 + tau) ** 2 * tau

    def __call__(self, *, lam: float, tau: float, n: int) -> float:
        (kappa_1, kappa_2), logs = self.kappas(tau), math.log(n) + math.log(self.parameters)
        return self.factor * (kappa_1 * self.size / lam + kappa_2 * math.sqrt(logs / n))

    def asked(self, tau: float, *, share: float) -> dict[str, float]:
        """λ and n from which either term is below a share of |f*|_p, and n_5 and n_λt of the proof."""
        (kappa_1, kappa_2), logs = self.kappas(tau), math.log(self.parameters)
        return {
            "lam": self.factor * kappa_1 / share,
            "n": least_n(1, logs, (share * self.size / (self.factor * kappa_2)) ** 2),
            "n_5": least_n(10, logs + math.log(2), (3 / 2) ** 2),
            "n_time": least_n(1, logs, 1 / (44 * max(tau**4, 1.0))),
        }


def least_n(a: float, b: float, c: float) -> int:
    """The smallest n ≥ 3 with (a log n + b)/n < c; it then holds for all larger n, too."""

    def holds(n: int) -> bool:
        return a * math.log(n) + b < c * n

    low, high = 2, 3
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least_n_of_lemma(flow: NetworkFlow, pair: Problem, law: Law, *, time: int, member: int) -> int:
    """n_λ of lemma 4.8, from below.

    C_F n^-γ and b_F bound a supremum over a ball of critics and cannot be computed. Here C_F = 0, and b_F
    is what the critic of the flow needs alone: √20 standard deviations of ∇·u or of u·s_p under p. b_2 is the
    standard deviation of |f*|².
    """
    (u, div_u), gap = flow.critic(law.x, time=time, member=member), pair.gap(law.x)
    spread = max(law.sd(div_u), law.sd((u * pair.data.score(law.x)).sum(1)))
    factor = math.sqrt(_Z_SQUARED) * (law.sd(gap.square().sum(1)) + 4 * float(flow.lam[member]) * spread)
    return least_n(1, 0, float(law.inner(gap, gap) / factor) ** 2)


def power_corollary(
    flow: NetworkFlow, pair: Problem, law: Law, null: Law, *, level: float, miss: float
) -> dict[str, float]:
    """[repasky2023] corollary in section 5.1, for the last critic of a flow with one λ: promised and true.

    Its condition on n is √2 b (1 + √log(1/level) + √log(1/miss)) λ n^(-1/2) < |f*|²_p / 10, with b the
    largest |s_q·u| plus the largest |∇·u|, here on the grids of the two laws, which hold all but 1e-9 of
    their mass. The conditions on training, whose constants nobody can compute, are replaced by their
    consequence, which is measured: a relative error below 0.9.

    Args:
        law, null: p and q by quadrature.
        miss: the allowed probability of a type II error.
    """
    lam, gap = float(flow.lam), pair.gap(law.x)
    f_squared = float(law.inner(gap, gap))
    (mean, sd_p, limits_p), (zero, sd_q, limits_q) = (_stein(flow, pair, p) for p in (law, null))
    b = float(torch.maximum(limits_p, limits_q).sum())
    factor = math.sqrt(2) * b * (1 + math.sqrt(math.log(1 / level)) + math.sqrt(math.log(1 / miss)))
    n = (factor * lam / (0.1 * f_squared)) ** 2
    threshold = math.sqrt(2 * math.log(1 / (0.9 * level)) / n) * b  # by Hoeffding's inequality
    normal, root = NormalDist(), math.sqrt(n)
    quantiles = normal.inv_cdf(1 - level) * sd_q + normal.inv_cdf(1 - miss) * sd_p
    return {
        "relative_error": float(law.norm(flow.fields(law.x)[-1, 0] - gap)) / math.sqrt(f_squared),
        "promised": n,  # test points that guarantee level and power
        "level": normal.cdf((zero - threshold) / sd_q * root),  # the true ones at that n, by exact moments
        "power": normal.cdf((mean - threshold) / sd_p * root),
        "needed": (quantiles / mean) ** 2,  # test points at which the right threshold has that power
    }


def _stein(flow: NetworkFlow, pair: Problem, law: Law) -> tuple[float, float, Tensor]:
    """Mean and standard deviation of T_q u under a law, and the largest |s_q·u| and |∇·u| there."""
    (u, div_u), score = flow.critic(law.x), pair.model.score(law.x)
    values = stein_values(score, u, div_u)
    limits = torch.stack([(score * u).sum(-1).abs().max(), div_u.abs().max()])
    return float((law.weights * values).sum()), law.sd(values), limits
