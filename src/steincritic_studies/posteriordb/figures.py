"""Table and figure of the posteriors of posteriordb, drawn from their record."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steincritic.gof.power import Rate
from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.drawing import PALE, name_lines
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown, rate_bound

REFERENCE, MEAN_FIELD = "reference draws", "mean field"
CORRELATED = 0.3  # of the two coordinates that are most so
_LEVEL = 0.05
_SHOWN = 500  # draws, in the rows by posterior


def database_table(record: Record) -> str:
    results = record.results
    return document(
        record,
        "Rejected at level 0.05, over all posteriors, and sets tested:",
        _pooled(results),
        f"By posterior, default test; fits with {_size(results)} draws, reference draws of all sizes. "
        "The last two columns: one coordinate made wrong, rejected and named first; the largest of the Stein "
        "moments at all reference draws, in standard errors, by which the density is known to be right.",
        _by_posterior(results),
        "One coordinate of reference draws made wrong:",
        _planted(results),
        f"A posterior is correlated if two of its coordinates are so by {CORRELATED} or more. "
        "Rates of reference draws are bold where an exact test would lie below in 99.9 %. Sets of "
        "reference draws are disjoint where the database has enough; the others are of random partitions. "
        f"Laplace and full-rank fits of nearly normal posteriors are nearly right. {devices(record)}",
    )


def draw_database(record: Record, folder: Path) -> list[Path]:
    """Rates of the default test by posterior."""
    from matplotlib import pyplot

    rows = [row for row in record.results["rows"] if row["method"] == _default(record.results)]
    names = list(dict.fromkeys(row["posterior"] for row in rows if row["source"] != REFERENCE))
    sources = list(dict.fromkeys(row["source"] for row in rows))
    size = _size(record.results)
    with styled():
        figure, axes = pyplot.subplots(
            1,
            len(sources),
            figsize=(2.0 * len(sources) + 2.2, 0.24 * len(names) + 1.3),
            sharey=True,
            layout="constrained",
        )
        for ax, source in zip(axes, sources, strict=True):
            own = [
                row for row in rows if row["source"] == source and (source == REFERENCE or row["n"] == size)
            ]
            rates = [_rate(row for row in own if row["posterior"] == name).value for name in names]
            ax.barh(range(len(names)), rates, color=PALE if source == REFERENCE else ACCENT)
            ax.axvline(_LEVEL, color=GRAY, linewidth=0.8)
            ax.set(title=source, xlim=(0, 1.02))
        name_lines(axes[0], names)
        figure.supxlabel(
            f"rejected at level 0.05 (fits: {size} draws; reference draws: all sizes)", color=INK
        )
        return [save(figure, folder / "rates.png")]


def _default(results: Any) -> str:
    return str(results["rows"][0]["method"])


def _size(results: Any) -> int:
    sizes = {row["n"] for row in results["rows"]}
    return _SHOWN if _SHOWN in sizes else min(sizes)


def _rate(rows: Iterable[dict[str, Any]]) -> Rate:
    return sum((Rate(row["rejections"], row["runs"]) for row in rows), Rate(0, 0))


def _cell(rate: Rate, *, null: bool = False) -> str:
    if not rate.trials:
        return ""
    high = null and rate.value > rate_bound(_LEVEL, rate.trials)
    return f"{f'**{rate.value:.3f}**' if high else f'{rate.value:.3f}'} ({rate.trials})"


def _pooled(results: Any) -> str:
    rows = results["rows"]
    methods, sizes = (list(dict.fromkeys(row[key] for row in rows)) for key in ("method", "n"))
    mixed = {one["posterior"] for one in results["posteriors"] if one["correlation"] >= CORRELATED}
    every = {row["posterior"] for row in rows}
    sources = [(source, source, every) for source in dict.fromkeys(row["source"] for row in rows)]
    sources.insert(3, (f"{MEAN_FIELD}, correlated", MEAN_FIELD, mixed))
    body = []
    for label, source, only in sources:
        for n in sizes:
            own = [r for r in rows if (r["source"], r["n"]) == (source, n) and r["posterior"] in only]
            rates = [_rate(row for row in own if row["method"] == method) for method in methods]
            if own:
                body.append([label, str(n), *(_cell(rate, null=source == REFERENCE) for rate in rates)])
    return markdown(["draws", "n", *methods], body)


def _by_posterior(results: Any) -> str:
    rows = [row for row in results["rows"] if row["method"] == _default(results)]
    sources = [source for source in dict.fromkeys(row["source"] for row in rows) if source != REFERENCE]
    body = []
    for one in results["posteriors"]:
        own = [row for row in rows if row["posterior"] == one["posterior"]]
        fits = [
            _rate(r for r in own if (r["source"], r["n"]) == (source, _size(results))) for source in sources
        ]
        planted = [row for row in results["planted"] if row["posterior"] == one["posterior"]]
        named = f"{sum(r['rejected'] for r in planted)}, {sum(r['first'] for r in planted)} of {len(planted)}"
        null = _rate(row for row in own if row["source"] == REFERENCE)
        about = [
            one["posterior"],
            str(one["dim"]),
            f"{one['correlation']:.2f}",
            f"{null.rejections} of {null.trials}",
        ]
        shown = [f"{rate.rejections} of {rate.trials}" if rate.trials else "" for rate in fits]
        largest = f"{one['largest']:.1f} of {one['moments']}"
        body.append([*about, *shown, named if planted else "", largest])
    header = ["posterior", "d", "largest correlation", REFERENCE, *sources, "coordinate", "moments"]
    return markdown(header, body)


def _planted(results: Any) -> str:
    rows = results["planted"]
    body = []
    for fault in dict.fromkeys(row["fault"] for row in rows):
        own = [row for row in rows if row["fault"] == fault]
        counts = [sum(row[key] for row in own) for key in ("rejected", "first", "named")]
        body.append([fault, str(len(own)), *map(str, counts)])
    return markdown(["fault", "checks", "rejected", "named first", "named"], body)
