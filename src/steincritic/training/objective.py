r"""The L²-regularized loss of a critic, its gradient in (f, ∇·f), and its validation monitor.

$$L_\lambda[f] = E_p[-T_q f + \tfrac{\lambda}{2} |f|^2]$$

[repasky2023] eq. (10). All quantities are per bank member.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.data.points import ScoredPoints
from steincritic.shapes import BankPerPoint, BankPoints, PerMember, Points
from steincritic.stein.operator import stein_values


@dataclass(frozen=True, eq=False)
class Loss:
    """The two terms of the loss, per member."""

    stein: PerMember  # mean of T_q f
    penalty: PerMember  # λ/2 mean |f|²

    @property
    def total(self) -> PerMember:
        return self.penalty - self.stein


def loss_of(score: BankPoints, f: BankPoints, div_f: BankPerPoint, lam: PerMember) -> Loss:
    return Loss(stein=stein_values(score, f, div_f).mean(-1), penalty=0.5 * lam * (f * f).sum(-1).mean(-1))


def monitor(bank: Bank, points: ScoredPoints, lam: PerMember, probe: BankPoints | None = None) -> PerMember:
    """2λ L_λ on points not trained on: MSE_p up to a constant, [repasky2023] eq. (17).

    Args:
        probe: (e, n, d), one a point to estimate the divergence by; it is exact without.
    """
    points = points.to(dtype=bank.dtype, device=bank.device)
    f, div_f = bank.field_and_divergence(points.x, probe)
    return 2 * lam * loss_of(points.score, f, div_f, lam).total


@dataclass(frozen=True, eq=False)
class Gap:
    """Points with the known optimum f* = s_q - s_p at them; possible where p is known."""

    x: Points
    value: Points

    def error(self, bank: Bank, lam: PerMember) -> PerMember:
        """Mean squared error of the scaleless critic λf, [repasky2023] eq. (16)."""
        value = self.value.to(dtype=bank.dtype, device=bank.device)
        parts: list[Tensor] = []
        for x, target in zip(self.x.split(_ROWS), value.split(_ROWS), strict=True):
            difference = lam[:, None, None] * bank.field(x) - target
            parts.append((difference * difference).sum(-1).sum(-1))
        return torch.stack(parts).sum(0) / len(self.x)


_ROWS = 4096
