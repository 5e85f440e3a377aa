r"""The combined test in one pass over the data, for more rows than null sets of that size could be drawn for.

Entries of quick lenses are functions of sums over points, which add up block by block. Null sets have m rows
each, far fewer than the n of the data; M in all. Under the model the mean $\bar\phi_n$ of what is summed is
normal for many rows, so

$$\bar\phi' = \bar\phi_M + (\bar\phi_n - \bar\phi_M) \sqrt{\frac{1 + 1/(B - 1)}{m/n + m/M}}$$

varies as much as the mean of one of B null sets beside that of the others: the data, brought to the size of a
null set. Its entries go through the same numbers, evidence and rank as ever. Where the model is wrong the gap
grows with sqrt(n), as in a test of all rows; the mean over all null sets stands for what the model says, and
its error is counted by m/M. Nothing rests on Stein's identity, only on draws: for that reason, and because
coordinates are clipped in the fields of lenses so that few far rows do not decide, any model that can be
sampled may be tested so. Two things are approximate: sums over m rows are nearly normal, not quite; and where
a sum over m rows is skewed, one over n rows is less so, by the factor in `Sizes.seeing`.

Where quick lenses do not decide, one critic is trained on a sample of the rows, chosen at random.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.gof.bench import (
    Bench,
    CalibratedBench,
    Examined,
    Ranked,
    among_themselves,
    loudness,
    piece_rows,
)
from steincritic.gof.combined import Combined, kernel_notes, lasting, settings_of
from steincritic.gof.hypothesis import Hypothesis, Plan
from steincritic.gof.multiplier import with_clip
from steincritic.gof.null import as_null_tensor
from steincritic.gof.null_runs import NullRuns, NullSets
from steincritic.gof.one_pass import (
    Means,
    Passed,
    PreparedMeans,
    Summing,
    Total,
    blocks_of,
    one_pass,
    sample_size,
)
from steincritic.gof.result import GofResult
from steincritic.gof.split import Split, after_lenses
from steincritic.models.base import SamplingModel
from steincritic.rng import derive

_SETS = 399  # null sets, at least
_FEWEST_DRAWS = 4_000  # of the model, beside which sentences put the data
_TIMES = 2  # rows of null sets in all, per row of the data
_ROWS = (
    3_000,
    2**22,
)  # of a null set, at least; its coordinates at most, so that memory does not grow with n


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """n rows of data beside null sets of m rows each."""

    n: int
    sets: int
    rows: int

    @classmethod
    def of(cls, n: int, dim: int, sets: int) -> "Sizes":
        sets, (least, most) = max(sets, _SETS), _ROWS
        return cls(n=n, sets=sets, rows=max(least, min(math.ceil(_TIMES * n / sets), most // dim)))

    @property
    def in_all(self) -> int:
        return self.sets * self.rows

    def brought(self, means: Tensor, null: Tensor) -> Tensor:
        """(p,) means of the data, as if of a null set: see above. (B, p) those of null sets."""
        of_model, n, m, total = null.mean(0), self.n, self.rows, self.in_all
        return of_model + (means - of_model) * math.sqrt((1 + 1 / (self.sets - 1)) / (m / n + m / total))

    def seeing(self, calibrated: CalibratedBench) -> CalibratedBench:
        """The bench for such data: entries that are linear in sums are less skewed than those of m rows."""
        n, m, total = self.n, self.rows, self.in_all
        skewed = math.sqrt(m * (1 / n + 1 / total)) * (1 / n - 1 / total) / (1 / n + 1 / total)
        scale = calibrated.scale
        pairs = zip(calibrated.bench.prepared, calibrated.bench.merging, strict=True)
        factors = [torch.full((p.size,), skewed if merged.linear else 1.0) for p, merged in pairs]
        return replace(calibrated, scale=replace(scale, skew=scale.skew * torch.cat(factors).to(scale.skew)))


class Streamed:
    """One test of data that went by in one pass."""

    def __init__(
        self, config: Combined, model: SamplingModel, like: Tensor, *, level: float, seed: int
    ) -> None:
        lenses = (*map(with_clip, config.lenses), Means())
        self.config = replace(config, lenses=lenses)
        self.model, self.like, self.level, self.seed = model, like, level, seed
        null = Hypothesis(self.config, model, ScoredPoints(like, like))
        self.draws = null.draws(derive(config.null_seed, "draws"))
        self.bench = Bench.of(
            lenses, self.draws, null.setting(self.draws), n=_ROWS[0], seed=config.null_seed, model=model
        )

    @property
    def summing(self) -> Summing:
        """What it wants of the rows."""
        return Summing(self.bench, sample_size(self.like.shape[-1]), derive(self.seed, "sample"))

    def null_sums(self, sizes: Sizes) -> NullRuns:
        """(B, p) of the first B null sets."""
        config, seed = self.config, derive(self.config.null_seed, "streamed")
        sets = NullSets(self.model, sizes.rows, self.like, seed)
        return NullRuns(
            sets,
            self.bench.sums,
            settings={"lenses": config.lenses, "seed": seed},
            cache=config.cache if all(map(lasting, config.lenses[:-1])) else False,
            most=max(1, _ROWS[1] // (sizes.rows * self.like.shape[-1])),
            title="null sets",
            piece=max(1, piece_rows(self.like.shape[-1]) // sizes.rows),
        )


class Judged:
    """What went by, beside null sets."""

    def __init__(self, test: Streamed, passed: Passed) -> None:
        self.test, self.passed = test, passed
        dim, device = test.like.shape[-1], test.like.device.type
        self.plan = Plan.of(test.config, passed.n, dim, test.level, device)
        self.sizes = Sizes.of(passed.n, dim, self.plan.sets)
        self.runs = test.null_sums(self.sizes)

    @cached_property
    def null_means(self) -> Tensor:
        return self.runs.rows(0, self.sizes.sets) / self.sizes.rows

    @cached_property
    def examined(self) -> Examined:
        bench, m, n, sums = self.test.bench, self.sizes.rows, self.passed.n, self.passed.sums
        null = bench.of_sums(self.null_means * m, m)
        data = self.sizes.brought(sums / n, self.null_means)
        calibrated = self.sizes.seeing(CalibratedBench.by(bench, null))
        _, evidence = among_themselves(bench, null)
        of_model, seed = self.null_means.mean(0) * n, derive(self.test.config.null_seed, "beside")
        sample = len(self.passed.sample)  # as many draws per row of it as null sets have per row of the data
        count = max(_FEWEST_DRAWS, min(4 * sample, round(sample * self.sizes.in_all / n)))
        return Examined(
            calibrated,
            bench.of_sums(data[None] * m, m)[0],
            evidence,
            sample_points(self.test.model, count, seed=seed, like=self.test.like),
            plain=torch.cat([bench.of_sums(torch.stack([sums, of_model]), n), calibrated.scale.sd[None]]),
            passed=self.passed,
            totals=(self._total(sums, n), self._total(of_model * self.sizes.in_all / n, self.sizes.in_all)),
        )

    def _total(self, sums: Tensor, n: int) -> Total:
        means = self.test.bench.prepared[-1]
        assert isinstance(means, PreparedMeans) and isinstance(self.test.bench.setting.frame, Frame)
        return means.total(sums[-means.width :], n, self.test.bench.setting.frame)

    @cached_property
    def ranked(self) -> Ranked:
        bench = self.examined.bench
        row = bench.evidence(self.examined.entries[None])[0].cpu()
        return Ranked(row, self.examined.null.cpu(), bench.columns, loudness(bench.columns))

    @cached_property
    def split(self) -> GofResult | None:
        """By one critic, where quick lenses do not decide."""
        if self.test.config.critics is None or self.ranked.pvalue <= self.plan.spent:
            return None
        test, seed = Split(draws=max(999, self.plan.draws)), derive(self.test.seed, "split")
        points = self.passed.sample.alone()
        (result,) = test.run(self.test.model, points, level=self.test.level, seeds=[seed])
        return result

    def result(self) -> GofResult:
        config = replace(self.test.config, lenses=self.test.config.lenses[:-1])
        settings = settings_of(config, self.plan, self.test.level)
        settings |= {"sets": self.sizes.sets, "rows_of_a_set": self.sizes.rows}
        settings |= {"sample": len(self.passed.sample), "quick_pvalue": self.ranked.pvalue}
        result = GofResult(
            statistic=float(self.ranked.value),
            null_distribution=as_null_tensor(self.ranked.null_values),
            level=self.test.level,
            test=self.test.config.name,
            threshold="scaled",
            exact=False,
            n=self.passed.n,
            seed=self.test.seed,
            notes=self._notes,
            settings=settings,
            spent=0.0 if self.split is None else self.plan.spent,
            readings=self.ranked.readings(),
            examined=self.examined,
        )
        if self.split is None:
            return result
        return replace(after_lenses(self.split, result), exact=False, n=result.n)

    @property
    def _notes(self) -> tuple[str, ...]:
        sizes, prepared = self.sizes, self.test.bench.prepared
        notes = [note for p in prepared if (note := getattr(p, "left_out", None))]
        notes.append(
            f"Quick lenses saw all {sizes.n:,} rows in one pass, beside {sizes.sets} null sets of "
            f"{sizes.rows:,} rows each: what they saw was brought to the size of a null set, which holds for "
            "many rows."
        )
        notes += kernel_notes(prepared)
        if self.test.config.critics is not None and self.split is None:
            notes.append("The quick lenses decided, so no critic was trained.")
        elif self.split is not None:
            notes.append(
                f"The quick lenses alone did not decide (p = {self.ranked.pvalue:.2g}; {self.plan.spent:g} "
                f"of the level was theirs), so one critic was trained on half of {len(self.passed.sample):,} "
                "rows chosen at random, and tested on the other half."
            )
        if reused := self.runs.reused:
            notes.append(f"{min(reused, sizes.sets)} null sets came from the cache.")
        return tuple(notes)


def run_streamed(
    config: Combined, model: SamplingModel, datasets: ScoredPoints, level: float, seeds: Sequence[int]
) -> list[GofResult]:
    """The combined test of each of (r, n, d) datasets in memory."""
    results = []
    for points, seed in zip(datasets.each(), seeds, strict=True):
        test = Streamed(config, model, points.x[:0], level=level, seed=seed)
        results.append(Judged(test, one_pass(test.summing, blocks_of(points))).result())
    return results
