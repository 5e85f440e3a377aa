"""The combined test of a conditional model q(y | x): null sets have the very same x, with y drawn anew.

Given x, the data and the null sets are exchangeable under the model, so ranks are exact for any law of x.
All of them have one order of rows, drawn beforehand: folds of critics are then fair samples of x.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from steincritic.data.frame import RowFrame
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.errors import InputError
from steincritic.gof.bench import Setting
from steincritic.gof.plan import PLENTIFUL
from steincritic.gof.test import GofTest
from steincritic.lenses.conditional import ResidualKernels, ResidualMoments
from steincritic.lenses.critics import Critics
from steincritic.lenses.predicted import PredictedMoments
from steincritic.models.conditional import AtRows
from steincritic.rng import generator

if TYPE_CHECKING:
    from steincritic.gof.combined import Combined

_PER_ROW = (
    20,
    100,
    2**22,
)  # draws of y at each x for its location and spread: fewest, most, their coordinates


def arranged(
    config: "Combined", model: AtRows, datasets: ScoredPoints, usual: "Combined"
) -> tuple["Combined", AtRows, ScoredPoints]:
    """The test, with lenses for conditional models in place of the usual ones; one order of rows for all."""
    p, n = model.covariates, len(model)
    if len(datasets) != n or not bool((datasets.x[..., :p] == model.rows.to(datasets.x)).all()):
        raise InputError(
            f"every dataset of a conditional model must have the {n} rows of x that it was set up with"
        )
    order = torch.randperm(n, generator=generator(config.null_seed, "rows"))
    if config.lenses == usual.lenses:
        lenses = (
            ResidualMoments(covariates=p),
            ResidualKernels(covariates=p),
            PredictedMoments(covariates=p),
        )
        config = replace(config, lenses=lenses)
    critics = config.critics
    if critics is not None:
        critics = None if n >= PLENTIFUL else given(critics, p)
    return replace(config, critics=critics), model.at(order), datasets[order.to(datasets.x.device)]


def check_for_rows(test: GofTest, *, dependent: bool) -> None:
    """Refuse a test that does not keep x as it is, and rows in time order."""
    if test.name != "combined":
        raise InputError(
            f"a conditional model is tested by the combined test, which keeps x as it is; got {test.name}"
        )
    if dependent:
        raise InputError(
            "dependent rows are for models of all columns: a conditional model draws y row by row"
        )


def given(critics: Critics, covariates: int) -> Critics:
    """Critics that see x and move y alone."""
    return replace(critics, network=replace(critics.network, fixed=covariates))


def draws_at_rows(model: AtRows, *, seed: int, like: torch.Tensor) -> ScoredPoints:
    """Draws of y at every row, as often as its location and spread there need."""
    fewest, most, numbers = _PER_ROW
    times = max(fewest, min(most, numbers // (len(model) * model.dim)))
    return sample_points(model, times * len(model), seed=seed, like=like)


def setting_at_rows(model: AtRows, draws: ScoredPoints) -> Setting:
    """y in the model's own location and spread at each row, covariates in those of all rows."""
    return Setting(RowFrame.of(draws.cut(len(model)).x, model.covariates), None)
