"""Which critics of a training become its result.

A keeper sees the bank after every epoch and ends with one or more snapshots and their weights: the
fitted critic is the weighted sum of the scaleless critics λf. One snapshot has weight one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.errors import check_choice
from steincritic.files import taken
from steincritic.shapes import PerMember, counted


@dataclass(frozen=True, eq=False)
class Epoch:
    """What a keeper may look at when an epoch has ended."""

    index: int
    count: int
    bank: Bank
    lam: PerMember
    monitor: PerMember | None
    spread: Callable[[], PerMember]  # sd of the scaleless witness on the training points, on demand


@dataclass(frozen=True, eq=False, repr=False)
class Snapshots:
    """Banks from one or more epochs with (s, e) coefficients of their fields."""

    banks: tuple[Bank, ...]
    coefficients: Tensor

    def __post_init__(self) -> None:
        assert self.coefficients.shape == (len(self.banks), len(self.banks[0]))

    def __repr__(self) -> str:
        return f"Snapshots({counted(len(self.banks), 'epoch')} of {self.banks[0]!r})"


class Keeper(Protocol):
    def see(self, epoch: Epoch) -> None: ...

    def result(self) -> Snapshots: ...

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold so that `restore` continues exactly."""
        ...

    def restore(self, state: dict[str, Tensor], like: Bank) -> None: ...


class KeepLast:
    """The critic after the last epoch."""

    def see(self, epoch: Epoch) -> None:
        self._bank, self._lam = epoch.bank, epoch.lam

    def result(self) -> Snapshots:
        return Snapshots((self._bank.clone(),), self._lam[None].clone())

    def state(self) -> dict[str, Tensor]:
        return {"lam": self._lam}

    def restore(self, state: dict[str, Tensor], like: Bank) -> None:
        self._bank, self._lam = like, taken(state, "lam", _per_member(like))


class KeepBest:
    """For each member, the critic of the epoch where its validation monitor was lowest."""

    def see(self, epoch: Epoch) -> None:
        assert epoch.monitor is not None  # fit_bank refuses it without validation points
        if epoch.index == 0:
            self._bank, self._lam = epoch.bank.clone(), epoch.lam.clone()
            self._best = epoch.monitor.clone()
            return
        better = epoch.monitor < self._best
        self._best = torch.where(better, epoch.monitor, self._best)
        self._lam = torch.where(better, epoch.lam, self._lam)
        for name, value in self._bank.parameters.items():
            value[better] = epoch.bank.parameters[name][better]

    def result(self) -> Snapshots:
        return Snapshots((self._bank,), self._lam[None])

    def state(self) -> dict[str, Tensor]:
        kept = {f"best.{name}": value for name, value in self._bank.parameters.items()}
        return kept | {"lam": self._lam, "monitor": self._best}

    def restore(self, state: dict[str, Tensor], like: Bank) -> None:
        self._lam, self._best = (taken(state, name, _per_member(like)) for name in ("lam", "monitor"))
        self._bank = Bank(like.network, {k: taken(state, f"best.{k}", v) for k, v in like.parameters.items()})


class KeepTrajectory:
    """The average over the later epochs, each critic scaled by its own spread on the training points."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._banks: list[Bank] = []
        self._weights: list[Tensor] = []
        self._lams: list[Tensor] = []

    def see(self, epoch: Epoch) -> None:
        self._seen = epoch
        if epoch.index >= math.floor(self._start * epoch.count):
            self._banks.append(epoch.bank.clone())
            spread = epoch.spread()
            self._weights.append(1 / spread.clamp_min(torch.finfo(spread.dtype).eps))
            self._lams.append(epoch.lam.clone())

    def result(self) -> Snapshots:
        if not self._banks:  # every member failed before the epochs that count
            return Snapshots((self._seen.bank.clone(),), self._seen.lam[None].clone())
        weights = torch.stack(self._weights)
        return Snapshots(tuple(self._banks), torch.stack(self._lams) * weights / weights.sum(0))

    def state(self) -> dict[str, Tensor]:
        kept = {
            f"{k}.{name}": value
            for k, bank in enumerate(self._banks)
            for name, value in bank.parameters.items()
        }
        if self._weights:
            kept |= {"weights": torch.stack(self._weights), "lams": torch.stack(self._lams)}
        return kept

    def restore(self, state: dict[str, Tensor], like: Bank) -> None:
        self._weights = list(state["weights"]) if "weights" in state else []
        self._lams = list(state["lams"]) if "lams" in state else []
        self._banks = [
            Bank(like.network, {name: taken(state, f"{k}.{name}", v) for name, v in like.parameters.items()})
            for k in range(len(self._weights))
        ]
        for one in (*self._weights, *self._lams):
            taken({"weight": one}, "weight", _per_member(like))
        assert len(self._weights) == len(self._lams)


def _per_member(bank: Bank) -> PerMember:
    return torch.empty(len(bank), dtype=bank.dtype)


def keeper(selection: str) -> Keeper:
    """A fresh keeper for a rule: "last", "monitor" or "trajectory" (the second half of the epochs)."""
    check_choice(selection, name="selection", choices=tuple(_RULES))
    return _RULES[selection]()


_RULES: dict[str, Callable[[], Keeper]] = {
    "last": KeepLast,
    "monitor": KeepBest,
    "trajectory": lambda: KeepTrajectory(start=0.5),
}
