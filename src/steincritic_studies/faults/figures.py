"""Table and figure of the planted faults, drawn from their record."""

from pathlib import Path

from steincritic.report.style import save, styled
from steincritic_studies.drawing import interval, name_lines
from steincritic_studies.record import Record
from steincritic_studies.tables import document, markdown, mean_and_error

_DEMANDS = {
    ("points", "false_discovery_rate"): "foreign rows, 20-D: false discovery rate (nominal 0.1)",
    ("points", "recall"): "foreign rows, 20-D: share of them listed",
    ("points", "rejected"): "foreign rows, 20-D: model rejected",
    ("coordinate", "rejected"): "wrong coordinate of 30: model rejected",
    ("coordinate", "named_first"): "wrong coordinate of 30: named first",
    ("coordinate", "first_and_significant"): "wrong coordinate of 30: named first, and significant",
    ("region", "rejected"): "wrong region, 5-D: model rejected",
    ("region", "first_rule_overlaps"): "wrong region, 5-D: first rule overlaps it by half (Jaccard)",
    ("region", "some_rule_overlaps"): "wrong region, 5-D: some rule does",
    ("region", "overlap"): "wrong region, 5-D: overlap of the first rule",
    ("none", "rejected"): "no fault, 5-D: model rejected (level 0.05)",
    ("none", "no_list"): "no fault, 5-D: no list printed",
}


def faults_table(record: Record) -> str:
    rows = []
    for kind, found in record.results["rows"].items():
        for name, value in found.items():
            if name == "n":
                continue
            if "rate" in value:
                low, high = value["interval"]
                shown = f"{value['rate']:.3f} [{low:.3f}, {high:.3f}], {value['runs']} runs"
            else:
                shown = mean_and_error(value)
            rows.append([_DEMANDS[kind, name], str(found["n"]), shown])
    return document(
        record,
        markdown(["planted fault", "n", "measured"], rows),
        "Shares with their Wilson 95 % interval, means with their standard error. The gate of every list is "
        "the combined test at level 0.05.",
    )


def draw_faults(record: Record, folder: Path) -> list[Path]:
    """The shares of the record with their intervals."""
    from matplotlib import pyplot

    shares = [
        (f"{kind}: {name.replace('_', ' ')}", value)
        for kind, found in record.results["rows"].items()
        for name, value in found.items()
        if isinstance(value, dict) and "rate" in value
    ]
    with styled():
        figure, ax = pyplot.subplots(figsize=(6.4, 0.26 * len(shares) + 1.0))
        for k, (_, value) in enumerate(shares):
            interval(ax, k, value["rate"], value["interval"])
        name_lines(ax, [name for name, _ in shares])
        ax.set(xlabel="share of runs", xlim=(-0.02, 1.02))
        return [save(figure, folder / "faults.png")]
