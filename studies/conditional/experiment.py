"""Power of conditional tests in the published cells, and the level of ours; with a control that must fail.

Repetitions come in groups with one x each, so that a group shares its null sets: y drawn anew at that x.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from steincritic import Combined, ConditionalModel, GofResult, Rate, ScoredPoints, Training
from steincritic.gof.power import trial_seeds
from steincritic.lenses import Critics
from steincritic.models import as_conditional
from steincritic.models.conditional import AtRows
from steincritic.report.style import ACCENT, GRAY, INK
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from studies import show
from studies.cells import Cell, Plan, Row, counted, rates
from studies.conditional.problems import Problem, fscd_pvalue, kcsd_pvalue, problems, ratio_pvalues
from studies.record import Record
from studies.show import LEVEL
from studies.study import Study

_RATIO_DRAWS = 399
_TRAINED_EVERY, _PERMUTED_EVERY = 3, 10  # groups: with the slow peer, with the slow control
_METHODS = {
    "combined": ACCENT,
    "KCSD": show.PALE,
    "FSCD, trained": show.BLUE,
    "likelihood ratio, fitted": GRAY,
    "likelihood ratio, known": INK,
}
_CONTROLS = ("permuted x", "any lens", "KCSD")


@dataclass(frozen=True, kw_only=True)
class Conditional(Plan):
    """Kinds of cells: groups and repetitions in each; problems with their sample sizes.

    Kinds: power, all tests on data of the truth; critics, ours in full; level, on draws of the model.
    """

    groups: Mapping[str, tuple[int, int]]
    places: Mapping[str, Sequence[tuple[str, int]]]

    def cells(self) -> Iterator[Cell]:
        for kind, (groups, together) in self.groups.items():
            for name, n in self.places[kind]:
                for k in range(groups):
                    yield Cell(kind=kind, problem=name, n=n, part=k, runs=together)


FULL = Conditional(
    groups={"power": (60, 5), "critics": (16, 10), "level": (40, 50), "level with critics": (6, 100)},
    places={
        "power": [(name, n) for name, problem in problems().items() for n in problem.sizes],
        "critics": [("quad_vs_lin_d1", 100), ("quad_vs_lin_d1", 500)],
        "level": [("quad_vs_lin_d1", 100), ("quad_vs_lin_d1", 500), ("g_het_dx3", 300), ("g_het_dx3", 700)],
        "level with critics": [("quad_vs_lin_d1", 100), ("g_het_dx3", 300)],
    },
)
TINY = Conditional(
    groups={"power": (2, 2), "critics": (1, 2), "level": (1, 4), "level with critics": (1, 2)},
    places={
        "power": [("quad_vs_lin_d1", 100), ("g_het_dx3", 300)],
        "critics": [("quad_vs_lin_d1", 40)],
        "level": [("g_het_dx3", 40)],
        "level with critics": [("quad_vs_lin_d1", 40)],
    },
    tiny=True,
)


@counted
def count(cell: Cell) -> Row:
    """Which tests rejected how many repetitions at one x."""
    problem, seed = problems()[cell.problem], derive(cell.seed, cell.kind, cell.problem, cell.n, cell.part)
    is_null = cell.kind.startswith("level")
    x = problem.covariates(cell.n, seed=derive(seed, "x"))
    true = problem.model if is_null else problem.truth
    ys = true.sample(x.repeat(cell.runs, 1), seed=derive(seed, "y")).view(cell.runs, cell.n)
    results = _ours(cell, as_conditional(problem.model), x, ys, seed)
    rejected = {"combined": [result.rejected for result in results]}
    if is_null:
        rejected["any lens"] = [min(r.pvalue for r in result.readings) <= LEVEL for result in results]
        if cell.part % _PERMUTED_EVERY == 0:
            model = ConditionalModel(problem.model.score, partial(_at_other_rows, problem, seed))
            permuted = _ours(cell, model, x, ys, seed)
            rejected["permuted x"] = [result.rejected for result in permuted]
    if cell.kind in ("power", "level"):
        trained = not is_null and cell.part % _TRAINED_EVERY == 0
        for k, y in enumerate(ys[..., None]):
            peers = _peers(problem, x, y, derive(seed, "peers", k), is_null=is_null, trained=trained)
            for name, value in peers.items():
                rejected.setdefault(name, []).append(value)
    return {
        "kind": cell.kind,
        "problem": cell.problem,
        "n": cell.n,
        "rejections": {name: sum(values) for name, values in rejected.items()},
        "tests": {name: len(values) for name, values in rejected.items()},
        "null_sets": max(len(result.null_distribution) for result in results),  # fewer where it stops early
    }


def _ours(cell: Cell, model: ConditionalModel, x: Points, ys: Tensor, seed: int) -> list[GofResult]:
    x, ys = x.float(), ys.float()
    at = AtRows(model, x)
    stacked = torch.cat((x.expand(len(ys), -1, -1), ys[..., None]), 2)
    score = at.score(stacked.flatten(0, 1)).view_as(stacked)
    critics = Critics() if cell.kind.endswith("critics") else None
    test = Combined(critics=critics, cache=False, null_seed=derive(seed, "null"))
    if cell.tiny:
        critics = critics and Critics(folds=2, training=Training(epochs=4), look=1)
        test = replace(test, draws=39, reference=20, critics=critics)
    return test.run(at, ScoredPoints(stacked, score), level=LEVEL, seeds=trial_seeds(seed, len(ys)))


def _at_other_rows(problem: Problem, seed: int, x: Points, seed_of_draws: int) -> Points:
    """Null sets that are none."""
    order = torch.randperm(len(x), generator=generator(seed, "order"))
    return problem.model.sample(x[order], seed=seed_of_draws)


def _peers(
    problem: Problem, x: Points, y: Points, seed: int, *, is_null: bool, trained: bool
) -> dict[str, bool]:
    score = problem.model.score(x, y)
    rejected = {"KCSD": kcsd_pvalue(x, y, score, seed=seed) < LEVEL}  # as published
    if trained:
        rejected["FSCD, trained"] = fscd_pvalue(x, y, score, seed=seed) < LEVEL
    ratios = {} if is_null else ratio_pvalues(problem, x, y, draws=_RATIO_DRAWS, seed=seed)
    return rejected | {f"likelihood ratio, {name}": pvalue <= LEVEL for name, pvalue in ratios.items()}


def conditional_table(record: Record) -> str:
    rows = {(row["kind"], row["problem"], row["n"]): row for row in record.results["rows"]}
    power, level = [], []
    for (kind, problem, n), row in rows.items():
        sizes = [problem, str(n)]
        if kind == "power":
            critics = rows.get(("critics", problem, n), {"tests": {}})
            rates = [*(_rate(row, method) for method in _METHODS), _rate(critics, "combined")]
            cells = ["–" if rate is None else show.shown(rate) for rate in rates]
            power.append([*sizes, str(row["tests"]["combined"]), *cells])
        elif kind != "critics":
            rate = Rate(row["rejections"]["combined"], row["tests"]["combined"])
            rates = [_rate(row, control) for control in _CONTROLS]
            controls = ["–" if rate is None else f"{rate.value:.3f}" for rate in rates]
            name = "with critics" if kind.endswith("critics") else "quick lenses"
            level.append([*sizes, name, str(rate.trials), *show.in_band(rate, row["null_sets"]), *controls])
    header = ["model", "n", "combined", "tests", "rejected", "99.9 % band", "inside"]
    return show.document(
        record,
        "## Power",
        show.markdown(["problem", "n", "repetitions", *_METHODS, "combined with critics"], power),
        "Rejection rate at level 0.05 with its 95 % interval, in the published cells and at n = 500; "
        "`combined` with quick lenses, and with critics in the last column. Repetitions come in groups with "
        "one x each, the same data for all tests. FSCD, which is trained, is run in a third of the groups. "
        "The likelihood ratio knows the truth, or fits one coefficient of its family.",
        "## Level",
        show.markdown([*header, "control: permuted x", "control: any lens", "KCSD"], level),
        "Share of tests of the model's own draws that reject at level 0.05. Controls that must fail: null "
        "sets whose y were drawn at other rows (in a tenth of the groups), and the smallest p-value of any "
        "lens taken as it is, of which there are three, or four with critics.",
    )


def _rate(row: Row, method: str) -> Rate | None:
    tests = row["tests"].get(method)
    return Rate(row["rejections"][method], tests) if tests else None


def draw_conditional(record: Record, folder: Path) -> list[Path]:
    """Power against the sample size, a panel per problem."""
    rows = [row for row in record.results["rows"] if row["kind"] == "power"]
    names, path = show.unique(rows, "problem"), folder / "conditional.png"
    with show.picture(path, 2.2 * len(names) + 0.6, 2.8, ncols=len(names), sharey=True) as axes:
        for ax, name in zip(axes, names, strict=True):
            for method, color in _METHODS.items():
                places = [(r["n"], _rate(r, method)) for r in rows if r["problem"] == name]
                measured = [(n, rate) for n, rate in places if rate is not None]
                show.curve(ax, [n for n, _ in measured], [rate for _, rate in measured], color, label=method)
            ax.axhline(record.results["level"], color=GRAY, linewidth=0.6, linestyle=":")
            ax.set(title=name, xlabel="n", ylim=(-0.02, 1.02))
        axes[0].set_ylabel("power at level 0.05")
        handles, labels = axes[0].get_legend_handles_labels()
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": len(labels)}
        axes[0].figure.legend(handles, labels, **place)
    return [path]


STUDY = Study(
    name="conditional",
    title="Conditional models, beside the published kernel tests and likelihood ratios",
    takes="2 hours on one core",
    full=FULL,
    tiny=TINY,
    run=rates(count, by=("kind", "problem", "n"), more=lambda config: {"level": LEVEL}),
    table=conditional_table,
    figures=draw_conditional,
)
