"""Sentences about y given x: residuals of the data beside those of the model, over x and in regions of it.

Which entries stand out is decided by the null sets of the test, as for other models (`diagnosis/entries.py`).
An entry is reported if it says something beyond louder ones of its kind: what it adds to a regression of the
residuals' moments on those. So one fault is not reported once per covariate and region that it shows in.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.data.frame import RowFrame
from steincritic.data.points import ScoredPoints
from steincritic.diagnosis import estimates
from steincritic.diagnosis.entries import Entry, standing_out
from steincritic.diagnosis.estimates import Estimate
from steincritic.diagnosis.findings import MOST, Finding, fallback
from steincritic.diagnosis.words import Statement, percent, weight
from steincritic.gof.bench import Examined
from steincritic.gof.result import Reading
from steincritic.lenses.conditional import PreparedPredicted, PreparedResiduals, Region

# so much louder counts what is simple to say, and softer what is not about a covariate
_PLAIN = {"overall": 1.1, "slope": 1.1, "predicted mean": 0.8, "predicted spread": 0.8}
_ORDER = {"shift": 0, "spread": 1}  # kinds that change what others show come first


@dataclass(frozen=True, eq=False)
class ResidualData:
    """The data with the model's draws at the same x, in the units of the data."""

    x: Tensor  # (n, p + t)
    draws: Tensor  # (k, n, t) of y
    mean: Tensor  # (n, t) of the model at each row
    sd: Tensor
    covariates: int
    names: Sequence[str]

    @classmethod
    def of(cls, data: ScoredPoints, draws: Tensor, covariates: int, names: Sequence[str]) -> "ResidualData":
        """From (k, n, p + t) draws at the rows of the data."""
        frame, p = RowFrame.of(draws, covariates), covariates
        mean, sd = (t[:, p:].cpu() for t in (frame.location, frame.scale))
        x, y = data.x.to("cpu", torch.float64), draws[..., p:].to("cpu", torch.float64)
        return cls(x, y, mean, sd, covariates, names)

    def target(self, t: int) -> str:
        """The name of y."""
        return self.names[self.covariates + t]

    def covariate(self, j: int) -> Tensor:
        """(n,) in standard deviations from its mean."""
        x = self.x[:, j]
        return (x - x.mean()) / x.std().clamp(min=1e-300)

    def residual(self, t: int) -> Tensor:
        """y less the model's mean at x."""
        return self.x[:, self.covariates + t] - self.mean[:, t]

    def standard(self, t: int) -> tuple[Tensor, Tensor]:
        """Residuals in the model's spread at x: (n,) of the data, (k, n) of the draws."""
        return self.residual(t) / self.sd[:, t], (self.draws[..., t] - self.mean[:, t]) / self.sd[:, t]

    def standard_at(self, t: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The same at some rows, the draws of all of them in one."""
        residuals, draws = self.standard(t)
        return residuals[rows], draws[:, rows].flatten()


def find_conditional(
    examined: Examined, data: ResidualData, readings: Sequence[Reading], *, level: float
) -> tuple[Finding, ...]:
    """What is wrong with y given x, the loudest first of its kind."""
    findings: list[tuple[Entry, Finding]] = []
    reported: dict[tuple[str, tuple[int, ...]], list[Entry]] = {}
    plain = _Plain(data)
    known = PreparedResiduals | PreparedPredicted
    entries = [e for e in standing_out(examined, level) if isinstance(e.prepared, known)]
    for entry in sorted(entries, key=_sort_key):
        kind, group = _split(entry)
        of_y = tuple(j - data.covariates for j in entry.columns if j >= data.covariates)
        others = reported.setdefault((kind, of_y), [])
        functions = [_function(e, data) for e in (*others, entry)]
        values = plain.moment(kind, of_y)
        again = any(other.columns == entry.columns for other in others)
        if again or (plain.explains(of_y) and _last_weight(values, functions).gap < entry.errors):
            continue
        if (finding := _report(entry, kind, group, of_y, data)) is None:
            continue
        others.append(entry)
        findings.append((entry, finding))
        plain.fitted[kind, of_y] = _fit(values, [*functions, *_curves(others, data)])
    ordered = [finding for _, finding in sorted(findings, key=lambda pair: _sort_key(pair[0])[1])]
    return tuple(ordered[:MOST]) or fallback(readings, lambda loudest: _together(loudest, data))


def _sort_key(entry: Entry) -> tuple[int, float]:
    """Mean, spread, others; the loudest first, but what holds for all x before what is little louder."""
    kind, group = _split(entry)
    loud = abs(entry.raw - entry.mean) / entry.sd
    return _ORDER.get(kind, 2), -loud * _PLAIN.get(group, 1.0)


def _split(entry: Entry) -> tuple[str, str]:
    kind, _, group = entry.number.partition(" by ")
    return kind, group


class _Plain:
    """Moments of residuals whose mean is zero under the model, without what was said of mean and spread."""

    def __init__(self, data: ResidualData) -> None:
        self._data = data
        self.fitted: dict[tuple[str, tuple[int, ...]], Tensor] = {}  # by kind and columns of y

    def explains(self, of_y: tuple[int, ...]) -> bool:
        """Was anything said of these columns that may show in others of their moments?"""
        return any(set(of_y) & set(known) for _, known in self.fitted)

    def moment(self, kind: str, of_y: tuple[int, ...]) -> Tensor:
        """(n,)"""
        both = [self._data.standard(t) for t in of_y]
        if kind == "pair":
            return self._of_data("pair", of_y[0]) * self._of_data("pair", of_y[1]) - (
                both[0][1] * both[1][1]
            ).mean(0)
        return _HERMITE[kind](self._of_data(kind, of_y[0])) - _HERMITE[kind](both[0][1]).mean(0)

    def _of_data(self, kind: str, t: int) -> Tensor:
        r, none = self._data.standard(t)[0], torch.zeros(())
        if kind != "shift":
            r = r - self.fitted.get(("shift", (t,)), none)
        if kind not in ("shift", "spread"):
            r = r / (1 + self.fitted.get(("spread", (t,)), none)).clamp(min=_LEAST).sqrt()
        return r


_HERMITE: dict[str, Callable[[Tensor], Tensor]] = {
    "shift": lambda z: z,
    "spread": lambda z: z**2 - 1,
    "skewness": lambda z: z**3 - 3 * z,
    "tails": lambda z: z**4 - 6 * z**2 + 3,
}
_LEAST = 0.1  # variance beside the model's, of residuals that are looked at for their shape


def _function(entry: Entry, data: ResidualData) -> Tensor:
    """The function of x that an entry is about, at the rows of the data."""
    _, group = _split(entry)
    z = [data.covariate(j) for j in entry.columns if j < data.covariates]
    if group == "region":
        return _inside(_region(entry), data).double()
    if isinstance(entry.prepared, PreparedPredicted):
        return _where_predicted(entry, data)[0].double()
    return {
        "overall": lambda: torch.ones(len(data.x), dtype=torch.float64),
        "slope": lambda: z[0],
        "square": lambda: z[0] ** 2,
        "product": lambda: z[0] * z[-1],
    }[group]()


def _curves(entries: Sequence[Entry], data: ResidualData) -> list[Tensor]:
    """A level, and a parabola along each covariate that was reported: what a straight line leaves."""
    along = {j for entry in entries for j in entry.columns if j < data.covariates}
    z = [data.covariate(j) for j in along]
    return [torch.ones(len(data.x), dtype=torch.float64), *z, *(column**2 for column in z)]


def _region(entry: Entry) -> Region:
    assert isinstance(entry.prepared, PreparedResiduals)
    many = entry.many // len(entry.prepared.functions.regions)
    return entry.prepared.functions.regions[entry.index // many]


def _cut(region: Region, data: ResidualData) -> float:
    """In the units of the data: the largest value below."""
    x = data.x[:, region.column]
    below = x[data.covariate(region.column) <= region.cut + 1e-4]
    return float(below.max()) if len(below) else float(x.min())


def _inside(region: Region, data: ResidualData) -> Tensor:
    return (data.x[:, region.column] > _cut(region, data)) == region.above


def _where_predicted(entry: Entry, data: ResidualData) -> tuple[Tensor, str]:
    """Rows at an end of the model's own mean or spread of y, and how to say so."""
    assert isinstance(entry.prepared, PreparedPredicted)
    targets, what = data.mean.shape[1], entry.number.rpartition(" ")[2]
    share, above = entry.prepared.ends[entry.index // targets]
    t = entry.index % targets
    of = (data.mean if what == "mean" else data.sd)[:, t]
    cut = float(of.quantile(1 - share if above else share))
    side = "above" if above else "below"
    return (of > cut) == above, f"where the model's {what} of {data.target(t)} is {side} {_short(cut)} "


def _fit(values: Tensor, functions: Sequence[Tensor]) -> Tensor:
    h = torch.stack(list(functions), 1)
    fitted: Tensor = h @ (torch.linalg.pinv(h) @ values)
    return fitted


def _last_weight(values: Tensor, functions: Sequence[Tensor]) -> Estimate:
    """Of the last function beside the others, with an error that holds for any spread."""
    h = torch.stack(list(functions), 1)
    solver = torch.linalg.pinv(h.T @ h) @ h.T
    rest = values - _fit(values, functions)
    error = float((solver[-1] * rest).square().sum().sqrt())
    return Estimate.around(float((solver @ values)[-1]), error, 0.0)


def _report(entry: Entry, kind: str, group: str, of_y: tuple[int, ...], data: ResidualData) -> Finding | None:
    """The sentence with its estimate; None where this does not differ from what the model says."""
    where = _Place(entry, group, data)
    estimate, sentence = _SENTENCES[kind](data, of_y, where)
    if estimate.gap < NormalDist().inv_cdf(0.975):
        return None
    return Finding(
        kind=f"{kind} by {group}",
        columns=entry.columns,
        names=tuple(data.names[j] for j in entry.columns),
        sentence=sentence,
        estimate=estimate.value,
        interval=(estimate.low, estimate.high),
        expected=estimate.expected,
        pvalue=entry.pvalue,
        lens=entry.lens,
        place=where.ends,
    )


class _Place:
    """Rows that a sentence is about, and how it says so."""

    def __init__(self, entry: Entry, group: str, data: ResidualData) -> None:
        self.group = group
        self.ends: tuple[float, ...] = ()
        self.names = [data.names[j] for j in entry.columns if j < data.covariates]
        self.of_x = [data.x[:, j] for j in entry.columns if j < data.covariates]
        self.rows = torch.ones(len(data.x), dtype=torch.bool)
        self.words = ""
        if group == "region":
            region = _region(entry)
            cut = _cut(region, data)
            self.rows, self.ends = _inside(region, data), (cut, float(region.above))
            self.words = f"for {self.names[0]} {'>' if region.above else '<='} {_short(cut)} "
        elif isinstance(entry.prepared, PreparedPredicted):
            self.rows, self.words = _where_predicted(entry, data)
        elif group == "square":
            c = (self.of_x[0] - self.of_x[0].mean()).abs()
            self.rows = c > c.median()
            low, high = (float(self.of_x[0].mean() + s * c.median()) for s in (-1, 1))
            self.words = f"for {self.names[0]} below {_short(low)} or above {_short(high)} "

    @property
    def centered(self) -> Tensor:
        """(n,): the covariate, or the product of two, about their means."""
        c = [x - x.mean() for x in self.of_x]
        return c[0] if len(c) == 1 else c[0] * c[1]

    @property
    def slope_unit(self) -> str:
        return self.names[0] if len(self.names) == 1 else f"{' times '.join(self.names)}, each from its mean,"

    @property
    def half(self) -> tuple[Tensor, str]:
        """The rows; along a covariate, or a product, the half of them where it is larger."""
        if self.group == "product":
            return self.centered > 0, f"where {self.names[0]} and {self.names[1]} are both high or both low "
        if self.group == "slope":
            middle = self.of_x[0].median()
            return self.of_x[0] > middle, f"for {self.names[0]} > {_short(float(middle))} "
        return self.rows, self.words


def _shift(data: ResidualData, of_y: tuple[int, ...], at: _Place) -> Statement:
    e, name = data.residual(of_y[0]), data.target(of_y[0])
    if at.group in ("slope", "product"):
        slope = _last_weight(e, [torch.ones_like(e), at.centered])
        more = "more" if slope.value > 0 else "less"
        return slope, f"{name} grows by {_size(slope)} per unit of {at.slope_unit} {more} than the model says"
    if at.group == "square":
        c = at.centered
        bend = _last_weight(e, [torch.ones_like(c), c, c**2])
        side = "up" if bend.value > 0 else "down"
        return bend, (
            f"{name} bends {side} with {at.names[0]} beside the model: by {_size(bend)} per squared unit "
            "from its mean"
        )
    values = e[at.rows]
    error = float(values.std()) / math.sqrt(len(values))
    estimate = Estimate.around(float(values.mean()), error, 0.0)
    side = "large" if estimate.value > 0 else "small"
    return estimate, f"{name} is {_size(estimate)} too {side} on average {at.words}".strip()


def _spread(data: ResidualData, of_y: tuple[int, ...], at: _Place) -> Statement:
    name = data.target(of_y[0])
    if at.group in ("slope", "product"):
        r = data.standard(of_y[0])[0]
        square = (r - r.mean()).square()
        slope = _last_weight(100 * square / square.mean() / 2, [torch.ones_like(r), at.centered])
        more = "more" if slope.value > 0 else "less"
        return slope, (
            f"The spread of {name} grows by {_size(slope, ' %')} per unit of {at.slope_unit} {more} than the "
            "model says"
        )
    estimate = estimates.spread(*data.standard_at(of_y[0], at.rows))
    return estimate, _capital(
        f"{at.words}the spread of {name} is {estimate.value:.2f} times the model's "
        f"({estimate.low:.2f} to {estimate.high:.2f})"
    )


def _skewness(data: ResidualData, of_y: tuple[int, ...], at: _Place) -> Statement:
    rows, where = at.half
    estimate = estimates.skewness(*data.standard_at(of_y[0], rows))
    side = "right" if estimate.above else "left"
    return estimate, _capital(
        f"{where}{data.target(of_y[0])} is skewed further to the {side} than the model says: skewness "
        f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f}) about its mean at x, the model "
        f"says {estimate.expected:.2f}"
    )


def _tails(data: ResidualData, of_y: tuple[int, ...], at: _Place) -> Statement:
    rows, where = at.half
    estimate = estimates.tail_share(*data.standard_at(of_y[0], rows))
    return estimate, _capital(
        f"{where}{data.target(of_y[0])} has {weight(estimate)} tails than the model says: "
        f"{percent(estimate, 'points')} beyond its central 99 % at x, 1 % expected"
    )


def _pair(data: ResidualData, of_y: tuple[int, ...], at: _Place) -> Statement:
    rows, where = at.half
    residuals, draws = (
        torch.stack(both, 1) for both in zip(*(data.standard_at(t, rows) for t in of_y), strict=True)
    )
    estimate = estimates.correlation(residuals, draws)
    return estimate, _capital(
        f"{where}{' and '.join(map(data.target, of_y))} given x: correlation {estimate.value:.2f} "
        f"({estimate.low:.2f} to {estimate.high:.2f}), the model says {estimate.expected:.2f}"
    )


_SENTENCES = {"shift": _shift, "spread": _spread, "skewness": _skewness, "tails": _tails, "pair": _pair}


def _together(loudest: Reading, data: ResidualData) -> str:
    name = " and ".join(data.names[data.covariates :])
    return {
        "shift": f"the mean of {name}, which is off along x",
        "spread": f"the spread of {name}, which is off along x",
        "skewness": f"the skewness of {name}, which is off along x",
        "tails": f"the tails of {name}, which are off along x",
        "pair": f"how {name} go together at x",
        "kernel": f"a smooth difference of {name} from the model that changes with x",
    }.get(loudest.number.partition(" ")[0], "a pattern that only trained critics see")


def _size(e: Estimate, unit: str = "") -> str:
    low, high = (
        sorted((abs(e.low), abs(e.high))) if e.low * e.high > 0 else (0.0, max(abs(e.low), abs(e.high)))
    )
    return f"{_short(abs(e.value))}{unit} ({_short(low)} to {_short(high)}{unit})"


def _short(value: float) -> str:
    """Three digits, never a power of ten unless it is far."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e6 or not value else f"{value:.2e}"


def _capital(sentence: str) -> str:
    """A sentence begins with a capital, unless a name does."""
    return sentence[0].upper() + sentence[1:] if sentence.startswith(("for ", "where ", "the ")) else sentence
