"""Type aliases with the shape letters: n points, d dimensions, e bank members, b null draws; and counts."""

from typing import Annotated

from torch import Tensor

Points = Annotated[Tensor, "n d"]
PerPoint = Annotated[Tensor, "n"]
BankPoints = Annotated[Tensor, "e n d"]
BankPerPoint = Annotated[Tensor, "e n"]
PerMember = Annotated[Tensor, "e"]
NullDraws = Annotated[Tensor, "b"]


def counted(number: int, noun: str) -> str:
    """As in "1 point" and "3 points", for the descriptions of objects."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
