"""Rejections of draws of neural posteriors, by scores alone, beside what L-C2ST found in the same draws."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from steincritic import Rate, ScoredPoints
from steincritic.gof.power import trial_seeds
from steincritic.models import PairModel
from steincritic.report.style import ACCENT, FIXED, GRAY, INK
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from studies import show
from studies.cells import Cell, Plan, Row, counted, joined, rates, tests_by_scores
from studies.laws import stein_z
from studies.lc2st.data import POWER, SIMULATIONS, draws, posterior
from studies.lc2st.tasks import GaussianLinearUniform, TaskPosterior
from studies.record import Record
from studies.show import LEVEL
from studies.study import Context, Outcome, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTSIDE = "a draw outside"
TASKS = {
    "bernoulli_glm": "Bernoulli GLM, 10-D",
    "slcp": "SLCP, 5-D",
    "two_moons": "Two moons, 2-D",
    "gaussian_linear_uniform": "Gaussian in a box, 10-D",
}
_PUBLISHED = {  # label, color, line, marker
    "C2ST, accuracy": ("C2ST, with 10,000 reference draws", GRAY, (0, (4, 2)), "D"),
    "L-C2ST-NF": ("L-C2ST-NF", FIXED[5], "-", "s"),
    "L-C2ST": ("L-C2ST", FIXED[2], "-", "^"),
}


@dataclass(frozen=True, kw_only=True)
class DrawsCell(Cell):
    """Subsets of the draws for one observation of a task, as many as `runs`.

    Args:
        simulations: that the neural posterior was trained on; 0 for reference draws.
    """

    simulations: int
    observation: int


@dataclass(frozen=True, kw_only=True)
class Lc2st(Plan):
    """Tests by n, parts of `subsets` each, training simulations and tasks; subsets of n draws are disjoint.

    n: of the figure.
    """

    observations: tuple[int, ...] = tuple(range(1, 11))
    n: int = 500
    subsets: int = 10
    parts: tuple[tuple[str, int, int, tuple[int, ...], tuple[str, ...]], ...] = (
        (OUTSIDE, 500, 2, SIMULATIONS, tuple(TASKS)),
        ("combined", 500, 1, SIMULATIONS, tuple(TASKS)),
        ("ksd", 500, 1, SIMULATIONS, tuple(TASKS)),
        ("split", 500, 1, (100_000,), tuple(TASKS)),
        ("ksdagg", 500, 1, (100_000,), tuple(TASKS)),
        ("combined", 2000, 1, (100_000,), tuple(TASKS)),
        ("combined", 500, 2, (0,), tuple(TASKS)),
        ("ksd", 500, 2, (0,), tuple(TASKS)),
        ("combined", 2000, 1, (0,), tuple(TASKS)),
        ("combined", 250, 4, (0,), ("bernoulli_glm",)),
        ("ksd", 250, 4, (0,), ("bernoulli_glm",)),
    )

    def cells(self) -> Iterator[DrawsCell]:
        for method, n, parts, all_simulations, tasks in self.parts:
            for simulations, task, observation, part in product(
                all_simulations, tasks, self.observations, range(parts)
            ):
                yield DrawsCell(
                    problem=task,
                    method=method,
                    n=n,
                    runs=self.subsets,
                    part=part,
                    simulations=simulations,
                    observation=observation,
                )


@counted
def count(cell: DrawsCell) -> Row:
    """Rejected subsets of this part, of which there are fewer than asked for where draws run out."""
    q, theta = task_and_draws(cell)
    x = theta if cell.method == OUTSIDE else q.unconstrain(theta[q.inside(theta)])
    first = cell.part * cell.runs
    runs = max(0, min(cell.runs, len(x) // cell.n - first))
    x = x[first * cell.n : (first + runs) * cell.n].view(runs, cell.n, x.shape[1])
    rejections = 0
    if cell.method == OUTSIDE:
        rejections = int((~q.inside(x.flatten(0, 1))).view(runs, cell.n).any(1).sum())
    elif runs:
        seed = derive(cell.seed, cell.problem, cell.simulations, cell.observation, cell.n, cell.part)
        points = ScoredPoints(x, q.score(x.flatten(0, 1)).view_as(x))
        test = tests_by_scores(tiny=cell.tiny)[cell.method]
        results = test.run(PairModel(q.score), points, level=LEVEL, seeds=trial_seeds(seed, runs))
        rejections = sum(result.rejected for result in results)
    return {
        "task": cell.problem,
        "simulations": cell.simulations,
        "n": cell.n,
        "method": cell.method,
        "runs": {str(cell.observation): runs},
        "rejections": {str(cell.observation): rejections},
    }


def moments(cell: DrawsCell) -> Row:
    """Stein moments of all reference draws over their standard errors."""
    q, theta = task_and_draws(cell)
    y = q.unconstrain(theta)
    return {"z": stein_z(y, q.score(y)).tolist()}


def task_and_draws(cell: DrawsCell) -> tuple[TaskPosterior, Points]:
    """A posterior and draws, right or wrong; in a tiny run a normal mean near the edge of a box, whose wrong
    draws are too wide and know nothing of the edge."""
    if not cell.tiny:
        place = cell.problem, cell.observation
        return posterior(*place), draws(*place, cell.simulations)
    q = GaussianLinearUniform(torch.tensor([0.8, 0.0]))
    source = generator(derive(cell.seed, cell.problem, cell.simulations, cell.observation), "made up")
    noise = q.variance**0.5 * torch.randn(1000, 2, generator=source, dtype=torch.float64)
    theta = q.observation + (1.5 if cell.simulations else 1.0) * noise
    return q, theta if cell.simulations else theta[q.inside(theta)]


def run(config: Lc2st, context: Context) -> Outcome:
    """Rates, and how far reference draws are from the densities, by task, in standard errors."""
    outcome = rates(count, by=("task", "simulations", "n", "method"))(config, context)
    z_of: dict[str, dict[str, float]] = {}
    for task in show.unique(outcome.results["rows"], "task"):
        common: dict[str, Any] = {"runs": 0, "simulations": 0, "seed": context.seed, "tiny": config.tiny}
        cells = [DrawsCell(problem=task, observation=k, **common) for k in config.observations]
        z = torch.tensor([value for part in context.sweep(moments, cells) for value in part["z"]])
        rms, largest = float(z.square().mean().sqrt()), float(z.abs().max())
        z_of[task] = {"count": len(z), "rms": rms, "largest": largest}
    return replace(outcome, results={**outcome.results, "moments": z_of})


def rate_of(row: Row) -> Rate:
    """Over all observations."""
    return Rate(sum(row["rejections"].values()), sum(row["runs"].values()))


def lc2st_table(record: Record) -> str:
    rows = record.results["rows"]
    tasks = show.unique(rows, "task")
    z = "; ".join(
        f"{task} {z['count']:,}, root mean square {z['rms']:.2f}, largest {z['largest']:.1f}"
        for task, z in record.results["moments"].items()
    )
    null = [row for row in rows if not row["simulations"]]
    pooled = joined([row | {"task": "all"} for row in null], by=("method", "n"))
    levels = show.pivot(null + pooled, {"test": "method", "n": "n"}, "task", _level, columns=[*tasks, "all"])
    return show.document(
        record,
        f"Power at level {LEVEL:g}, by the number of simulations that a neural posterior was trained on; "
        "ours with 95 % interval and number of subsets.",
        *(part for task in tasks for part in (f"**{task}**", _powers(rows, task))),
        "Reference draws, rejections at the level:",
        levels,
        f"Stein moments of all reference draws, in standard errors: {z}.",
        "No test draws from the posterior or sees a reference draw. Our tests know the posterior's score; "
        "L-C2ST, L-C2ST-NF and local HPD know simulations alone, C2ST knows reference draws. Draws at which "
        'the posterior\'s density is zero are left out of our tests; "a draw outside" is how often there is '
        "one among the draws as they come, which no draw of the posterior ever is. Subsets are disjoint; "
        f"rates are for these ten observations. {show.devices(record)}",
    )


def _powers(rows: list[Row], task: str) -> str:
    ours = [
        row | {"test": f"ours, {row['method']}", "draws": f"{row['n']:,}"}
        for row in rows
        if row["task"] == task and row["simulations"]
    ]
    published = [
        {"test": name, "draws": "10,000", "simulations": simulations, "power": power}
        for name, powers in POWER[task].items()
        for simulations, power in zip(SIMULATIONS, powers, strict=True)
    ]

    def cell(row: Row) -> str:
        return (
            f"{row['power']:.2f}" if "power" in row else f"{show.shown(rate_of(row))}, {rate_of(row).trials}"
        )

    columns, lines = sorted(show.unique(ours, "simulations")), {"test": "test", "draws": "draws"}
    return show.pivot(ours + published, lines, "simulations", cell, columns=columns, title="{:,}".format)


def _level(row: Row) -> str:
    rate = rate_of(row)
    low, high = rate.interval()
    value = show.bold(f"{rate.value:.3f}", rate.value > show.rate_bound(LEVEL, rate.trials))
    return f"{value} [{low:.3f}, {high:.3f}], {rate.trials}"


def draw_lc2st(record: Record, folder: Path) -> list[Path]:
    """Power by training simulations, a panel per task, and at the right the level."""
    rows, path = [row for row in record.results["rows"] if row["method"] == "combined"], folder / "power.png"
    tasks = show.unique(rows, "task")
    options: dict[str, Any] = {"ncols": len(tasks), "sharey": True, "squeeze": False, "layout": "constrained"}
    with show.picture(path, 2.6 * len(tasks) + 0.4, 3.1, **options) as ((first, *others),):
        for ax, task in zip((first, *others), tasks, strict=True):
            _panel(ax, task, [row for row in rows if row["task"] == task], record.config["n"])
        first.set_ylabel("share rejected at level 0.05")
        first.figure.supxlabel("simulations that the neural posterior was trained on", fontsize=9)
        handles, labels = first.get_legend_handles_labels()
        first.figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=5, fontsize=8.5)
    return [path]


def _panel(ax: "Axes", task: str, rows: list[Row], n: int) -> None:
    """What was published, our power at the n of the figure and at a larger one, and our level beside it."""
    level_at = len(SIMULATIONS) + 0.1
    ax.axhline(LEVEL, color=GRAY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
    for name, (label, color, line, marker) in _PUBLISHED.items():
        style: dict[str, Any] = {"color": color, "ls": line, "marker": marker, "ms": 4, "lw": 1.4}
        ax.plot(range(len(SIMULATIONS)), POWER[task][name], label=label, clip_on=False, **style)
    power = sorted((row for row in rows if row["simulations"]), key=lambda row: row["simulations"])
    larger_style: dict[str, Any] = {"marker": "*", "ms": 9, "ls": "none", "zorder": 5}
    for larger, style in ((True, larger_style), (False, {"marker": "o", "ms": 5.5, "lw": 2.4, "zorder": 4})):
        drawn = [row for row in power if (row["n"] > n if larger else row["n"] == n)]
        if not drawn:
            continue
        places = [SIMULATIONS.index(row["simulations"]) for row in drawn]
        rates = [rate_of(row) for row in drawn]
        label = f"ours, {drawn[0]['n']:,} draws" if larger else f"ours, by the score: {n} draws"
        ax.plot(places, [r.value for r in rates], color=ACCENT, label=label, clip_on=False, **style)
        if not larger:
            low, high = zip(*(rate.interval() for rate in rates), strict=True)
            ax.fill_between(places, low, high, color=ACCENT, alpha=0.18, linewidth=0, zorder=3)
    for rate in (rate_of(row) for row in rows if row["n"] == n and not row["simulations"]):
        ax.plot([level_at] * 2, rate.interval(), color=ACCENT, linewidth=1.6, zorder=4)
        ax.plot(level_at, rate.value, "o", color=ACCENT, markersize=5.5, markerfacecolor="white", zorder=5)
    ax.axvline(len(SIMULATIONS) - 0.45, color=GRAY, linewidth=0.5)
    ticks = ["$10^2$", "$10^3$", "$10^4$", "$10^5$", "reference\ndraws"]
    ax.set_xticks([*range(len(SIMULATIONS)), level_at], ticks)
    ax.set(xlim=(-0.25, level_at + 0.35), ylim=(0, 1.04))
    ax.set_title(TASKS[task], color=INK)


STUDY = Study(
    name="lc2st",
    title="Draws of neural posteriors, beside L-C2ST",
    takes="an hour on one core; needs clones of JuliaLinhart/lc2st and sbi-benchmark/sbibm",
    full=Lc2st(),
    tiny=Lc2st(
        observations=(1,),
        n=100,
        subsets=2,
        parts=(
            (OUTSIDE, 100, 1, (1000, 100), ("gaussian_linear_uniform",)),
            ("combined", 100, 1, (1000, 100), ("gaussian_linear_uniform",)),
            ("split", 100, 1, (1000, 100), ("gaussian_linear_uniform",)),
            ("combined", 100, 1, (0,), ("gaussian_linear_uniform",)),
        ),
        tiny=True,
    ),
    run=run,
    table=lc2st_table,
    figures=draw_lc2st,
)
