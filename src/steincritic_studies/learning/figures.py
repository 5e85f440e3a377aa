"""Table and figure of the learned energies, drawn from their record."""

from pathlib import Path
from typing import Any

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.record import Record
from steincritic_studies.tables import document, markdown

_KINDS = {"learned": "learned", "gaussian": "control: a Gaussian with the data's moments"}


def learning_table(record: Record) -> str:
    rows = [
        [
            row["density"],
            _KINDS[row["kind"]],
            f"{row['rejections']} of {row['runs']}",
            f"{np.median(row['pvalues']):.3f}",
            f"{row['kl']['mean']:.4f} ± {row['kl']['se']:.4f}",
            f"{row['fisher']['mean']:.3g} ± {row['fisher']['se']:.2g}",
            f"{row['fisher_of_data']['mean']:.3g}",
        ]
        for row in record.results["rows"]
    ]
    header = ["density", "model", "rejected", "median p", "KL(p, q)", "Fisher divergence", "score of p"]
    config, level = record.config, record.results["level"]
    return document(
        record,
        markdown(header, rows),
        f"Energies learned from {config['rows']:,} rows, tested by the cross-fit test on {config['tested']} "
        f"others at level {level:g}; a seed is a dataset, a learning and a test of its own. KL is in nats. "
        "The Fisher divergence is in units of the data's standard deviations; beside it the size of the "
        "score itself. Both are measured on further rows with the true density, ± standard error.",
    )


def draw_learning(record: Record, folder: Path) -> list[Path]:
    """One row per density: data, true density, learned density, p-values."""
    from matplotlib import pyplot

    pictures = record.results["pictures"]
    with styled():
        figure, axes = pyplot.subplots(
            len(pictures), 4, figsize=(8.4, 2.1 * len(pictures)), squeeze=False, constrained_layout=True
        )
        for row, (density, picture) in zip(axes, pictures.items(), strict=True):
            _densities(row[:3], picture)
            row[0].set_ylabel(density)
            _pvalues(row[3], density, record)
        for ax, title in zip(axes[0], ("data", "true density", "learned density", "p-values"), strict=True):
            ax.set_title(title)
        return [save(figure, folder / "learned.png")]


def _densities(axes: Any, picture: dict[str, Any]) -> None:
    (x0, y0), (x1, y1) = picture["low"], picture["high"]
    highest = np.max(picture["law"])
    axes[0].plot(*np.array(picture["data"]).T, ".", color=INK, markersize=1.5)
    for ax, name in zip(axes[1:], ("law", "model"), strict=True):
        ax.imshow(
            np.array(picture[name]),
            extent=(x0, x1, y0, y1),
            origin="lower",
            cmap="Greys",
            vmin=0,
            vmax=highest,
            aspect="auto",
        )
    for ax in axes:
        ax.set(xlim=(x0, x1), ylim=(y0, y1), xticks=[], yticks=[])


def _pvalues(ax: Any, density: str, record: Record) -> None:
    """Sorted p-values, which lie on the diagonal where the model is right."""
    for row in record.results["rows"]:
        if row["density"] != density:
            continue
        values = np.sort(row["pvalues"])
        color = INK if row["kind"] == "learned" else ACCENT
        ax.plot((np.arange(len(values)) + 0.5) / len(values), values, ".", color=color, markersize=4)
    ax.plot([0, 1], [0, 1], color=GRAY, linewidth=0.7)
    ax.axhline(record.results["level"], color=GRAY, linewidth=0.7, linestyle="--")
    ax.set(xlim=(0, 1), ylim=(-0.02, 1.02), xlabel="share of the seeds (red: control)")
