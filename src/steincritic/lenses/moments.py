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
            out |= self._of_pairs(plain["second"], fair["second"])
        return out

    def _of_pairs(self, plain: Tensor, fair: Tensor) -> dict[str, Tensor]:
        plain, fair = (t.unflatten(-1, (self.dim, self.dim)) for t in (plain, fair))
        wide, narrow = directions(plain)
        return {
            "pair": normal_evidence(pairs_of(fair).abs().amax(-1)),
            "second, many": fair.square().sum((-1, -2)),
            "wide direction": wide,
            "narrow direction": narrow,
        }

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
            out |= {number: self._direction(plain["second"], number) for number in DIRECTIONS}
        return out

    def _direction(self, second: Tensor, number: str) -> Entries:
        rest, loading = self._pairs_alone(second), self.loadings(second, number).abs()
        rest[loading.argmax()] = rest[:, loading.argmax()] = 0
        columns = (loading >= loading.max() / 2).nonzero()[:, 0].tolist()
        return Entries.one(directions(rest)[DIRECTIONS.index(number)], columns)

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
