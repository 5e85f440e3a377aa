"""What `tolerance=` stands for: a test whose null hypothesis is "wrong by no more than this".

| tolerance | H0 |
|---|---|
| 0.05 | no column's mean off by more than 0.05 standard deviations, no spread by more than 5 %: `MomentBox` |
| "fisher:0.1" | a Fisher divergence of at most 0.1²: `FisherBall` |
| "foreign:0.03" | at most 3 % foreign rows: `Contamination` |
"""

from collections.abc import Callable
from typing import TypeAlias

from steincritic.errors import InputError, did_you_mean
from steincritic.gof.contamination import Contamination
from steincritic.gof.fisher_ball import FisherBall
from steincritic.gof.moment_box import MomentBox
from steincritic.gof.test import GofTest

ToleranceLike: TypeAlias = float | str | MomentBox | FisherBall | Contamination
_KINDS: dict[str, Callable[[float], GofTest]] = {
    "moments": MomentBox,
    "fisher": FisherBall,
    "foreign": Contamination,
}


def as_tolerance(given: ToleranceLike) -> GofTest:
    """The test that a tolerance stands for: a number, "kind:number", or the test itself."""
    if isinstance(given, MomentBox | FisherBall | Contamination):
        return given
    if not isinstance(given, str):
        return MomentBox(given)
    kind, _, size = given.rpartition(":")
    try:
        return _KINDS[kind.strip() or "moments"](float(size))
    except (KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        hint = did_you_mean(kind, _KINDS)
        raise InputError(
            f"a tolerance is a number such as 0.05, or fisher:0.1, or foreign:0.03; got {given!r}{hint}"
        ) from None
