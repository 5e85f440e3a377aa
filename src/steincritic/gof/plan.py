"""How many null sets the combined test looks at, and how it shares its level."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steincritic.gof.null import check_draws, draws_for, unasked

if TYPE_CHECKING:
    from steincritic.gof.combined import Combined

PLENTIFUL = 5_000  # points from which on one critic, trained on half of them, is enough
_REJECTING = {"cpu": 3, "cuda": 9}  # sets, the data among them, that may reach a value that is rejected
_REFERENCE = (400, 100, 2**27)  # most and fewest reference sets, and their coordinates
_SETS = (999, 199, 2**29)  # the same of ranked ones


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many null sets, and how the level is shared; decided by shapes alone."""

    spent: float  # level of the quick lenses
    sets: int  # ranked by quick lenses
    draws: int  # ranked by critics
    reference: int
    split: bool  # one critic on half of the data

    @classmethod
    def of(cls, config: "Combined", n: int, dim: int, level: float, device: str) -> "Plan":
        split = n >= PLENTIFUL
        spent = 0.0 if config.critics is None else level * (0.5 if split else config.first)
        if config.precision is not None:
            spent = min(spent, config.precision / 2)
            draws = sets = math.ceil(2 / config.precision)
        elif config.draws is not None:
            draws = sets = config.draws
            spent = spent if 1 / (sets + 1) <= spent else 0.0  # too few for the quick lenses to decide
        else:
            draws, sets = _draws(level, spent, device), _within(_SETS, n * dim)
            sets = max(sets, math.ceil(1 / spent - 1e-9) - 1) if spent else draws_for(level, sets)
            unasked(max(sets, draws), level)
        check_draws(sets if config.critics is None else draws, level - spent)
        reference = config.reference or _within(_REFERENCE, n * dim)
        return cls(spent=spent, sets=sets, draws=draws, reference=reference, split=split)


def _draws(level: float, spent: float, device: str) -> int:
    return math.ceil(_REJECTING.get(device, _REJECTING["cpu"]) / (level - spent) - 1e-9) - 1


def _within(bounds: tuple[int, int, int], width: int) -> int:
    most, fewest, numbers = bounds
    return max(fewest, min(most, numbers // width))
