"""A posterior written out in torch: its free parameters, its joint density, and the way to the real line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steincritic.errors import InputError, listed
from steincritic.models.density import LogDensity
from steincritic.shapes import PerPoint, Points

REAL, POSITIVE, SHARE = "", "log ", "logit "  # what stands before the name of a coordinate


def _same(published: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return published


@dataclass(frozen=True, eq=False)
class Written:
    """A posterior by parameters of which each is real, positive or a share, whatever the others are.

    Args:
        kinds: of the parameters, by their names.
        joint: log-density at parameters (n, d), up to a constant.
        free: the parameters from those that posteriordb publishes, where they differ.
    """

    kinds: Mapping[str, str]
    joint: Callable[[Tensor], PerPoint]
    free: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = _same


class DatabasePosterior(LogDensity):
    """The log-density in unconstrained coordinates: logarithms and logits, their Jacobians included."""

    def __init__(self, written: Written) -> None:
        self.written = written
        self.names = tuple(kind + name for name, kind in written.kinds.items())
        self._positive, self._share = (
            torch.tensor([kind == which for kind in written.kinds.values()]) for which in (POSITIVE, SHARE)
        )
        super().__init__(self._unconstrained, dim=len(self.names))

    def unconstrain(self, draws: Mapping[str, Any]) -> Points:
        """(n, d) from draws by published name, each of n numbers."""
        free = self.written.free({name: torch.as_tensor(part).double() for name, part in draws.items()})
        missing = [name for name in self.written.kinds if name not in free]
        if missing:
            raise InputError(f"draws have no {listed(missing, 5)}; they have {listed(list(free), 5)}")
        x = torch.stack([free[name].flatten() for name in self.written.kinds], -1)
        x = torch.where(self._positive, x.clamp(min=0).log(), x)
        return torch.where(self._share, x.clamp(0, 1).logit(), x)

    def constrain(self, x: Points) -> Tensor:
        """The free parameters at coordinates (n, d)."""
        bounded = torch.where(self._positive, torch.where(self._positive, x, 0.0).exp(), x)
        return torch.where(self._share, x.sigmoid(), bounded)

    def _unconstrained(self, x: Points) -> PerPoint:
        share = -torch.nn.functional.softplus(x) - torch.nn.functional.softplus(-x)
        jacobian = torch.where(self._positive, x, 0.0) + torch.where(self._share, share, 0.0)
        return self.written.joint(self.constrain(x)) + jacobian.sum(-1)
