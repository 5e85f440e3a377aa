"""Coordinates without bounds of half-lines, boxes and simplexes, and bounds as users write them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from steincritic.errors import InputError, did_you_mean, listed
from steincritic.shapes import PerPoint, Points

Edge: TypeAlias = float | None  # None for no bound
Bounds: TypeAlias = (
    Mapping[str | int, tuple[Edge, Edge]] | Sequence[tuple[Edge, Edge] | None] | Literal["simplex"]
)
_SUM = 1e-3  # from 1, of a row on the simplex: rounded to three digits
_SHOWN = 5  # rows that a message names


class Coordinates(Protocol):
    """The way from bounded columns x to coordinates z without bounds, and back."""

    dim: int | None  # columns; None for any number of them

    def constrain(self, z: Points) -> tuple[Points, PerPoint]:
        """x, and the logarithm of the Jacobian's determinant."""
        ...

    def unconstrain(self, x: Points) -> Points:
        """z of rows inside."""
        ...

    def pulled(self, z: Points, score: Points) -> Points:
        """The score of z from that of x."""
        ...

    def lost(self, x: Points) -> tuple[Tensor, Tensor]:
        """(n, d) masks: values outside, and values exactly on an edge."""
        ...

    def inward(self, x: Points) -> Points:
        """Values that rounding put on an edge, moved inside by as little as can be."""
        ...

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        """What the coordinates z are called."""
        ...

    def wanted(self, name: str, column: int) -> str:
        """Where a column must lie, in words."""
        ...


class Box:
    """Each column with its own bounds: log(x - low), -log(high - x), the logit between two, or x itself."""

    def __init__(self, low: Any, high: Any) -> None:
        low, high = (torch.as_tensor(edge, dtype=torch.float64) for edge in (low, high))
        self.low, self.high = torch.broadcast_tensors(low, high)
        if not bool((self.low < self.high).all()):
            raise InputError(f"bounds need low < high, got {self.low.tolist()} and {self.high.tolist()}")
        self.dim = None if self.low.ndim == 0 else len(self.low)

    def _kinds(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Low and high, and where there is a lower bound alone, an upper one alone, or both."""
        low, high = self.low.to(like), self.high.to(like)
        below, above = low.isfinite(), high.isfinite()
        return (
            low.nan_to_num(0, 0, 0),
            high.nan_to_num(0, 0, 0),
            below & ~above,
            above & ~below,
            below & above,
        )

    def constrain(self, z: Points) -> tuple[Points, PerPoint]:
        low, high, lower, upper, both = self._kinds(z)
        away = torch.where(lower, z, torch.where(upper, -z, 0)).exp()  # from the edge of a half-line
        x = torch.where(lower, low + away, torch.where(upper, high - away, z))
        x = torch.where(both, low + (high - low) * z.sigmoid(), x)
        inner = torch.where(both, high - low, 1).log() - softplus(z) - softplus(-z)
        log_slope = torch.where(lower, z, torch.where(upper, -z, torch.where(both, inner, 0)))
        return x, log_slope.sum(-1)

    def unconstrain(self, x: Points) -> Points:
        low, high, lower, upper, both = self._kinds(x)
        from_low, from_high = (
            torch.where(kind | both, away, 1).log() for kind, away in ((lower, x - low), (upper, high - x))
        )
        bounded = torch.where(lower, from_low, -from_high)
        return torch.where(both, from_low - from_high, torch.where(lower | upper, bounded, x))

    def pulled(self, z: Points, score: Points) -> Points:
        low, high, lower, upper, both = self._kinds(z)
        share = z.sigmoid()
        away = torch.where(lower, z, torch.where(upper, -z, 0)).exp()  # 1 where there is no bound
        slope = torch.where(both, (high - low) * share * (-z).sigmoid(), away)
        change = torch.where(both, 1 - 2 * share, lower.to(z) - upper.to(z))
        return slope * score + change

    def lost(self, x: Points) -> tuple[Tensor, Tensor]:
        low, high = self.low.to(x), self.high.to(x)
        return (x < low) | (x > high), (x == low) | (x == high)

    def inward(self, x: Points) -> Points:
        low, high = (edge.to(x).expand_as(x) for edge in (self.low, self.high))
        return torch.minimum(torch.maximum(x, low.nextafter(high)), high.nextafter(low))

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        edges = zip(*(edge.expand(len(names)).tolist() for edge in (self.low, self.high)), strict=True)
        return tuple(_free_name(name, *edge) for name, edge in zip(names, edges, strict=True))

    def ends(self, column: int) -> tuple[float, float]:
        low, high = (float(edge[column] if edge.ndim else edge) for edge in (self.low, self.high))
        return low, high

    def wanted(self, name: str, column: int) -> str:
        low, high = self.ends(column)
        if math.isinf(high):
            return f"{name} must lie above {low:g}"
        return f"{name} must lie " + (
            f"below {high:g}" if math.isinf(low) else f"between {low:g} and {high:g}"
        )


def _free_name(name: str, low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return name
    if math.isinf(high):
        return f"log {name}" if low == 0 else f"log({name} {'-' if low > 0 else '+'} {abs(low):g})"
    if math.isinf(low):
        return f"-log({high:g} - {name})"
    return f"logit {name}" if (low, high) == (0, 1) else f"logit of {name} in ({low:g}, {high:g})"


class Simplex:
    """Positive columns that sum to 1, by breaking a stick: z_j is the logit of x_j in what those before left.

    There is one coordinate fewer than columns; z = 0 is the middle of the simplex.
    """

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def _offsets(self, z: Points) -> Tensor:
        return torch.arange(z.shape[-1], 0, -1).to(z).log()

    def constrain(self, z: Points) -> tuple[Points, PerPoint]:
        y = z - self._offsets(z)
        left = logsigmoid(-y).cumsum(-1)  # log of what is left after each break
        before = torch.cat([torch.zeros_like(left[..., :1]), left[..., :-1]], -1)
        log_x = torch.cat([logsigmoid(y) + before, left[..., -1:]], -1)
        return log_x.exp(), (log_x[..., :-1] + logsigmoid(-y)).sum(-1)

    def unconstrain(self, x: Points) -> Points:
        rest = x.flip(-1).cumsum(-1).flip(-1)[..., 1:]  # what is left; ratios alone count
        y = x[..., :-1].log() - rest.log()
        return y + self._offsets(y)

    def pulled(self, z: Points, score: Points) -> Points:
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            x, log_jacobian = self.constrain(z)
            (pulled,) = torch.autograd.grad((x * score.detach()).sum() + log_jacobian.sum(), z)
        return pulled

    def lost(self, x: Points) -> tuple[Tensor, Tensor]:
        off = ((x.sum(-1, keepdim=True) - 1).abs() > _SUM).expand_as(x)
        return (x < 0) | (x > 1) | off, x == 0

    def inward(self, x: Points) -> Points:
        return x.clamp(min=torch.finfo(x.dtype).tiny)

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"logit of {name} among {listed(names[j:], 4)}" for j, name in enumerate(names[:-1]))

    def wanted(self, name: str, column: int) -> str:
        return f"{name} must be a share, positive, and the columns must sum to 1"


def entered(
    coordinates: Coordinates, x: Points, names: Sequence[str] | None = None, row: Callable[[int], str] = str
) -> Points:
    """Rows in coordinates without bounds, if all of them lie inside.

    Args:
        row: what the k-th row is called.
    """
    x = x.detach()
    for mask, on_edge in zip(coordinates.lost(x), (False, True), strict=True):
        if not bool(mask.any()):
            continue
        j = int(mask.any(0).nonzero()[0, 0])
        rows = mask[:, j].nonzero()[:, 0].tolist()
        name = f"x{j + 1}" if names is None else str(names[j])
        where = f"row{'s' * (len(rows) > 1)} {listed([row(k) for k in rows], _SHOWN)}"
        if on_edge:
            raise InputError(
                f"{coordinates.wanted(name, j)}, and lies exactly on the edge in {len(rows)} of {len(x)} "
                f"rows ({where}), which has probability 0: leave these rows out, or, where values are "
                "rounded, give all digits (or add noise of one unit of rounding to data and model draws)"
            )
        value = float(x[rows[0], j])
        raise InputError(
            f"{coordinates.wanted(name, j)}, and does not in {len(rows)} of {len(x)} rows ({where}; "
            f"the first is {value:.6g}): leave these rows out, or give the model other bounds (bounds=)"
        )
    return coordinates.unconstrain(x.double()).to(x)


def columns_of(coordinates: Coordinates, free: int) -> int:
    """How many columns have so many coordinates without bounds."""
    return free + isinstance(coordinates, Simplex)


def as_box(bounds: Bounds, names: Sequence[str]) -> Coordinates:
    """Bounds as users write them, of columns with these names; columns are counted from 0."""
    if isinstance(bounds, str):
        if bounds != "simplex":
            raise InputError(f'bounds are (low, high) by column, or "simplex"; got {bounds!r}')
        return Simplex(len(names))
    if isinstance(bounds, Mapping):
        pairs: list[Any] = [None] * len(names)
        for column, pair in bounds.items():
            pairs[_place(column, names)] = pair
    else:
        pairs = list(bounds)
    if len(pairs) != len(names):
        raise InputError(f"bounds need one (low, high) or None per column: got {len(pairs)} for {len(names)}")
    edges = [_edges(pair, name) for pair, name in zip(pairs, names, strict=True)]
    return Box(*([edge[side] for edge in edges] for side in (0, 1)))


def _place(column: object, names: Sequence[str]) -> int:
    if column in names:
        return list(names).index(str(column))
    if isinstance(column, int) and not isinstance(column, bool) and 0 <= column < len(names):
        return column
    hint = did_you_mean(str(column), names) or f"; the columns are {listed(list(names), 8)}"
    raise InputError(f"bounds name a column {column!r} that the data do not have{hint}")


def _edges(pair: Any, name: str) -> tuple[float, float]:
    try:
        low, high = (None, None) if pair is None else pair
        low, high = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    except (TypeError, ValueError):
        raise InputError(f"bounds of {name} must be a pair (low, high), got {pair!r}") from None
    if not low < high:
        raise InputError(f"bounds of {name} need low < high, got {low:g} and {high:g}")
    return low, high
