"""Coordinates without bounds of half-lines, boxes and simplexes: by bounds of a user, or by supports."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    MixtureSameFamily,
    TransformedDistribution,
    VonMises,
    biject_to,
    constraints,
)
from torch.distributions.transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    IndependentTransform,
    StickBreakingTransform,
    Transform,
)
from torch.nn.functional import logsigmoid, pad

from steincritic.errors import InputError, did_you_mean, listed
from steincritic.shapes import PerPoint, Points

Edge: TypeAlias = float | None  # None for no bound
Bounds: TypeAlias = (
    Mapping[str | int, tuple[Edge, Edge]] | Sequence[tuple[Edge, Edge] | None] | Literal["simplex"]
)
_SUM = 1e-3  # from 1, of a row on the simplex: rounded to three digits
_SHOWN = 5  # rows that a message names


class Bijection(ABC):
    """The way from bounded columns x to coordinates z without bounds, and back, by a transform of torch."""

    @abstractmethod
    def transform(self, like: Tensor) -> Transform:
        """From z to x, for rows of that width, precision and device."""

    def constrain(self, z: Points) -> tuple[Points, PerPoint]:
        """x, and the logarithm of the Jacobian's determinant."""
        transform = self.transform(z)
        x = transform(z)
        return x, transform.log_abs_det_jacobian(z, x)

    def unconstrain(self, x: Points) -> Points:
        """z of rows inside."""
        z: Tensor = self.transform(x).inv(x)
        return z

    def pulled(self, z: Points, score: Points) -> Points:
        """The score of z from that of x."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            x, log_jacobian = self.constrain(z)
            (pulled,) = torch.autograd.grad((x * score.detach()).sum() + log_jacobian.sum(), z)
        return pulled


class Box(Bijection):
    """Each column with its own bounds: log(x - low), -log(high - x), the logit between two, or x itself."""

    def __init__(self, low: Any, high: Any) -> None:
        low, high = (torch.as_tensor(edge, dtype=torch.float64) for edge in (low, high))
        self.low, self.high = torch.broadcast_tensors(low, high)
        self.dim = None if self.low.ndim == 0 else len(self.low)  # None for any number of columns

    def transform(self, like: Tensor) -> Transform:
        width = like.shape[-1]
        kinds = zip(*(edge.isfinite().expand(width).tolist() for edge in (self.low, self.high)), strict=True)
        # columns side by side whose edges are of one kind go together
        runs = [(*kind, len(list(columns))) for kind, columns in groupby(kinds)]
        lengths = [length for *_, length in runs]
        edges = (edge.to(like).expand(width).split(lengths) for edge in (self.low, self.high))
        parts = [
            _of_columns(low if below else None, high if above else None)
            for (below, above, _), low, high in zip(runs, *edges, strict=True)
        ]
        return IndependentTransform(CatTransform(parts, dim=-1, lengths=lengths), 1)

    def lost(self, x: Points) -> tuple[Tensor, Tensor]:
        """(n, d) masks: values outside, and values exactly on an edge."""
        low, high = self.low.to(x), self.high.to(x)
        return (x < low) | (x > high), (x == low) | (x == high)

    def inward(self, x: Points) -> Points:
        """Values that rounding put on an edge, moved inside by as little as can be."""
        low, high = (edge.to(x).expand_as(x) for edge in (self.low, self.high))
        return torch.minimum(torch.maximum(x, low.nextafter(high)), high.nextafter(low))

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(_free_name(name, *self.ends(j)) for j, name in enumerate(names))

    def ends(self, column: int) -> tuple[float, float]:
        low, high = (float(edge[column] if edge.ndim else edge) for edge in (self.low, self.high))
        return low, high

    def wanted(self, name: str, column: int) -> str:
        low, high = self.ends(column)
        if math.isinf(low):
            return f"{name} must lie below {high:g}"
        return f"{name} must lie " + (
            f"above {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        )


def _of_columns(low: Tensor | None, high: Tensor | None) -> Transform:
    """Of columns with the same kinds of edges."""
    if low is None and high is not None:  # with a sign more than torch's, so that up in z is up in x
        return ComposeTransform([AffineTransform(0.0, -1.0), biject_to(constraints.less_than(high))])
    half_line = constraints.real if low is None else constraints.greater_than(low)
    transform: Transform = biject_to(half_line if high is None else constraints.interval(low, high))
    return transform


def _free_name(name: str, low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return name
    if math.isinf(high):
        return f"log {name}" if low == 0 else f"log({name} {'-' if low > 0 else '+'} {abs(low):g})"
    if math.isinf(low):
        return f"-log({high:g} - {name})"
    return f"logit {name}" if (low, high) == (0, 1) else f"logit of {name} in ({low:g}, {high:g})"


class _BreakingInLogs(StickBreakingTransform):
    """Torch's coordinates of the simplex, where torch ends: shares below the rounding of 1 keep their digits,
    and the Jacobian is known where a share has become 0. Dirichlet laws with small weights live there."""

    def _logs(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Of the shares, and of what each break leaves of the piece before it."""
        y = z - torch.arange(z.shape[-1], 0, -1).to(z).log()
        log_rest = logsigmoid(-y)
        before = pad(log_rest.cumsum(-1), (1, 0))
        return before + pad(logsigmoid(y), (0, 1)), log_rest

    def _call(self, z: Tensor) -> Tensor:
        return self._logs(z)[0].exp()

    def _inverse(self, x: Tensor) -> Tensor:
        rest = x.flip(-1).cumsum(-1).flip(-1)[..., 1:]  # what is left; ratios alone count
        y: Tensor = x[..., :-1].log() - rest.log()
        return y + torch.arange(y.shape[-1], 0, -1).to(y).log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:  # torch's names: y is of the simplex
        log_y, log_rest = self._logs(x)
        return (log_y[..., :-1] + log_rest).sum(-1)


class Simplex(Bijection):
    """Positive columns that sum to 1, by breaking a stick: z_j is the logit of x_j in what those before left.

    There is one coordinate fewer than columns; z = 0 is the middle of the simplex.
    """

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def transform(self, like: Tensor) -> Transform:
        return _BreakingInLogs()

    def lost(self, x: Points) -> tuple[Tensor, Tensor]:
        off = ((x.sum(-1, keepdim=True) - 1).abs() > _SUM).expand_as(x)
        return (x < 0) | (x > 1) | off, x == 0

    def inward(self, x: Points) -> Points:
        return x.clamp(min=torch.finfo(x.dtype).tiny)

    def names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"logit of {name} among {listed(names[j:], 4)}" for j, name in enumerate(names[:-1]))

    def wanted(self, name: str, column: int) -> str:
        return f"{name} must be a share, positive, and the columns must sum to 1"


Coordinates: TypeAlias = Box | Simplex


def entered(
    coordinates: Coordinates, x: Points, names: Sequence[str] | None = None, row: Callable[[int], str] = str
) -> Points:
    """Rows in coordinates without bounds, if all of them lie inside.

    Args:
        row: what the k-th row is called.
    """
    x = x.detach()
    outside, on_edge = coordinates.lost(x)
    if bool((mask := outside if bool(outside.any()) else on_edge).any()):
        j = int(mask.any(0).nonzero()[0, 0])
        rows = mask[:, j].nonzero()[:, 0].tolist()
        place = coordinates.wanted(f"x{j + 1}" if names is None else str(names[j]), j)
        count = f"{len(rows)} of {len(x)} rows"
        where = f"row{'s' * (len(rows) > 1)} {listed([row(k) for k in rows], _SHOWN)}"
        if mask is on_edge:
            raise InputError(
                f"{place}, and lies exactly on the edge in {count} ({where}), which has probability 0: leave "
                "these rows out, or, where values are rounded, give all digits (or add noise of one unit of "
                "rounding to data and model draws)"
            )
        raise InputError(
            f"{place}, and does not in {count} ({where}; the first is {float(x[rows[0], j]):.6g}): leave "
            "these rows out, or give the model other bounds (bounds=)"
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
        pairs = {_place(column, names): pair for column, pair in bounds.items()}
        bounds = [pairs.get(j) for j in range(len(names))]
    if len(bounds) != len(names):
        raise InputError(
            f"bounds need one (low, high) or None per column: got {len(bounds)} for {len(names)}"
        )
    edges = [_edges(pair, name) for pair, name in zip(bounds, names, strict=True)]
    return Box(*zip(*edges, strict=True))


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


def of_distribution(distribution: Distribution) -> Coordinates | None:
    """Coordinates of a torch distribution; None for all of space, and where it does not say."""
    if isinstance(distribution, VonMises):
        raise InputError(_refusal("VonMises", "a circle"))
    if isinstance(distribution, Independent):
        return of_distribution(distribution.base_dist)
    if type(distribution) is TransformedDistribution:  # states the range of its last transform alone
        base = of_distribution(distribution.base_dist)
        return of_constraint(distribution.support) if base is None else _moved(base, distribution)
    try:
        support = distribution.support
    except NotImplementedError:
        return None
    return of_constraint(
        support, type(distribution).__name__, mixed=isinstance(distribution, MixtureSameFamily)
    )


def of_constraint(support: Any, name: str = "the model", *, mixed: bool = False) -> Coordinates | None:
    """Coordinates of a constraint of torch or NumPyro, which have the same names; None for all of space.

    Args:
        mixed: its edges have a component each, which must agree.
    """
    inner = support
    while hasattr(inner, "base_constraint"):
        inner = inner.base_constraint
    if support.is_discrete:
        raise InputError(f"discrete values have no score: {name} lives on {support}")
    kind = type(inner).__name__.strip("_")
    if kind == "Simplex":
        return Simplex()
    if kind == "Circular":
        raise InputError(_refusal(name, "a circle"))
    if hasattr(inner, "cseq"):
        box = _joined(inner, name)
    elif hasattr(inner, "lower_bound") or hasattr(inner, "upper_bound"):
        box = Box(_end(inner, "lower_bound", -math.inf), _end(inner, "upper_bound", math.inf))
        if mixed and box.dim is not None:
            edges = torch.stack([box.low, box.high])
            if not torch.equal(edges, edges[:, :1].expand_as(edges)):
                raise InputError(f"the components of {name} end at different edges: its density jumps inside")
            box = Box(*edges[:, 0])
    elif "Real" in kind:
        return None
    else:
        raise InputError(_refusal(name, str(support)))
    return box if bool((box.low.isfinite() | box.high.isfinite()).any()) else None


def _refusal(name: str, place: str) -> str:
    return (
        f"{name} lives on {place}: half-lines, boxes and simplexes have coordinates without edges here; "
        "for another place write the density in such coordinates, with the Jacobian"
    )


def _end(constraint: Any, name: str, default: float) -> Tensor:
    """A tensor, a number, or an array of JAX."""
    edge = getattr(constraint, name, default)
    edge = edge.detach().cpu().numpy() if isinstance(edge, Tensor) else edge
    return torch.as_tensor(np.array(edge, dtype=np.float64))


def _joined(constraint: Any, name: str) -> Box:
    """Columns side by side (torch's cat and stack)."""
    lengths = getattr(constraint, "lengths", None) or [1] * len(constraint.cseq)
    edges = []
    for part, length in zip(constraint.cseq, lengths, strict=True):
        box = of_constraint(part, name) or Box(-math.inf, math.inf)
        if isinstance(box, Simplex):
            raise InputError(_refusal(name, "a simplex beside other columns"))
        edges.append(torch.stack([box.low, box.high]).view(2, -1).expand(2, length))
    return Box(*torch.cat(edges, 1))


def _moved(base: Coordinates, distribution: TransformedDistribution) -> Box:
    """A box after transforms of each column by itself."""
    if not isinstance(base, Box) or any(
        t.domain.event_dim or not t.bijective for t in distribution.transforms
    ):
        raise InputError(_refusal("a transformed distribution", "what its transforms make of its base"))
    width = math.prod((*distribution.batch_shape, *distribution.event_shape))
    ends = torch.stack([base.low, base.high]).view(2, -1).expand(2, width)
    for transform in distribution.transforms:
        ends = transform(ends)  # an infinite end goes where the transform tends to
    return Box(ends.amin(0), ends.amax(0))
