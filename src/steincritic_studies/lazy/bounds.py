"""What the paper promises of lazy training, evaluated where its constants can be computed.

The upper bound on the distance from lazy training, and the corollary on the power of a test.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.data.problems import Problem
from steincritic.errors import InputError, check_level
from steincritic.shapes import PerPoint, Points
from steincritic.stein.operator import stein_values
from steincritic_studies.lazy.flow import NetworkFlow
from steincritic_studies.lazy.law import Law
from steincritic_studies.lazy.ntk import tangent_kernel


def envelope(flow: NetworkFlow, law: Law, gap: Points) -> Tensor:
    r"""$\frac{4\sqrt 2}{3} L_1 L_2 \sqrt\lambda\, t^{3/2} |f^*|_p^2$, (times, e), [repasky2023] eq. (30).

    L_1 bounds |J(x, θ)| and L_2 the Lipschitz constant of J in θ. The proof needs both only along the path
    from θ(0), so they are the largest values there: over the law's points and the recorded times so far.
    """
    times = torch.tensor(flow.scaled_times, dtype=torch.float64)[:, None] / flow.lam  # t
    first, second = path_constants(flow, law)
    f_squared = law.inner(gap, gap)
    return 4 * math.sqrt(2) / 3 * first * second * flow.lam.sqrt() * times**1.5 * f_squared


def path_constants(flow: NetworkFlow, law: Law) -> tuple[Tensor, Tensor]:
    """L_1 and L_2 along every member's path up to each recorded time, (times, e) each."""
    before = tangent_kernel(flow.start[:1]).jacobian(law.x)  # (n, d, m)
    moved = flow.moved()
    first, second = torch.empty_like(moved), torch.empty_like(moved)
    for k, bank in enumerate(flow.banks):
        for member in range(len(bank)):
            now = tangent_kernel(bank[member : member + 1]).jacobian(law.x)
            first[k, member] = max(_largest(now), _largest(before))
            second[k, member] = _largest(now - before) / moved[k, member]
    return first.cummax(0).values, second.cummax(0).values


@dataclass(frozen=True, kw_only=True)
class PowerCorollary:
    """What the corollary promises of one trained critic, and what is true of it.

    The critic is bounded on the grids of the two laws, which hold all but 1e-9 of their mass; so are the
    Stein values, and Hoeffding's inequality applies there.
    """

    relative_error: float  # |λu - f*|_p / |f*|_p; the corollary needs less than 0.9
    bound: float  # b, the largest |s_q·u| plus the largest |∇·u|
    promised: float  # test points for which the corollary guarantees level and power
    threshold: float  # of the mean Stein value at that n, by Hoeffding
    level: float  # true ones at that n, by the normal law with exact moments
    power: float
    needed: float  # test points at which a test with the right threshold has that power


def power_corollary(
    flow: NetworkFlow, pair: Problem, law: Law, null: Law, *, level: float, miss: float
) -> PowerCorollary:
    """[repasky2023] corollary in section 5.1, for the last critic of a flow with one λ.

    Its condition on n is √2 b (1 + √log(1/level) + √log(1/miss)) λ n^(-1/2) < |f*|²_p / 10. The conditions
    on training, whose constants nobody can compute, are replaced by their consequence, which is measured:
    a relative error below 0.9.

    Args:
        law, null: p and q by quadrature.
        miss: the allowed probability of a type II error.
    """
    check_level(level)
    check_level(miss)
    if len(flow.lam) != 1:
        raise InputError(f"the corollary is about one critic, got {len(flow.lam)}")
    lam, gap = float(flow.lam), pair.gap(law.x)
    f_squared = float(law.inner(gap, gap))
    under_p, limits_p = _stein(flow.start, flow.banks[-1], pair, law)
    under_q, limits_q = _stein(flow.start, flow.banks[-1], pair, null)
    b = float(torch.maximum(limits_p, limits_q).sum())
    mean, sd_p = _moments(under_p, law)
    zero, sd_q = _moments(under_q, null)
    factor = math.sqrt(2) * b * (1 + math.sqrt(math.log(1 / level)) + math.sqrt(math.log(1 / miss)))
    n = (factor * lam / (0.1 * f_squared)) ** 2
    threshold = math.sqrt(2 * math.log(1 / (0.9 * level)) / n) * b
    root = math.sqrt(n)
    z = torch.special.ndtri(torch.tensor([1 - level, 1 - miss], dtype=torch.float64))
    return PowerCorollary(
        relative_error=float(law.norm(flow.fields(law.x)[-1, 0] - gap)) / math.sqrt(f_squared),
        bound=b,
        promised=n,
        threshold=threshold,
        level=_above(threshold, zero, sd_q / root),
        power=_above(threshold, mean, sd_p / root),
        needed=((float(z[0]) * sd_q + float(z[1]) * sd_p) / mean) ** 2,
    )


def _largest(jacobian: Tensor) -> float:
    """The largest operator norm of (d, m) matrices, from their small (d, d) products."""
    return math.sqrt(float(torch.linalg.eigvalsh(jacobian @ jacobian.mT).max()))


def _stein(start: Bank, bank: Bank, pair: Problem, law: Law) -> tuple[PerPoint, Tensor]:
    """T_q u at the law's points, and the largest |s_q·u| and |∇·u| there."""
    f, div_f = bank.field_and_divergence(law.x)
    f_0, div_0 = start.field_and_divergence(law.x)
    u, div_u, score = (f - f_0)[0], (div_f - div_0)[0], pair.model.score(law.x)
    limits = torch.stack([(score * u).sum(-1).abs().max(), div_u.abs().max()])
    return stein_values(score, u, div_u), limits


def _moments(values: PerPoint, law: Law) -> tuple[float, float]:
    mean = (law.weights * values).sum()
    return float(mean), float((law.weights * (values - mean).square()).sum().sqrt())


def _above(threshold: float, mean: float, sd: float) -> float:
    return 0.5 * math.erfc((threshold - mean) / (sd * math.sqrt(2)))
