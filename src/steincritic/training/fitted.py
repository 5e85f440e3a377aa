"""What training gives: critics with their history."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.data.points import ScoredPoints
from steincritic.display import panel
from steincritic.errors import DivergedError, FileFormatError
from steincritic.shapes import BankPerPoint, BankPoints, PerMember, counted
from steincritic.stein.operator import stein_values, stein_values_by_block

if TYPE_CHECKING:
    from steincritic.display import Axes

_SHOWN = 6  # rows of a history in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class History(Mapping[str, Tensor]):
    """(epochs, e) tables by name: loss, stein, penalty, lam, and monitor, mse_q, mse_p where measured."""

    columns: dict[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        return f"History({counted(self.epochs, 'row')} of {', '.join(self.columns) or 'nothing'})"

    def _repr_html_(self) -> str:
        at = sorted({round(k * (self.epochs - 1) / (_SHOWN - 1)) for k in range(_SHOWN)})
        means = [value.flatten(1).mean(1) if value.ndim > 1 else value for value in self.columns.values()]
        rows = [(str(k + 1), *(f"{float(mean[k]):.4g}" for mean in means)) for k in at if self.columns]
        return panel([repr(self)], rows=rows, head=("row", *self.columns))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """λ times the Stein discrepancy by row, and λ."""
        from steincritic.report.critics import plot_history  # results draw themselves

        return plot_history(self, ax)

    @property
    def epochs(self) -> int:
        return next(iter(self.columns.values())).shape[0] if self.columns else 0

    def with_rows(self, rows: Sequence[Mapping[str, Tensor]]) -> "History":
        """Longer by a row per epoch."""
        names = rows[0] if rows else ()
        fresh = {
            name: torch.stack([row[name].detach() for row in rows]).to("cpu", torch.float64) for name in names
        }
        if not self.columns or not fresh:
            return History(fresh or self.columns)
        if _columns(self.columns) != _columns(fresh):
            raise FileFormatError("the checkpoint is damaged: its history has other columns than this run")
        return History({name: torch.cat([self.columns[name], fresh[name]]) for name in fresh})

    def member(self, index: int) -> "History":
        """The columns of one member, each (epochs,)."""
        return History({name: value[:, index] for name, value in self.columns.items()})


def _columns(history: Mapping[str, Tensor]) -> dict[str, tuple[int, tuple[int, ...], torch.dtype]]:
    return {name: (value.ndim, tuple(value.shape[1:]), value.dtype) for name, value in history.items()}


@dataclass(frozen=True, eq=False, repr=False)
class FittedBank:
    """Trained critics, scaleless: a field is λf, an estimate of s_q - s_p."""

    bank: Bank
    lam: PerMember
    history: History
    seeds: tuple[int, ...]
    failures: tuple[str | None, ...]  # why a member stopped early, if it did
    seconds: Mapping[str, float] = field(default_factory=dict)  # training, evaluation

    def __len__(self) -> int:
        return len(self.seeds)

    def __repr__(self) -> str:
        return f"FittedBank({counted(len(self), 'critic')}, {counted(self.history.epochs, 'epoch')})"

    def _repr_html_(self) -> str:
        return panel([repr(self), *filter(None, self.failures)]) + self.history._repr_html_()

    def __getitem__(self, members: slice) -> "FittedBank":
        return FittedBank(
            self.bank[members],
            self.lam[members],
            History({name: value[:, members] for name, value in self.history.items()}),
            self.seeds[members],
            self.failures[members],
            self.seconds,
        )

    def require_success(self) -> None:
        """Raise if any member met a non-finite loss: nothing may be concluded from it."""
        failed = [f"critic {k}: {why}" for k, why in enumerate(self.failures) if why]
        if failed:
            rest = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise DivergedError(failed[0] + rest)

    def field(self, x: Tensor) -> BankPoints:
        self.require_success()
        return self.lam[:, None, None] * self.bank.field(x)

    def witness(self, points: ScoredPoints, probe: BankPoints | None = None) -> BankPerPoint:
        """Stein values of every member at shared (n, d) or own (e, n, d) points; exact without a probe."""
        self.require_success()
        points = points.to(dtype=self.bank.dtype, device=self.bank.device)
        f, div_f = self.bank.field_and_divergence(points.x, probe)
        return self.lam[:, None] * stein_values(points.score, f, div_f)

    def shares(self, points: ScoredPoints, blocks: Sequence[slice]) -> Tensor:
        """The witness split over blocks of coordinates, (e, n, k); exact, and mean zero under q each."""
        self.require_success()
        points = points.to(dtype=self.bank.dtype, device=self.bank.device)
        f, parts = self.bank.field_and_parts(points.x, blocks)
        return self.lam[:, None, None] * stein_values_by_block(points.score, f, parts, blocks)
