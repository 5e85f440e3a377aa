"""Sentences about data beside draws of the model, one function per kind, each with its estimate."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steincritic.diagnosis import estimates
from steincritic.diagnosis.estimates import Estimate
from steincritic.gof.result import DATA, Reading, Subject

_NAMED = 4  # columns that a sentence names
_COORDINATES = 2  # of a place
_STRAIGHT = 0.1  # correlation with a square that is not worth a word


@dataclass(frozen=True, eq=False)
class Beside:
    """Data and draws of the model, (n, d) each, in the units of the data."""

    x: Tensor
    y: Tensor
    names: Sequence[str]
    subject: Subject = DATA
    positive: frozenset[int] = frozenset()  # columns on (0, inf), of which a ratio says more than a shift
    narrower: float = 1.0  # errors of means, spreads and correlations, which more rows gave than these

    @property
    def model(self) -> str:
        return self.subject.model

    def rows(self, of_x: Tensor, of_y: Tensor) -> "Beside":
        return replace(self, x=self.x[of_x], y=self.y[of_y], narrower=1.0)

    def standard(self) -> tuple[Tensor, Tensor]:
        """Both in standard deviations from the mean of the model."""
        location, scale = self.y.mean(0), self.y.std(0).clamp(min=1e-300)
        return (self.x - location) / scale, (self.y - location) / scale


Statement = tuple[Estimate, str]


def _shift(b: Beside, columns: Sequence[int]) -> Statement:
    x, y, name = b.x[:, columns[0]], b.y[:, columns[0]], b.names[columns[0]]
    e = estimates.shift(x, y).narrowed(b.narrower)
    parts = 10 ** _digits(e)
    means = f"mean {_units(x.mean(), y.std(), parts)}, the {b.model} says {_units(y.mean(), y.std(), parts)}"
    if columns[0] in b.positive and b.subject is DATA:
        ratio, low, high = (_number(1 + v * float(y.std() / y.mean())) for v in (e.value, e.low, e.high))
        return e, f"{name} is {ratio} times as large on average as the model says ({low} to {high}): {means}"
    return e, f"{shifted(name, e, b.subject)}: {means}"


def _spread(b: Beside, columns: Sequence[int]) -> Statement:
    e = estimates.spread(b.x[:, columns[0]], b.y[:, columns[0]]).narrowed(b.narrower)
    return e, spreads(b.names[columns[0]], e, b.subject)


def shifted(name: str, e: Estimate, subject: Subject, about: str = "") -> str:
    if subject is DATA:
        return f"{name} is shifted by {about}{_two(e)[0]} standard deviations{_interval(e, about)}"
    up = e if e.value > 0 else replace(e, value=-e.value, low=-e.high, high=-e.low)
    side = "high" if e.value > 0 else "low"
    size = f"{about}{_two(up)[0]} of the {subject.model}'s spread"
    return f"{name} is too {side} by {size}{_interval(up, about)}"


def spreads(name: str, e: Estimate, subject: Subject, about: str = "") -> str:
    if subject is DATA:
        return f"{name} spreads {about}{_two(e)[0]} times as much as the model says{_interval(e, about)}"
    how = "wide" if e.above else "narrow"
    interval = "" if about else f", {_two(e)[1]}"
    return f"{name} is too {how} ({about}{_two(e)[0]} of the {subject.model}'s spread{interval})"


def _pair(b: Beside, columns: Sequence[int]) -> Statement:
    j, k = columns
    e = estimates.correlation(b.x[:, [j, k]], b.y[:, [j, k]]).narrowed(b.narrower)
    return e, f"{b.names[j]} and {b.names[k]}: {_correlation(e, b.subject)}"


def _skewness(b: Beside, columns: Sequence[int]) -> Statement:
    e = estimates.skewness(b.x[:, columns[0]], b.y[:, columns[0]])
    side = "right" if e.above else "left"
    return e, (
        f"{b.names[columns[0]]} is skewed further to the {side} than the {b.model}: skewness {_two(e)[0]} "
        f"({_two(e)[1]}), the {b.model} says {_number(e.expected)}"
    )


def _tails(b: Beside, columns: Sequence[int]) -> Statement:
    e = estimates.tail_share(b.x[:, columns[0]], b.y[:, columns[0]])
    return e, (
        f"{b.names[columns[0]]} has {weight(e)} tails than the {b.model}: "
        f"{percent(e, b.subject.points)} beyond the {b.model}'s central 99 %, 1 % expected"
    )


def _all_tails(b: Beside, columns: Sequence[int]) -> Statement:
    e = estimates.mean_tail_share(b.x, b.y)
    return e, (
        f"{weight(e).capitalize()} tails than the {b.model} in most columns: {percent(e, 'values')} beyond "
        f"the {b.model}'s central 99 %, 1 % expected"
    )


def _radial(b: Beside, columns: Sequence[int]) -> Statement:
    e = estimates.radius_share(*b.standard())
    return e, (
        f"{weight(e).capitalize()} tails than the {b.model} in all directions: "
        f"{percent(e, b.subject.points)} beyond the {b.model}'s 99 % radius, 1 % expected"
    )


def _scale(b: Beside, columns: Sequence[int]) -> Statement:
    e = estimates.mean_spread(*b.standard()).narrowed(b.narrower)
    return e, all_spread(e, b.subject)


def all_spread(e: Estimate, subject: Subject, about: str = "") -> str:
    if subject is DATA:
        return spreads("All columns together", e, subject, about).replace("spreads", "spread", 1)
    return spreads("Every coordinate", e, subject, about)


def _all_shifted(b: Beside, columns: Sequence[int]) -> Statement:
    e = estimates.mean_shift(*b.standard()).narrowed(b.narrower)
    return e, f"All columns are shifted by {_two(e)[0]} standard deviations in the mean ({_two(e)[1]})"


def _bend(b: Beside, columns: Sequence[int]) -> Statement:
    j, k = columns
    x, y = (torch.stack([t[:, j], (t[:, k] - t[:, k].mean()).square()], -1) for t in (b.x, b.y))
    e = estimates.correlation(x, y)
    if abs(e.expected) < _STRAIGHT:
        how = f"goes {'up' if e.value > 0 else 'down'} with the square of {b.names[k]}"
    else:
        more = "more" if e.above else "less"
        how = f"goes up {more} with the square of {b.names[k]} than the {b.model} says"
    return e, f"{b.names[j]} {how}: {_correlation(e, b.subject)}"


def _extreme(b: Beside, columns: Sequence[int]) -> Statement:
    e = estimates.extreme_share(b.x[:, list(columns)], b.y[:, list(columns)])
    first, second = (b.names[j] for j in columns)
    return e, (
        f"{first} and {second} are extreme together {'more' if e.above else 'less'} often than the {b.model} "
        f"says: {percent(e, b.subject.points)} have both in their outer fifth, {100 * e.expected:.1f} % "
        "expected"
    )


KINDS: dict[str, Callable[[Beside, Sequence[int]], Statement]] = {
    "shift": _shift,
    "spread": _spread,
    "pair": _pair,
    "skewness": _skewness,
    "tails": _tails,
    "tails, all alike": _all_tails,
    "radial tails": _radial,
    "scale": _scale,
    "shift, all alike": _all_shifted,
    "bend": _bend,
    "extreme together": _extreme,
}


def direction(b: Beside, columns: Sequence[int], loadings: Tensor) -> Statement:
    """The direction was chosen by the same data, so "about", and some standard errors are for the choice."""
    x, y = (t @ loadings.to(t) for t in b.standard())
    e = estimates.spread(x, y).narrowed(b.narrower)
    e = replace(e, gap=max(0.0, e.gap - math.sqrt(2 * len(loadings))))
    sides = [[j for j in columns if (loadings[j] > 0) == up] for up in (True, False)]
    who = ", against ".join(listed([b.names[j] for j in side]) for side in sides if side)
    comma = "," if all(sides) else ""
    how = "go together" if e.above else f"go together otherwise than in the {b.model}"
    return e, (
        f"{who}{comma} {how}: along their common direction the {b.subject.data} spread about "
        f"{_two(e)[0]} times as much as the {b.model} says ({_two(e)[1]})"
    )


def cell(count: float, expected: float, n: int, where: str, subject: Subject = DATA) -> Statement:
    e = estimates.counted_share(round(count), n, expected / n)
    e = Estimate(round(count), n * e.low, n * e.high, expected, e.gap)
    points = f"{e.value} {subject.points.removesuffix('s') if e.value == 1 else subject.points}"
    return e, f"Around {where}: {points}, {expected:.{0 if expected >= 3 else 1}f} expected"


def mode(
    inside: Tensor, share: float, where: str, subject: Subject, *, draws: float, about: str = ""
) -> Statement:
    """Of (n,) points, which of them lie in a mode of the model; its share is counted among so many draws."""
    e = estimates.share(inside, share, draws)
    holds = percent(e, f"the {subject.points}")
    expected = f"{about}{100 * share:.{0 if about else 1}f} %"
    return e, f"The mode around {where} holds {holds}, {expected} under the {subject.model}"


def place(b: Beside, center: Tensor) -> tuple[str, tuple[int, ...]]:
    return place_at(center, b.y.mean(0), b.y.std(0), b.names)


def place_at(center: Tensor, mean: Tensor, sd: Tensor, names: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """A place by the columns in which it is furthest from the middle of the model, and these columns."""
    sd = sd.clamp(min=1e-300)
    far = ((center - mean) / sd).abs()
    columns = tuple(sorted(far.topk(min(_COORDINATES, len(far))).indices.tolist()))
    return f"({', '.join(f'{names[j]} = {_units(center[j], sd[j], 30)}' for j in columns)})", columns


def only_seen(kind: str, names: Sequence[str], subject: Subject = DATA) -> str:
    """What a lens saw, where a plain statistic of the data does not show it."""
    if kind == "mode":
        return f"The weights of the {subject.model}'s separate modes do not fit"
    kind = kind.removesuffix(" within a mode")
    what = {"shift": "mean", "pair": "correlation"}.get(kind.split(",")[0], kind.split(",")[0])
    where = f"where the {subject.model}'s density is steep"
    if kind in ("scale", "radial tails", "shift, all alike", "tails, all alike"):
        whole = {"scale": "spreads", "shift": "means"}.get(kind.split(",")[0], "tails")
        return f"The {whole} of all columns together do not fit {where}"
    if kind in ("shift", "spread", "skewness", "tails"):
        return f"{names[0]}: its {what} {'do' if kind == 'tails' else 'does'} not fit {where}"
    return f"{listed(names)} do not go together as the {subject.model} says {where}"


def by_scores(kind: str, names: Sequence[str], e: Estimate, subject: Subject, *, rough: bool = False) -> str:
    """Of sizes that scores alone tell, so "about"; of signs alone where they are rough."""
    if rough:
        name = names[0] if len(names) == 1 else "Every coordinate"
        if kind == "pair":
            return f"{names[0]} and {names[1]} do not go together as the {subject.model} says"
        side = ("high" if e.above else "low") if kind == "shift" else ("wide" if e.above else "narrow")
        return f"{name} is too {side}"
    if kind == "scale":
        return all_spread(e, subject, "about ")
    if kind == "pair":
        return f"{names[0]} and {names[1]}: {_correlation(e, subject, 'about ')}"
    return (shifted if kind == "shift" else spreads)(names[0], e, subject, "about ")


def near_normal(
    kind: str, names: Sequence[str], raw: float, sd: float, subject: Subject = DATA
) -> Statement | None:
    """From a Stein value alone, read as that of a nearly normal model, for models without draws.

    None where it is too large to be read so: the model is narrow there, or far from normal.
    """
    e = Estimate.around(-raw, sd, 0.0)
    if abs(e.value) > _READABLE.get(kind, 0.0):
        return None
    if kind == "spread":
        value, low, high = (math.sqrt(max(0.0, 1 + v)) for v in (e.value, e.low, e.high))
        e = Estimate(value, low, high, 1.0, e.gap)
        return e, spreads(names[0], e, subject, "about ")
    if kind == "shift":
        return e, shifted(names[0], e, subject, "about ")
    size = f"about {_number(abs(e.value))} {'more' if e.above else 'less'} than the {subject.model} says"
    if kind == "pair":
        return e, f"{names[0]} and {names[1]}: correlation {size}"
    if kind == "skewness":
        return e, f"{names[0]}: skewness {size}"
    return e, f"{names[0]} has {weight(e)} tails than the {subject.model}: kurtosis {size}"


# Beyond this a Stein value says that something is wrong, and no longer how much.
_READABLE = {"shift": 1.0, "spread": 0.75, "pair": 0.5, "skewness": 1.0, "tails": 10.0}


def together(loudest: Reading) -> str:
    """What the loudest number is made of."""
    number = loudest.number
    what = next((w for start, w in _TOGETHER.items() if number.startswith(start)), "a difference")
    if number.startswith("kernel at"):
        what = f"a smooth difference at length scale {number.split()[-1]}, in median distances"
    if "whitened" in loudest.lens and "direction" not in number:
        what += ", in directions that mix columns"
    return what


_TOGETHER = {  # starts of numbers
    "shift": "many small shifts together",
    "scale": "many small errors of spread together",
    "spread": "many small errors of spread together",
    "second": "many small errors of spread and correlation together",
    "pair": "many small errors of correlation together",
    "wide": "a direction that mixes columns in which the data spread more than the model says",
    "narrow": "a direction that mixes columns in which the data spread less than the model says",
    "weight": "weights of the model's modes",
    "skewness": "many small errors of skewness together",
    "tails": "many small errors of the tails together",
    "radial": "an error of the tails in all directions",
    "bend": "many small bends of one column with the square of another",
    "extreme": "many pairs of columns that are extreme together otherwise than in the model",
    "cell": "counts of points in parts of the space",
    "early": "a pattern that only trained critics see",
    "late": "a pattern that only trained critics see",
}


def listed(names: Sequence[str]) -> str:
    if len(names) > _NAMED + 1:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _units(value: Tensor, sd: Tensor, parts: int) -> str:
    """To about so many parts of a standard deviation."""
    digits = round(math.log10(parts / max(float(sd), 1e-300)))
    return f"{round(float(value), digits) + 0.0:.{max(0, min(digits, 12))}f}"


def _number(value: float, digits: int = 2) -> str:
    return f"{round(value, digits) + 0.0:.{digits}f}"


def _digits(e: Estimate) -> int:
    """Two behind the point, and more where an interval would be a single number."""
    width = max(e.high - e.low, 1e-9)
    return 2 if width >= 0.01 else math.ceil(-math.log10(width)) + 1


def _two(e: Estimate) -> tuple[str, str]:
    value, low, high = (_number(v, _digits(e)) for v in (e.value, e.low, e.high))
    return value, f"{low} to {high}"


def _interval(e: Estimate, about: str) -> str:
    """None where the size is approximate, and chance the least of its error."""
    return "" if about else f" ({_two(e)[1]})"


def _correlation(e: Estimate, subject: Subject, about: str = "") -> str:
    expected = _number(e.expected, _digits(e))
    return f"correlation {_two(e)[0]} ({_two(e)[1]}), the {subject.model} says {about}{expected}"


def percent(e: Estimate, what: str) -> str:
    return f"{100 * e.value:.1f} % of {what} ({100 * e.low:.1f} to {100 * e.high:.1f} %)"


def weight(e: Estimate) -> str:
    return "heavier" if e.above else "lighter"
