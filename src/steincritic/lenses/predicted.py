"""A lens for conditional models: residuals of y where the model's own mean or spread of y is large or small.

Functions of x that a model is most often wrong along are its own predictions. Residuals that grow with the
predicted mean, or a spread that is not there where the model says it is large, are seen along one direction
however many covariates there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.lenses.lens import Entries, Seen, normal_evidence

_KINDS = ("shift", "spread")
_SHARES = (0.5, 0.25, 0.1, 0.03)  # of the rows, at either end
_FEWEST = 5  # rows
_SHAPES = 2  # functions before the ends
_STANDS_OUT = 4.0  # standard errors of a squared spread
_VARIED = 2.0  # standard errors of the logarithm of a spread


@dataclass(frozen=True, kw_only=True)
class PredictedMoments:
    """Mean and spread of residuals along the predicted mean and the predicted spread of y.

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
        of_spread = torch.cat((_functions(spread.log()), _excess(spread, len(y))), 2)
        varied = spread.log().std(0) > _VARIED * (0.5 / len(y)) ** 0.5
        return PreparedPredicted(
            mean, spread, _functions(mean), of_spread, self.covariates, bool(varied.any())
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
        return len(_KINDS) * self.mean.shape[1] * (self.of_mean.shape[2] + self.of_spread.shape[2])

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
        by_kind = values.unflatten(-1, (len(_KINDS), -1, self.mean.shape[1]))
        parts = by_kind.split([self.of_mean.shape[2], self.of_spread.shape[2]], -2)
        return {
            f"{kind} by predicted {name}": part[..., k, :, :]
            for name, part in zip(("mean", "spread"), parts, strict=True)
            for k, kind in enumerate(_KINDS)
        }


def _functions(of: Tensor) -> Tensor:
    """(t, n, m): slope, square and ends of each column of (n, t) predictions."""
    z = (of - of.mean(0)) / of.std(0).clamp(min=1e-300)
    place = of.argsort(0).argsort(0).to(of) / len(of)  # in [0, 1)
    inside = [place >= 1 - share if above else place < share for share, above in _ends(len(of))]
    return torch.stack([z, z**2, *(end.to(of) for end in inside)], -1).transpose(0, 1)


def _ends(n: int) -> list[tuple[float, bool]]:
    return [(share, above) for share in _SHARES if share * n >= _FEWEST for above in (True, False)]


def _excess(spread: Tensor, draws: int) -> Tensor:
    """(t, n, 1): squared spreads beyond the usual one, for few rows that stand out."""
    noise = (2 / draws) ** 0.5  # of a normal y
    excess: Tensor = (spread / spread.median(0).values) ** 2 - 1 - _STANDS_OUT * noise
    return excess.clamp(min=0).T[..., None]
