"""A bank: E critics of one architecture with stacked weights, evaluated in one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.critics.network import Network, Parameters
from steincritic.shapes import BankPerPoint, BankPoints, counted


@dataclass(frozen=True, eq=False, repr=False)
class Bank:
    """Critics with stacked parameters. One critic is a bank of one."""

    network: Network
    parameters: Parameters  # each (e, ...)

    def __repr__(self) -> str:
        return f"Bank({counted(len(self), type(self.network).__name__ + ' critic')})"

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
        x = self._own(x)
        return _assemble(
            [
                [self.network.field(self[members].parameters, x[members, rows]) for rows in row_tiles]
                for members, row_tiles in self._tiles(x)
            ]
        )

    def field_and_divergence(self, x: Tensor, probe: Tensor | None = None) -> tuple[BankPoints, BankPerPoint]:
        """f and its divergence: exact, or with one probe per point where probes (e, n, d) are given."""
        x = self._own(x)
        tiles = [
            [
                self.network.field_and_divergence(
                    self[members].parameters,
                    x[members, rows],
                    None if probe is None else probe[members, rows],
                )
                for rows in row_tiles
            ]
            for members, row_tiles in self._tiles(x)
        ]
        return (
            _assemble([[f for f, _ in row] for row in tiles]),
            _assemble([[div_f for _, div_f in row] for row in tiles]),
        )

    def field_and_parts(self, x: Tensor, blocks: Sequence[slice]) -> tuple[BankPoints, BankPoints]:
        """f, and the exact divergence split over blocks of coordinates, (e, n, k)."""
        x = self._own(x)
        tiles = [
            [
                self.network.field_and_parts(self[members].parameters, x[members, rows], blocks)
                for rows in row_tiles
            ]
            for members, row_tiles in self._tiles(x)
        ]
        return (
            _assemble([[f for f, _ in row] for row in tiles]),
            _assemble([[parts for _, parts in row] for row in tiles]),
        )

    def _own(self, x: Tensor) -> BankPoints:
        x = x.to(dtype=self.dtype, device=self.device)
        return x if x.ndim == 3 else x.expand(len(self), *x.shape)

    def _tiles(self, x: BankPoints) -> list[tuple[slice, list[slice]]]:
        """Blocks of members and rows that keep every intermediate array within the budget."""
        n, width = x.shape[1], self.network.widest(self.parameters)
        rows = min(n, max(1, tile_budget(self.device) // width))
        members = max(1, tile_budget(self.device) // (rows * width))
        row_tiles = [slice(i, i + rows) for i in range(0, n, rows)]
        return [(slice(k, k + members), row_tiles) for k in range(0, len(self), members)]


def tile_budget(device: torch.device) -> int:
    """Numbers in one intermediate array: within a CPU's cache, or enough to fill a GPU."""
    return 2**27 if device.type == "cuda" else 2**19


def _assemble(tiles: list[list[Tensor]]) -> Tensor:
    return torch.cat([torch.cat(row, dim=1) for row in tiles])
