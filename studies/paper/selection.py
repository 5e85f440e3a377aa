"""Which epoch makes the critic: the rules of the paper's text, of its released code, and the last one.

A training is observed, and its critics are kept after every epoch with both monitors: that with the exact
divergence and that with one Gaussian probe a point, as the released code has it. Then any rule can choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steincritic import ScoredPoints
from steincritic.critics import Bank
from steincritic.rng import derive
from steincritic.shapes import PerMember
from steincritic.training import FittedBank, monitor, monitor_probe

MONITORS = {"exact": "exact", "probed": "gaussian"}  # and what `Training(monitor=)` calls them
AFTER = 20  # the released code's staged schemes choose among later epochs only, `argmin(v[20:])`


@dataclass(eq=False)
class Epochs:
    """An observer of `fit_bank`: the critics of every epoch, and their monitors.

    Args:
        validation: points that no critic is trained on, (n, d) for all or (e, n, d).
        seeds: of the critics.
        steps: of an epoch, by which probes are counted.
    """

    validation: ScoredPoints
    seeds: Sequence[int]
    steps: int
    banks: list[Bank] = field(default_factory=list)
    lams: list[PerMember] = field(default_factory=list)
    monitors: dict[str, list[PerMember]] = field(default_factory=lambda: {kind: [] for kind in MONITORS})

    def __call__(self, epoch: int, bank: Bank, lam: PerMember) -> None:
        self.banks.append(bank.clone())
        self.lams.append(lam.clone())
        for kind, divergence in MONITORS.items():
            probe = monitor_probe(divergence, (epoch + 1) * self.steps, self.validation, self.seeds, bank)
            self.monitors[kind].append(monitor(bank, self.validation, lam, probe))

    def lowest(self, kind: str, *, after: int = 0) -> Tensor:
        """Of each critic the epoch, counted from 1, at which its monitor is lowest."""
        after = min(after, len(self.banks) - 1)
        return torch.stack(self.monitors[kind][after:]).argmin(0).cpu() + after + 1

    def chosen(self, rule: str, kind: str) -> Tensor:
        """The epoch of each critic by a rule; they agree on one where it is "common epoch"."""
        if rule == "lowest monitor":
            return self.lowest(kind)
        if rule == f"lowest monitor after epoch {AFTER}":
            return self.lowest(kind, after=AFTER)
        last = torch.full((len(self.seeds),), len(self.banks))
        if rule == "last epoch":
            return last
        assert rule == "common epoch"
        return torch.full_like(last, round(float(self.lowest(kind).double().mean())))

    def at(self, epochs: Tensor, fitted: FittedBank) -> FittedBank:
        """The critics of the training as they were after these epochs."""
        places = list(enumerate((epochs - 1).tolist()))
        weights = {
            name: torch.stack([self.banks[epoch].parameters[name][k] for k, epoch in places])
            for name in fitted.bank.parameters
        }
        lam = torch.stack([self.lams[epoch][k] for k, epoch in places])
        return FittedBank(
            Bank(fitted.bank.network, weights), lam, fitted.history, fitted.seeds, fitted.failures
        )


RULES = ("lowest monitor", f"lowest monitor after epoch {AFTER}", "last epoch")


def replica_seeds(seed: int, count: int) -> list[int]:
    return [derive(seed, "replica", r) for r in range(count)]
