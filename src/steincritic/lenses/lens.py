"""What a lens is: a stack of datasets in, numbers out, each large for one kind of fault.

A lens works in two steps. *Entries* are what it measures of a dataset, most of them averages of Stein values:
one per coordinate, pair, cell or bandwidth. Standardized by what they are under the model, entries become
*numbers*: the largest of a kind, the sum of their squares, and so on. What an entry or a number is under the
model is learned from reference sets, draws of the model that are not used for anything else, so any formula
keeps a test exact as long as data and null sets go through it alike.

To add a lens, copy `lenses/cells.py`: a frozen dataclass with `name` and `prepare`, and what it prepares.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.models.base import Model
from steincritic.stein.divergence import exact
from steincritic.stein.operator import stein_values

_SKEWEST = 2.0  # of an entry, what is taken out of it
_TAIL = (0.05, 4.0)  # skewness of a number, least and most that is believed
_PRIOR = 100  # sets that a skewness of 1, about that of a largest value, counts for
_BEYOND = 600.0  # -log p where the incomplete gamma function ends in double precision


@dataclass(frozen=True, eq=False)
class Seen:
    """Standardized entries of r datasets, (r, k) each."""

    plain: Tensor  # (value - mean) / sd under the model
    fair: Tensor  # the same with the skewness taken out, close to normal under the model


class PreparedLens(Protocol):
    """A lens that knows the model: its scale, its cells, whatever it takes from draws."""

    @property
    def size(self) -> int:
        """Entries per dataset, k."""
        ...

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        """(r, k): what is measured of each of (r, n, d) datasets, a pure function of it and its seed."""
        ...

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        """(r,) each: large for one kind of fault."""
        ...


class Lens(Protocol):
    """How to look at datasets."""

    @property
    def name(self) -> str: ...

    @property
    def whitened(self) -> bool:
        """Wants points whose coordinates are uncorrelated under the model, not only of one scale.

        A lens with `own_units = True` gets them as they are.
        """
        ...

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> PreparedLens:
        """Get ready for datasets of n points.

        Args:
            draws: of the model, in the coordinates that datasets will come in.
        """
        ...


@runtime_checkable
class ModelLens(Lens, Protocol):
    """A lens that wants the model itself, not only draws."""

    def prepare_for(
        self, model: Model | None, points: ScoredPoints, *, n: int, seed: int, drawn: bool
    ) -> PreparedLens:
        """Get ready for datasets of n points.

        Args:
            drawn: whether the points are draws of the model; they are the data where it has no sampler.
        """
        ...


def prepare_lens(
    lens: Lens, model: Model | None, points: ScoredPoints, *, n: int, seed: int, drawn: bool = True
) -> PreparedLens:
    if isinstance(lens, ModelLens):
        return lens.prepare_for(model, points, n=n, seed=seed, drawn=drawn)
    return lens.prepare(points, n=n, seed=seed)


@runtime_checkable
class SignedLens(PreparedLens, Protocol):
    """A prepared lens that works without null sets: its entries when every point counts with a sign.

    One with `centered = True` needs no method for that: see `by_signs`.
    """

    def signed(self, points: ScoredPoints, signs: Tensor) -> Tensor:
        """(b, k): entries of (n, d) points under (b, n) signs."""
        ...


@runtime_checkable
class Merging(Protocol):
    """Entries by way of sums over points: sums of parts of a dataset add up to those of the whole."""

    @property
    def linear(self) -> bool:
        """Are entries linear in the sums, hence close to normal for many points?"""
        ...

    @property
    def width(self) -> int:
        """Sums per dataset, p."""
        ...

    def sums(self, datasets: ScoredPoints) -> Tensor:
        """(r, p) of (r, n, d) datasets."""
        ...

    def of_sums(self, sums: Tensor, n: int) -> Tensor:
        """(r, k): entries of datasets of n points with these (r, p) sums."""
        ...


@dataclass(frozen=True, eq=False)
class _OfMeans:
    """A lens whose entries are means over points."""

    linear: ClassVar[bool] = True
    prepared: PreparedLens

    @property
    def width(self) -> int:
        return self.prepared.size

    def sums(self, datasets: ScoredPoints) -> Tensor:
        return self.prepared.entries(datasets, ()) * len(datasets)

    def of_sums(self, sums: Tensor, n: int) -> Tensor:
        return sums / n


def merging(prepared: PreparedLens) -> Merging | None:
    """The lens by way of sums, if it can."""
    if is_mean(prepared):
        return _OfMeans(prepared)
    return prepared if isinstance(prepared, Merging) else None


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries that one number is made of, each as if the number were made of it alone."""

    values: Tensor  # (k,) with their signs
    columns: tuple[tuple[int, ...], ...]  # of the data, that each is about; none for a cell
    size: Callable[[Tensor], Tensor]  # from an entry to the number

    @classmethod
    def joint(cls, number: Tensor, columns: Sequence[int]) -> "Entries":
        """A number that is about many columns at once."""
        return cls(number.reshape(1), (tuple(columns),), lambda value: value)


@runtime_checkable
class TellingLens(Protocol):
    """A prepared lens whose entries can be put into words."""

    def by_entry(self, seen: Seen) -> Mapping[str, Entries]:
        """What one dataset's (k,) entries say, by number."""
        ...


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean, standard deviation and skewness of entries under the model, (k,) each."""

    mean: Tensor
    sd: Tensor
    skew: Tensor

    @classmethod
    def of(cls, entries: Tensor) -> "Scale":
        mean = entries.mean(0)
        return cls(mean, *_spread(entries - mean))

    def see(self, entries: Tensor) -> Seen:
        mean, sd, skew = (t.to(entries) for t in (self.mean, self.sd, self.skew))
        return _seen(entries - mean, sd, skew)


def leave_one_out(entries: Tensor) -> Seen:
    """Each of r datasets as the others see it: what a further dataset of the model would look like."""
    mean, sd, skew = _of_others(entries)
    return _seen(entries - mean, sd, skew)


def _of_others(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviation and skewness of all rows but one, for each row."""
    r, center = len(values), values.mean(0)
    centered = values - center
    first, second, third = (centered.pow(k) for k in (1, 2, 3))
    mean = -first / (r - 1)
    square, cube = ((p.sum(0) - p) / (r - 1) for p in (second, third))
    variance = (square - mean**2).clamp(min=0)
    skew = (cube - 3 * mean * square + 2 * mean**3) / variance.clamp(min=1e-200) ** 1.5
    return center + mean, (variance * ((r - 1) / max(r - 2, 1))).sqrt(), skew


def _spread(centered: Tensor) -> tuple[Tensor, Tensor]:
    sd = centered.square().mean(0).sqrt()
    skew = (centered / sd.clamp(min=1e-300)).pow(3).mean(0)
    return sd * math.sqrt(len(centered) / max(len(centered) - 1, 1)), skew


def _seen(gap: Tensor, sd: Tensor, skew: Tensor) -> Seen:
    """Wilson and Hilferty's cube root, which is monotone, takes the skewness out."""
    plain = gap / torch.where(sd > 1e-12 * gap.abs().amax(0).clamp(min=1e-300), sd, torch.inf)
    g = skew.clamp(-_SKEWEST, _SKEWEST)
    g = torch.where(g.abs() < 1e-3, torch.full_like(g, 1e-3), g)
    base = 1 + g * plain / 2
    return Seen(plain, 6 / g * (base.sign() * base.abs() ** (1 / 3) - 1) + g / 6)


@dataclass(frozen=True, eq=False)
class Tail:
    """-log p of a number, from what it was on reference sets; smooth beyond the largest of them.

    A Pearson III law with their mean, standard deviation and skewness. Any monotone map that was fixed
    beforehand keeps a test exact, and so does one that treats data and null sets alike.
    """

    mean: Tensor
    sd: Tensor
    skew: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "Tail":
        values = values.to(torch.float64)
        mean = values.mean(0)
        return cls._by(mean, *_spread(values - mean), count=len(values))

    @classmethod
    def of_others(cls, values: Tensor) -> "Tail":
        """For each of (r,) values, by all the others."""
        return cls._by(*_of_others(values.to(torch.float64)), count=len(values) - 1)

    @classmethod
    def _by(cls, mean: Tensor, sd: Tensor, skew: Tensor, *, count: int) -> "Tail":
        believed = (count * skew + _PRIOR) / (count + _PRIOR)  # few sets say little about it
        return cls(mean, sd, believed.clamp(*_TAIL))

    def evidence(self, values: Tensor) -> Tensor:
        mean, sd, skew = (t.to(values.device) for t in (self.mean, self.sd, self.skew))
        shape = 4 / skew.square()
        x = (shape + (values.to(torch.float64) - mean) / sd.clamp(min=1e-300) * shape.sqrt()).clamp(min=0)
        upper = torch.special.gammaincc(shape.expand_as(x), x)
        far = x - (shape - 1) * x.clamp(min=1e-300).log() + torch.lgamma(shape)  # leading term
        far = far - torch.log(x / (x - shape + 1).clamp(min=1e-3))
        evidence = torch.where(upper > math.exp(-_BEYOND), -upper.clamp(min=1e-300).log(), far)
        return torch.where(sd > 0, evidence, 0.0)


def normal_evidence(size: Tensor) -> Tensor:
    """-log p of a standard normal value at least so far out: near linear in -log p, as `Tail` likes it."""
    value: Tensor = -(torch.special.log_ndtr(-size.abs()) + math.log(2))
    return value


def pairs_of(matrix: Tensor) -> Tensor:
    """(..., d, d) to (..., pairs): the mean of (j, k) and (k, j), for j < k."""
    d = matrix.shape[-1]
    rows, columns = torch.triu_indices(d, d, 1, device=matrix.device)
    return (matrix[..., rows, columns] + matrix[..., columns, rows]) / 2


def pair_columns(dim: int) -> tuple[tuple[int, ...], ...]:
    """The columns of `pairs_of`."""
    return tuple(tuple(pair) for pair in torch.triu_indices(dim, dim, 1).T.tolist())


def single_columns(dim: int) -> tuple[tuple[int, ...], ...]:
    return tuple((j,) for j in range(dim))


def directions(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(..., d, d) standardized second moments x_j s_k + [j = k] to how wide the data are, in the direction in
    which they are widest beside the model, and how narrow in the narrowest.

    The ends of the spectrum, made of products alone: the mean of the eigenvalues l weighted by (1 ± l/r)^64
    with r at least the largest of them. Entries of the diagonal vary twice as much as the others for a normal
    model, and do so again.
    """
    both = (matrix + matrix.mT) / 2
    both = both + (math.sqrt(2) - 1) * torch.diag_embed(both.diagonal(dim1=-2, dim2=-1))
    fourth = (both @ both).square().sum((-1, -2), keepdim=True) ** 0.25  # of the sum of fourth powers
    unit = both / fourth.clamp(min=1e-30)
    identity = torch.eye(both.shape[-1], dtype=both.dtype, device=both.device)
    return _end(-unit, identity) * fourth[..., 0, 0], _end(unit, identity) * fourth[..., 0, 0]


def _end(unit: Tensor, identity: Tensor) -> Tensor:
    power = (identity + unit) / 2
    for _ in range(5):
        power = power @ power
    weights = power.square().sum((-1, -2)).clamp(min=1e-30)
    return ((power @ unit) * power).sum((-1, -2)) / weights


def clipped(x: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """Coordinates that level off at `clip`, x / sqrt(1 + (x / clip)^2), and their slope; None: as they are.

    Fields of clipped coordinates are bounded, and so are their Stein values where the score is.
    """
    if clip is None:
        return x, torch.ones_like(x)
    size = 1 + (x / clip).square()
    return x * size.rsqrt(), size.pow(-1.5)


def is_mean(prepared: PreparedLens) -> bool:
    """Are its entries means over points?"""
    return bool(getattr(prepared, "means", False))


def by_signs(prepared: PreparedLens) -> bool:
    """Will random signs do for null sets, as its entries are means that vanish under the model, or signed?

    Of means, one with `by_model = True` has chosen nothing by the points.
    """
    return bool(getattr(prepared, "centered", False)) or isinstance(prepared, SignedLens)


def point_values(prepared: PreparedLens, points: ScoredPoints) -> Tensor:
    """(n, k): entries that are means over points, of each point alone."""
    values: Tensor = prepared.entries(points.map(lambda t: t[:, None]), ())
    return values


def combined(evidence: Tensor, weights: Tensor) -> Tensor:
    """(r, m) evidences to (r,): log of the weighted mean of 1/p, the harmonic combination."""
    if not evidence.shape[-1]:  # nothing was looked at
        return evidence.sum(-1)
    return torch.logsumexp(evidence + weights.log(), dim=-1)


@dataclass(frozen=True)
class Field:
    """A question of your own ("my physics says this should vanish"): one number per dataset.

    It comes from a function of the points, in the units of the data.

    Args:
        function: (m, d) points to (m, d), a vector field whose Stein values s.f + div f are averaged; or to
            (m,), any value per point, whose mean is compared with that of the model's draws.
        name: of the lens.
    """

    function: Callable[[Tensor], Tensor]
    name: str = "field"
    whitened: bool = False
    own_units: bool = True

    def needs_draws(self, x: Tensor) -> bool:
        """Is it a value per point, whose mean under the model is not known?"""
        return torch.as_tensor(self.function(x[:2])).ndim != 2

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedField":
        return PreparedField(self.function, self.name)


@dataclass(frozen=True)
class PreparedField:
    means: ClassVar[bool] = True
    centered: ClassVar[bool] = True
    function: Callable[[Tensor], Tensor]
    name: str

    @property
    def size(self) -> int:
        return 1

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        x, score = datasets.x.flatten(0, 1), datasets.score.flatten(0, 1)
        values = torch.as_tensor(self.function(x)).detach()
        if values.shape == x.shape and values.ndim == 2:
            values = stein_values(score, *exact(self.function, x)).detach()
        if values.shape != (len(x),):
            raise InputError(
                f"lens {self.name!r} must map points {tuple(x.shape)} to a field of that shape or to "
                f"one value per point ({len(x)},), got {tuple(values.shape)}"
            )
        return values.view(len(datasets.x), -1).mean(1, keepdim=True)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        return {self.name: normal_evidence(seen.fair[..., 0])}
