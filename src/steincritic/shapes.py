"""Type aliases that carry the shape letters: n points, d dimensions, e bank members, b null draws."""

from typing import Annotated

from torch import Tensor

Points = Annotated[Tensor, "n d"]
PerPoint = Annotated[Tensor, "n"]
BankPoints = Annotated[Tensor, "e n d"]
BankPerPoint = Annotated[Tensor, "e n"]
PerMember = Annotated[Tensor, "e"]
NullDraws = Annotated[Tensor, "b"]
