"""The combined test: every lens at once, quick ones first; exact for any model that can be sampled.

1. *Quick lenses* (moments, modes, dependence, cells, kernels) look at the data and at about a thousand null
   sets, datasets of n draws of the model. The rank of the data's combined evidence gives p1. A tenth of the
   level is for this step: p1 at or below it ends the test with p = p1, and nothing is trained.
2. *Critics* are trained otherwise, on the data and on null sets, and the evidence of all lenses is combined.
   Its rank among null sets gives p2, and the test ends with p = level/10 + p2. Where data are plentiful, one
   critic is trained on half of them and tested on the other half instead; each step then has half the level.

P(p <= t) <= P(p1 <= min(t, level/10)) + P(p2 <= t - level/10) <= t under the model, so the level holds for
any n, whatever the lenses are.

A step looks at its rank now and then and stops at look k once the p-value so far is c_k or more: far above
its level, or so high that the rest can hardly bring it down. What it then gives is still a p-value, as the
c_k never grow: for c_k <= t < c_(k-1), p <= t needs a rank of at most t at look k, and for t below all of
them the rank among all null sets. Besag and Clifford (1991) stop for the same reason.

Quick lenses are calibrated by other null sets, reference sets. Critics are not, as training is dear: each
dataset, the data or a null set, is seen in the light of all the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_count, without
from steincritic.gof.bench import (
    Bench,
    CalibratedBench,
    Examined,
    Ranked,
    among_themselves,
    label_of,
    loudness,
)
from steincritic.gof.conditional import GivenRows
from steincritic.gof.fitted import Fitted, Refitted
from steincritic.gof.hypothesis import Hypothesis, Plan
from steincritic.gof.null import as_null_tensor
from steincritic.gof.null_runs import PASS_ON, Measure, NullRuns, NullSets
from steincritic.gof.result import GofResult
from steincritic.gof.serial import check_slowness
from steincritic.gof.split import Split, after_lenses
from steincritic.lenses.cells import Cells
from steincritic.lenses.critics import Critics, chunks
from steincritic.lenses.kernels import Kernels, PreparedKernels
from steincritic.lenses.lens import Field, Lens, ModelLens, PreparedLens
from steincritic.lenses.modes import Modes
from steincritic.lenses.moments import Dependence, Moments
from steincritic.models.base import Model, SamplingModel
from steincritic.models.conditional import AtRows
from steincritic.rng import derive, generator

FEWEST = 3  # points that have a spread
EXACT_UP_TO = 200_000  # rows; more go by in one pass, beside null sets of fewer rows: see `gof.streamed`
_STOP = (0.1, 5.0)  # p-value from which on a step stops early: at least, and in shares of the level
_BEYOND = 2  # null sets above those that may reach a rejected value, as critics are seen anew at each look
LOOKED = {"cpu": 10, "cuda": 100}  # null sets of critics between two looks
QUICK_LOOKED = 100
_QUICK_PIECE = 20  # null sets that a thread takes at a time
_TOGETHER = {"cpu": 2**20, "cuda": 2**26}  # coordinates that go through quick lenses together
_APPROXIMATED = 50_000  # rows beyond which a result says how kernels were summed


@without(
    precision="draws=2 / precision gives p-values as small",
    first="leave it out; quick lenses have a tenth of the level",
    engine=PASS_ON,
    address=PASS_ON,
    exact_up_to="leave it out; more than 200,000 rows go by in one pass",
)
@dataclass(frozen=True, kw_only=True)
class Combined:
    """All lenses together.

    Args:
        lenses: quick ones, which look first and at many null sets.
        critics: trained ones, which look where those did not decide; None for quick lenses alone.
        draws: null sets; by default about 1,000 for quick lenses, and for critics 66 on a CPU and 199 on a
            GPU at level 0.05. A p-value is at least 1/(draws + 1).
        stop_early: stop where the data cannot be rejected any more.
        cache: keep null runs on disk and use them again; a folder, or True for the usual one.
        reference: inside; null sets that fix what is large for a quick lens and are not ranked, up to 400.
        null_seed: of the null sets, which tests of many datasets share; apart from a test's own seed.
        null_pool: inside, for many datasets: null sets that each test chooses its own from, by its own seed.
        slowness: how many rows in a row are worth one independent row. Above 1 for rows in time order that
            depend on each other: then scores alone are used, whatever the model can do. See `gof.serial`.
        chains: that follow one another in such rows, of one length.
    """

    name: ClassVar[str] = "combined"

    lenses: tuple[Lens, ...] = (
        Moments(),
        Moments(whitened=True),
        Modes(),
        Dependence(),
        Cells(),
        Kernels(),
    )
    critics: Critics | None = field(default_factory=Critics)
    draws: int | None = None
    reference: int | None = None
    stop_early: bool = True
    cache: bool | Path = True
    null_seed: int = 0
    null_pool: int | None = None
    slowness: float = 1.0
    chains: int = 1

    def __post_init__(self) -> None:
        for name in ("draws", "null_pool"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name=name)
        if self.reference is not None:
            check_count(self.reference, name="reference", least=10)
        object.__setattr__(self, "lenses", tuple(self.lenses))
        if not self.lenses:
            raise InputError("lenses must hold at least one lens, for example Moments()")
        check_slowness(self.slowness, self.chains)

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        if not isinstance(model, SamplingModel) or self.slowness > 1:
            from steincritic.gof.multiplier import run_without_draws  # which builds on this file

            return run_without_draws(self, model, datasets, level, seeds)
        if self.goes_by(model, len(datasets)):
            from steincritic.gof.streamed import run_streamed  # which builds on this file

            return run_streamed(self, model, datasets, level, seeds)
        if isinstance(model, AtRows):
            null: Hypothesis = GivenRows.of(self, model, datasets, usual=Combined().lenses)
        elif isinstance(model, Fitted):
            null = Refitted.of(self, model, datasets)
        else:
            null = Hypothesis(self, model, datasets)
        run = CombinedRun(null, level, tuple(seeds))
        return [run.result(t) for t in range(len(seeds))]

    def goes_by(self, model: Model | None, n: int) -> bool:
        """Do n rows go by in one pass?"""
        plain = isinstance(model, SamplingModel) and not isinstance(model, AtRows | Fitted)
        return n > EXACT_UP_TO and plain and self.slowness == 1


def settings_of(config: Combined, plan: Plan, level: float) -> dict[str, Any]:
    """What a result says of how it came about."""
    lenses = [label_of(lens) for lens in (*config.lenses, *filter(None, [config.critics]))]
    return {
        "lenses": lenses,
        "sets": plan.sets,
        "draws": plan.draws,
        "reference": plan.reference,
        "first": plan.spent / level,
        "stop_early": config.stop_early,
        "null_pool": config.null_pool or max(plan.sets, plan.draws),
    }


def kernel_notes(prepared: Sequence[PreparedLens]) -> list[str]:
    """How kernels were summed, where it is not by pairs of points."""
    return [p.how for p in prepared if isinstance(p, PreparedKernels) and p.how][:1]


def lasting(lens: Lens) -> bool:
    """Its numbers are the same tomorrow: a lens of the library, with no function of the user's inside."""
    return type(lens).__module__.startswith("steincritic.lenses.") and not isinstance(lens, Field | ModelLens)


class CombinedRun:
    """One test of one or more datasets."""

    def __init__(self, null: Hypothesis, level: float, seeds: tuple[int, ...]) -> None:
        self.null, self.config, self.model, self.datasets = null, null.config, null.model, null.datasets
        self.level, self.seeds, self.n = level, seeds, len(self.datasets)
        if self.n < FEWEST:
            raise InputError(f"x has n = {self.n}; the combined test needs at least {FEWEST} points")
        self.device = self.datasets.x.device.type
        self.plan = Plan.of(self.config, self.n, self.datasets.dim, level, self.device)

    @cached_property
    def model_draws(self) -> ScoredPoints:
        return self.null.draws(derive(self.config.null_seed, "draws"))

    @cached_property
    def bench(self) -> Bench:
        """Of quick lenses."""
        return self._bench(self.config.lenses)

    @cached_property
    def quick(self) -> tuple[CalibratedBench, NullRuns]:
        """Quick lenses that are calibrated by reference sets, and their evidence of null sets."""
        config, reference = self.config, self.plan.reference
        key = {"lenses": config.lenses, "reference": reference, "seed": config.null_seed}
        options: dict[str, Any] = {"settings": key, "most": self._together, "piece": _QUICK_PIECE}
        seed = derive(config.null_seed, "reference")
        learned = self._runs(self.bench.entries, "quick lenses at reference sets", seed, **options)
        calibrated = CalibratedBench.by(self.bench, learned.rows(0, reference))
        return calibrated, self._runs(
            calibrated.look, "quick lenses at null sets", config.null_seed, **options
        )

    @property
    def _together(self) -> int:
        """Datasets that go through quick lenses at a time."""
        numbers = _TOGETHER.get(self.device, _TOGETHER["cpu"])
        return max(1, numbers // (self.n * self.datasets.dim))

    @cached_property
    def trained(self) -> tuple[Bench, NullRuns]:
        """Critics, which need no calibration, and their entries of null sets."""
        critics, seed = self.config.critics, self.config.null_seed
        assert critics is not None
        most = next(chunks(2**62, self.n, self.datasets.dim, critics)).stop
        bench, key = self._bench((critics,)), {"lenses": (critics,), "seed": seed}
        return bench, self._runs(bench.entries, "critics at null sets", seed, settings=key, most=most)

    def _bench(self, lenses: Sequence[Lens]) -> Bench:
        setting, seed = self.null.setting(self.model_draws), self.config.null_seed
        return Bench.of(lenses, self.model_draws, setting, n=self.n, seed=seed, model=self.model)

    def _runs(
        self, measure: Measure, title: str, seed: int, *, settings: dict[str, Any], **options: Any
    ) -> NullRuns:
        sets = NullSets(self.model, self.n, self.datasets.x, seed)
        cache = self.config.cache if all(map(lasting, settings["lenses"])) else False
        return NullRuns(sets, measure, settings=settings, cache=cache, title=title, **options)

    @cached_property
    def seen(self) -> Tensor:
        """(r, k): the entries of quick lenses."""
        size = self._together
        parts = [
            self.bench.entries(self.datasets.sets(slice(k, k + size)), self.seeds[k : k + size])
            for k in range(0, len(self.seeds), size)
        ]
        return torch.cat(parts)

    @cached_property
    def evidence(self) -> Tensor:
        """(r, m) of quick lenses."""
        return self.quick[0].evidence(self.seen).cpu()

    @cached_property
    def first(self) -> list[Ranked]:
        """Each dataset among null sets, by quick lenses alone."""
        share, sets = self.plan.spent or self.level, self.plan.sets

        def ranked(t: int) -> Ranked:
            for count in self._looks(sets, QUICK_LOOKED):
                ranking = self.among(t, count)
                if self._clear(ranking, share, sets):
                    break
            return ranking

        return [ranked(t) for t in range(len(self.seeds))]

    def among(self, t: int, count: int) -> Ranked:
        """Dataset t among its first null sets, by quick lenses alone."""
        order = self._order(self.plan.sets, self.seeds[t])[:count]
        bench, runs = self.quick
        null = runs.rows(0, int(order.max()) + 1)[order]
        counted = partial(self.null.counted, reference=self.plan.reference)
        return Ranked(
            counted(self.evidence[t]), counted(null), bench.columns, self.null.loudness(bench.columns)
        )

    def _order(self, total: int, seed: int) -> Tensor:
        """Numbers of the null sets: the first ones, or the test's own choice from a pool."""
        pool = self.config.null_pool
        if pool is None:
            return torch.arange(total)
        return torch.randperm(max(pool, total), generator=generator(seed, "null choice"))[:total]

    def _looks(self, total: int, step: int) -> list[int]:
        return [*range(step, total, step), total] if self.config.stop_early else [total]

    def _clear(self, ranked: Ranked, share: float, total: int) -> bool:
        """That the data will not be rejected."""
        least, shares = _STOP
        allowed = int(share * (total + 1) + 1e-9) - 1  # null sets that may reach a rejected value
        enough = min(max(least, shares * share), (1 + allowed + _BEYOND) / (1 + len(ranked.null)))
        return self.config.stop_early and ranked.pvalue >= enough

    @cached_property
    def still_open(self) -> list[int]:
        """Datasets that quick lenses did not decide."""
        if self.config.critics is None:
            return []
        return [t for t, ranked in enumerate(self.first) if ranked.pvalue > self.plan.spent]

    @cached_property
    def second(self) -> dict[int, Ranked]:
        """Those datasets, by all lenses."""
        still = [] if self.plan.split else self.still_open
        if not still:
            return {}
        datasets = list(self.datasets.each())
        ordered = [self.null.ordered(datasets[t], derive(self.seeds[t], "order")) for t in still]
        seeds = [derive(self.seeds[t], "observed") for t in still]
        entries = self.trained[0].entries(ScoredPoints.stack(ordered), seeds).cpu()
        return {t: self._by_all(t, row) for t, row in zip(still, entries, strict=True)}

    def _by_all(self, t: int, trained: Tensor) -> Ranked:
        order = self._order(self.plan.draws, self.seeds[t])
        (quick_bench, quick_runs), (bench, runs) = self.quick, self.trained
        for count in self._looks(self.plan.draws, LOOKED.get(self.device, LOOKED["cpu"])):
            some = order[:count]
            quick, entries = (pool.rows(0, int(some.max()) + 1)[some] for pool in (quick_runs, runs))
            by_critics, evidence = among_themselves(bench, torch.cat([trained[None], entries]))
            rows = torch.cat([torch.cat([self.evidence[t][None], quick]), evidence], -1)
            columns = (*quick_bench.columns, *by_critics)
            ranking = Ranked(rows[0], rows[1:], columns, loudness(columns))
            if self._clear(ranking, self.level - self.plan.spent, self.plan.draws):
                break
        return ranking

    @cached_property
    def split(self) -> dict[int, GofResult]:
        """Those datasets where data are plentiful, by one critic each."""
        still = self.still_open if self.plan.split else []
        if not still:
            return {}
        datasets = self.datasets.sets(torch.tensor(still, device=self.datasets.x.device))
        seeds = [derive(self.seeds[t], "split") for t in still]
        test = Split(draws=max(999, self.plan.draws))
        return dict(zip(still, test.run(self.model, datasets, level=self.level, seeds=seeds), strict=True))

    def result(self, t: int) -> GofResult:
        ranked = self.second.get(t, self.first[t])
        settings = settings_of(self.config, self.plan, self.level)
        result = GofResult(
            statistic=float(ranked.value),
            null_distribution=as_null_tensor(ranked.null_values),
            level=self.level,
            test=self.config.name,
            threshold=self.null.threshold,
            exact=self.null.exact,
            n=self.n,
            seed=self.seeds[t],
            notes=self._notes(t),
            settings=settings | {"quick_pvalue": self.first[t].pvalue},
            spent=self.plan.spent if t in self.still_open else 0.0,
            readings=ranked.readings(),
            examined=Examined(self.quick[0], self.seen[t].cpu(), self.first[t].null, self.model_draws),
            subject=self.null.subject,
        )
        return after_lenses(self.split[t], result) if t in self.split else result

    def _notes(self, t: int) -> tuple[str, ...]:
        notes = [note for p in self.bench.prepared if (note := getattr(p, "left_out", None))]
        notes += kernel_notes(self.bench.prepared) if self.n > _APPROXIMATED else []
        first = self.first[t]
        if t in self.still_open:
            how = "one critic was trained on half of the data" if t in self.split else "critics were trained"
            notes.append(
                f"The quick lenses alone did not decide (p = {first.pvalue:.2g}; {self.plan.spent:g} of the "
                f"level was theirs), so {how}."
            )
        elif self.config.critics is not None:
            notes.append("The quick lenses decided, so no critic was trained.")
        ranked, planned = self.second.get(t, first), self.plan.draws if t in self.second else self.plan.sets
        if len(ranked.null) < planned:
            notes.append(
                f"It stopped after {len(ranked.null)} of {planned} null sets, as the data could hardly be "
                "rejected any more."
            )
        notes += self.null.notes
        if reused := self.quick[1].reused:
            notes.append(f"{reused} null sets came from the cache.")
        return tuple(notes)
