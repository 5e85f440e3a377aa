"""What training leaves besides the critics: one number a member, epoch and quantity."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class History(Mapping[str, Tensor]):
    """(epochs, e) tables by name: loss, stein, penalty, lam, and monitor, mse_q, mse_p where measured."""

    columns: dict[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def epochs(self) -> int:
        return next(iter(self.columns.values())).shape[0] if self.columns else 0

    def with_row(self, row: Mapping[str, Tensor]) -> "History":
        fresh = {name: value.detach().to("cpu", torch.float64)[None] for name, value in row.items()}
        if not self.columns:
            return History(fresh)
        return History({name: torch.cat([self.columns[name], fresh[name]]) for name in fresh})

    def member(self, index: int) -> "History":
        """The columns of one member, each (epochs,)."""
        return History({name: value[:, index] for name, value in self.columns.items()})
