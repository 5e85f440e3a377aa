"""What a p-value takes for granted, looked at in the data: told beside the verdict where it does not hold.

Rows are independent, columns are continuous and span their space, the model was not fitted to these rows, and
where it cannot be sampled its density vanishes at the edge of its support. Each look takes milliseconds.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, answer
from steincritic.errors import ModelError, listed
from steincritic.gof.fitted import Fitted
from steincritic.gof.result import Caveat
from steincritic.lenses.cells import modes_in
from steincritic.models.base import DensityModel, Model, SamplingModel, fitted_points, knows_noise
from steincritic.models.bounded import coordinates_of
from steincritic.models.mixing import autocorrelation_time
from steincritic.models.mixture import GaussianMixture
from steincritic.shapes import Points

OUTWARD = "scores that point outward"
FITTED = "fitted to these rows"  # of the model, not of the data alone
OF_SERIES = ("dependent rows", "repeated rows")  # which rows in time order may be
_RARE = 0.01  # of any false word about dependence
_LAGS = 3
FEWEST = 20  # rows that are looked at
_REPEATED = 0.01  # share of repeated rows where columns are continuous; where all are rounded
_REPEATED_ROUNDED = 0.2
_DISTINCT = 0.5  # share of distinct values below which a column is called rounded
_WHOLE = 0.9  # the same of whole numbers
_CHANCE = 1.0  # pairs of rows that are alike by chance, from which on repeats say nothing
_FLAT = 1e-10  # variance along the flattest direction, in standardized columns
TOO_WELL = 1e-3  # probability of Stein moments so near to zero
_PER_NUMBER = 8  # rows per Stein moment
_NEAR = 0.05  # share of rows nearest to an edge; four times as many further in
_MANY = 100  # rows from which on these are at least 10, else 5
_HARD = (0.35, 0.3)  # their distance as a share of those further in, 1/4 where a density ends; of few rows
_INWARD = 0.5  # least mean score there, in standard deviations, of a density that vanishes at its edge
_OUTWARD, _SURE = 0.5, 5.0  # mean of x_j s_j, which is -1 under the model; in standard errors
_FACTOR, _ALIKE = 0.25, 3.0  # of the score, from 1 at least; between columns in standard errors, at most
_LOOKED_AT = 2_000  # rows whose log-density is asked for
_NAMED = 6
_GROUPED = 2_000  # rows among which separate groups are looked for
_GROUP = 0.03  # share of the rows of a group
_MOST = 5_000  # rows that are looked at, the first ones


@dataclass(frozen=True, eq=False)
class _Sight:
    model: Model | None
    points: ScoredPoints
    names: Sequence[str]
    raw_rows: Tensor  # the rows as they came
    by_scores: bool  # the null distribution comes from scores alone, not from draws

    @property
    def x(self) -> Tensor:
        return self.points.x

    @property
    def columns(self) -> Tensor:
        """The columns themselves where a model with bounds is tested in other coordinates."""
        within = coordinates_of(self.model)
        columns = self.x if within is None else within.constrain(self.x)[0]
        return columns if columns.shape == self.x.shape else self.x  # a simplex has one column more

    def named(self, columns: Sequence[int]) -> str:
        return listed([self.names[j] for j in columns], _NAMED)


def find_caveats(
    model: Model | None, points: ScoredPoints, names: Sequence[str] | None = None, *, by_scores: bool = False
) -> tuple[Caveat, ...]:
    """What does not look as a test of these points takes it for granted; the gravest first.

    Args:
        by_scores: the test has no draws of the model, so that edges of the support count.
    """
    if len(points) < FEWEST:
        return ()
    labels = names or [f"x{j + 1}" for j in range(points.dim)]
    some = ScoredPoints(points.x[:_MOST].double().cpu(), points.score[:_MOST].double().cpu())
    sight = _Sight(model, some, labels, points.x, by_scores)
    return tuple(caveat for look in _LOOKS for caveat in look(sight))


def _constant(sight: _Sight) -> Iterator[Caveat]:
    x = sight.columns
    same = [j for j in range(x.shape[1]) if bool((x[:, j] == x[0, j]).all())]
    if same:
        values = listed([f"{sight.names[j]} = {float(x[0, j]):.4g}" for j in same], _NAMED)
        yield Caveat(
            "constant columns",
            f"Constant in all rows: {values}. No density has such a column; leave it out.",
            grave=True,
        )
    varied = [j for j in range(x.shape[1]) if j not in same]
    if len(varied) > 1 and len(x) > len(varied):
        z = x[:, varied]
        z = (z - z.mean(0)) / z.std(0)
        variances, directions = torch.linalg.eigh(z.T @ z / len(z))
        if float(variances[0]) < _FLAT:
            weights = directions[:, 0].abs().tolist()
            involved = [j for j, weight in zip(varied, weights, strict=True) if weight > 0.1]
            yield Caveat(
                "flat data",
                f"The data lie on a line or a plane: {sight.named(involved)} decide each other (one is a sum "
                "or a multiple of others). No density in all columns fits such data; leave one of them out.",
                grave=True,
            )


def _outside(sight: _Sight) -> Iterator[Caveat]:
    """Rows where the log-density is no number, although the score is one."""
    model = sight.model
    if not isinstance(model, DensityModel):
        return
    try:
        value = answer(lambda: model.log_prob(sight.raw_rows[:_LOOKED_AT]), "model.log_prob")
    except ModelError:
        return
    bad = int((~value.isfinite()).sum())
    if bad:
        yield Caveat(
            "outside the support",
            f"The log-density is not finite at {bad} of {len(value)} rows: they lie outside the model's "
            "support. Are data and model in one space (log tau where tau is meant, say)?",
            grave=True,
        )


TURNED = (
    "The score points away from the middle of the data. Is its sign turned (the gradient of an energy where "
    "that of the log-density is wanted)?"
)


def points_outward(x: Points, score: Points) -> bool:
    """Scores of a density that falls off point to its middle."""
    pull = ((x - x.mean(0)) * score).sum(1)
    error = float(pull.std()) / math.sqrt(len(pull))
    return float(pull.mean()) > max(_OUTWARD * x.shape[1], _SURE * error)


def _off_scores(sight: _Sight) -> Iterator[Caveat]:
    """A turned score; one off by a factor, which looks like a wrong spread where neither a log-density nor
    draws tell them apart."""
    if points_outward(sight.x, sight.points.score):
        yield Caveat(OUTWARD, TURNED, grave=True)
    if sight.model is None or isinstance(sight.model, DensityModel | SamplingModel) or sight.x.shape[1] < 2:
        return
    pull = (sight.x.mean(0) - sight.x) * sight.points.score  # (n, d) with mean 1 under the model
    factor, error = float(pull.mean()), float(pull.mean(1).std()) / math.sqrt(len(pull))
    alike = (pull.mean(0) - factor).abs() < _ALIKE * pull.std(0) / math.sqrt(len(pull))
    if bool(alike.all()) and factor > 0 and abs(factor - 1) > max(_FACTOR, _SURE * error):
        yield Caveat(
            "one factor in all columns",
            f"In every column the score is about {factor:.2g} times as large as it would be for these data: "
            "their spread is not the model's, or the score is off by that factor (a temperature, say).",
        )


def _row_numbers(x: Tensor) -> list[int]:
    """Columns that hold hardly more than each whole number of a range once."""
    numbering = []
    for j, column in enumerate(x.T):
        distinct, width = len(column.unique()), float(column.max() - column.min()) + 1
        whole = bool((column == column.round()).all())
        if whole and distinct >= _WHOLE * len(column) and width <= len(column) / _WHOLE:
            numbering.append(j)
    return numbering


def discrete_columns(x: Tensor) -> tuple[list[int], list[int]]:
    """Columns that hold few whole numbers, and others that repeat their values; constant ones are neither."""
    whole, rounded = [], []
    for j, column in enumerate(_distinct(x).T):
        share = len(column.unique()) / len(column)
        if share == 1 / len(column):
            continue
        if share < _WHOLE and bool((column == column.round()).all()):
            whole.append(j)
        elif share < _DISTINCT:
            rounded.append(j)
    return whole, rounded


def _distinct(x: Tensor) -> Tensor:
    """A row that is there again counts once: a sampler that refuses a step repeats all of it.

    Of a single column that cannot be told from a value that is there again.
    """
    return x.unique(dim=0) if x.shape[1] > 1 else x


def _discrete(sight: _Sight) -> Iterator[Caveat]:
    whole, rounded = discrete_columns(sight.columns)
    if whole:
        yield Caveat(
            "discrete columns",
            f"Whole numbers alone in {sight.named(whole)}: a discrete column has no score, so a model of "
            "continuous values is rejected with enough rows. Leave it out, or condition the model on it.",
        )
    if rounded:
        yield Caveat(
            "rounded columns",
            f"Rounded, with the same values again and again: {sight.named(rounded)}. With many rows the "
            "rounding itself is seen; give the columns with all their digits.",
        )


def _repeated(sight: _Sight) -> Iterator[Caveat]:
    if columns := _row_numbers(sight.columns):
        yield Caveat(
            "row numbers",
            f"Each whole number of a range about once in {sight.named(columns)}: that looks like a row "
            "number, no measurement. Leave it out (--exclude), or name the rows by it (--id-column).",
        )
    n = len(sight.x)
    alike = n * (n - 1) / 2  # pairs of rows by chance, as values may be rounded
    for column in _distinct(sight.columns).T:
        counts = column.unique(return_counts=True)[1].double()
        alike *= float((counts * (counts - 1)).sum()) / max(1, len(column) * (len(column) - 1))
    if alike > _CHANCE:
        return
    again = n - len(sight.x.unique(dim=0))
    whole, rounded = discrete_columns(sight.columns)
    continuous = len(whole) + len(rounded) < sight.x.shape[1]
    if again >= max(2, (_REPEATED if continuous else _REPEATED_ROUNDED) * n):
        yield Caveat(
            "repeated rows",
            f"{again} of {n} rows repeat another row: they count twice, and the model is rejected too "
            "easily. Keep each row once.",
        )


def _dependent(sight: _Sight) -> Iterator[Caveat]:
    steps = sight.x.diff(dim=0)
    in_order = ((steps >= 0).all(0) | (steps <= 0).all(0)) & (steps != 0).any(0)
    if bool(in_order.any()):
        return  # rows were sorted: the order says nothing about how they came
    numbers = _row_numbers(sight.x)
    candidates = [j for j in range(sight.x.shape[1]) if j not in numbers]
    dependence = dependence_of_rows(sight.x[:, candidates]) if candidates else None
    if dependence is None:
        return
    column, correlation, lag, distance = dependence
    name = sight.names[candidates[column]]
    what = f"the distance of {name} from its middle" if distance else name
    how = "is too small here" if correlation > 0 else "may not hold here"
    other = "in the next row" if lag == 1 else f"{lag} rows further on"
    yield Caveat(
        "dependent rows",
        f"Rows depend on each other: {what} has correlation {correlation:.2f} with its value {other}. The "
        f"p-value is for independent rows and {how}, unless the rows were only sorted or grouped "
        "afterward. Rows in time order: test with dependent=True (--dependent), or keep one row in "
        f"{max(2, math.ceil(slowness(sight.x)))}.",
    )


def dependence_of_rows(x: Tensor) -> tuple[int, float, int, bool] | None:
    """The strongest correlation of rows with later ones, if it is beyond chance: column, correlation, lag,
    and whether it is that of the distance from the middle.

    Ranks have one law for all continuous independent data, so the bound holds for any tails.
    """
    n = len(x)
    series = torch.cat([_ranks(x), _ranks((x - x.median(0).values).abs())], 1)
    z = (series - series.mean(0)) / series.std(0, unbiased=False).clamp(min=1e-12)
    lags = [lag for lag in range(1, _LAGS + 1) if n - lag >= FEWEST // 2]
    correlations = torch.stack([(z[lag:] * z[:-lag]).mean(0) for lag in lags])
    bound = NormalDist().inv_cdf(1 - _RARE / (2 * correlations.numel()))
    strength = (correlations + 1 / n).abs() * torch.tensor([[math.sqrt(n - lag)] for lag in lags])
    k = int(strength.argmax())
    lag, column = divmod(k, series.shape[1])
    if float(strength.flatten()[k]) <= bound:
        return None
    return column % x.shape[1], float(correlations[lag, column]), lags[lag], column >= x.shape[1]


def slowness(x: Tensor) -> float:
    """How many rows in a row are worth one independent row."""
    return autocorrelation_time(_ranks(x))


def _ranks(x: Tensor) -> Tensor:
    return x.argsort(0).argsort(0).double()


def _unmixed(sight: _Sight) -> Iterator[Caveat]:
    """Draws by chains, which the null sets are made of."""
    tuned = None if sight.by_scores else getattr(sight.model, "tuned", None)
    if tuned is not None and not tuned.mixed:
        yield Caveat(
            "unmixed chains",
            f"The chains that draw from the model have hardly mixed (R-hat {tuned.rhat:.2f}), so null sets "
            "may not be its draws: take more steps, or temperatures such as (10, 3) for modes apart.",
        )


def _fitted(sight: _Sight) -> Iterator[Caveat]:
    """Rows that the model keeps, or Stein moments nearer to zero than those of fresh rows would be."""
    if isinstance(sight.model, Fitted):
        return
    way_out = (
        "The p-value is for rows that the model has not seen: test it on others, held out, or on these with "
        "every null set fitted anew (sc.Fitted(fit, x); on the command line --fitted)."
    )
    fitted_rows, share = fitted_points(sight.model), 0.0
    if fitted_rows is not None:
        known = {row.tobytes() for row in fitted_rows.cpu().float().numpy()}
        share = sum(row.tobytes() in known for row in sight.x.float().numpy()) / len(sight.x)
    if share > 0.5:
        yield Caveat(
            FITTED,
            f"{share:.0%} of the rows are among those that the model was fitted to. {way_out}",
        )
    elif (chance := _too_well(sight.model, sight.points)) < TOO_WELL:
        yield Caveat(
            FITTED,
            "The model fits these rows better than its own draws would (so near has probability "
            f"{chance:.1g}): it looks fitted to them. {way_out}",
        )


def _too_well(model: Model | None, points: ScoredPoints) -> float:
    """Probability that fresh rows agree with the model so well: means of scores, of x_j s_j + 1 and of the
    shares of a mixture's components, which a maximum-likelihood fit makes equal to those of the model."""
    x = (points.x - points.x.mean(0)) / points.x.std(0).clamp(min=1e-300)
    score = points.score * points.x.std(0)
    parts = [score, x * score + 1]
    if isinstance(model, GaussianMixture):
        parts.append((model.shares(points.x) - model.weights)[:, 1:])
    most = len(x) // _PER_NUMBER
    groups = [*parts, torch.cat(parts, 1)]
    chances = [nearness(group) for group in groups if 0 < group.shape[1] <= most]
    return min(1.0, len(chances) * min(chances)) if chances else 1.0


def nearness(values: Tensor) -> float:
    """P(chi-squared <= T) for Hotelling's T of (n, k) values whose mean is zero."""
    eigenvalues, turn = torch.linalg.eigh(torch.atleast_2d(values.T.cov()))
    if not bool(eigenvalues.isfinite().all()) or not float(eigenvalues[-1]) > 0:
        return 1.0
    mask = eigenvalues > 1e-9 * eigenvalues[-1]
    statistic = len(values) * ((values.mean(0) @ turn).square()[mask] / eigenvalues[mask]).sum()
    return float(torch.special.gammainc(mask.sum() / 2, statistic / 2))


def _edges(sight: _Sight) -> Iterator[Caveat]:
    if not sight.by_scores:
        return
    ends: list[str] = []
    bounds: dict[int, list[str]] = {}
    for j in range(sight.x.shape[1]):
        for side in (1.0, -1.0):
            edge = _hard_edge(side * sight.x[:, j], side * sight.points.score[:, j])
            if edge is not None:
                ends.append(f"{sight.names[j]} = {side * edge:.3g}")
                pair = bounds.setdefault(j, ["-inf", "inf"])
                pair[side < 0] = round_number(side * edge, sight.x[:, j])
    if ends:
        named = ", ".join(" ".join([sight.names[j], *pair]) for j, pair in bounds.items())
        yield Caveat(
            "edges of the support",
            f"The data stop at {listed(ends, _NAMED)}, where the model's density does not vanish. If the "
            "model ends there too, its scores mislead: a right model is rejected. Say where it ends with "
            f'bounds= (--bounds "{named}"), or give the model a sampler.',
        )


def round_number(edge: float, column: Tensor) -> str:
    """The edge that is meant, to about a hundredth of the column's spread."""
    step = 10.0 ** math.floor(math.log10(max(float(column.std()), 1e-300) / 10))
    return f"{round(edge / step) * step + 0.0:.6g}"


def _hard_edge(x: Tensor, score: Tensor) -> float | None:
    """Where the smallest values stop, if many lie near and the score there does not point inward."""
    order = x.argsort()
    low = x[order] - x.min()
    scarce = len(x) < _MANY
    few = max(5 if scarce else 10, round(_NEAR * len(x)))
    if 4 * few >= len(x) or float(low[few]) > _HARD[scarce] * float(low[4 * few]):
        return None
    spread = float(x.quantile(0.75) - x.quantile(0.25)) / 1.35
    inward = float(score[order[: few + 1]].mean()) * spread
    return float(x.min()) if inward < _INWARD else None


def separate_groups(points: ScoredPoints) -> int:
    """Of rows that lie apart, the larger ones; 1 where there are too few rows to tell."""
    some = points[:_GROUPED].to("cpu", torch.float64)
    if len(some) < _MANY or not bool(some.score.isfinite().all()):
        return 1
    x = Frame.by_scores(some).enter(some).x
    shares = modes_in(x, x, seed=0).shares
    return max(1, int((shares > max(_GROUP, FEWEST / len(x))).sum()))


def unseen_weights(model: Model | None, points: ScoredPoints) -> Iterator[Caveat]:
    """Of a test by scores alone: between groups of rows that lie apart no score tells anything."""
    groups = separate_groups(points)
    if groups < 2:
        return
    way_out = "Give the model a sampler, or its score with noise added (with_noise)."
    if isinstance(model, SamplingModel) or knows_noise(model):
        way_out = "The combined test sees them."
    yield Caveat(
        "weights of modes",
        f"The rows lie in {groups} separate groups. This test goes by scores alone, which hardly depend on "
        f"how many rows each group holds: wrong weights of modes are not seen. {way_out}",
    )


_LOOKS: tuple[Callable[[_Sight], Iterator[Caveat]], ...] = (
    _constant,
    _outside,
    _off_scores,
    _repeated,
    _dependent,
    _unmixed,
    _fitted,
    _edges,
    _discrete,
)
