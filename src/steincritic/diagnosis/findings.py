"""What is wrong, in sentences: the entries of quick lenses that stand out, each with an estimate.

Which entries stand out is decided by the null sets of the test: see `diagnosis/entries.py`. How large a
difference is comes from the data beside draws of the model. A sentence gives the estimate if its interval,
widened for the number of entries of its kind, excludes what the model says. Otherwise it stays with what the
lens saw, and is left out where others can be more definite. So are sentences that repeat a louder one: see
`_covers`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from steincritic.data.points import ScoredPoints
from steincritic.diagnosis import words
from steincritic.diagnosis.by_scores import Difference, differences
from steincritic.diagnosis.entries import Entry, part_of, standard, standing_out
from steincritic.diagnosis.estimates import Estimate
from steincritic.files import json_value
from steincritic.gof.bench import Examined
from steincritic.gof.moment_box import Gaps
from steincritic.gof.result import DATA, Reading, Subject
from steincritic.lenses.lens import normal_evidence
from steincritic.lenses.modes import PreparedModes
from steincritic.lenses.moments import DIRECTIONS, PreparedMoments
from steincritic.lenses.noise import PILOT, PreparedNoise
from steincritic.models.coordinates import Box, Coordinates

MOST = 8  # findings that are listed
_CELLS = 3  # cells that are listed
_OFF = 0.1  # standard deviations
_SHAPE_ALONE = ("skewness", "tails", "radial tails", "bend", "extreme together", "mode")  # no mean, no spread


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One way in which data differ from the model."""

    kind: str
    columns: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # of these columns
    sentence: str  # without the final stop
    estimate: float | None = None
    interval: tuple[float, float] | None = None  # 95 %
    expected: float | None = None  # what the model says
    pvalue: float  # adjusted for all entries that were looked at
    lens: str
    # per column of the data: center of a cell or a half, loadings of a direction
    place: tuple[float, ...] = ()

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return dict(json_value(self))


def find(
    examined: Examined,
    data: ScoredPoints,
    names: Sequence[str],
    *,
    level: float,
    subject: Subject = DATA,
    lengths: Tensor | None = None,
    coordinates: Coordinates | None = None,
) -> tuple[Finding, ...]:
    """What stands out at a family-wise level, the loudest first.

    Args:
        lengths: of blocks of rows that depend on each other.
        coordinates: without bounds, in which data and draws are; sentences are about the columns themselves.
    """
    if coordinates is not None and examined.draws is None:  # nothing to compare the columns with
        names, coordinates = coordinates.names(names), None
    entries = standing_out(examined, level)
    if examined.totals is not None and coordinates is None:
        examined, data = _matched(examined, data)
    first: list[Finding] = []
    if examined.draws is None and (sizes := differences(data, lengths, level=level)):
        first = [_by_scores(size, names, subject) for size in sizes]
        known = {j for finding in first for j in finding.columns}
        entries = [e for e in entries if e.kind in _SHAPE_ALONE and not known & set(e.columns)]
    candidates = [_candidate(entry, examined, data, names, subject, coordinates) for entry in entries]
    single = [candidate for candidate in candidates if candidate.kind not in _PARTS]
    sure = [candidate for candidate in candidates if candidate.sure]
    candidates = [c for c in sure if c.about_column] or sure or ([] if first else single or candidates)
    chosen: list[_Candidate] = []
    for candidate in _joint_first(candidates):
        alike = sum(other.kind == candidate.kind for other in chosen)
        few = candidate.kind not in ("cell", "mode") or alike < _CELLS
        if few and not any(_covers(other, candidate) for other in chosen):
            chosen.append(candidate)
    return (*first, *(candidate.finding for candidate in chosen))[:MOST]


def _matched(examined: Examined, data: ScoredPoints) -> tuple[Examined, ScoredPoints]:
    """Samples of data and model with means and covariances of all rows that went by."""
    assert examined.totals is not None and examined.draws is not None
    pairs = zip(examined.totals, (data, examined.draws), strict=True)
    x, y = (total.matched(points.x.to("cpu", torch.float64)) for total, points in pairs)
    return replace(examined, draws=ScoredPoints(y, examined.draws.score.cpu().double())), ScoredPoints(
        x, data.score.cpu().double()
    )


def _by_scores(difference: Difference, names: Sequence[str], subject: Subject) -> Finding:
    named = tuple(names[j] for j in difference.columns)
    e = difference.estimate
    return Finding(
        kind=difference.kind,
        columns=difference.columns,
        names=named,
        sentence=words.by_scores(difference.kind, named, e, subject, rough=difference.rough),
        estimate=None if difference.rough else e.value,
        interval=None if difference.rough else (e.low, e.high),
        expected=e.expected,
        pvalue=difference.pvalue,
        lens="scores",
    )


def fallback(
    readings: Sequence[Reading], what: Callable[[Reading], str] = words.together
) -> tuple[Finding, ...]:
    """One honest sentence where the test rejects and no entry stands out: what the loudest lens saw."""
    if not readings:
        return ()
    loudest = readings[0]
    sentence = f"Nothing stands out alone; the loudest sign is {what(loudest)}"
    return (Finding(kind="together", sentence=sentence, pvalue=loudest.pvalue, lens=loudest.lens),)


def beyond_tolerance(gaps: Gaps, names: Sequence[str]) -> tuple[Finding, ...]:
    """Means and spreads of columns that are off by more than was tolerated."""
    return tuple(
        Finding(
            kind=gap.kind,
            columns=(gap.column,),
            names=(names[gap.column],),
            sentence=f"Beyond the tolerance: {gap.words(names)}",
            estimate=gap.value,
            interval=(gap.low, gap.high),
            expected=0.0 if gap.kind == "shift" else 1.0,
            pvalue=gap.pvalue,
            lens="moments",
        )
        for gap in gaps.beyond[:MOST]
    )


@dataclass(frozen=True, eq=False)
class _Candidate:
    finding: Finding
    entry: Entry
    estimate: Estimate | None
    about_column: bool = True  # about a column, not about a coordinate without bounds

    @property
    def kind(self) -> str:
        return self.finding.kind

    @property
    def sure(self) -> bool:
        return _sure(self.entry, self.estimate)

    @property
    def loudness(self) -> float:
        """That of the entry, or of the estimate if it is less."""
        if self.estimate is None or not self.sure:
            return self.entry.loudness
        gap = normal_evidence(torch.tensor(self.estimate.gap)) - math.log(self.entry.many)
        return min(self.entry.loudness, float(gap))


def _sure(entry: Entry, estimate: Estimate | None) -> bool:
    """Whether the estimate differs from what the model says, more than one of many would by chance.

    Shares of points in the tails of a column are coarse beside the lens: there its own interval has to do.
    """
    return estimate is not None and estimate.gap >= (1.96 if entry.kind == "tails" else entry.errors)


def _candidate(
    entry: Entry,
    examined: Examined,
    data: ScoredPoints,
    names: Sequence[str],
    subject: Subject,
    within: Coordinates | None,
) -> _Candidate:
    """The sentence of an entry; that of its estimate if that differs from what the model says."""
    kind, columns, place, about_column = entry.kind, entry.columns, torch.zeros(0), True
    draws: ScoredPoints | None = examined.draws
    statement: words.Statement | None
    if kind == "mode":
        statement, columns, place = _of_mode(entry, data, draws, names, subject)
    elif draws is None and examined.bench.bench.setting.whitening is not None:
        statement = None  # a mean or a spread of one column shows in the Stein values of others
    elif draws is None:
        statement = words.near_normal(kind, [names[j] for j in columns], entry.raw, entry.sd, subject)
    else:
        statement, columns, place, about_column = _beside_draws(
            entry, examined, data, draws, names, subject, within
        )
    estimate, sentence = statement or (None, "")
    finding = Finding(
        kind=kind,
        columns=columns,
        names=tuple(names[j] for j in columns),
        sentence=sentence
        if _sure(entry, estimate)
        else words.only_seen(kind, [names[j] for j in columns], subject),
        estimate=None if estimate is None else estimate.value,
        interval=None if estimate is None else (estimate.low, estimate.high),
        expected=None if estimate is None else estimate.expected,
        pvalue=entry.pvalue,
        lens=entry.lens,
        place=tuple(place.tolist()),
    )
    return _Candidate(finding, entry, estimate, about_column)


def _beside_draws(
    entry: Entry,
    examined: Examined,
    data: ScoredPoints,
    draws: ScoredPoints,
    names: Sequence[str],
    subject: Subject,
    within: Coordinates | None,
) -> tuple[words.Statement, tuple[int, ...], Tensor, bool]:
    """What data say beside draws of the model, about which columns and where; whether in these columns, and
    not in coordinates without their bounds."""
    kind, columns, place = entry.kind, entry.columns, torch.zeros(0)
    z, drawn = inner = [points.x.to("cpu", torch.float64) for points in (data, draws)]
    x, y = inner if within is None else (within.constrain(t)[0] for t in inner)
    passed, narrower = examined.passed, 1.0
    if passed is not None and within is None:
        narrower = math.sqrt(len(x) / passed.n)
    positive = frozenset[int]()  # columns on the half-line from 0
    if isinstance(within, Box):
        positive = frozenset(j for j in range(len(names)) if within.ends(j) == (0.0, math.inf))
    beside = words.Beside(x, y, names, subject, positive, narrower)
    if kind == "cell":
        return *_of_cell(entry, beside, examined, within), True
    if kind in DIRECTIONS:
        assert isinstance(entry.prepared, PreparedMoments)
        place = entry.prepared.loadings(entry.prepared.parts(entry.seen.plain)["second"], kind)
        place = pad(place, (0, x.shape[1] - len(place)))  # the last part of a simplex is what is left
        return words.direction(beside, columns, place), columns, place, True
    if kind.endswith("within a mode"):
        statement, place = _within(entry, beside, inner, examined)
        return statement, columns, place, True
    statement = words.KINDS[kind](beside, columns)
    if within is None or _sure(entry, statement[0]):
        return statement, columns, place, True
    free = words.Beside(z, drawn, within.names(names), subject)
    return words.KINDS[kind](free, columns), columns, place, False


def _of_cell(
    entry: Entry, beside: words.Beside, examined: Examined, within: Coordinates | None
) -> tuple[words.Statement, tuple[int, ...], Tensor]:
    n, part = len(beside.x) if examined.passed is None else examined.passed.n, part_of(entry)
    share = float(part.shares[entry.index])
    count, expected = (n * share + value * math.sqrt(n * share) for value in (entry.raw, entry.mean))
    frame = examined.bench.bench.setting.frame
    center = part.places[entry.index].cpu().double() * frame.scale.cpu() + frame.location.cpu()
    center = center if within is None else within.constrain(center[None])[0][0]
    where, columns = words.place(beside, center)
    return words.cell(count, expected, n, where, beside.subject), columns, center


def _of_mode(
    entry: Entry, data: ScoredPoints, draws: ScoredPoints | None, names: Sequence[str], subject: Subject
) -> tuple[words.Statement, tuple[int, ...], Tensor]:
    """The share of a mode in the data, and that in the model: by draws, or by points that came down its
    ladder of noise, which is about right."""
    prepared = entry.prepared
    assert isinstance(prepared, PreparedNoise) and prepared.modes is not None
    part, frame, k = prepared.modes.part, prepared.frame, entry.index
    inside = part.of_points(frame.enter(data.to(torch.float64)).x) == k
    center = (part.places[k] * frame.scale + frame.location).cpu()
    where, columns = words.place_at(center, frame.location.cpu(), frame.scale.cpu(), names)
    count, about = (PILOT, "about ") if draws is None else (len(draws), "")
    statement = words.mode(inside.cpu(), float(part.shares[k]), where, subject, draws=count, about=about)
    return statement, columns, center


def _within(
    entry: Entry, beside: words.Beside, inner: Sequence[Tensor], examined: Examined
) -> tuple[words.Statement, Tensor]:
    """The same as of the whole, of the points on one side of the valley between two modes."""
    assert isinstance(entry.prepared, PreparedModes)
    half = 2 * entry.index // entry.many
    inside = beside.rows(*(entry.prepared.in_half(standard(t, examined), half) for t in inner))
    center = inside.y.mean(0)
    estimate, sentence = words.KINDS[entry.kind.split()[0]](inside, entry.columns)
    return (
        estimate,
        f"In the {beside.model}'s mode around {words.place(beside, center)[0]}: {sentence}",
    ), center


def _joint_first(candidates: list[_Candidate]) -> list[_Candidate]:
    """The loudest first; but what is about many columns at once goes before what it covers."""

    def loudness(candidate: _Candidate) -> float:
        parts = _PARTS.get(candidate.kind, ())
        covered = [other for other in candidates if other.kind in parts and _covers(candidate, other)]
        return max([candidate.loudness, *(other.loudness + 1e-9 for other in covered)])

    return sorted(candidates, key=lambda candidate: -loudness(candidate))


_PARTS: dict[str, tuple[str, ...]] = {
    "scale": ("spread",),
    "shift, all alike": ("shift",),
    **dict.fromkeys(DIRECTIONS, ("pair",)),
    "tails, all alike": ("tails", "radial tails"),
    "radial tails": ("tails", "tails, all alike"),
}
_PAIRS = ("pair", "bend", "extreme together")
_ALL_TAILS = ("radial tails", "tails, all alike")
_SHAPES = {("tails", "spread"), ("tails", "skewness"), ("skewness", "tails")}  # of a column


def _covers(candidate: _Candidate, other: _Candidate) -> bool:
    """Whether a sentence makes another one needless.

    - One about all columns covers the same about a column that is not far from it.
    - A direction covers its pairs; of correlation, bend and common extremes of two columns the loudest
      counts.
    - Tails in all directions, or in most columns, cover tails of columns, common extremes, bends, skewness
      and spreads. Tails of a column cover its spread and its skewness, and skewness covers tails.
    - Whatever is said about a column covers what goes on within a mode there, and cells that are off there.
    - A mode covers itself at other levels of noise; of cells and weights of modes the louder ones count.
    """
    a, b, mine, its = candidate.kind, other.kind, set(candidate.finding.columns), set(other.finding.columns)
    if "mode" in (a, b):
        return candidate.entry.index == other.entry.index if a == b else "cell" in (a, b)
    if b == "cell":
        return _overlap(candidate, other) if a == "cell" else bool(mine & _far(other))
    if a == "cell":
        return False
    if "within" in b or "within" in a:
        return bool(mine & its)
    if a in DIRECTIONS:
        return b in _PAIRS and its <= mine
    if a in _ALL_TAILS and b in _ALL_TAILS:
        return (a == "radial tails") == _in_all_directions(candidate, other)
    if a != "radial tails" and b in _PARTS.get(a, ()) and candidate.estimate and other.estimate:
        return other.estimate.reaches(candidate.estimate.value, other.entry.errors)
    if a in _ALL_TAILS:
        return b in ("tails", "extreme together", "bend", "skewness", "spread", "scale")
    if a in _PAIRS and b in _PAIRS:
        return mine == its
    return (a, b) == ("extreme together", "radial tails") or (mine == its and (a, b) in _SHAPES)


def _in_all_directions(candidate: _Candidate, other: _Candidate) -> bool:
    """Whether tails are more than those of each column, as columns are extreme together.

    The radial entry is the sum of the tails and of all common extremes over d. For a multivariate t the
    latter come to (d - 1)/3 of the former, for independent columns to nothing.
    """
    radial, tails = (candidate, other) if candidate.kind == "radial tails" else (other, candidate)
    d, by_column = len(radial.entry.columns), math.sqrt(max(0.0, tails.entry.raw))  # squared, of all columns
    return abs(radial.entry.raw) * d > (1 + (d - 1) / 6) * by_column


def _far(cell: _Candidate) -> set[int]:
    """Columns in which a cell lies off the middle of the model."""
    return set((part_of(cell.entry).places[cell.entry.index].abs() > _OFF).nonzero()[:, 0].tolist())


def _overlap(cell: _Candidate, other: _Candidate) -> bool:
    """Whether the center of a cell lies in the other cell."""
    a, b = cell.entry.index, other.entry.index
    places, others = (part_of(t.entry).places for t in (cell, other))
    pairs = ((places, a, others), (others, b, places))
    nearest = [torch.cdist(at[k : k + 1], c).argmin() for at, k, c in pairs]
    return int(nearest[0]) == b or int(nearest[1]) == a
