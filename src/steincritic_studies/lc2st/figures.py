"""Table and figure of the amortized posteriors, drawn from their record."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steincritic.gof.power import Rate
from steincritic.report.style import ACCENT, FIXED, GRAY, INK, save, styled
from steincritic_studies.lc2st.published import POWER, SIMULATIONS
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown, rate_bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {
    "bernoulli_glm": "Bernoulli GLM, 10-D",
    "slcp": "SLCP, 5-D",
    "two_moons": "Two moons, 2-D",
    "gaussian_linear_uniform": "Gaussian in a box, 10-D",
}
_LEVEL = 0.05
_OURS = "combined"
_THEIRS = {  # label, color, line, marker
    "C2ST, accuracy": ("C2ST, with 10,000 reference draws", GRAY, (0, (4, 2)), "D"),
    "L-C2ST-NF": ("L-C2ST-NF", FIXED[5], "-", "s"),
    "L-C2ST": ("L-C2ST", FIXED[2], "-", "^"),
}


def lc2st_table(record: Record) -> str:
    rows = record.results["rows"]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    return document(
        record,
        f"Power at level {_LEVEL:g}, by the number of simulations that a neural posterior was trained on; "
        "ours with 95 % interval and number of subsets.",
        *(part for task in tasks for part in (f"**{task}**", _powers(rows, task))),
        "Reference draws, rejections at the level:",
        _levels(rows, tasks),
        f"Stein moments of all reference draws, in standard errors: {_moments(record)}.",
        "No test draws from the posterior or sees a reference draw. Our tests know the posterior's score; "
        "L-C2ST, L-C2ST-NF and local HPD know simulations alone, C2ST knows reference draws. Draws at which "
        'the posterior\'s density is zero are left out of our tests; "a draw outside" is how often there is '
        "one among the draws as they come, which no draw of the posterior ever is. Subsets are disjoint; "
        f"rates are for these ten observations. {devices(record)}",
    )


def _moments(record: Record) -> str:
    return "; ".join(
        f"{task} {found['count']:,}, root mean square {found['rms']:.2f}, largest {found['largest']:.1f}"
        for task, found in record.results["moments"].items()
    )


def _powers(rows: Sequence[dict[str, Any]], task: str) -> str:
    own = [row for row in rows if row["task"] == task and row["simulations"]]
    columns = sorted({row["simulations"] for row in own})
    found = {(row["method"], row["n"], row["simulations"]): row for row in own}
    body = [
        [f"ours, {method}", f"{n:,}", *(_cell(found.get((method, n, s))) for s in columns)]
        for method, n in dict.fromkeys((row["method"], row["n"]) for row in own)
    ]
    for name, powers in POWER[task].items():
        values = dict(zip(SIMULATIONS, powers, strict=True))
        body.append([name, "10,000", *(f"{values[s]:.2f}" for s in columns)])
    return markdown(["test", "draws", *(f"{s:,}" for s in columns)], body)


def _levels(rows: Sequence[dict[str, Any]], tasks: Sequence[str]) -> str:
    null = [row for row in rows if not row["simulations"]]
    places = list(dict.fromkeys((row["method"], row["n"]) for row in null))
    body = []
    for method, n in places:
        own = {row["task"]: row for row in null if (row["method"], row["n"]) == (method, n)}
        pooled = sum((_rate(row) for row in own.values()), Rate(0, 0))
        cells = [_level_cell(_rate(own[task])) if task in own else "–" for task in tasks]
        body.append([method, str(n), *cells, _level_cell(pooled)])
    return markdown(["test", "n", *tasks, "all"], body)


def _rate(row: dict[str, Any]) -> Rate:
    return Rate(sum(row["rejections"].values()), sum(row["runs"].values()))


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    rate = _rate(row)
    low, high = rate.interval()
    return f"{rate.value:.2f} [{low:.2f}, {high:.2f}], {rate.trials}"


def _level_cell(rate: Rate) -> str:
    low, high = rate.interval()
    shown = f"{rate.value:.3f}"
    if rate.value > rate_bound(_LEVEL, rate.trials):  # an exact test would lie below in 99.9 %
        shown = f"**{shown}**"
    return f"{shown} [{low:.3f}, {high:.3f}], {rate.trials}"


def draw_lc2st(record: Record, folder: Path) -> list[Path]:
    """Power by training simulations, a panel per task, and at the right the level."""
    from matplotlib import pyplot

    rows = [row for row in record.results["rows"] if row["method"] == _OURS]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    with styled():
        size = (2.6 * len(tasks) + 0.4, 3.1)
        figure, axes = pyplot.subplots(
            1, len(tasks), figsize=size, sharey=True, squeeze=False, layout="constrained"
        )
        for ax, task in zip(axes[0], tasks, strict=True):
            _panel(ax, task, [row for row in rows if row["task"] == task], record.config["n"])
        axes[0, 0].set_ylabel("share rejected at level 0.05")
        figure.supxlabel("simulations that the neural posterior was trained on", fontsize=9)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=5, fontsize=8.5)
        return [save(figure, folder / "power.png")]


def _panel(ax: "Axes", task: str, rows: Sequence[dict[str, Any]], n: int) -> None:
    places = {s: float(k) for k, s in enumerate(SIMULATIONS)} | {0: len(SIMULATIONS) + 0.1}
    ax.axhline(_LEVEL, color=GRAY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
    for name, (label, color, line, marker) in _THEIRS.items():
        look: dict[str, Any] = {
            "color": color,
            "linestyle": line,
            "marker": marker,
            "markersize": 4,
            "linewidth": 1.4,
        }
        ax.plot(range(len(SIMULATIONS)), POWER[task][name], label=label, clip_on=False, **look)
    larger = [row for row in rows if row["n"] > n and row["simulations"]]
    if larger:
        look = {"color": ACCENT, "marker": "*", "markersize": 9, "linestyle": "none", "zorder": 5}
        x, y = [places[row["simulations"]] for row in larger], [_rate(row).value for row in larger]
        ax.plot(x, y, label=f"ours, {larger[0]['n']:,} draws", clip_on=False, **look)
    rows = [row for row in rows if row["n"] == n]
    own = sorted((row for row in rows if row["simulations"]), key=lambda row: row["simulations"])
    x, rates = [places[row["simulations"]] for row in own], [_rate(row) for row in own]
    low, high = zip(*(rate.interval() for rate in rates), strict=True)
    ax.fill_between(x, low, high, color=ACCENT, alpha=0.18, linewidth=0, zorder=3)
    look = {"color": ACCENT, "marker": "o", "markersize": 5.5, "linewidth": 2.4, "zorder": 4}
    label = f"ours, by the score: {n} draws"
    ax.plot(x, [rate.value for rate in rates], label=label, clip_on=False, **look)
    for rate in (_rate(row) for row in rows if not row["simulations"]):
        ax.plot([places[0]] * 2, rate.interval(), color=ACCENT, linewidth=1.6, zorder=4)
        ax.plot(places[0], rate.value, "o", color=ACCENT, markersize=5.5, markerfacecolor="white", zorder=5)
    ax.axvline(len(SIMULATIONS) - 0.45, color=GRAY, linewidth=0.5)
    ax.set_xticks([*places.values()], ["$10^2$", "$10^3$", "$10^4$", "$10^5$", "reference\ndraws"])
    ax.set_xlim(-0.25, places[0] + 0.35)
    ax.set_ylim(0, 1.04)
    ax.set_title(TITLES[task], color=INK)
