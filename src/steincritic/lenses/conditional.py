"""Lenses for conditional models q(y | x): Stein values of y, weighed by functions of x.

For any function h of x and any field v of y, h(x) (s(y | x).v(y) + div v(y)) has mean zero at every x under
the model. Datasets come with one x in one order, so functions of x are a fixed (n, m) matrix H, and entries
are H'W / n with the Stein values W of y:

| field of y, standardized | Stein value | wrong |
|---|---|---|
| 1 | s | mean of y at x |
| y | y s + 1 | spread of y at x |
| y^2 - 1 | (y^2 - 1) s + 2 y | skewness |
| y^3 - 3 y | (y^3 - 3 y) s + 3 y^2 - 3 | tails |
| y_k e_j | y_k s_j | pairs of several y |

y is standardized by the model's own mean and spread at each x, so these are moments of residuals.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.lenses.lens import Entries, Seen, normal_evidence, pair_columns
from steincritic.rng import generator

KINDS = ("shift", "spread", "skewness", "tails", "pair")
# How loud each number is heard, beside 3 and 5 of critics; the others count where they are extreme. Found on
# 40 faults with seeds from 1000 on, one number at a time, and rounded.
LOUDNESS = {
    **dict.fromkeys(("shift by square", "kernel of x at 1, y at 1"), 16.0),
    **dict.fromkeys(("shift by curve", "shift by product", "shift by region", "shift of low order"), 8.0),
    "spread by predicted spread": 8.0,
    **dict.fromkeys(("shift by overall", "spread by overall", "skewness by overall"), 4.0),
    **dict.fromkeys(("shift by slope", "shift by slope, many", "spread by slope, many"), 4.0),
    "spread of low order": 4.0,
    **dict.fromkeys(("shift by predicted mean", "spread by slope", "tails by slope, many"), 2.0),
    **dict.fromkeys(("pair by overall", "pair by slope"), 2.0),
    **dict.fromkeys(("shift by wave 1, many", "spread by wave 1, many", "spread by region"), 1.0),
    **dict.fromkeys(("shift of any shape", "tails of low order", "skewness by slope, many"), 1.0),
    "kernel of x at all x, y at 1": 1.0,
}
SOFTLY = 0.05
_CUTS = (0.1, 0.25, 0.5, 0.75, 0.9)  # quantiles of a covariate at which regions end
_FEWEST = 10  # rows of a region
_MIDDLE = (0.5,)  # the same for very many covariates
_MOST_CURVED = 50  # covariates up to which there are curves, and regions beside halves
_MOST_PAIRED = 20  # covariates up to which products of two are functions
_FAR = 4.0  # standard deviations beyond which a covariate counts by its ranks
_CURVES = 8  # half waves of a covariate, less than these
_WAVES = 32  # random frequencies of x per bandwidth
_SUMMED = ("slope", "product", "curve")  # groups whose squares are summed
_WIDTHS = (1.0, 0.5)  # bandwidths, in median distances
_DISTANCES = 500  # rows, or draws, whose distances give the median
_PREDICTED = ("shift", "spread")
_SHARES = (0.5, 0.25, 0.1, 0.03)  # of the rows, at either end
_FEWEST_AT_ENDS = 5  # rows
_SHAPES = 2  # functions before the ends
_STANDS_OUT = 4.0  # standard errors of a squared spread
_VARIED = 2.0  # standard errors of the logarithm of a spread


@dataclass(frozen=True)
class Region:
    """Rows with a covariate above or below a value; in standardized units."""

    column: int
    cut: float
    above: bool


@dataclass(frozen=True, eq=False)
class Functions:
    """Functions of x at the rows, by group."""

    groups: dict[str, Tensor]  # (n, .) each
    regions: tuple[Region, ...]
    linear: tuple[int, ...]  # columns
    squared: tuple[int, ...]  # those of more than two values
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, x: Tensor, *, seed: int) -> "Functions":
        """Of standardized (n, p) covariates; those that are constant say nothing."""
        varied = [j for j in range(x.shape[1]) if bool((x[:, j] != x[0, j]).any())]
        z = torch.stack([_tamed(x[:, j]) for j in varied], 1) if varied else x[:, :0]
        few = len(varied) <= _MOST_CURVED
        curves = [c for j in range(z.shape[1] if few else 0) for c in _curves(z[:, j])]
        bent = [k for k in range(z.shape[1]) if len(z[:, k].unique()) > 2]
        paired = range(len(varied)) if len(varied) <= _MOST_PAIRED else range(0)
        pairs = tuple((j, k) for j in paired for k in paired if j < k)
        regions, inside = _regions(x, varied, _CUTS if few else _MIDDLE)
        empty = x[:, :0]
        groups = {
            "overall": torch.ones_like(x[:, :1]),
            "slope": z,
            "square": z[:, bent].square(),
            "curve": torch.stack(curves, 1) if curves else empty,
            "product": torch.stack([z[:, j] * z[:, k] for j, k in pairs], 1) if pairs else empty,
            "region": torch.stack(inside, 1).to(x) if inside else empty,
        }
        if varied and len(varied) <= _MOST_PAIRED:
            low = torch.cat((groups["overall"], z, z.square()), 1)
            groups["low order"] = torch.linalg.qr(low.double()).Q.to(x) * math.sqrt(len(x))
        if varied:
            groups |= {f"wave {w:g}": _waves(z, w, seed) for w in _WIDTHS}
        named = tuple((varied[j], varied[k]) for j, k in pairs)
        filled = {name: group for name, group in groups.items() if group.shape[1]}
        return cls(filled, regions, tuple(varied), tuple(varied[k] for k in bent), named)


@dataclass(frozen=True, kw_only=True)
class ResidualMoments:
    """Mean, spread, skewness and tails of y: overall, along covariates, and in regions of them.

    Args:
        covariates: columns of x, which come first.
    """

    name: ClassVar[str] = "residual moments"
    covariates: int
    whitened: bool = False

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedResiduals":
        functions = Functions.of(draws.x[:n, : self.covariates], seed=seed)
        return PreparedResiduals(functions, self.covariates, draws.dim - self.covariates)


@dataclass(frozen=True, eq=False)
class PreparedResiduals:
    functions: Functions
    covariates: int
    targets: int

    @property
    def _sizes(self) -> list[int]:
        return [group.shape[1] for group in self.functions.groups.values()]

    @property
    def _widths(self) -> list[int]:
        t = self.targets
        return [t, t, t, t, t * (t - 1) // 2]

    @property
    def size(self) -> int:
        return sum(self._sizes) * sum(self._widths)

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        h = torch.cat(list(self.functions.groups.values()), 1).to(datasets.x)
        return (h.mT @ self.values(datasets) / len(datasets)).flatten(1)

    def values(self, datasets: ScoredPoints) -> Tensor:
        """(..., n, k) Stein values of y, kind by kind."""
        y, s = datasets.x[..., self.covariates :], datasets.score[..., self.covariates :]
        q = y * y
        j, k = torch.triu_indices(self.targets, self.targets, 1, device=y.device)
        pairs = (y[..., j] * s[..., k] + y[..., k] * s[..., j]) / 2
        tails = (q - 3) * y * s + 3 * (q - 1)
        return torch.cat([s, y * s + 1, (q - 1) * s + 2 * y, tails, pairs], -1)

    def parts(self, values: Tensor) -> dict[tuple[str, str], Tensor]:
        """(..., k) entries by kind and group of functions, (..., m, t) each."""
        table = values.unflatten(-1, (sum(self._sizes), -1))
        return {
            (kind, group): part
            for kind, columns in zip(KINDS, table.split(self._widths, -1), strict=True)
            for group, part in zip(self.functions.groups, columns.split(self._sizes, -2), strict=True)
            if part.shape[-1]
        }

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        out: dict[str, Tensor] = {}
        parts = {key: part.flatten(-2) for key, part in self.parts(seen.fair).items()}
        for (kind, group), part in parts.items():
            if group == "low order":  # parabolas: squares of what is uncorrelated add up
                out[f"{kind} of {group}"] = part.square().sum(-1)
                continue
            if not group.startswith("wave"):
                out[f"{kind} by {group}"] = normal_evidence(part.abs().amax(-1))
            if group.startswith("wave") or (group in _SUMMED and part.shape[-1] > 1):
                out[f"{kind} by {group}, many"] = part.square().sum(-1)
            if group == "curve":
                smooth = [parts[kind, g].square().sum(-1) for g in ("overall", "slope", "curve")]
                out[f"{kind} of any shape"] = torch.stack(smooth).sum(0)
        return out

    def by_entry(self, seen: Seen) -> dict[str, Entries]:
        """Of functions that a sentence can name: columns of x, then that of y."""
        f = self.functions
        columns: dict[str, tuple[tuple[int, ...], ...]] = {
            "overall": ((),),
            "slope": tuple((j,) for j in f.linear),
            "square": tuple((j,) for j in f.squared),
            "product": f.pairs,
            "region": tuple((region.column,) for region in f.regions),
        }
        targets = tuple((self.covariates + t,) for t in range(self.targets))
        pairs = tuple((self.covariates + j, self.covariates + k) for j, k in pair_columns(self.targets))
        return {
            f"{kind} by {group}": Entries(
                part.flatten(-2),
                tuple(
                    (*of_x, *of_y)
                    for of_x in columns[group]
                    for of_y in (pairs if kind == "pair" else targets)
                ),
                normal_evidence,
            )
            for (kind, group), part in self.parts(seen.fair).items()
            if group in (columns if kind in ("shift", "spread") else ("overall", "slope", "region"))
        }


@dataclass(frozen=True, kw_only=True)
class ResidualKernels:
    """Kernel Stein discrepancies in y, weighed by kernels of x [jitkrittum2020].

    k(x, x') times the Stein kernel of y, both by frequencies: sums over rows of cosines of x times Stein
    values of cosines of y, squared.
    """

    name: ClassVar[str] = "residual kernels"
    covariates: int
    whitened: bool = False

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedResidualKernels":
        p = self.covariates
        functions = Functions.of(draws.x[:n, :p], seed=seed).groups
        x = [functions["overall"], *(g for name, g in functions.items() if name.startswith("wave"))]
        y = draws.x[:: max(1, len(draws) // _DISTANCES), p:]
        median = float(torch.pdist(y.contiguous()).median()) or 1.0
        if y.shape[1] == 1:  # standard normal quantiles, as the signs of frequencies do not matter
            normal, count = NormalDist(), 8
            w = torch.tensor([[normal.inv_cdf(0.5 + (k + 0.5) / (2 * count))] for k in range(count)])
        else:
            size = min(64, 8 * y.shape[1]), y.shape[1]
            w = torch.randn(*size, generator=generator(seed, "frequencies"))
        return PreparedResidualKernels(tuple(x), w.to(y) / median, p)


@dataclass(frozen=True, eq=False)
class PreparedResidualKernels:
    x: tuple[Tensor, ...]  # (n, .) functions of x, per kernel of x; rows have length 1
    frequencies: Tensor  # (f, dy) of the wider kernel of y
    covariates: int

    @property
    def size(self) -> int:
        return len(self.x) * len(_WIDTHS)

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        y, s = datasets.x[..., self.covariates :], datasets.score[..., self.covariates :]
        n = len(datasets)
        statistics = []
        for width in _WIDTHS:
            w = self.frequencies / width
            angle = y @ w.mT
            cos, sin = angle.cos()[..., None], angle.sin()[..., None]
            even = (cos * s[..., None, :] - sin * w).flatten(-2)
            odd = (sin * s[..., None, :] + cos * w).flatten(-2)
            values = torch.cat([even, odd], -1)  # (r, n, 2 f dy)
            diagonal = values.square().sum((-1, -2))
            for h in self.x:
                total = (h.to(y).mT @ values).square().sum((-1, -2))
                statistics.append((total - diagonal) / (len(w) * n * (n - 1)))
        return torch.stack(statistics, -1)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        of_x = ("all x", *(f"{w:g}" for w in _WIDTHS))[: len(self.x)]
        names = [f"kernel of x at {a}, y at {w:g}" for w in _WIDTHS for a in of_x]
        return {name: seen.fair[..., k] for k, name in enumerate(names)}


@dataclass(frozen=True, kw_only=True)
class PredictedMoments:
    """Mean and spread of residuals along the predicted mean and the predicted spread of y.

    Functions of x that a model is most often wrong along are its own predictions: residuals that grow with
    the predicted mean, or a spread that is not there where the model says it is large, are seen along one
    direction however many covariates there are.

    Args:
        covariates: columns of x, which come first.
    """

    name: ClassVar[str] = "residuals by prediction"
    covariates: int
    whitened: bool = False
    own_units: bool = True

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedPredicted":
        y = draws.x[:, self.covariates :].to(torch.float64).unflatten(0, (-1, n))
        mean, spread = y.mean(0), y.std(0)
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        # squared spreads beyond the usual one, for few rows that stand out
        noise = (2 / len(y)) ** 0.5  # of a normal y
        excess = ((spread / spread.median(0).values) ** 2 - 1 - _STANDS_OUT * noise).clamp(min=0)
        of_spread = torch.cat((_of_prediction(spread.log()), excess.T[..., None]), 2)
        varied = spread.log().std(0) > _VARIED * (0.5 / len(y)) ** 0.5
        return PreparedPredicted(
            mean, spread, _of_prediction(mean), of_spread, self.covariates, bool(varied.any())
        )


@dataclass(frozen=True, eq=False)
class PreparedPredicted:
    mean: Tensor  # (n, t)
    spread: Tensor
    of_mean: Tensor  # (t, n, m) functions of the predicted mean of each target
    of_spread: Tensor
    covariates: int
    spread_varies: bool  # over the rows, more than its own error

    @property
    def size(self) -> int:
        return len(_PREDICTED) * self.mean.shape[1] * (self.of_mean.shape[2] + self.of_spread.shape[2])

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        mean, spread = self.mean.to(datasets.x), self.spread.to(datasets.x)
        y = (datasets.x[..., self.covariates :] - mean) / spread
        s = datasets.score[..., self.covariates :] * spread
        values = torch.stack((s, y * s + 1), -1)  # (r, n, t, kinds)
        functions = torch.cat((self.of_mean, self.of_spread), 2).to(y)
        return torch.einsum("rntk,tnm->rkmt", values, functions).flatten(1) / len(datasets)

    @property
    def ends(self) -> list[tuple[float, bool]]:
        """Rows that sentences are about: a share of them, and whether predictions are largest there."""
        return _ends(len(self.mean))

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        return {
            name: normal_evidence(part.abs().amax((-1, -2))) for name, part in self._parts(seen.fair).items()
        }

    def by_entry(self, seen: Seen) -> Mapping[str, Entries]:
        """Of ends: the column of y."""
        of_y = tuple((self.covariates + t,) for t in range(self.mean.shape[1]))
        return {
            name: Entries(
                part[_SHAPES : _SHAPES + len(self.ends)].flatten(), of_y * len(self.ends), normal_evidence
            )
            for name, part in self._parts(seen.fair).items()
            if self.spread_varies or not name.endswith("spread")
        }

    def _parts(self, values: Tensor) -> dict[str, Tensor]:
        """(..., k) entries by number, (..., m, t) each."""
        by_kind = values.unflatten(-1, (len(_PREDICTED), -1, self.mean.shape[1]))
        parts = by_kind.split([self.of_mean.shape[2], self.of_spread.shape[2]], -2)
        return {
            f"{kind} by predicted {name}": part[..., k, :, :]
            for name, part in zip(("mean", "spread"), parts, strict=True)
            for k, kind in enumerate(_PREDICTED)
        }


def _tamed(x: Tensor) -> Tensor:
    """Standardized, by normal scores of its ranks where some values are far out."""
    z = (x - x.mean()) / x.std(correction=0)
    if float(z.abs().max()) <= _FAR:
        return z
    _, place, count = x.unique(return_inverse=True, return_counts=True)
    middle = (count.cumsum(0) - (count + 1) / 2)[place]  # mean rank of what is tied
    scores: Tensor = torch.special.ndtri((middle + 0.5).double() / len(x)).to(x)
    return (scores - scores.mean()) / scores.std(correction=0)


def _curves(z: Tensor) -> list[Tensor]:
    """Cosines of ever more half waves over the ranks of a covariate, as far as its values tell them apart."""
    _, place, count = z.unique(return_inverse=True, return_counts=True)
    u = ((count.cumsum(0) - count / 2) / len(z))[place]
    return [torch.cos(math.pi * k * u).to(z) for k in range(2, min(_CURVES, len(count)))]


def _regions(
    x: Tensor, columns: Sequence[int], quantiles: Sequence[float]
) -> tuple[tuple[Region, ...], list[Tensor]]:
    """Where a covariate is at most, or above, one of its quantiles; each set of rows once."""
    regions: list[Region] = []
    inside: list[Tensor] = []
    least = max(_FEWEST, math.ceil(0.05 * len(x)))
    for j in columns:
        cuts = {float(x[:, j].quantile(q, interpolation="lower")) for q in quantiles}
        for cut in sorted(cuts):
            for above in (False, True):
                mask = (x[:, j] > cut) == above
                if least <= int(mask.sum()) < len(x):
                    regions.append(Region(j, cut, above))
                    inside.append(mask)
    return tuple(regions), inside


def _waves(z: Tensor, width: float, seed: int) -> Tensor:
    """(n, 2 f) cosines and sines of random frequencies: their products are near an RBF kernel of x."""
    some = z[torch.randperm(len(z), generator=generator(seed, "rows"))[:_DISTANCES].to(z.device)]
    median = float(torch.pdist(some).median()) or 1.0
    w = torch.randn(_WAVES, z.shape[1], generator=generator(seed, "waves")).to(z) / (width * median)
    angle = z @ w.mT
    return torch.cat([angle.cos(), angle.sin()], 1) / math.sqrt(_WAVES)


def _of_prediction(of: Tensor) -> Tensor:
    """(t, n, m): slope, square and ends of each column of (n, t) predictions."""
    z = (of - of.mean(0)) / of.std(0).clamp(min=1e-300)
    place = of.argsort(0).argsort(0).to(of) / len(of)  # in [0, 1)
    inside = [place >= 1 - share if above else place < share for share, above in _ends(len(of))]
    return torch.stack([z, z**2, *(end.to(of) for end in inside)], -1).transpose(0, 1)


def _ends(n: int) -> list[tuple[float, bool]]:
    return [(share, above) for share in _SHARES if share * n >= _FEWEST_AT_ENDS for above in (True, False)]
