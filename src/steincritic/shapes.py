"""Type aliases with the shape letters: n points, d dimensions, e bank members, b null draws; and counts."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from torch import Tensor

Points = Annotated[Tensor, "n d"]
PerPoint = Annotated[Tensor, "n"]
BankPoints = Annotated[Tensor, "e n d"]
BankPerPoint = Annotated[Tensor, "e n"]
PerMember = Annotated[Tensor, "e"]
NullDraws = Annotated[Tensor, "b"]
Numbers: TypeAlias = Tensor | np.ndarray | float | Sequence[Any]  # what may be passed as a parameter


def counted(number: int, noun: str) -> str:
    """As in "1 point" and "3 points", for the descriptions of objects."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
