"""check_amortized: is an amortized posterior right, over many observations, and for which is it not?"""

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from steincritic.data.arrays import ArrayLike, as_points
from steincritic.data.points import ScoredPoints, column_names, scored
from steincritic.diagnosis.by_scores import Gaps
from steincritic.diagnosis.points import benjamini_hochberg
from steincritic.display import GRAY, axes, panel
from steincritic.errors import DoubtfulWarning, InputError, check_level, listed
from steincritic.files import json_fields
from steincritic.gof.choose import TestName, choose_test
from steincritic.gof.combined import Combined
from steincritic.gof.test import GofTest
from steincritic.models.base import ModelLike, as_model, coordinate_names, dimension
from steincritic.rng import derive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DrawsOf: TypeAlias = Callable[[Any], ArrayLike] | Sequence[ArrayLike]
_SIGNS = 999, 9999  # least and most draws of signs per observation
_FINE = 5  # times finer than one failing observation of many needs, p-values are
_SHARED = 6.0  # standard errors of the correlation, row by row, of draws for two observations
_SHOWN = 8  # sentences, and observations in a sentence


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AmortizedResult:
    """What an amortized posterior gets wrong, over k observations."""

    pvalues: Tensor  # (k,) one per observation
    pvalue: float  # for all: Fisher's combination, valid as draws of different observations are independent
    failing: tuple[int, ...]  # observations, the worst first; false discovery rate at most `fdr`
    level: float
    fdr: float
    names: tuple[str, ...]  # of the coordinates
    shifts: Tensor  # (k, d) means of the draws less those of the posterior, in its standard deviations
    ratios: Tensor  # (k, d) spreads of the draws over those of the posterior
    shift_z: Tensor  # (k, d) the same over their standard errors
    spread_z: Tensor
    bound: float  # z that stands out among the coordinates of one observation
    test: str
    seed: int

    @property
    def rejected(self) -> bool:
        return self.pvalue <= self.level

    @property
    def findings(self) -> tuple[str, ...]:
        """Which coordinates are off, and in how many observations, the most frequent first."""
        k, rows = len(self.pvalues), torch.tensor(self.failing, dtype=torch.int64)
        single: list[tuple[int, str]] = []
        together = []
        for j, name in enumerate(self.names):
            looks = (self.ratios, self.spread_z, _spread), (self.shifts, self.shift_z, _shift)
            for (values, z, words), sign in itertools.product(looks, (1, -1)):
                off = rows[sign * z[rows, j] > self.bound]
                if len(off):
                    where = f"in {len(off)} of {k} observations"
                    single.append((len(off), f"{name} {words(values[off, j], sign)} {where}."))
                elif not len(rows) and float(sign * z[:, j].sum()) > self.bound * math.sqrt(k):
                    together.append(f"{name} {words(values[:, j], sign)} over all observations together.")
        if not self.rejected and not self.failing:
            return ()
        sentences = [sentence for _, sentence in sorted(single, key=lambda pair: -pair[0])]
        return tuple(sentences[:_SHOWN] or together)

    def summary(self) -> str:
        """The verdict for all, the observations where it fails, what is wrong there."""
        k = len(self.pvalues)
        verdict = (
            "The draws do not match the posteriors"
            if self.rejected
            else "No evidence against the amortized posterior"
        )
        lines = [f"{verdict} ({k} observations, p = {self.pvalue:.3g} for all, level {self.level:g})."]
        if self.failing:
            shown = listed(list(map(str, self.failing)), _SHOWN)
            lines.append(
                f"It fails for {len(self.failing)} of {k}: observations {shown}, counted from 0 (false "
                f"discovery rate {self.fdr:g})."
            )
        elif self.rejected:
            lines.append("No single observation stands out.")
        return "\n".join([*lines, *self.findings])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        names = ["pvalue", "rejected", "level", "fdr", "test", "seed", "failing", "findings", "names"]
        return json_fields(self, [*names, "pvalues", "shifts", "ratios", "shift_z", "spread_z"])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Shift and spread of each coordinate for each observation, failing ones filled; right is (0, 1)."""
        ax = axes(ax, 5.0, 4.0)
        failing = set(self.failing)
        fails = torch.tensor([k in failing for k in range(len(self.pvalues))])
        for j, name in enumerate(self.names):
            right = self.shifts[~fails, j], self.ratios[~fails, j]
            ax.scatter(*right, s=14, facecolors="none", edgecolors=f"C{j}")
            ax.scatter(self.shifts[fails, j], self.ratios[fails, j], s=18, color=f"C{j}", label=name)
        ax.axhline(1, color=GRAY, linewidth=1, zorder=0)
        ax.axvline(0, color=GRAY, linewidth=1, zorder=0)
        ax.set(yscale="log", xlabel="shift, in standard deviations of the posterior")
        ax.set_ylabel("spread over the posterior's")
        ax.set_title(f"fails for {len(self.failing)} of {len(self.pvalues)} observations (filled)")
        if len(self.names) <= _SHOWN:
            ax.legend(frameon=False)
        return ax

    def _repr_html_(self) -> str:
        lines = self.summary().splitlines()
        head = len(lines) - len(self.findings)
        return panel(lines[:head], rejected=self.rejected, items=self.findings)

    def __repr__(self) -> str:
        verdict = "rejected" if self.rejected else "not rejected"
        return (
            f"AmortizedResult({verdict}, p={self.pvalue:.3g}, fails for {len(self.failing)} of "
            f"{len(self.pvalues)} observations)"
        )


def check_amortized(
    posterior_of: Callable[[Any], ModelLike],
    draws_of: DrawsOf,
    observations: Sequence[Any],
    *,
    test: GofTest | TestName | None = None,
    level: float = 0.05,
    fdr: float = 0.1,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> AmortizedResult:
    """Are the draws of an amortized posterior those of the true one, for many observations?

    Args:
        posterior_of: from an observation to the true posterior: anything `as_model` takes, such as the
            function theta -> log p(observation | theta) + log prior(theta); in unconstrained coordinates.
        draws_of: from an observation to independent draws (n, d) in those coordinates, or one array per
            observation. Random numbers must differ between observations.
        observations: as many as there are, rows of an array or a list of anything.
        test: of each observation, by scores alone; by default lenses without critics.
        level: of the p-value for all.
        fdr: accepted share of false discoveries among the failing observations.
        seed: decides every random choice.
        names: of the coordinates; the model's own where it has some.

    >>> import steincritic as sc, torch
    >>> posterior_of = lambda x: torch.distributions.MultivariateNormal(0.5 * x, 0.5 * torch.eye(2))
    >>> normal = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> too_wide = [normal.sample(200, seed=k) for k in range(4)]
    >>> sc.check_amortized(posterior_of, too_wide, torch.zeros(4, 2)).rejected
    True
    """
    check_level(level)
    check_level(fdr)
    many = len(observations)
    if not many:
        raise InputError("observations must hold at least one, got none")
    if not callable(draws_of) and len(draws_of) != many:
        raise InputError(f"draws_of must hold draws for each of {many} observations, got {len(draws_of)}")
    signs = min(max(_SIGNS[0], math.ceil(_FINE * many / fdr)), _SIGNS[1])
    chosen = Combined(critics=None, draws=signs) if test is None else choose_test(test, None, many)[0]
    pvalues, gaps, labels, before = [], [], names, None
    for k, observation in enumerate(observations):
        model = as_model(posterior_of(observation))
        draws = draws_of(observation) if callable(draws_of) else draws_of[k]
        points = scored(model, as_points(draws, name=f"draws of observation {k}", dim=dimension(model)))
        labels = column_names(labels if labels is not None else coordinate_names(model), points.dim)
        _check_apart(before, points, k)
        (result,) = chosen.run(None, points.alone(), level=level, seeds=[derive(seed, "observation", k)])
        pvalues.append(result.pvalue)
        gaps.append(Gaps.of(points))
        before = points
    by_observation = torch.tensor(pvalues, dtype=torch.float64)
    failing = benjamini_hochberg(by_observation, fdr).nonzero()[:, 0].tolist()
    return AmortizedResult(
        pvalues=by_observation,
        pvalue=fisher(by_observation),
        failing=tuple(sorted(failing, key=lambda k: pvalues[k])),
        level=level,
        fdr=fdr,
        names=column_names(labels, points.dim),
        shifts=torch.stack([gap.shift for gap in gaps]),
        ratios=torch.stack([gap.log_ratio.exp() for gap in gaps]),
        shift_z=torch.stack([gap.shift_z for gap in gaps]),
        spread_z=torch.stack([gap.spread_z for gap in gaps]),
        bound=gaps[0].bound,
        test=chosen.name,
        seed=seed,
    )


def fisher(pvalues: Tensor) -> float:
    """One p-value for independent ones: -2 sum(log p) is at most chi-square with 2 k degrees of freedom."""
    from scipy.special import gammaincc  # slow to import

    return float(gammaincc(len(pvalues), -float(pvalues.log().sum())))


def _check_apart(previous: ScoredPoints | None, other: ScoredPoints, k: int) -> None:
    """The same random numbers for two observations make their p-values dependent."""
    if previous is None or previous.x.shape != other.x.shape:
        return
    y, z = ((points.x - points.x.mean(0)) / points.x.std(0) for points in (previous, other))
    shared = (y * z).mean(0).abs().max()
    if shared > _SHARED / math.sqrt(len(y)):
        warnings.warn(
            f"draws of observations {k - 1} and {k} go together row by row (correlation {shared:.2f}), so "
            "the p-value for all does not hold: draw with another seed for each observation",
            DoubtfulWarning,
            stacklevel=3,
        )


def _spread(ratios: Tensor, sign: int) -> str:
    return f"is too {'wide' if sign > 0 else 'narrow'} ({ratios.median():.2f} of the posterior's spread)"


def _shift(shifts: Tensor, sign: int) -> str:
    side = "high" if sign > 0 else "low"
    return f"is too {side} (by {shifts.median().abs():.2f} posterior standard deviations)"
