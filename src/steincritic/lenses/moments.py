"""Moments: Stein values of polynomial fields, averaged. Right for any model, and seen at once.

With x standardized, each field has Stein values of mean zero under the model:

| field | Stein value | wrong |
|---|---|---|
| e_j | s_j | mean |
| x_j e_k | x_j s_k + [j = k] | spread, overall scale, pairs, a wide or narrow direction |
| (x_j^2 - 1) e_j | (x_j^2 - 1) s_j + 2 x_j | skewness |
| (x_j^3 - 3 x_j) e_j | (x_j^3 - 3 x_j) s_j + 3 x_j^2 - 3 | tails of one coordinate |
| x (|x|^2 - d - 2) | (x.s + d + 2)|x|^2 - (d + 2)(x.s + d) | tails in all directions |

Hermite polynomials make the kinds uncorrelated for a normal model, so that a wrong spread does not look like
heavy tails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.lenses.lens import (
    Entries,
    Seen,
    clipped,
    directions,
    normal_evidence,
    pair_columns,
    pairs_of,
    single_columns,
)

_ALIKE = ("shift, all alike", "skewness, all alike", "tails, all alike", "scale", "radial tails")
DIRECTIONS = ("wide direction", "narrow direction")
MOST_PAIRED = 200  # coordinates up to which all pairs are looked at
MOST_DEPENDENT = 60  # the same beyond correlation


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Means, spreads, pairs, skewness and tails.

    Args:
        whitened: in coordinates that are uncorrelated under the model; finds small shifts of a model whose
            coordinates are strongly correlated.
    """

    name: ClassVar[str] = "moments"
    whitened: bool = False
    clip: float | None = None

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedMoments":
        return PreparedMoments(draws.dim, self.clip)


@dataclass(frozen=True)
class PreparedMoments:
    means: ClassVar[bool] = True
    centered: ClassVar[bool] = True
    dim: int
    clip: float | None = None

    @property
    def size(self) -> int:
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        d = self.dim
        return [d, d * d if self.paired else d, d, d, 5]

    @property
    def paired(self) -> bool:
        return self.dim <= MOST_PAIRED

    @property
    def left_out(self) -> str | None:
        """What a reader should know about what was not looked at."""
        if self.paired:
            return None
        return (
            f"The moments left out pairs of columns: {self.dim} columns are more than the {MOST_PAIRED} up "
            "to which all pairs are looked at."
        )

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        (x, slope), s = clipped(datasets.x, self.clip), datasets.score
        n, d = x.shape[-2:]
        u, q = x * s, x * x
        inner, length = u.sum(-1), q.sum(-1)
        if self.paired:
            second = x.mT @ s / n + torch.diag_embed(slope.mean(-2))
        else:
            second = (u + slope).mean(-2)[..., None, :]
        spread = inner + slope.sum(-1)
        radial = (spread * (length - d - 2) + 2 * (q * slope).sum(-1)).mean(-1) / d
        shift, skewness = s, x * u - s + 2 * x * slope
        tails = (q - 3) * u + 3 * (q - 1) * slope
        means = [part.mean(-2) for part in (shift, skewness, tails)]
        alike = [*(mean.sum(-1) for mean in means), spread.mean(-1), radial]
        return torch.cat([means[0], second.flatten(-2), *means[1:], torch.stack(alike, -1)], dim=-1)

    def parts(self, values: Tensor) -> dict[str, Tensor]:
        """(r, k) entries by kind."""
        names = ("shift", "second", "skewness", "tails", "alike")
        return dict(zip(names, values.split(self._sizes, -1), strict=True))

    def spreads(self, second: Tensor) -> Tensor:
        return second[..., :: self.dim + 1] if self.paired else second

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        plain, fair = self.parts(seen.plain), self.parts(seen.fair)
        out: dict[str, Tensor] = {}
        for kind in ("shift", "skewness", "tails"):
            out |= {
                kind: normal_evidence(fair[kind].abs().amax(-1)),
                f"{kind}, many": fair[kind].square().sum(-1),
            }
        out |= {name: normal_evidence(fair["alike"][..., k]) for k, name in enumerate(_ALIKE)}
        spread = self.spreads(fair["second"])
        out |= {
            "spread": normal_evidence(spread.abs().amax(-1)),
            "spread, many": spread.square().sum(-1),
        }
        if self.paired and self.dim > 1:
            matrix = fair["second"].unflatten(-1, (self.dim, self.dim))
            out |= {
                "pair": normal_evidence(pairs_of(matrix).abs().amax(-1)),
                "second, many": matrix.square().sum((-1, -2)),
            }
            ends = directions(plain["second"].unflatten(-1, (self.dim, self.dim)))
            out |= dict(zip(DIRECTIONS, ends, strict=True))
        return out

    def by_entry(self, seen: Seen) -> dict[str, Entries]:
        """What is about many columns counts without the loudest of them, so that one is not all."""
        plain, fair = self.parts(seen.plain), self.parts(seen.fair)
        columns = single_columns(self.dim)
        singles = {kind: fair[kind] for kind in ("shift", "skewness", "tails")}
        singles |= {"spread": self.spreads(fair["second"])}
        out = {kind: Entries(values, columns, normal_evidence) for kind, values in singles.items()}
        every, alike = (tuple(range(self.dim)),), dict(zip(_ALIKE, fair["alike"], strict=True))
        out["radial tails"] = Entries(alike["radial tails"][None], every, normal_evidence)
        if self.dim == 1:
            return out
        parts = {"shift, all alike": plain["shift"], "tails, all alike": plain["tails"]}
        parts |= {"scale": self.spreads(plain["second"])}
        for number, values in parts.items():
            rest = (values.sum() - values[values.abs().argmax()]).abs() / values.sum().abs().clamp(min=1e-30)
            out[number] = Entries((alike[number] * rest.clamp(max=1))[None], every, normal_evidence)
        if self.paired:
            pairs = pairs_of(fair["second"].unflatten(-1, (self.dim, self.dim)))
            out["pair"] = Entries(pairs, pair_columns(self.dim), normal_evidence)
            for k, number in enumerate(DIRECTIONS):
                rest = self._pairs_alone(plain["second"])
                loading = self.loadings(plain["second"], number).abs()
                rest[loading.argmax()] = rest[:, loading.argmax()] = 0
                about = (loading >= loading.max() / 2).nonzero()[:, 0].tolist()
                out[number] = Entries.joint(directions(rest)[k], about)
        return out

    def loadings(self, second: Tensor, number: str) -> Tensor:
        """(d,) of the direction in which pairs of columns are most off."""
        vectors = torch.linalg.eigh(self._pairs_alone(second)).eigenvectors
        vector: Tensor = vectors[:, 0 if number == DIRECTIONS[0] else -1]
        return vector * vector[vector.abs().argmax()].sign()

    def _pairs_alone(self, second: Tensor) -> Tensor:
        """(d, d), symmetric, without spreads: these are no factor."""
        matrix: Tensor = second.unflatten(-1, (self.dim, self.dim))
        both: Tensor = (matrix + matrix.mT) / 2
        return both.fill_diagonal_(0)


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """Pairs of coordinates that depend on each other beyond their correlation: third and fourth moments.

    | Stein value | large where |
    |---|---|
    | x_j (x_k s_k + 1) | x_j goes with the square of x_k: a bend, or a spread that grows |
    | (x_j^2 - 1)(x_k s_k + 1) | x_j and x_k are extreme together |
    """

    name: ClassVar[str] = "dependence"
    whitened: bool = False
    clip: float | None = None

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedDependence":
        return PreparedDependence(draws.dim, self.clip)


@dataclass(frozen=True)
class PreparedDependence:
    means: ClassVar[bool] = True
    centered: ClassVar[bool] = True
    dim: int
    clip: float | None = None

    @property
    def looks(self) -> bool:
        return 1 < self.dim <= MOST_DEPENDENT

    @property
    def left_out(self) -> str | None:
        if self.dim <= MOST_DEPENDENT:
            return None
        columns = f"{self.dim} columns are more than {MOST_DEPENDENT}"
        return f"Dependence beyond correlation was left out: {columns}."

    @property
    def size(self) -> int:
        return 2 * self.dim**2 if self.looks else 0

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        (x, slope), n = clipped(datasets.x, self.clip), len(datasets)
        if not self.looks:
            return x.new_zeros(len(x), 0)
        stein = x * datasets.score + slope
        bend, extreme = x.mT @ stein / n, (x * x - 1).mT @ stein / n
        return torch.cat([bend.flatten(-2), extreme.flatten(-2)], -1)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        if not self.looks:
            return {}
        bend, extreme = seen.fair.unflatten(-1, (2, self.dim, self.dim)).unbind(-3)
        off = ~torch.eye(self.dim, dtype=torch.bool, device=bend.device)
        bends, extremes = bend[..., off], pairs_of(extreme)
        return {
            "bend": normal_evidence(bends.abs().amax(-1)),
            "bends, many": bends.square().sum(-1),
            "extreme together": normal_evidence(extremes.abs().amax(-1)),
            "extremes, many": extremes.square().sum(-1),
        }

    def by_entry(self, seen: Seen) -> dict[str, Entries]:
        """A bend is about (j, k) where x_j goes with the square of x_k."""
        if not self.looks:
            return {}
        bend, extreme = seen.fair.unflatten(-1, (2, self.dim, self.dim)).unbind(-3)
        off = ~torch.eye(self.dim, dtype=torch.bool)
        ordered = tuple(tuple(pair) for pair in off.nonzero().tolist())
        return {
            "bend": Entries(bend[off.to(bend.device)], ordered, normal_evidence),
            "extreme together": Entries(pairs_of(extreme), pair_columns(self.dim), normal_evidence),
        }
