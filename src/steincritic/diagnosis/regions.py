"""In which regions does the model fail? Readable rules, found on one half of the data, tested on the other.

Two shallow trees propose. One tells data from draws of the model: its leaves have too much or too
little mass. The other follows the length of the estimated score gap: its leaves have a wrong shape. What
they propose is tested on points that neither tree nor critic has seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from steincritic.diagnosis.halves import Half, Halves
from steincritic.files import json_fields

_DEPTH = 3
_THRESHOLDS = 50  # quantiles tried as cuts
_TELLING = 10.0  # a cut's squared z; smaller ones are not made
_LEAST = 20  # points in a leaf
_LEAST_SHARE = 0.02
_COUNT = 10  # held-out points, there or expected, below which a region is not reported
_NOTABLE = 1.25  # factor between data and model from which a difference in mass is worth a line
_PLAIN = 1e-4  # p-value of a difference in mass from which it is what is said, whatever the shape
_TINY = 1e-99  # p-values below are not told apart
_SAME, _NESTED = 0.8, 0.95  # overlap from which two rules are one; share of one inside the other
_FINE = 100  # cuts are rounded to this part of a column's spread
_DIGITS = ".12g"  # all that a rounded cut has
_ROWS = 20_000  # points a tree is grown on at most


@dataclass(frozen=True)
class Condition:
    column: int
    name: str
    above: bool
    cut: float

    def holds(self, x: np.ndarray) -> np.ndarray:
        inside: np.ndarray = (x[:, self.column] > self.cut) == self.above
        return inside

    def __str__(self) -> str:
        return f"{self.name} {'>' if self.above else '≤'} {self.cut:{_DIGITS}}"


@dataclass(frozen=True)
class Region:
    """A box that the data contradict the model in, with what held-out points say of it."""

    conditions: tuple[Condition, ...]
    kind: str  # "too thin", "too dense" or "wrong shape": the model, here
    count: int  # held-out points inside
    expected: float  # by the model
    tested: int  # held-out points in all
    pvalue: float  # adjusted (Holm) for all rules that were tested
    along: str = ""  # wrong shape: the coordinate of the largest gap

    JSON_FIELDS: ClassVar = ("kind", "count", "expected", "tested", "pvalue")

    def holds(self, x: np.ndarray) -> np.ndarray:
        return _holds(self.conditions, x)

    @property
    def is_notable(self) -> bool:
        """Not a difference in mass that is real but slight."""
        slight = 1 / _NOTABLE < (self.count + 0.5) / (self.expected + 0.5) < _NOTABLE
        return self.kind == "wrong shape" or not slight

    @property
    def rule(self) -> str:
        by_column: dict[int, list[Condition]] = {}
        for condition in self.conditions:
            by_column.setdefault(condition.column, []).append(condition)
        return " and ".join(map(_span, by_column.values())) or "everywhere"

    def __str__(self) -> str:
        if self.kind == "wrong shape":
            what = f"the model has the wrong shape here, most of all along {self.along}"
        else:
            what = f"the model is {self.kind} here"
        value = f"p = {self.pvalue:.2g}" if self.pvalue >= _TINY else f"p < {_TINY:g}"
        return (
            f"{self.rule}: {what} ({self.count} of {self.tested} held-out points, "
            f"{self.expected:.1f} expected, {value})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        conditions = [[c.name, ">" if c.above else "<=", c.cut] for c in self.conditions]
        return {"rule": self.rule, "conditions": conditions, **json_fields(self, self.JSON_FIELDS)}


Rule = tuple[Condition, ...]


def _span(conditions: list[Condition]) -> str:
    """Conditions on one column: one side, or both as `low < name ≤ high`."""
    if len(conditions) == 1:
        return str(conditions[0])
    low, high = sorted(conditions, key=lambda c: c.cut)
    return f"{low.cut:{_DIGITS}} < {low.name} ≤ {high.cut:{_DIGITS}}"


def find_regions(halves: Halves, names: Sequence[str], *, level: float, listed: bool) -> tuple[Region, ...]:
    """Rules that hold on held-out points at the level, over all rules together; the most telling first.

    Everything that chooses a rule comes from the first half: the points, and the critic that was trained
    on them. The second half tests.
    """
    if halves.draws is None or not listed:
        return ()
    grown, tested = halves.first, halves.second
    draws = _array(halves.draws.x)
    middle = len(draws) // 2
    x = _array(grown.points.x)
    proposed = [*_rules(*_mass_task(x, draws[:middle]), names), *_rules(*_shape_task(halves), names)]
    held_out, fresh = _array(tested.points.x), draws[middle:]
    candidates = [
        _tested(rule, _holds(rule, held_out), _holds(rule, fresh), tested, middle, names) for rule in proposed
    ]
    enough = [r for r in candidates if max(r.count, r.expected) >= _COUNT]
    regions = [r for r in _holm(enough) if r.pvalue <= level and r.is_notable]
    return tuple(_distinct(regions, fresh))


def _mass_task(x: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, target (1 for data, 0 for model draws) and weights of the tree that tells them apart."""
    x, draws = x[:_ROWS], draws[:_ROWS]
    target = np.r_[np.ones(len(x)), np.zeros(len(draws))]
    weights = np.r_[np.full(len(x), 1 / len(x)), np.full(len(draws), 1 / len(draws))]
    return np.concatenate([x, draws]), target, weights


def _shape_task(halves: Halves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of the tree that follows the length of the score gap, in units of the model's spread."""
    critic_of = halves.second  # trained on the first half
    scale = critic_of.critic.frame.scale.to(critic_of.trained.gap)
    length = (critic_of.trained.gap * scale).square().sum(-1).sqrt().numpy()
    x = _array(halves.first.points.x)[: len(length)]
    return x[:_ROWS], length[:_ROWS], np.ones(min(len(x), _ROWS))


def _rules(x: np.ndarray, target: np.ndarray, weights: np.ndarray, names: Sequence[str]) -> list[Rule]:
    """The leaves of a tree, grown greedily and only by cuts that tell (CART [breiman1984])."""
    least = max(_LEAST, round(_LEAST_SHARE * len(x)))

    def grow(rows: np.ndarray, rule: Rule) -> list[Rule]:
        cut = None if len(rule) == _DEPTH else _best_cut(x[rows], target[rows], weights[rows], least)
        if cut is None:
            return [_simplified(rule)] if rule else []
        column, value = cut
        low, high = np.quantile(x[:, column], [0.05, 0.95])
        if high > low:  # a number that can be read and said, so that the rule is what it says
            value = round(value, math.ceil(-math.log10((high - low) / _FINE)))
        above = x[rows, column] > value
        lower, upper = (Condition(column, names[column], side, value) for side in (False, True))
        return grow(rows[~above], (*rule, lower)) + grow(rows[above], (*rule, upper))

    return grow(np.arange(len(x)), ())


def _simplified(rule: Rule) -> Rule:
    """Without conditions that another on the same side of the same column implies."""
    tightest: dict[tuple[int, bool], Condition] = {}
    for condition in rule:
        key = (condition.column, condition.above)
        other = tightest.get(key)
        if other is None or (condition.cut > other.cut) == condition.above:
            tightest[key] = condition
    return tuple(tightest.values())


def _best_cut(x: np.ndarray, target: np.ndarray, weights: np.ndarray, least: int) -> tuple[int, float] | None:
    """The cut that lowers the squared error most, if it is beyond what chance would do."""
    if len(x) < 2 * least:
        return None
    total, total_target = weights.sum(), (weights * target).sum()
    spread = (weights * (target - total_target / total) ** 2).sum() / total
    noise = spread * (weights**2).sum() / total  # of one unit of weight
    best: tuple[float, int, float] | None = None
    for column in range(x.shape[1]):
        values = x[:, column]
        order = np.argsort(values)
        heavy, aimed = np.cumsum(weights[order]), np.cumsum((weights * target)[order])
        cuts = np.unique(np.quantile(values, np.linspace(0, 1, _THRESHOLDS + 2)[1:-1]))
        left = np.searchsorted(values[order], cuts, side="right")
        fits = (left >= least) & (left <= len(x) - least)
        if not fits.any():
            continue
        cuts, left = cuts[fits], left[fits]
        below, aimed_below = heavy[left - 1], aimed[left - 1]
        gain = (
            aimed_below**2 / below
            + (total_target - aimed_below) ** 2 / (total - below)
            - total_target**2 / total
        )
        k = int(gain.argmax())
        if best is None or gain[k] > best[0]:
            best = (float(gain[k]), column, float(cuts[k]))
    if best is None or noise <= 0 or best[0] < _TELLING * noise:
        return None
    return best[1], best[2]


def _tested(
    rule: Rule, data: np.ndarray, model: np.ndarray, half: Half, split: int, names: Sequence[str]
) -> Region:
    """The rule against held-out points: their number there, and their witness there."""
    count, expected = int(data.sum()), float(model.mean()) * len(data)
    mass = _count_pvalue(data, model)
    shape = _witness_pvalue(half.held_out.witness.numpy(), data, half.of_draws.witness[split:].numpy(), model)
    pvalue = 2 * min(mass, shape)
    region = Region(rule, "too thin" if count > expected else "too dense", count, expected, len(data), pvalue)
    if mass <= shape or (mass <= _PLAIN and region.is_notable):
        return region
    scale = half.critic.frame.scale.to(half.held_out.gap)
    gap = (half.held_out.gap * scale)[torch.from_numpy(data)].square().mean(0)
    along = names[int(gap.argmax())]
    return replace(region, kind="wrong shape", along=along)


def _count_pvalue(data: np.ndarray, model: np.ndarray) -> float:
    """Fisher's exact test that data and model draws are inside equally often."""
    from scipy.stats import fisher_exact  # slow to import

    table = np.array([[data.sum(), (~data).sum()], [model.sum(), (~model).sum()]])
    return float(fisher_exact(table)[1])


def _witness_pvalue(
    witness: np.ndarray, inside: np.ndarray, drawn: np.ndarray, drawn_inside: np.ndarray
) -> float:
    """That the witness is higher in the data than under the model inside the rule (by ranks, so whatever its
    law), and by more than outside; the larger of both p-values."""
    from scipy.stats import mannwhitneyu  # slow to import

    parts = [witness[inside], drawn[drawn_inside], witness[~inside], drawn[~drawn_inside]]
    if min(map(len, parts)) < _COUNT:
        return 1.0
    excess = parts[0].mean() - parts[1].mean() - (parts[2].mean() - parts[3].mean())
    error = sum(part.var(ddof=1) / len(part) for part in parts) ** 0.5
    if not error > 0:
        return 1.0
    by_ranks = float(mannwhitneyu(parts[0], parts[1], alternative="greater").pvalue)
    return max(by_ranks, NormalDist().cdf(-float(excess / error)))


def _holm(regions: list[Region]) -> list[Region]:
    """Sorted, with p-values adjusted for all of them [holm1979]."""
    adjusted, largest = [], 0.0
    for k, region in enumerate(sorted(regions, key=lambda r: r.pvalue)):
        largest = max(largest, min(1.0, (len(regions) - k) * region.pvalue))
        adjusted.append(replace(region, pvalue=largest))
    return adjusted


def _distinct(regions: list[Region], draws: np.ndarray) -> list[Region]:
    """Without rules that say the same as a more telling one, or lie inside it, or around it."""
    distinct: list[tuple[Region, np.ndarray]] = []
    for region in regions:
        inside = region.holds(draws)
        if not any(_same(inside, other, region.kind == louder.kind) for louder, other in distinct):
            distinct.append((region, inside))
    return [region for region, _ in distinct]


def _same(inside: np.ndarray, other: np.ndarray, alike: bool) -> bool:
    common = (inside & other).sum()
    smaller = max(1, min(inside.sum(), other.sum()))
    return bool(common >= _SAME * max(1, (inside | other).sum()) or (alike and common >= _NESTED * smaller))


def _holds(rule: Rule, x: np.ndarray) -> np.ndarray:
    inside = np.ones(len(x), dtype=bool)
    for condition in rule:
        inside &= condition.holds(x)
    return inside


def _array(x: Tensor) -> np.ndarray:
    return x.detach().to("cpu", torch.float64).numpy()
