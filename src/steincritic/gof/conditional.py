"""The combined test of a conditional model q(y | x): null sets have the very same x, with y drawn anew.

Given x, the data and the null sets are exchangeable under the model, so ranks are exact for any law of x.
All of them have one order of rows, drawn beforehand: folds of critics are then fair samples of x.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from steincritic.data.frame import RowFrame
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.errors import InputError, listed
from steincritic.gof.assumptions import (
    FEWEST,
    FITTED,
    TOO_WELL,
    dependence_of_rows,
    discrete_columns,
    nearness,
)
from steincritic.gof.bench import Setting
from steincritic.gof.hypothesis import PLENTIFUL, Hypothesis, within
from steincritic.gof.result import Caveat
from steincritic.lenses.conditional import PredictedMoments, ResidualKernels, ResidualMoments
from steincritic.lenses.lens import Lens
from steincritic.models.conditional import AtRows
from steincritic.rng import generator

if TYPE_CHECKING:
    from steincritic.gof.combined import Combined

_LOOKED_AT = 5_000  # rows, the first ones
_PER_NUMBER = 8  # rows per Stein moment
_PER_ROW = (100, 20, 2**22)  # draws of y at each x, for its location and spread: most, fewest, coordinates
_REFERENCE = (1200, 100, 2**27)  # the same of reference sets


@dataclass(frozen=True, eq=False)
class GivenRows(Hypothesis):
    """y follows the model at each x."""

    model: AtRows

    @classmethod
    def of(
        cls, config: "Combined", model: AtRows, datasets: ScoredPoints, *, usual: tuple[Lens, ...]
    ) -> "GivenRows":
        """With lenses for conditional models in place of the usual ones; one order of rows for all."""
        p, n = model.covariates, len(model)
        if len(datasets) != n or not bool((datasets.x[..., :p] == model.rows.to(datasets.x)).all()):
            raise InputError(
                f"every dataset of a conditional model must have the {n} rows of x that it was set up with"
            )
        order = torch.randperm(n, generator=generator(config.null_seed, "rows"))
        if config.lenses == usual:
            lenses = (
                ResidualMoments(covariates=p),
                ResidualKernels(covariates=p),
                PredictedMoments(covariates=p),
            )
            # many numbers with heavy tails: what is large needs more sets than usual
            reference = config.reference or within(_REFERENCE, n * model.dim)
            config = replace(config, lenses=lenses, reference=reference)
        critics = None if n >= PLENTIFUL else config.critics
        if critics is not None:  # they see x and move y alone
            critics = replace(critics, network=replace(critics.network, fixed=p))
        config = replace(config, critics=critics)
        return cls(config, model.at(order), datasets[order.to(datasets.x.device)])

    def draws(self, seed: int) -> ScoredPoints:
        return draws_at_rows(self.model, seed=seed, like=self.datasets.x)

    def setting(self, draws: ScoredPoints) -> Setting:
        """y in the model's own location and spread at each row, covariates in those of all rows."""
        return Setting(RowFrame.of(draws.cut(len(self.model)).x, self.model.covariates), None)

    def ordered(self, points: ScoredPoints, seed: int) -> ScoredPoints:
        return points  # null sets have this very order


def caveats_at_rows(
    model: AtRows, points: ScoredPoints, names: Sequence[str] | None = None
) -> Iterator[Caveat]:
    """What the test takes for granted of y given x, and these points do not show; x may be as it likes."""
    if len(points) < FEWEST:
        return
    names, p = names or [f"x{j + 1}" for j in range(points.dim)], model.covariates
    points = points[:_LOOKED_AT].to("cpu", torch.float64)
    x, score = points.x[:, :p], points.score[:, p:]
    for kind, columns in zip(("discrete", "rounded"), discrete_columns(points.x), strict=True):
        if of_y := [names[j] for j in columns if j >= p]:
            which = listed(of_y, len(of_y))
            what = "Whole numbers alone" if kind == "discrete" else "The same values again and again"
            yield Caveat(
                f"{kind} columns",
                f"{what} in {which}: a model of continuous values is rejected with enough rows.",
            )
    if (dependence := dependence_of_rows(score)) is not None:
        column, correlation, lag, _ = dependence
        other = "in the next row" if lag == 1 else f"{lag} rows further on"
        yield Caveat(
            "dependent rows",
            f"Rows depend on each other: the score of {names[p + column]} has correlation {correlation:.2f} "
            f"with its value {other}. The p-value is for rows of y that are independent given x.",
        )
    spread = x.std(0)
    z = ((x - x.mean(0)) / spread)[:, spread > 0]
    parts = torch.cat([score, (score[:, None, :] * z[:, :, None]).flatten(1)], 1)
    if len(points) >= _PER_NUMBER * parts.shape[1] and (chance := nearness(parts)) < TOO_WELL:
        yield Caveat(
            FITTED,
            "The model fits these rows better than its own draws would (so near has probability "
            f"{chance:.1g}): it looks fitted to them. The p-value is for rows that the model has not seen: "
            "test it on others, held out.",
        )


def draws_at_rows(model: AtRows, *, seed: int, like: torch.Tensor) -> ScoredPoints:
    """Draws of y at every row, as often as its location and spread there need."""
    times = within(_PER_ROW, len(model) * model.dim)
    return sample_points(model, times * len(model), seed=seed, like=like)
