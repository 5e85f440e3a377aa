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
out; a model that knows its score with noise on it has the lens of noise instead, for weights of separated
modes. For rows that depend on each other, blocks of them stand for single ones: see `gof.serial`. Where
lenses do not decide, the split test with its bootstrap-t does; each of the two steps has half the level.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.gof.bench import Bench, CalibratedBench, Column, Examined, Ranked, label_of
from steincritic.gof.combined import Combined
from steincritic.gof.null import as_null_tensor, check_draws, draws_for
from steincritic.gof.result import GofResult
from steincritic.gof.serial import CLIP, Blocks
from steincritic.gof.split import Split, after_lenses
from steincritic.gof.views import Halves, View
from steincritic.lenses.lens import Lens, Scale, Tail
from steincritic.lenses.modes import Modes
from steincritic.lenses.moments import Dependence, Moments
from steincritic.lenses.noise import Noise
from steincritic.models.base import Model, knows_noise
from steincritic.rng import Source, derive
from steincritic.stein.tiles import random_signs

FIRST = 0.5  # share of the level for the lenses
FEWEST = 20  # points
TRAINED = 40  # points from which on a critic is trained
_BLOCKS = 80  # the same, of rows that depend on each other: half of them are resampled
_MODES = 1000  # points from which on the skewness within a mode is known well enough
_DRAWS, _REFERENCE = 999, 500

# How loud each lens and each number is heard; 1 where not named. By hand on faults
# of a few models and posteriors with seed 1: draws of a posterior are shifted or wrongly spread above all.
_LENSES = {"moments, whitened": 2.0, "kernels": 0.5, "modes": 0.5, "dependence": 0.3, "noise": 4.0}
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
    totals = {
        lens: sum(_NUMBERS.get(column.number, 1.0) for column in columns if column.lens == lens)
        for lens in named
    }
    shares = [
        _LENSES.get(c.lens, 1.0) * _NUMBERS.get(c.number, 1.0) / (whole * totals[c.lens]) for c in columns
    ]
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
    if config.slowness == 1 and config.lenses == Combined().lenses and knows_noise(model):
        config = replace(config, lenses=(*config.lenses, Noise()))
    looks = [Look(config, plan, *pair, model) for pair in zip(datasets.each(), seeds, strict=True)]
    results = [look.result(level) for look in looks]
    still = [t for t, look in enumerate(looks) if plan.trains and not look.decides]
    if still:
        draws = max(_DRAWS, plan.draws)
        test = Split(threshold="bootstrap-t", draws=draws, slowness=config.slowness, chains=config.chains)
        open_sets = datasets.sets(torch.tensor(still, device=datasets.x.device))
        split_seeds = [derive(seeds[t], "split") for t in still]
        for t, split in zip(still, test.run(model, open_sets, level=level, seeds=split_seeds), strict=True):
            results[t] = after_lenses(split, results[t])
    return results


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many sign draws, and how the level is shared."""

    trains: bool
    spent: float  # level of the lenses, where a critic may follow
    draws: int  # ranked
    reference: int  # that fix what is large, and are not ranked

    @classmethod
    def of(cls, config: Combined, n: int, level: float) -> "Plan":
        worth = n if config.slowness == 1 else len(Blocks.of(n, config.chains, config.slowness))
        trains = config.critics is not None and worth >= (TRAINED if worth == n else _BLOCKS)
        spent = FIRST * level if trains else 0.0
        draws = config.draws or draws_for(level, _DRAWS)
        if trains:
            draws = max(draws, math.ceil(1 / spent - 1e-9) - 1)
        check_draws(draws, level)
        return cls(trains=trains, spent=spent, draws=draws, reference=config.reference or _REFERENCE)


class Look:
    """One dataset as lenses see it, beside the same dataset under random signs."""

    def __init__(
        self, config: Combined, plan: Plan, points: ScoredPoints, seed: int, model: Model | None = None
    ) -> None:
        self.config, self.plan, self.seed, self.n, self.model = config, plan, seed, len(points), model
        points = points.to(torch.float64)
        if config.slowness == 1:
            self.blocks = Blocks.single(self.n)
            points = points.shuffled(seed=derive(seed, "halves"))
        else:
            self.blocks = Blocks.of(self.n, config.chains, config.slowness)
        self.halves = Halves.of(points)
        self.views, self.left_out = self._views()

    def _views(self) -> tuple[list[View], list[str]]:
        views, left_out = [], []
        for k, lens in enumerate(self.config.lenses):
            if lens.whitened and self.halves.whole.whitening is None:
                continue  # the same as without
            if isinstance(lens, Modes) and self.n < _MODES:
                left_out.append(f"{label_of(lens)} (below {_MODES} points)")
                continue
            view = View.of(with_clip(lens), self.halves, seed=derive(self.seed, "lens", k), model=self.model)
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
        measured = [view.under(self.signs, reference, self.blocks) for view in self.views]
        tails, rows = [], []
        for numbers in (measure.numbers for measure in measured):
            tails.append({name: Tail.of(values[1 : 1 + reference]) for name, values in numbers.items()})
            rows += [tails[-1][name].evidence(values) for name, values in numbers.items()]
        lenses, prepared = zip(*((view.lens, view.prepared) for view in self.views), strict=True)
        parts = ([getattr(measure.scale, part) for measure in measured] for part in ("mean", "sd", "skew"))
        scale = Scale(*map(torch.cat, parts))
        bench = CalibratedBench(Bench(self.halves.whole, lenses, prepared), scale, tuple(tails))
        evidence = torch.stack(rows, -1).cpu()
        null, entries = evidence[1 + reference :], torch.cat([measure.entries for measure in measured]).cpu()
        values, errors = torch.cat([measure.plain for measure in measured], -1).cpu()
        plain = torch.stack([values, scale.mean.cpu(), errors])
        return evidence[0], Examined(bench, entries, null, None, plain)

    @cached_property
    def ranked(self) -> Ranked:
        row, examined = self._seen
        columns = examined.bench.columns
        return Ranked(row, examined.null, columns, _weights(columns))

    @property
    def decides(self) -> bool:
        """Where a critic may follow: is none needed?"""
        return self.ranked.pvalue <= self.plan.spent

    def result(self, level: float) -> GofResult:
        notes = []
        if self.left_out:
            notes.append(f"Lenses left out: {', '.join(self.left_out)}.")
        if self.plan.trains and self.decides:
            notes.append("The lenses decided, so no critic was trained.")
        elif self.plan.trains:
            notes.append(
                f"The lenses alone did not decide (p = {self.ranked.pvalue:.2g}; {self.plan.spent:g} of the "
                "level was theirs), so one critic was trained on half of the data."
            )
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
            spent=self.plan.spent if self.plan.trains and not self.decides else 0.0,
            readings=self.ranked.readings(),
            examined=self._seen[1],
            settings={
                "lenses": [label_of(view.lens) for view in self.views],
                "draws": self.plan.draws,
                "reference": self.plan.reference,
                "first": self.plan.spent / level,
                "slowness": self.config.slowness,
                "blocks": len(self.blocks),
                "quick_pvalue": self.ranked.pvalue,
            },
        )


def with_clip(lens: Lens) -> Lens:
    if isinstance(lens, Moments | Modes | Dependence) and lens.clip is None:
        return replace(lens, clip=CLIP)
    return lens
