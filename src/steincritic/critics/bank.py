"""A bank: E critics of one architecture with stacked weights, evaluated in one pass."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

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
        (f,) = self._by_tiles(lambda *at: (self.network.field(*at),), x)
        return f

    def field_and_divergence(self, x: Tensor, probe: Tensor | None = None) -> tuple[BankPoints, BankPerPoint]:
        """f and its divergence: exact, or with one probe per point where probes (e, n, d) are given."""
        others = () if probe is None else (probe,)
        f, div_f = self._by_tiles(self.network.field_and_divergence, x, *others)
        return f, div_f

    def field_and_parts(self, x: Tensor, blocks: Sequence[slice]) -> tuple[BankPoints, BankPoints]:
        """f, and the exact divergence split over blocks of coordinates, (e, n, k)."""
        f, parts = self._by_tiles(partial(self.network.field_and_parts, blocks=blocks), x)
        return f, parts

    def _by_tiles(self, function: Callable[..., tuple[Tensor, ...]], *arrays: Tensor) -> Iterator[Tensor]:
        """A function of parameters and (e, n, d) arrays, tile by tile; its answers, each put together."""
        x = arrays[0].to(dtype=self.dtype, device=self.device)
        x = x if x.ndim == 3 else x.expand(len(self), *x.shape)
        tiles = [
            [
                function(self[members].parameters, *(array[members, rows] for array in (x, *arrays[1:])))
                for rows in row_tiles
            ]
            for members, row_tiles in self._tiles(x)
        ]
        for k in range(len(tiles[0][0])):
            yield torch.cat([torch.cat([tile[k] for tile in row], dim=1) for row in tiles])

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
