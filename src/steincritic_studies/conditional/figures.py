"""Tables and figure of the conditional tests, drawn from their record."""

from pathlib import Path
from typing import Any

from steincritic.gof.power import Rate
from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.drawing import PALE
from steincritic_studies.record import Record
from steincritic_studies.tables import band, document, markdown

_METHODS = {
    "combined": ACCENT,
    "KCSD": PALE,
    "FSCD, trained": "#48678d",
    "likelihood ratio, fitted": GRAY,
    "likelihood ratio, known": INK,
}
_CONTROLS = ("permuted x", "any lens", "KCSD")


def conditional_table(record: Record) -> str:
    return document(
        record,
        "## Power",
        _power_table(record),
        "Rejection rate at level 0.05 with its 95 % interval, in the published cells and at n = 500; "
        "`combined` with quick lenses, and with critics in the last column. Repetitions come in groups with "
        "one x each, the same data for all tests. FSCD, which is trained, is run in a third of the groups. "
        "The likelihood ratio knows the truth, or fits one coefficient of its family.",
        "## Level",
        _level_table(record),
        "Share of tests of the model's own draws that reject at level 0.05. Controls that must fail: null "
        "sets whose y were drawn at other rows (in a tenth of the groups), and the smallest p-value of any "
        "lens taken as it is, of which there are three, or four with critics.",
    )


def _rate(row: dict[str, Any], method: str) -> Rate | None:
    tests = row["tests"].get(method)
    return Rate(row["rejections"][method], tests) if tests else None


def _shown(rate: Rate | None) -> str:
    if rate is None:
        return "–"
    low, high = rate.interval()
    return f"{rate.value:.2f} [{low:.2f}, {high:.2f}]"


def _of_kind(record: Record, kind: str) -> list[dict[str, Any]]:
    return [row for row in record.results["rows"] if row["kind"] == kind]


def _power_table(record: Record) -> str:
    critics = {(row["problem"], row["n"]): row for row in _of_kind(record, "critics")}
    body = [
        [
            row["problem"],
            str(row["n"]),
            str(row["tests"]["combined"]),
            *(_shown(_rate(row, method)) for method in _METHODS),
            _shown(_rate(beside, "combined")) if (beside := critics.get((row["problem"], row["n"]))) else "–",
        ]
        for row in _of_kind(record, "power")
    ]
    return markdown(["problem", "n", "repetitions", *_METHODS, "combined with critics"], body)


def _level_table(record: Record) -> str:
    body = []
    for kind, name in (("level", "quick lenses"), ("level with critics", "with critics")):
        for row in _of_kind(record, kind):
            rate, tests = _rate(row, "combined"), row["tests"]["combined"]
            assert rate is not None
            low, high = band(tests, row["null_sets"])
            controls = (_rate(row, control) for control in _CONTROLS)
            body.append(
                [
                    row["problem"],
                    str(row["n"]),
                    name,
                    str(tests),
                    f"{rate.value:.4f}",
                    f"{low:.4f} to {high:.4f}",
                    "yes" if low <= rate.value <= high else "**no**",
                    *("–" if control is None else f"{control.value:.3f}" for control in controls),
                ]
            )
    header = ["model", "n", "combined", "tests", "rejected", "99.9 % band", "inside"]
    return markdown([*header, "control: permuted x", "control: any lens", "KCSD"], body)


def draw_conditional(record: Record, folder: Path) -> list[Path]:
    """Power against the sample size, a panel per problem."""
    from matplotlib import pyplot

    rows = _of_kind(record, "power")
    names = list(dict.fromkeys(row["problem"] for row in rows))
    with styled():
        figure, _ = pyplot.subplots(1, len(names), figsize=(2.2 * len(names) + 0.6, 2.8), sharey=True)
        for ax, name in zip(figure.axes, names, strict=True):
            for method, color in _METHODS.items():
                cells = [
                    (row["n"], rate)
                    for row in rows
                    if row["problem"] == name and (rate := _rate(row, method)) is not None
                ]
                sizes, values = [n for n, _ in cells], [rate.value for _, rate in cells]
                low, high = zip(*(rate.interval() for _, rate in cells), strict=True)
                ax.plot(sizes, values, "o-", color=color, markersize=3, label=method)
                ax.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
            ax.axhline(record.results["level"], color=GRAY, linewidth=0.6, linestyle=":")
            ax.set(title=name, xlabel="n", ylim=(-0.02, 1.02))
        figure.axes[0].set_ylabel("power at level 0.05")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(labels))
        return [save(figure, folder / "conditional.png")]
