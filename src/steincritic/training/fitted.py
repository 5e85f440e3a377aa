"""What training gives: critics as they are, or an average of them, with their history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import DivergedError
from steincritic.shapes import BankPerPoint, BankPoints
from steincritic.stein.operator import stein_values, stein_values_by_block
from steincritic.training.history import History
from steincritic.training.selection import Snapshots


@dataclass(frozen=True, eq=False)
class FittedBank:
    """Trained critics, scaleless: a field is λf, an estimate of s_q - s_p."""

    snapshots: Snapshots
    history: History
    seeds: tuple[int, ...]
    failures: tuple[str | None, ...]  # why a member stopped early, if it did
    seconds: Mapping[str, float] = field(default_factory=dict)  # training, evaluation

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, members: slice) -> "FittedBank":
        banks = tuple(bank[members] for bank in self.snapshots.banks)
        return FittedBank(
            Snapshots(banks, self.snapshots.coefficients[:, members]),
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
        parts = (
            c[:, None, None] * bank.field(x)
            for bank, c in zip(self.snapshots.banks, self.snapshots.coefficients, strict=True)
        )
        return torch.stack(list(parts)).sum(0)

    def witness(self, points: ScoredPoints, probe: BankPoints | None = None) -> BankPerPoint:
        """Stein values of every member at shared (n, d) or own (e, n, d) points; exact without a probe."""
        self.require_success()
        bank = self.snapshots.banks[0]
        points = points.to(dtype=bank.dtype, device=bank.device)
        total = torch.zeros((), dtype=bank.dtype, device=bank.device)
        for bank, c in zip(self.snapshots.banks, self.snapshots.coefficients, strict=True):
            f, div_f = bank.field_and_divergence(points.x, probe)
            total = total + c[:, None] * stein_values(points.score, f, div_f)
        return total

    def shares(self, points: ScoredPoints, blocks: Sequence[slice]) -> Tensor:
        """The witness split over blocks of coordinates, (e, n, k); exact, and mean zero under q each."""
        self.require_success()
        bank = self.snapshots.banks[0]
        points = points.to(dtype=bank.dtype, device=bank.device)
        total = torch.zeros((), dtype=bank.dtype, device=bank.device)
        for bank, c in zip(self.snapshots.banks, self.snapshots.coefficients, strict=True):
            f, parts = bank.field_and_parts(points.x, blocks)
            total = total + c[:, None, None] * stein_values_by_block(points.score, f, parts, blocks)
        return total
