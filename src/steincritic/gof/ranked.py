"""A dataset's evidence beside that of null sets: how loud each number is heard, and the rank of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from steincritic.gof.bench import Column
from steincritic.gof.null import rank_pvalues
from steincritic.gof.result import Reading
from steincritic.lenses import conditional
from steincritic.lenses.lens import combined

# How loud each number is heard; 1 where not named. Numbers that others cover are heard softly: they count
# where they are extreme. Found on the fault zoo with its tuning seed, one number at a time, and rounded.
_SOFT = (
    *("shift, many", "skewness", "skewness, many", "tails", "radial tails"),
    *("shift within a mode", "spreads within modes", "bends, many", "extremes, many"),
    *("cell of 8", "kernel at 1", "kernel at 0.5"),
)
_LOUD = (
    *("shift", "shift, all alike", "scale", "tails, many", "tails, all alike"),
    *("pair within a mode", "extreme together"),
)
_LOUDNESS = {
    **dict.fromkeys(_SOFT, 0.05),
    **dict.fromkeys(("spread within a mode", "cell of 2"), 0.3),
    **dict.fromkeys(_LOUD, 2.0),
    **dict.fromkeys(("spread", "wide direction"), 4.0),
    **{"kernel at 0.25": 8.0, "early": 3.0, "late": 5.0},
    **dict.fromkeys(("weight of a mode", "weights of modes"), 30.0),  # far modes: nothing else sees these
}
_WHITENED = 0.3  # times as loud
_DENSE = {"second, many": 32.0, "kernel at 0.5": 16.0}  # instead, where columns go together in the model


def loudness(columns: Sequence[Column]) -> Tensor:
    """(m,) weights that sum to 1."""
    coupled = any(column.whitened for column in columns)
    loud = []
    for column in columns:
        if column.lens.startswith("residual"):
            loud.append(conditional.LOUDNESS.get(column.number, conditional.SOFTLY))
            continue
        usual = _LOUDNESS.get(column.number, 1.0)
        dense = _DENSE.get(column.number, usual) if coupled else usual
        loud.append(_WHITENED * usual if column.whitened else dense)
    return torch.tensor(loud, dtype=torch.float64) / max(sum(loud), 1e-300)


@dataclass(frozen=True, eq=False)
class Ranked:
    """A dataset's evidence beside that of null sets."""

    row: Tensor  # (m,)
    null: Tensor  # (b, m)
    columns: tuple[Column, ...]
    weights: Tensor  # (m,) how loud each column is heard

    @cached_property
    def value(self) -> Tensor:
        return combined(self.row, self.weights)

    @cached_property
    def null_values(self) -> Tensor:
        return combined(self.null, self.weights)

    @property
    def pvalue(self) -> float:
        return float(rank_pvalues(self.value[None], self.null_values))

    def readings(self) -> tuple[Reading, ...]:
        """Of each lens alone, the loudest first."""
        found = []
        for lens in dict.fromkeys(column.lens for column in self.columns):
            own = [k for k, column in enumerate(self.columns) if column.lens == lens]
            value, null = (combined(t[..., own], self.weights[own]) for t in (self.row, self.null))
            loudest = self.columns[own[int(self.row[own].argmax())]].number
            found.append((float(value), Reading(lens, loudest, float(rank_pvalues(value[None], null)))))
        return tuple(reading for _, reading in sorted(found, key=lambda pair: -pair[0]))
