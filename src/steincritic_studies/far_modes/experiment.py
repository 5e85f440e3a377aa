"""Wrong weights of far modes: power with and without a sampler, and the level of what sees them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steincritic.data.points import ScoredPoints, sample_points
from steincritic.gof.bench import Bench, CalibratedBench, Setting, loudness
from steincritic.gof.combined import Combined
from steincritic.gof.kernel import Ksd
from steincritic.gof.null import rank_pvalues
from steincritic.gof.power import Rate, trial_seeds
from steincritic.gof.test import GofTest
from steincritic.lenses import Cells, Noise
from steincritic.lenses.lens import combined
from steincritic.models.density import PairModel
from steincritic.report.style import ACCENT, FIXED, GRAY, STAGED, save, styled
from steincritic.rng import derive
from steincritic_studies.far_modes.problems import (
    DISTANCES,
    NETS,
    NULLS,
    PROBLEMS,
    Problem,
    ScoresAlone,
    TakenForScores,
    net_of,
)
from steincritic_studies.record import Record
from steincritic_studies.study import Context, Outcome, Study
from steincritic_studies.tables import devices, document, markdown

LEVEL = 0.05
_POOL = 1000  # null sets of each job, which its tests choose theirs from
_TRAINED = 100  # the same where critics are trained
_LENSES = Combined().lenses
_QUICK = Combined(critics=None, null_pool=_POOL, cache=False)
_BLIND = tuple(lens for lens in _LENSES if not isinstance(lens, Cells))


def _score(q: Any) -> Any:
    return PairModel(q.score)


def _with(q: Any) -> Any:
    return q


Method = tuple[Callable[[Any], Any], GofTest]  # what the test gets of the model, and the test
METHODS: dict[str, Method] = {
    "default": (_with, replace(_QUICK, critics=Combined().critics, null_pool=_TRAINED)),
    "quick lenses": (_with, _QUICK),
    "quick lenses without cells": (_with, replace(_QUICK, lenses=_BLIND)),
    "quick lenses and noise": (_with, replace(_QUICK, lenses=(*_LENSES, Noise()))),
    "cells": (_with, replace(_QUICK, lenses=(Cells(),))),
    "noise": (_with, replace(_QUICK, lenses=(Noise(),))),
    "noise by draws": (_with, replace(_QUICK, lenses=(Noise(by_draws=True),))),
    "default, no sampler": (ScoresAlone, Combined()),
    "lenses, no sampler": (ScoresAlone, Combined(critics=None)),
    "noise, no sampler": (ScoresAlone, Combined(critics=None, lenses=(Noise(),))),
    "scores alone": (_score, Combined()),
    "ksd": (_score, Ksd()),
    "control, no sampler": (TakenForScores, Combined(critics=None, lenses=(Noise(),))),
}
_CONTROL = "control"  # data with one noised copy of each point, null sets with eight
_POWER = tuple(name for name in METHODS if not name.startswith(_CONTROL))
_LINES = ("quick lenses", "lenses, no sampler", "scores alone", "ksd")  # of the distance
_NET = ("lenses, no sampler", "noise, no sampler", "scores alone")
_LEVELS = ("noise", "noise by draws", "quick lenses", _CONTROL)
_SIGNED = ("lenses, no sampler", "noise, no sampler", "control, no sampler")

_HIDDEN = "two modes apart in one of 10 columns"
_COLORS = (ACCENT, STAGED[1], FIXED[-1], GRAY)


@dataclass(frozen=True, kw_only=True)
class FarJob:
    problem: str
    method: str
    part: int
    runs: int
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class FarModes:
    """Runs of each problem and method, in parts: a job has `each`, or `signed` where it looks at signs."""

    problems: tuple[str, ...] = (*PROBLEMS, *NETS, *NULLS)
    each: int = 100
    parts: int = 2
    null_runs: int = 2000
    in_a_job: int = 500
    signed: int = 200
    tiny: bool = False

    def jobs(self, seed: int) -> list[FarJob]:
        found = []
        for name in self.problems:
            for method in self._methods(name):
                runs, parts = self.each, 1 if _is_line(name) else self.parts
                if name in NULLS:
                    runs = self.signed if "sampler" in method else self.in_a_job
                    parts = self.null_runs // runs // (5 if method.startswith(_CONTROL) else 1)
                found += [
                    FarJob(problem=name, method=method, part=k, runs=runs, seed=seed, tiny=self.tiny)
                    for k in range(max(1, parts))
                ]
        return found

    def _methods(self, name: str) -> tuple[str, ...]:
        if self.tiny:
            return ("noise", _CONTROL, "noise, no sampler") if name in NULLS else ("quick lenses", "ksd")
        if name in NULLS:
            return _LEVELS + _SIGNED
        if name.startswith(
            _HIDDEN
        ):  # where the ladder of some datasets ends in one mode, and leaves nothing to see
            return tuple(method for method in _POWER if method != "noise, no sampler")
        return _NET if name in NETS else _LINES if _is_line(name) else _POWER


def _is_line(name: str) -> bool:
    """One of many distances."""
    return name in PROBLEMS and name.endswith("apart")


def run(config: FarModes, context: Context) -> Outcome:
    start = time.perf_counter()
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in context.sweep(run_job, config.jobs(context.seed)):
        have = rows.get((row["problem"], row["method"]), {})
        sums = {key: row[key] + have.get(key, 0) for key in ("runs", "rejections", "null_sets", "seconds")}
        rows[row["problem"], row["method"]] = row | sums
    return Outcome({"rows": list(rows.values())}, {"total": time.perf_counter() - start})


def run_job(job: FarJob) -> dict[str, Any]:
    start = time.perf_counter()
    problem = (PROBLEMS | NETS | NULLS)[job.problem]
    own = derive(job.seed, job.problem, job.part)
    rejections, null_sets = (_control if job.method == _CONTROL else _tested)(job, problem, own)
    return {
        "problem": job.problem,
        "n": problem.n,
        "method": job.method,
        "runs": job.runs,
        "rejections": rejections,
        "null_sets": null_sets,
        "seconds": time.perf_counter() - start,
        "device": "CPU",
    }


def _tested(job: FarJob, problem: Problem, own: int) -> tuple[int, int]:
    given, test = METHODS[job.method]
    model, points = _datasets(job, problem, own)
    if isinstance(test, Combined):
        test = replace(test, null_seed=own)
        if job.tiny:
            test = replace(test, draws=39, reference=30, null_pool=40)
    seeds = trial_seeds(derive(own, "tests"), job.runs)
    found = test.run(_known(given, model, job), points, level=LEVEL, seeds=seeds)
    pool = (test.null_pool or 0) if isinstance(test, Combined) and given is _with else 0
    return sum(result.rejected for result in found), pool


def _known(given: Callable[[Any], Any], model: Any, job: FarJob) -> Any:
    """A net has no sampler to take away."""
    return model if job.problem in NETS and given is not _score else given(model)


def _datasets(job: FarJob, problem: Problem, own: int) -> tuple[Any, ScoredPoints]:
    """The same for every method."""
    model: Any = problem.model()
    x = problem.data().sample(job.runs * problem.n, seed=derive(own, "data"))
    if job.problem in NETS:
        model = net_of(model)
        x = model.noised(x, seed=derive(own, "noise"))
    return model, ScoredPoints(x, model.score(x)).cut(problem.n)


def _control(job: FarJob, problem: Problem, own: int) -> tuple[int, int]:
    """Rejections if the noise of the data is another than that of null sets."""
    model, data = _datasets(job, problem, own)
    draws = sample_points(model, 4000, seed=derive(own, "draws"), like=data.x)
    eight, one = (
        Bench.of((Noise(copies=k),), draws, Setting.of(draws), n=problem.n, seed=own, model=model)
        for k in (8, 1)
    )
    sets = 40 if job.tiny else _POOL
    x = model.sample((sets + 200) * problem.n, seed=derive(own, "null"))
    entries = eight.entries(ScoredPoints(x, model.score(x)).cut(problem.n), ())
    bench = CalibratedBench.by(eight, entries[sets:])
    weights = loudness(bench.columns)
    null, seen = (combined(bench.evidence(e), weights) for e in (entries[:sets], one.entries(data, ())))
    return int((rank_pvalues(seen, null) <= LEVEL).sum()), sets


def far_modes_table(record: Record) -> str:
    rows = record.results["rows"]
    found = {(row["problem"], row["method"]): row for row in rows}

    def table(names: list[str], columns: list[str], cell: Callable[[dict[str, Any]], str]) -> str:
        names = [name for name in names if any((name, m) in found for m in columns)]
        used = [m for m in columns if any((name, m) in found for name in names)]
        body = [[name, *(cell(found[name, m]) if (name, m) in found else "" for m in used)] for name in names]
        return markdown(["", *used], body)

    wide = [name for name in (*PROBLEMS, *NETS) if not _is_line(name)]
    line = list(filter(_is_line, PROBLEMS))
    methods = list(METHODS)
    first, second = methods[:7], methods[7:12]
    return document(
        record,
        "Rejections of data with wrong weights at level 0.05, with 95 % intervals; the model can be sampled:",
        table(wide, first, _rate),
        "The same without a sampler (the last two know no noised score):",
        table(wide, second, _rate),
        "Two modes in one dimension, n = 200; a distance of 0 is the level:",
        table(line, list(_LINES), _rate),
        "Rejections of the model's own draws; bold outside the 99.9 % band:",
        table(list(NULLS), [*_LEVELS, *_SIGNED], _level),
        "Controls: with draws, data whose points have one noised copy beside null sets with eight; without a "
        "sampler, an estimate from 30 draws that is taken for the noised score. Tests with a sampler share "
        f"null sets in each job. {devices(record)}",
    )


def _rate(row: dict[str, Any]) -> str:
    rate = Rate(row["rejections"], row["runs"])
    low, high = rate.interval()
    return f"{rate.value:.2f} ({low:.2f} to {high:.2f})"


def _level(row: dict[str, Any]) -> str:
    rate = row["rejections"] / row["runs"]
    half = (
        3.29
        * (LEVEL * (1 - LEVEL) * (1 / row["runs"] + (1 / row["null_sets"] if row["null_sets"] else 0))) ** 0.5
    )
    text = f"{rate:.4f}"
    return f"{text if abs(rate - LEVEL) <= half else f'**{text}**'} ({row['runs']}, ± {half:.3f})"


def draw_far_modes(record: Record, folder: Path) -> list[Path]:
    """Power by the distance of two modes."""
    from matplotlib import pyplot

    found = {(row["problem"], row["method"]): row for row in record.results["rows"]}
    with styled():
        figure, axes = pyplot.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
        for ax, pattern in zip(
            axes, ("all in one of two, {} apart", ".6/.4 for .5/.5, {} apart"), strict=True
        ):
            for method, color in zip(_LINES, _COLORS, strict=True):
                own = [(a, found.get((pattern.format(a), method))) for a in DISTANCES]
                rates = [(a, row["rejections"] / row["runs"]) for a, row in own if row is not None]
                if rates:
                    ax.plot(*zip(*rates, strict=True), "o-", markersize=3, color=color, label=method)
            ax.set_title(pattern.split(",")[0])
        axes[0].set(ylabel="power at level 0.05", ylim=(-0.03, 1.03))
        figure.supxlabel("distance of the modes, in standard deviations", fontsize=9)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(_LINES))
        return [save(figure, folder / "distance.png")]


STUDY = Study(
    name="far-modes",
    title="Wrong weights of far modes: cells, the noise ladder, and scores alone",
    takes="30 minutes on two cores",
    full=FarModes(),
    tiny=FarModes(
        problems=(
            "two modes apart in one of 10 columns, .6/.4",
            "all in one of two, 12 apart",
            "two modes, 12 apart",
        ),
        each=3,
        parts=1,
        null_runs=2,
        in_a_job=2,
        signed=2,
        tiny=True,
    ),
    run=run,
    table=far_modes_table,
    figures=draw_far_modes,
)
