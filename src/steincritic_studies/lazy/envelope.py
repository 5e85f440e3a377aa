"""The paper's upper bound on the distance from lazy training, with constants measured along the path."""

import math

import torch
from torch import Tensor

from steincritic.shapes import Points
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


def _largest(jacobian: Tensor) -> float:
    """The largest operator norm of (d, m) matrices, from their small (d, d) products."""
    return math.sqrt(float(torch.linalg.eigvalsh(jacobian @ jacobian.mT).max()))
