"""A bank: E critics of one architecture with stacked weights, evaluated in one pass."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.critics.network import Network, Parameters
from steincritic.shapes import BankPerPoint, BankPoints


@dataclass(frozen=True, eq=False)
class Bank:
    """Critics with stacked parameters. One critic is a bank of one."""

    network: Network
    parameters: Parameters  # each (e, ...)

    def __len__(self) -> int:
        return next(iter(self.parameters.values())).shape[0]

    def __getitem__(self, members: slice | Tensor | list[int]) -> "Bank":
        """Some of the members, as a bank of their own."""
        return Bank(self.network, {k: v[members] for k, v in self.parameters.items()})

    def clone(self) -> "Bank":
        return Bank(self.network, {k: v.detach().clone() for k, v in self.parameters.items()})

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.parameters.values())).dtype

    @property
    def device(self) -> torch.device:
        return next(iter(self.parameters.values())).device

    def field(self, x: Tensor) -> BankPoints:
        """f at shared points (n, d) or own points (e, n, d)."""
        parts = self._chunks(x)
        return torch.cat([self.network.field(self.parameters, part) for part in parts], dim=1)

    def field_and_divergence(self, x: Tensor, probe: Tensor | None = None) -> tuple[BankPoints, BankPerPoint]:
        """f and its divergence: exact, or with one probe a point where probes (e, n, d) are given."""
        parts = self._chunks(x)
        sizes = [part.shape[1] for part in parts]
        probes = [None] * len(parts) if probe is None else probe.split(sizes, dim=1)
        results = [
            self.network.field_and_divergence(self.parameters, part, z)
            for part, z in zip(parts, probes, strict=True)
        ]
        return torch.cat([f for f, _ in results], dim=1), torch.cat([d for _, d in results], dim=1)

    def _chunks(self, x: Tensor) -> list[BankPoints]:
        """x as (e, n, d), in row chunks that keep every intermediate array within the budget."""
        x = x.to(dtype=self.dtype, device=self.device)
        x = x if x.ndim == 3 else x.expand(len(self), *x.shape)
        budget = _BUDGET_CUDA if self.device.type == "cuda" else _BUDGET_CPU
        return list(x.split(max(1, budget // self.network.row_cost(self.parameters)), dim=1))


_BUDGET_CPU = 2**21  # numbers in one intermediate array: 8 MiB, near the cache
_BUDGET_CUDA = 2**27
