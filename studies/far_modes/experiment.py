"""Wrong weights of far modes: power with and without a sampler, and the level of what sees them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steincritic import Combined, GofTest, Ksd, ScoredPoints
from steincritic.data import sample_points
from steincritic.gof.bench import Bench, CalibratedBench, Setting, loudness
from steincritic.gof.null import rank_pvalues
from steincritic.gof.power import trial_seeds
from steincritic.lenses import Cells, Noise
from steincritic.lenses.lens import combined
from steincritic.report.style import ACCENT, FIXED, GRAY, STAGED
from steincritic.rng import derive
from studies import show
from studies.cells import Cell, Plan, Row, counted, rates
from studies.far_modes import problems as p
from studies.record import Record
from studies.show import LEVEL, rate_of
from studies.study import Study

_POOL = 1000  # null sets of each job, which its tests choose theirs from
_TRAINED = 100  # the same where critics are trained
_LENSES = Combined().lenses
_QUICK = Combined(critics=None, null_pool=_POOL, cache=False)
_BLIND = tuple(lens for lens in _LENSES if not isinstance(lens, Cells))


WITH: dict[str, Combined] = {
    "default": replace(_QUICK, critics=Combined().critics, null_pool=_TRAINED),
    "quick lenses": _QUICK,
    "quick lenses without cells": replace(_QUICK, lenses=_BLIND),
    "quick lenses and noise": replace(_QUICK, lenses=(*_LENSES, Noise())),
    "cells": replace(_QUICK, lenses=(Cells(),)),
    "noise": replace(_QUICK, lenses=(Noise(),)),
    "noise by draws": replace(_QUICK, lenses=(Noise(by_draws=True),)),
}
Method = tuple[Callable[[Any], Any], GofTest]  # what the test gets of the model, and the test
WITHOUT: dict[str, Method] = {
    "default, no sampler": (p.ScoresAlone, Combined()),
    "lenses, no sampler": (p.ScoresAlone, Combined(critics=None)),
    "noise, no sampler": (p.ScoresAlone, Combined(critics=None, lenses=(Noise(),))),
    "scores alone": (p.scores_of, Combined()),
    "ksd": (p.scores_of, Ksd()),
}
_CONTROL = "control"  # data with one noised copy of each point, null sets with eight
METHODS: dict[str, Method] = {
    **{name: (lambda model: model, test) for name, test in WITH.items()},
    **WITHOUT,
    "control, no sampler": (p.TakenForScores, Combined(critics=None, lenses=(Noise(),))),
}
_LINES = ("quick lenses", "lenses, no sampler", "scores alone", "ksd")  # of the distance
_NET = ("lenses, no sampler", "noise, no sampler", "scores alone")
_LEVELS = ("noise", "noise by draws", "quick lenses", _CONTROL)
_SIGNED = ("lenses, no sampler", "noise, no sampler", "control, no sampler")
_HIDDEN = "two modes apart in one of 10 columns, .6/.4"
_COLORS = (ACCENT, STAGED[1], FIXED[-1], GRAY)


@dataclass(frozen=True, kw_only=True)
class FarModes(Plan):
    """Runs of each problem and method, in parts: a job has `each`, or `signed` where it looks at signs."""

    problems: tuple[str, ...] = (*p.PROBLEMS, *p.LINES, *p.NETS, *p.NULLS)
    each: int = 100
    parts: int = 2
    null_runs: int = 2000
    in_a_job: int = 500
    signed: int = 200

    def cells(self) -> Iterator[Cell]:
        for name in self.problems:
            for method in self._methods(name):
                runs, parts = self.each, 1 if name in p.LINES else self.parts
                if name in p.NULLS:
                    runs = self.signed if "sampler" in method else self.in_a_job
                    parts = max(1, self.null_runs // runs // (5 if method.startswith(_CONTROL) else 1))
                yield from (Cell(problem=name, method=method, part=part, runs=runs) for part in range(parts))

    def _methods(self, name: str) -> tuple[str, ...]:
        if self.tiny:
            return ("noise", _CONTROL, "noise, no sampler") if name in p.NULLS else ("quick lenses", "ksd")
        if name in p.NULLS:
            return _LEVELS + _SIGNED
        if name in p.NETS:
            return _NET
        if name in p.LINES:
            return _LINES
        # the ladder of some of the hidden data ends in one mode, and leaves nothing to see
        every = (*WITH, *WITHOUT)
        return tuple(method for method in every if (name, method) != (_HIDDEN, "noise, no sampler"))


@counted
def count(cell: Cell) -> Row:
    problem = (p.PROBLEMS | p.LINES | p.NETS | p.NULLS)[cell.problem]
    seed = derive(cell.seed, cell.problem, cell.part)
    rejections, null_sets = (_control if cell.method == _CONTROL else _tested)(cell, problem, seed)
    return {
        "problem": cell.problem,
        "n": problem.n,
        "method": cell.method,
        "runs": cell.runs,
        "rejections": rejections,
        "null_sets": null_sets,
    }


def _tested(cell: Cell, problem: p.Problem, seed: int) -> tuple[int, int]:
    model, points = _datasets(cell, problem, seed)
    known, test = METHODS[cell.method]
    if isinstance(test, Combined):
        test = replace(test, null_seed=seed)
        if cell.tiny:
            test = replace(test, draws=39, reference=30, null_pool=40)
    if cell.problem not in p.NETS or known is p.scores_of:  # a net has no sampler to take away
        model = known(model)
    pool = (test.null_pool or 0) if isinstance(test, Combined) and cell.method in WITH else 0
    results = test.run(model, points, level=LEVEL, seeds=trial_seeds(derive(seed, "tests"), cell.runs))
    return sum(result.rejected for result in results), pool


def _datasets(cell: Cell, problem: p.Problem, seed: int) -> tuple[Any, ScoredPoints]:
    """The same for every method."""
    model: Any = problem.model()
    x = problem.data().sample(cell.runs * problem.n, seed=derive(seed, "data"))
    if cell.problem in p.NETS:
        model = p.net_of(model)
        x = model.noised(x, seed=derive(seed, "noise"))
    return model, ScoredPoints(x, model.score(x)).cut(problem.n)


def _control(cell: Cell, problem: p.Problem, seed: int) -> tuple[int, int]:
    """Rejections if the noise of the data is another than that of null sets."""
    model, data = _datasets(cell, problem, seed)
    draws = sample_points(model, 4000, seed=derive(seed, "draws"), like=data.x)
    eight, one = (
        Bench.of((Noise(copies=k),), draws, Setting.of(draws), n=problem.n, seed=seed, model=model)
        for k in (8, 1)
    )
    sets = 40 if cell.tiny else _POOL
    x = model.sample((sets + 200) * problem.n, seed=derive(seed, "null"))
    entries = eight.entries(ScoredPoints(x, model.score(x)).cut(problem.n), ())
    bench = CalibratedBench.by(eight, entries[sets:])
    weights = loudness(bench.columns)
    null, seen = (combined(bench.evidence(e), weights) for e in (entries[:sets], one.entries(data, ())))
    return int((rank_pvalues(seen, null) <= LEVEL).sum()), sets


def far_modes_table(record: Record) -> str:
    rows = record.results["rows"]

    def table(names: list[str], methods: list[str], cell: Callable[[Row], str]) -> str:
        chosen = [row for row in rows if row["problem"] in names and row["method"] in methods]
        chosen.sort(key=lambda row: names.index(row["problem"]))
        columns = [method for method in methods if method in show.unique(chosen, "method")]
        return show.pivot(chosen, {"": "problem"}, "method", cell, columns=columns, missing="")

    def rate(row: Row) -> str:
        return show.shown(rate_of(row), "{:.2f} ({:.2f} to {:.2f})")

    def level(row: Row) -> str:
        value, (low, high) = rate_of(row).value, show.band(row["runs"], row["null_sets"])
        return f"{show.bold(f'{value:.4f}', not low <= value <= high)} ({row['runs']}, ± {high - LEVEL:.3f})"

    wide = [*p.PROBLEMS, *p.NETS]
    return show.document(
        record,
        "Rejections of data with wrong weights at level 0.05, with 95 % intervals; the model can be sampled:",
        table(wide, [*WITH], rate),
        "The same without a sampler (the last two know no noised score):",
        table(wide, [*WITHOUT], rate),
        "Two modes in one dimension, n = 200; a distance of 0 is the level:",
        table([*p.LINES], [*_LINES], rate),
        "Rejections of the model's own draws; bold outside the 99.9 % band:",
        table([*p.NULLS], [*_LEVELS, *_SIGNED], level),
        "Controls: with draws, data whose points have one noised copy beside null sets with eight; without a "
        "sampler, an estimate from 30 draws that is taken for the noised score. Tests with a sampler share "
        f"null sets in each job. {show.devices(record)}",
    )


def draw_far_modes(record: Record, folder: Path) -> list[Path]:
    """Power by the distance of two modes."""
    rows = {(row["problem"], row["method"]): rate_of(row).value for row in record.results["rows"]}
    patterns, path = ("all in one of two, {} apart", ".6/.4 for .5/.5, {} apart"), folder / "distance.png"
    with show.picture(path, 7, 3, ncols=2, sharey=True, layout="constrained") as axes:
        for ax, pattern in zip(axes, patterns, strict=True):
            for method, color in zip(_LINES, _COLORS, strict=True):
                names = {a: (pattern.format(a), method) for a in p.DISTANCES}
                rates = {a: rows[name] for a, name in names.items() if name in rows}
                ax.plot([*rates], [*rates.values()], "o-", markersize=3, color=color, label=method)
            ax.set_title(pattern.split(",")[0])
        axes[0].set(ylabel="power at level 0.05", ylim=(-0.03, 1.03))
        figure = axes[0].figure
        figure.supxlabel("distance of the modes, in standard deviations", fontsize=9)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(_LINES))
    return [path]


_TINY = (_HIDDEN, "all in one of two, 12 apart", "two modes, 12 apart")
STUDY = Study(
    name="far-modes",
    title="Wrong weights of far modes: cells, the noise ladder, and scores alone",
    takes="30 minutes on two cores",
    full=FarModes(),
    tiny=FarModes(problems=_TINY, each=3, parts=1, null_runs=2, in_a_job=2, signed=2, tiny=True),
    run=rates(count, by=("problem", "method")),
    table=far_modes_table,
    figures=draw_far_modes,
)
