"""Fitted models: H0 is a family, and the data choose its member. Every null run chooses anew.

A model whose parameters were fitted to the tested rows fits them better than its own draws would: a test that
takes it for fixed hardly ever rejects. So null and reference sets, drawn from the model that was fitted to
the data, are each scored by a model that was fitted to them alone, and the data go through the very same
function (parametric bootstrap, [key2025]).

*Coordinates.* For the same reason lenses look at each dataset in coordinates of its own: centered and scaled
by its own mean and standard deviations, and uncorrelated as well for a normal law with a full covariance.
Where parameters are a location and a scale (`FitNormal` in all its forms), what the lenses see then has a law
without any parameter, so the test is exact. For others it is right to first order: Stein values of a field
that hardly depends on the data have mean zero under the refitted model.

*Lenses.* Moments, modes, dependence and kernels: the level of each alone is in results/fitted/table.md. Cells
compare counts with what the first fit expects, which a null set's own fit does not know: alone they rejected
2 of 150 mixtures of two at level 0.05 (n = 100, a trial with seed 1002), and are left out. Entries that a fit
makes zero (the mean score of a normal law) are zero but for rounding, and are rounded to that.
"""

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from steincritic.data.arrays import ArrayLike, as_points
from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, checked_draws, checked_score
from steincritic.errors import InputError, ModelError, first_line
from steincritic.gof.bench import Column, Setting
from steincritic.gof.hypothesis import PLENTIFUL, Hypothesis
from steincritic.gof.result import Subject
from steincritic.lenses.cells import Cells
from steincritic.lenses.lens import PreparedLens, is_mean
from steincritic.lenses.moments import Moments
from steincritic.models.base import DensityModel, Described, ModelLike, SamplingModel, as_model
from steincritic.models.normal_fit import FitNormal
from steincritic.rng import derive
from steincritic.shapes import PerPoint, Points

if TYPE_CHECKING:
    from steincritic.gof.combined import Combined

FITTED_DATA = Subject(
    "data",
    "fitted model",
    "points",
    "The data do not look like draws from any model of this family",
    "No evidence against the family of the model",
    "Does the fitted model fit the data?",
)
_FAILED = 50  # one fit in so many may fail
_FEW = 10  # fits that may fail before that is looked at
_DIGITS = 5  # of entries that are means of standardized values
_SEED = 0  # of every fit, so that it is a function of its points
_LOUDNESS = {"kernels": 3.0, "modes": 0.2}  # by lens
_MATCHED = ("shift", "spread", "scale", "pair", "second", "wide", "narrow")  # numbers that a fit makes small
_FITTED = 0.05  # times as loud

Fit = Callable[[Any], ModelLike]  # points to a model


@dataclass
class Refits:
    """How often a model was fitted anew."""

    made: int = 0
    failed: int = 0
    seconds: float = 0.0
    error: str = ""  # the first

    def count(self, made: int, failed: int, error: str) -> None:
        self.made, self.failed = self.made + made, self.failed + failed
        if failed:
            self.error = self.error or error
            self.check(_FEW)

    def check(self, least: int = 0) -> None:
        """Refuse a fit that often fails."""
        if self.failed > max(least, self.made / _FAILED):
            raise ModelError(
                f"fit failed on {self.failed} of {self.made} datasets drawn from the model that it gave for "
                f"x, more than 1 in {_FAILED}; the first time: {self.error}. Make it more robust, or "
                "take a model with fewer parameters"
            )

    @property
    def note(self) -> str:
        self.check()
        failed = f"; {self.failed} failed ({self.error}) and were drawn again" if self.failed else ""
        return (
            f"The model was fitted anew to each of {self.made - self.failed} null sets, in "
            f"{self.seconds:.1f} s{failed}."
        )


class Fitted(Described):
    """The model that was fitted to the data, to be tested on these very data.

    `gof_test` and `check` take it where a model goes, with the same x. Null sets are drawn from it, and each
    is scored by a model that was fitted to it alone.

    Args:
        fit: points to anything that `as_model` takes, with a sampler. It gets an (n, d) array, or a tensor
            where x is one. Or what has a `fit` of its own: an estimator of scikit-learn, a family of
            scipy.stats, `sc.models.FitNormal()`. Random numbers of torch start anew for every fit.
        x: the data, as for `gof_test`.

    >>> import steincritic as sc
    >>> x = sc.models.GaussianMixture([[0.0, 5.0]]).sample(100, seed=1)
    >>> sc.gof_test(sc.Fitted(sc.models.FitNormal(), x), x).rejected
    False
    """

    def __init__(self, fit: Fit | object, x: ArrayLike) -> None:
        self.x = as_points(x).detach()
        self.dim = self.x.shape[1]
        self.refits = Refits()
        self._fit = fitting(fit)
        self._array = not isinstance(x, Tensor)
        names = tuple(getattr(x, "columns", ()))
        self.columns = names if names and all(isinstance(name, str) for name in names) else None
        try:
            self.model = self._fitted(self.x)
        except InputError as error:
            raise ModelError(f"fit(x) on the data: {error}") from None
        if isinstance(self.model, DensityModel):
            self.log_prob: Callable[[Points], PerPoint] = self.model.log_prob
        # the law of what lenses see does not depend on the parameters
        self.exact = bool(getattr(self._fit, "pivotal", False))
        self.whole = bool(getattr(self._fit, "whole", False))  # lenses look in uncorrelated coordinates

    def _about(self) -> str:
        return f"{self.model!r}, fitted to {len(self.x)} points"

    def score(self, x: Points) -> Points:
        return self.model.score(x)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        return self.model.sample(n, seed=seed)

    def anew(self, datasets: ScoredPoints) -> tuple["Fitted", ScoredPoints]:
        """For one test: the model, and the data that it was fitted to, scored as null sets will be."""
        x = datasets.x
        if tuple(x.shape) != (1, *self.x.shape) or not torch.equal(x[0].cpu(), self.x.to("cpu", x.dtype)):
            raise InputError(
                "a Fitted model is tested on the very data that it was fitted to, "
                f"{tuple(self.x.shape)} here; these are others, {tuple(x.shape[-2:])}: pass "
                "sc.Fitted(fit, x) and the same x, or the model itself for data that it has not seen"
            )
        again = copy.copy(self)
        scored = again.refit(x)
        again.refits = Refits()
        return again, scored

    def refit(self, datasets: Tensor) -> ScoredPoints:
        """Each of (r, n, d) datasets, scored by the model fitted to it alone; NaN where the fit fails."""
        start = time.perf_counter()
        together = getattr(self._fit, "scores", None)
        if together is None:
            scores = torch.stack([self._scores(x) for x in datasets])
        else:
            scores = together(datasets)
            self.refits.count(len(datasets), int(_failed(scores).sum()), "the fitted score is not finite")
        self.refits.seconds += time.perf_counter() - start
        return ScoredPoints(datasets, scores)

    def null_sets(self, count: int, n: int, *, seed: int, like: Tensor) -> ScoredPoints:
        """(count, n, d) draws, each dataset fitted anew; where that fails, drawn again."""
        drawn = checked_draws(self, count * n, seed, dim=self.dim).to(like)
        sets = self.refit(drawn.view(count, n, self.dim))
        while bool((bad := _failed(sets.score)).any()):
            seed, sets = derive(seed, "again"), sets.map(torch.clone)
            again = checked_draws(self, int(bad.sum()) * n, seed, dim=self.dim).to(like)
            fresh = self.refit(again.view(-1, n, self.dim))
            sets.x[bad], sets.score[bad] = fresh.x, fresh.score
        return sets

    def _scores(self, x: Tensor) -> Tensor:
        error = "the fitted score is not finite"
        try:
            scores = checked_score(self._fitted(x), x).to(x)
        except InputError as raised:
            scores, error = torch.full_like(x, torch.nan), str(raised)
        self.refits.count(1, int(_failed(scores)), error)
        return scores

    def _fitted(self, x: Tensor) -> SamplingModel:
        points = x.detach().clone().cpu()
        try:
            with torch.random.fork_rng(devices=[]):
                torch.random.manual_seed(_SEED)
                estimate = self._fit(points.numpy() if self._array else points)
        except (InputError, KeyboardInterrupt):
            raise
        except BaseException as error:  # an exit in there would pass for a verdict
            raise ModelError(f"fit raised {type(error).__name__}: {first_line(error)}") from error
        model = as_model(estimate)
        if not isinstance(model, SamplingModel):
            raise ModelError(
                "fit must return a model that can be sampled, as null sets are draws of it; "
                f"{type(estimate).__name__} has no sample(n, seed=0)"
            )
        return model


def _failed(scores: Tensor) -> Tensor:
    """Which datasets have no finite scores."""
    return ~scores.isfinite().all(-1).all(-1)


def fitting(fit: Any) -> Fit:
    """A function from points to a model, of whatever can be fitted."""
    if isinstance(fit, type):
        raise InputError(
            f"fit must be a function or an object that can be fitted; got the class {fit.__name__}"
        )
    if type(fit).__module__.partition(".")[0] == "scipy":
        # that of several columns has no fit of its own in older versions
        if getattr(fit, "name", "") == "norm" or type(fit).__name__ == "multivariate_normal_gen":
            return FitNormal()
        if hasattr(fit, "fit"):
            return partial(_fit_scipy, fit)
    if hasattr(fit, "get_params") and hasattr(fit, "fit"):
        return partial(_fit_estimator, fit)
    if not callable(fit):
        raise InputError(
            "fit must be a function from points to a model, an estimator of scikit-learn or a family of "
            f"scipy.stats; got {type(fit).__name__}"
        )
    return fit  # type: ignore[no-any-return]


def _fit_scipy(family: Any, x: Any) -> Any:
    points = np.asarray(x, dtype=np.float64)
    if points.shape[1] != 1:
        raise InputError(f"scipy.stats.{family.name} is a law of one column, got {points.shape[1]}")
    return family(*family.fit(points[:, 0]))


def _fit_estimator(estimator: Any, x: Any) -> Any:
    """A copy is fitted each time, from one seed where none was given."""
    from sklearn.base import clone

    fresh = clone(estimator)
    if fresh.get_params().get("random_state", _SEED) is None:
        fresh.set_params(random_state=_SEED)
    return fresh.fit(np.asarray(x, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Refitted(Hypothesis):
    """The model is of a family, and was fitted to the data."""

    model: Fitted

    threshold: ClassVar[str] = "refitted"
    subject: ClassVar[Subject] = FITTED_DATA

    @classmethod
    def of(cls, config: "Combined", model: Fitted, datasets: ScoredPoints) -> "Refitted":
        """With lenses that look at refitted datasets alone; their null sets are of these data."""
        lenses = tuple(lens for lens in config.lenses if not isinstance(lens, Cells))
        if not lenses:
            raise InputError("cells cannot look at a fitted model, whose null sets have cells of their own")
        if config.critics is not None and len(datasets) >= PLENTIFUL:
            raise InputError(f"critics look at a fitted model of up to {PLENTIFUL} points; pass critics=None")
        return cls(replace(config, lenses=lenses, cache=False), *model.anew(datasets))

    @property
    def exact(self) -> bool:
        return self.model.exact

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.model.refits.note,)

    def setting(self, draws: ScoredPoints) -> Setting:
        return OwnSetting.at(draws, whole=self.model.whole)

    def loudness(self, columns: Sequence[Column]) -> Tensor:
        """Means and spreads are fitted, so that kernels count for more.

        Chosen among about forty settings on eleven faults of normal laws and four of mixtures, seed 1000:
        mean power there 0.67, with the usual weights 0.64; the gain is that of the best of many.
        """
        loud = [
            _FITTED
            if column.lens.startswith(Moments.name) and column.number.startswith(_MATCHED)
            else _LOUDNESS.get(column.lens, 1.0)
            for column in columns
        ]
        return torch.tensor(loud, dtype=torch.float64) / sum(loud)

    def counted(self, evidence: Tensor, reference: int) -> Tensor:
        """A fit that ends elsewhere now and then gives evidence a long tail."""
        return evidence.clamp(max=math.log(1 + reference))


@dataclass(frozen=True, eq=False)
class OwnSetting(Setting):
    """Each dataset in coordinates of its own; frame and whitening are those of the first fit."""

    whole: bool = False

    @classmethod
    def at(cls, draws: ScoredPoints, *, whole: bool) -> "OwnSetting":
        usual = Setting.of(draws)
        return cls(usual.frame, None if whole else usual.whitening, whole)

    def standard(self, points: ScoredPoints) -> ScoredPoints:
        standard = Frame.of(points.x).enter(points)
        if not self.whole:
            return standard
        x = standard.x.to(torch.float64)  # by the covariance of each dataset, near to its own columns
        values, vectors = torch.linalg.eigh(x.mT @ x / (x.shape[-2] - 1))
        sd = values.clamp(min=1e-300).sqrt()[..., None, :]
        inverse, root = ((vectors * scale) @ vectors.mT for scale in (1 / sd, sd))
        return ScoredPoints(standard.x @ inverse.to(standard.x), standard.score @ root.to(standard.x))

    def settled(self, entries: Tensor, prepared: PreparedLens) -> Tensor:
        return entries.round(decimals=_DIGITS) if is_mean(prepared) else entries
