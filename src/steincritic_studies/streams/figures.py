"""Table and figure of the watched streams, drawn from their record."""

from pathlib import Path

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.drawing import interval, name_lines
from steincritic_studies.record import Record
from steincritic_studies.tables import document, markdown, rate_bound

_KINDS = {
    "null": "model draws",
    "data": "data of the problem",
    "control": "control: critic trained on the points it bets on",
}


def streams_table(record: Record) -> str:
    rows = [
        [
            row["method"],
            _KINDS[row["kind"]],
            str(row["streams"]),
            str(row["alarms"]),
            f"{row['rate']:.4f} [{row['interval'][0]:.4f}, {row['interval'][1]:.4f}]",
            "" if row["median_delay"] is None else f"{row['median_delay']:g}",
        ]
        for row in record.results["rows"]
    ]
    header = ["bets", "stream", "streams", "alarms", "rate, 95 % interval", "median points to alarm"]
    null = next(row["streams"] for row in record.results["rows"] if row["kind"] == "null")
    level = record.results["level"]
    return document(
        record,
        markdown(header, rows),
        f"Streams of {record.config['length']} points, watched after every point. At level {level:g} the "
        f"99.9 % bound on {null} null streams is {rate_bound(level, null):.4f}.",
    )


def draw_streams(record: Record, folder: Path) -> list[Path]:
    from matplotlib import pyplot

    rows = record.results["rows"]
    with styled():
        figure, ax = pyplot.subplots(figsize=(6.4, 0.3 * len(rows) + 1.0))
        for k, row in enumerate(rows):
            color = ACCENT if row["kind"] == "control" else INK
            interval(ax, k, row["rate"], row["interval"], color)
        ax.axvline(record.results["level"], color=GRAY, linewidth=0.8)
        name_lines(ax, [f"{row['method']}, {row['kind']}" for row in rows])
        ax.set(xlabel="share of streams that ever raise an alarm", xlim=(-0.02, 1.02))
        return [save(figure, folder / "streams.png")]
