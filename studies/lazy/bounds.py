"""What the paper promises of lazy training, evaluated where its constants can be computed.

The upper bound on the distance from lazy training, and the corollary on the power of a test.
"""

import math
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.data import Problem
from steincritic.shapes import Points
from steincritic.stein import stein_values
from studies.lazy.flow import NetworkFlow
from studies.lazy.ntk import Law, TangentKernel


def envelope(flow: NetworkFlow, law: Law, gap: Points) -> Tensor:
    r"""$\frac{4\sqrt 2}{3} L_1 L_2 \sqrt\lambda\, t^{3/2} |f^*|_p^2$, (times, e), [repasky2023] eq. (30).

    L_1 bounds |J(x, θ)| and L_2 the Lipschitz constant of J in θ. The proof needs both only along the path
    from θ(0), so they are the largest values there: over the law's points and the recorded times so far.
    """

    def largest(jacobian: Tensor) -> float:
        """The largest operator norm of (d, m) matrices, from their small (d, d) products."""
        return math.sqrt(float(torch.linalg.eigvalsh(jacobian @ jacobian.mT).max()))

    before, moved = TangentKernel.of(flow.start).jacobian(law.x), flow.moved()
    first, second = torch.empty_like(moved), torch.empty_like(moved)
    for k, bank in enumerate(flow.banks):
        for member in range(len(bank)):
            now = TangentKernel.of(bank, member).jacobian(law.x)
            first[k, member] = max(largest(now), largest(before))
            second[k, member] = largest(now - before) / moved[k, member]
    constants = first.cummax(0).values * second.cummax(0).values
    times = torch.tensor(flow.scaled_times, dtype=torch.float64)[:, None] / flow.lam  # t
    return 4 * math.sqrt(2) / 3 * constants * flow.lam.sqrt() * times**1.5 * law.inner(gap, gap)


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
    (u, div_u), score = flow.last(law.x), pair.model.score(law.x)
    values = stein_values(score, u, div_u)
    mean = (law.weights * values).sum()
    sd = (law.weights * (values - mean).square()).sum().sqrt()
    limits = torch.stack([(score * u).sum(-1).abs().max(), div_u.abs().max()])
    return float(mean), float(sd), limits
