r"""The combined test of a model that cannot be sampled: lenses with one multiplier bootstrap, then a critic.

A lens measures means of Stein values $\phi_i$, whose mean is zero under the model. Studentized,

$$z = \sum_i \phi_i \Big/ \sqrt{\textstyle\sum_i \phi_i^2}, \qquad
  z^* = \sum_i \varepsilon_i \phi_i \Big/ \sqrt{\textstyle\sum_i \phi_i^2},$$

with random signs $\varepsilon$: signs squared are 1, so the denominator is that of the data. Three things
make this hold at small n. Signs make every value symmetric, so Hall's transformation takes the skewness out
of z and of z* [hall1992]. It cannot know the skewness of a fourth moment from 50 points, so lenses clip the
coordinates in their fields. And coordinates come from the data: each half is looked at in those of the other
half, so that its Stein values have mean zero given the other half.

Kernels are bootstrapped by the same signs [chwialkowski2016]. Cells count draws of the model and are left
out. For rows that depend on each other, blocks of them stand for single ones: see `gof.serial`. Where lenses
do not decide, the split test with its bootstrap-t does; each of the two steps has half the
level.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from steincritic.data.frame import Frame, Whitening
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.gof.bench import (
    NARROW,
    Bench,
    CalibratedBench,
    Column,
    Examined,
    Setting,
    checked_entries,
    label_of,
)
from steincritic.gof.combined import Combined
from steincritic.gof.null import as_null_tensor, check_draws, draws_for
from steincritic.gof.ranked import Ranked
from steincritic.gof.result import GofResult
from steincritic.gof.serial import CLIP, WHITENED, Blocks, summed
from steincritic.gof.split import Split
from steincritic.lenses.dependence import Dependence
from steincritic.lenses.field import Field
from steincritic.lenses.lens import Lens, PreparedLens, Scale, Seen, SignedLens, Tail, is_mean, point_values
from steincritic.lenses.modes import Modes, PreparedModes
from steincritic.lenses.moments import Moments
from steincritic.models.base import Model
from steincritic.rng import Source, derive
from steincritic.stein.tiles import random_signs

FIRST = 0.5  # share of the level for the lenses
FEWEST = 20  # points
TRAINED = 40  # points from which on a critic is trained
_BLOCKS = 80  # the same, of rows that depend on each other: half of them are resampled
_UNSEEN = 15.0  # the skewness of n points is too small by so many nths; by hand on seed 1, gamma 5-D, n = 50
_MODES = 1000  # points from which on the skewness within a mode is known well enough
_DRAWS, _REFERENCE = 999, 500
_HELD = 2**22  # values of single points, or entries under signs, at a time

# How loud each lens and each number is heard; 1 where not named. By hand on faults
# of a few models and posteriors with seed 1: draws of a posterior are shifted or wrongly spread above all.
_LENSES = {"moments, whitened": 2.0, "kernels": 0.5, "modes": 0.5, "dependence": 0.3}
_NUMBERS = {
    **dict.fromkeys(("shift", "shift, many", "kernel at 1"), 2.0),
    "kernel at 0.125": 0.5,
    **dict.fromkeys(
        (f"{kind}{how}" for kind in ("skewness", "tails") for how in ("", ", many", ", all alike")), 0.25
    ),
    "radial tails": 0.25,
}


def _weights(columns: Sequence[Column]) -> Tensor:
    """(m,) that sum to 1: lenses share the whole, and the numbers of a lens its part."""
    named = {column.lens for column in columns}
    whole = sum(_LENSES.get(lens, 1.0) for lens in named)
    own = {
        lens: sum(_NUMBERS.get(column.number, 1.0) for column in columns if column.lens == lens)
        for lens in named
    }
    shares = [_LENSES.get(c.lens, 1.0) * _NUMBERS.get(c.number, 1.0) / (whole * own[c.lens]) for c in columns]
    return torch.tensor(shares, dtype=torch.float64)


def run_without_draws(
    config: Combined, model: Model | None, datasets: ScoredPoints, level: float, seeds: Sequence[int]
) -> list[GofResult]:
    """The combined test of each of (r, n, d) datasets, by scores alone."""
    if len(datasets) < FEWEST:
        raise InputError(
            f"x has {len(datasets)} points; without draws of the model the combined test needs at least "
            f"{FEWEST}: collect more, or use test ksd"
        )
    plan = Plan.of(config, len(datasets), level)
    looks = [Look(config, plan, *one) for one in zip(datasets.each(), seeds, strict=True)]
    results = [look.result(level) for look in looks]
    still = [t for t, look in enumerate(looks) if plan.trains and look.ranked.pvalue > plan.spent]
    if still:
        test = Split(
            threshold="bootstrap-t",
            draws=max(_DRAWS, plan.draws),
            slowness=plan.slowness,
            chains=plan.chains,
        )
        left = datasets.sets(torch.tensor(still, device=datasets.x.device))
        own = [derive(seeds[t], "split") for t in still]
        for t, split in zip(still, test.run(model, left, level=level, seeds=own), strict=True):
            results[t] = _after_split(results[t], split, plan)
    return results


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many sign draws, and how the level is shared."""

    trains: bool
    spent: float  # level of the lenses, where a critic may follow
    draws: int  # ranked
    reference: int  # that fix what is large, and are not ranked
    slowness: float
    chains: int

    @classmethod
    def of(cls, config: Combined, n: int, level: float) -> "Plan":
        worth = n if config.slowness == 1 else len(Blocks.of(n, config.chains, config.slowness))
        trains = config.critics is not None and worth >= (TRAINED if worth == n else _BLOCKS)
        spent = FIRST * level if trains else 0.0
        draws = config.draws or draws_for(level, _DRAWS)
        if config.precision is not None:
            spent, draws = min(spent, config.precision / 2), math.ceil(2 / config.precision)
        if trains:
            draws = max(draws, math.ceil(1 / spent - 1e-9) - 1)
        check_draws(draws, level)
        reference = config.reference or _REFERENCE
        return cls(
            trains=trains,
            spent=spent,
            draws=draws,
            reference=reference,
            slowness=config.slowness,
            chains=config.chains,
        )


class Look:
    """One dataset as lenses see it, beside the same dataset under random signs."""

    def __init__(self, config: Combined, plan: Plan, points: ScoredPoints, seed: int) -> None:
        self.plan, self.seed, self.n = plan, seed, len(points)
        points = points.to(torch.float64)
        self.blocks = Blocks.single(self.n)
        if plan.slowness == 1:
            points = points.shuffled(seed=derive(seed, "halves"))
        else:
            self.blocks = Blocks.of(self.n, plan.chains, plan.slowness)
        self.halves = Halves.of(points)
        self.views, self.left_out = self._views(config.lenses)

    def _views(self, lenses: Sequence[Lens]) -> tuple[list["View"], list[str]]:
        views, left_out = [], []
        for k, lens in enumerate(lenses):
            if lens.whitened and self.halves.whole.whitening is None:
                continue  # the same as without
            if isinstance(lens, Modes) and self.n < _MODES:
                left_out.append(f"{label_of(lens)} (below {_MODES} points)")
                continue
            view = View.of(_clipped(lens), self.halves, seed=derive(self.seed, "lens", k))
            if view is None:
                left_out.append(f"{label_of(lens)} (needs draws of the model)")
            elif view.prepared.size:
                views.append(view)
        if not views:
            raise InputError(
                "without draws of the model no lens can look: add Moments() or Kernels(), or a sampler"
            )
        return views, left_out

    @cached_property
    def signs(self) -> Tensor:
        """(reference + draws, blocks)"""
        source = Source(self.seed, "signs", device=self.halves.points.x.device)
        count = self.plan.reference + self.plan.draws
        return random_signs(len(self.blocks), count, flip=0.5, source=source)

    @cached_property
    def _seen(self) -> tuple[Tensor, Examined]:
        """(m,) evidence of the data, and what sentences are made of."""
        reference = self.plan.reference
        rows, scales, entries, tails, plain = [], [], [], [], []
        for view in self.views:
            measured = view.under(self.signs, reference, self.blocks)
            tail = {name: Tail.of(values[1 : 1 + reference]) for name, values in measured.numbers.items()}
            rows += [tail[name].evidence(values) for name, values in measured.numbers.items()]
            scales.append(measured.scale)
            entries.append(measured.entries)
            plain.append(measured.plain)
            tails.append(tail)
        lenses, prepared = zip(*((view.lens, view.prepared) for view in self.views), strict=True)
        scale = Scale(*(torch.cat([getattr(s, part) for s in scales]) for part in ("mean", "sd", "skew")))
        bench = CalibratedBench(Bench(self.halves.whole, lenses, prepared), scale, tuple(tails))
        evidence = torch.stack(rows, -1).cpu()
        null, seen = evidence[1 + reference :], torch.cat(entries).cpu()
        return evidence[0], Examined(bench, seen, null, None, torch.cat(plain, -1).cpu())

    @cached_property
    def ranked(self) -> Ranked:
        row, examined = self._seen
        columns = examined.bench.columns
        return Ranked(row, examined.null, columns, _weights(columns))

    def result(self, level: float) -> GofResult:
        notes = []
        if self.left_out:
            notes.append(f"Lenses left out: {', '.join(self.left_out)}.")
        if self.plan.trains:
            notes.append("The lenses decided, so no critic was trained.")
        return GofResult(
            statistic=float(self.ranked.value),
            null_distribution=as_null_tensor(self.ranked.null_values),
            level=level,
            test=Combined.name,
            threshold="multiplier",
            exact=False,
            n=self.n,
            seed=self.seed,
            notes=tuple(notes),
            readings=self.ranked.readings(),
            examined=self._seen[1],
            settings={
                "lenses": [label_of(view.lens) for view in self.views],
                "draws": self.plan.draws,
                "reference": self.plan.reference,
                "first": self.plan.spent / level,
                "slowness": self.plan.slowness,
                "blocks": len(self.blocks),
                "quick_pvalue": self.ranked.pvalue,
            },
        )


def _after_split(quick: GofResult, split: GofResult, plan: Plan) -> GofResult:
    """The result of the split test, with what the lenses saw."""
    undecided = (
        f"The lenses alone did not decide (p = {quick.pvalue:.2g}; {plan.spent:g} of the level was theirs), "
        "so one critic was trained on half of the data."
    )
    return replace(
        split,
        test=quick.test,
        seed=quick.seed,
        spent=plan.spent,
        notes=(*quick.notes[:-1], undecided, *split.notes),
        readings=quick.readings,
        examined=quick.examined,
        settings=quick.settings,
    )


def _clipped(lens: Lens) -> Lens:
    if isinstance(lens, Moments | Modes | Dependence) and lens.clip is None:
        return replace(lens, clip=CLIP)
    return lens


@dataclass(frozen=True, eq=False)
class Halves:
    """Points in two halves, and the coordinates that each of them, and all of them, suggest."""

    points: ScoredPoints  # (n, d), the first half first
    whole: Setting
    of_halves: tuple[Setting, Setting]

    @classmethod
    def of(cls, points: ScoredPoints) -> "Halves":
        n = len(points)
        frame, whitening = _frame_and_whitening(points)
        different = n >= WHITENED * points.dim and whitening.condition >= NARROW
        whole = Setting(frame, whitening if different else None)
        first, second = (
            Setting(*_frame_and_whitening(part)) for part in (points[: n // 2], points[n // 2 :])
        )
        return cls(points, whole, (first, second))

    @property
    def parts(self) -> tuple[ScoredPoints, ScoredPoints]:
        half = len(self.points) // 2
        return self.points[:half], self.points[half:]

    def enter(self, lens: Lens) -> tuple[ScoredPoints, ScoredPoints]:
        """Each half in the coordinates of the other."""
        (first, second), (a, b) = self.parts, self.of_halves
        return b.enter(first, lens), a.enter(second, lens)


def _frame_and_whitening(points: ScoredPoints) -> tuple[Frame, Whitening]:
    frame = Frame.of(points.x)
    return frame, Whitening.by_scores(frame.enter(points))


@dataclass(frozen=True, eq=False)
class View:
    """A lens that looks at both halves, in coordinates and by choices of the other half."""

    lens: Lens
    halves: tuple[ScoredPoints, ScoredPoints]  # in the coordinates of the other
    by_half: tuple[PreparedLens, PreparedLens]
    prepared: PreparedLens  # on all points

    @classmethod
    def of(cls, lens: Lens, halves: Halves, *, seed: int) -> "View | None":
        """None if the lens needs draws of the model."""
        n, (first, second) = len(halves.points), halves.parts
        if isinstance(lens, Field) and lens.needs_draws(halves.points.x):
            raise InputError(
                f"lens {lens.name!r} compares a value per point with draws of the model, which has no "
                "sampler: return a field (m, d) instead, whose Stein values have mean zero"
            )
        prepared = lens.prepare(halves.whole.enter(halves.points, lens), n=n, seed=seed)
        if not isinstance(prepared, SignedLens):
            return None
        by_half: tuple[PreparedLens, PreparedLens] = (prepared, prepared)
        if is_mean(prepared):
            a, b = halves.of_halves
            by_half = (
                _aligned(lens.prepare(b.enter(second, lens), n=n, seed=seed), prepared),
                _aligned(lens.prepare(a.enter(first, lens), n=n, seed=seed), prepared),
            )
        return cls(lens, halves.enter(lens), by_half, prepared)

    def under(self, signs: Tensor, reference: int, blocks: Blocks | None = None) -> "Measured":
        """The data, and the data under (b, m) signs of blocks; of single rows by default."""
        blocks = blocks or Blocks.single(signs.shape[1])
        signs = torch.cat([torch.ones_like(signs[:1]), signs])
        if is_mean(self.prepared):
            return self._means(signs, blocks)
        assert isinstance(self.prepared, SignedLens)
        entries = self.prepared.signed(ScoredPoints.cat(self.halves), blocks.spread(signs))
        entries = checked_entries(entries, self.lens, (len(signs), self.prepared.size)).to(torch.float64)
        entries[0] *= blocks.shrink**2
        scale = Scale.of(entries[1 : 1 + reference])
        plain = torch.stack([entries[0], scale.sd])
        return Measured(scale, entries[0], dict(self.prepared.numbers(scale.see(entries))), plain)

    def _means(self, signs: Tensor, blocks: Blocks) -> "Measured":
        length = torch.stack([sums.square().sum(0) for _, sums in self._sums(blocks)]).sum(0).sqrt()
        length = torch.where(length > 0, length, torch.inf)
        parts: list[Mapping[str, Tensor]] = []
        for some in signs.split(max(1, _HELD // len(length))):
            z = self._corrected(some, length, blocks)
            if not parts:
                z[0] *= blocks.shrink
                entries = z[0]
            parts.append(self.prepared.numbers(Seen(z, z)))
        numbers = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        zero, n = torch.zeros_like(length), sum(map(len, self.halves))
        mean = torch.stack([sums.sum(0) for _, sums in self._sums(blocks)]).sum(0) / n
        error = torch.where(length < torch.inf, length, 0.0) / (n * blocks.shrink)
        return Measured(Scale(zero, zero + 1, zero), entries, numbers, torch.stack([mean, error]))

    def _corrected(self, signs: Tensor, length: Tensor, blocks: Blocks) -> Tensor:
        """(b, k): z under (b, m) signs, its skewness taken out."""
        z = third = torch.zeros(len(signs), len(length), device=length.device)
        unseen = 1 + _UNSEEN / signs.shape[1]
        for some, sums in self._sums(blocks):
            unit, own = (sums / length).float(), signs[:, some].float()
            z, third = z + own @ unit, third + own @ unit.pow(3)
        return hall(z.to(torch.float64), unseen * third.to(torch.float64))

    def _sums(self, blocks: Blocks) -> Iterator[tuple[slice, Tensor]]:
        """Blocks and their (blocks, k) sums of Stein values, some at a time as all may not fit."""
        rows, ends = max(1, _HELD // max(1, self.prepared.size)), blocks.lengths.cumsum(0)
        block = start = 0
        for half, prepared in zip(self.halves, self.by_half, strict=True):
            own, row = blocks.lengths[(ends > start) & (ends <= start + len(half))], 0
            for some in own.split(max(1, rows // int(own.max()))):
                end = row + int(some.sum())
                values = point_values(prepared, half[row:end])
                values = checked_entries(values, self.lens, (end - row, prepared.size)).to(torch.float64)
                yield slice(block, block + len(some)), summed(values, some)
                row, block = end, block + len(some)
            start += len(half)


@dataclass(frozen=True, eq=False)
class Measured:
    """What a lens measured of the data, and of the data under signs."""

    scale: Scale
    entries: Tensor  # (k,) of the data
    numbers: dict[str, Tensor]  # (1 + b,) each: of the data, then under signs
    plain: Tensor  # (2, k): entries of the data that are not studentized, and their standard errors


def hall(z: Tensor, third: Tensor) -> Tensor:
    r"""A studentized mean with its skewness taken out, $((1 + g z / 3)^3 - 1) / g + g / 6$, monotone in z.

    Args:
        z: sum of unit values u, whose squares sum to 1.
        third: g, the sum of u^3: the skewness over the root of n.

    References: [hall1992].
    """
    return z + third * z.square() / 3 + third.square() * z.pow(3) / 27 + third / 6


def _aligned(prepared: PreparedLens, like: PreparedLens) -> PreparedLens:
    """The two gates of modes in one order for both halves."""
    if isinstance(prepared, PreparedModes) and isinstance(like, PreparedModes):
        return prepared.turned() if float(prepared.v @ like.v) < 0 else prepared
    return prepared
