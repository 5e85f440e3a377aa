"""Table and figures of the planted digits, drawn from their record."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.digits.data import from_pixels
from steincritic_studies.drawing import band, scheme_colors
from steincritic_studies.record import Record
from steincritic_studies.tables import document, markdown, mean_and_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4  # of images


def digits_table(record: Record) -> str:
    config = record.config
    training = {
        "P̂, epochs 1 to 5": ("early_power_proxy", 2),
        "P̂, last": ("last_power_proxy", 2),
        "discrepancy, epochs 1 to 5": ("early_discrepancy", 2),
        "statistic, sd from its null": ("separation", 1),
        "power": ("power", 3),
    }
    finding = {
        "ROC area": ("roc_area", 4),
        f"true among {config['shown']} highest": ("highest", 1),
        "listed": ("listed", 1),
        "false share": ("false_share", 3),
        "recall": ("recall", 3),
    }
    judged, tested = config["judged"], config["tested"]
    return document(
        record,
        _by_scheme(record, training),
        f"Mean over {config['replicas']} critics ± standard error. P̂, the paper's power proxy, and the "
        f"discrepancy of λf on {config['validated']} points of p and as many draws of q. Statistic and power "
        f"at {tested} points and level 0.05: the statistic of one set, the power over sets drawn again from "
        f"the points below; a share of {(1 - config['share']) ** tested:.3f} of such sets has no true digit.",
        _by_scheme(record, finding),
        f"{judged} points of p, of them {round(config['share'] * judged)} true digits "
        f"{config['foreign_class']}, ranked by their witness, and the list of Benjamini and Hochberg at a "
        f"false discovery rate of {config['fdr']:g}.",
    )


def _by_scheme(record: Record, columns: dict[str, tuple[str, int]]) -> str:
    rows = [
        [row["scheme"], *(mean_and_error(row[key], digits) for key, digits in columns.values())]
        for row in record.results["rows"]
    ]
    return markdown(["λ", *columns], rows)


def draw_digits(record: Record, folder: Path) -> list[Path]:
    with styled():
        paths = [_curves(record, folder), _gallery(record, folder), _machine(record, folder)]
        if record.results["map"] is not None:
            paths.append(_map(record, folder))
    return paths


def _curves(record: Record, folder: Path) -> Path:
    """Power proxy, null and statistic, validation discrepancy."""
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(12, 3.3))
    for row, color in scheme_colors(record.results["rows"]):
        band(left, row["curves"]["power_proxy"], color, row["scheme"])
        band(right, row["curves"]["discrepancy"], color, row["scheme"])
    left.set(xlabel="epoch", ylabel="power proxy P̂")
    right.set(xlabel="epoch", ylabel="Stein discrepancy of λf, validation")
    left.legend(title="λ", title_fontsize=8)
    _null(middle, record)
    figure.tight_layout()
    return save(figure, folder / "curves.png")


def _null(ax: "Axes", record: Record) -> None:
    null = record.results["null"]
    ax.stairs(null["counts"], null["edges"], color=GRAY, fill=True, label="under the model")
    ax.axvline(null["quantile95"], color=INK, linestyle=":", label="95 %")
    ax.axvline(null["statistic"], color=ACCENT, label="observed")
    ax.set(
        xlabel=f"mean witness of {record.config['tested']} points, λ {null['scheme']}",
        yticks=[],
    )
    ax.legend()


def _gallery(record: Record, folder: Path) -> Path:
    """The two ends of the ranking; true digits are framed."""
    from matplotlib import pyplot

    shape = record.results["machine"]["image_shape"]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for ax, (name, images) in zip(axes, record.results["gallery"].items(), strict=True):
        foreign = [image["foreign"] for image in images]
        _show(ax, [image["pixels"] for image in images], shape, framed=foreign)
        ax.set_title(f"{name} witness: {sum(foreign)} of {len(images)} are true digits")
    return save(figure, folder / "gallery.png")


def _machine(record: Record, folder: Path) -> Path:
    """How the machine learned, and what it draws."""
    from matplotlib import pyplot

    machine = record.results["machine"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    left.plot(machine["step"], machine["fisher_held_out"], color=INK)
    left.set(xlabel="step", ylabel="Fisher divergence found by the critic", ylim=(0, None))
    _show(right, machine["draws"], machine["image_shape"], framed=[False] * len(machine["draws"]))
    mean = machine["mean"]
    right.set_title(f"draws of the machine: mean {mean['draws']:.2f}, data {mean['data']:.2f}")
    return save(figure, folder / "machine.png")


def _show(ax: "Axes", images: list[str], shape: list[int], *, framed: list[bool]) -> None:
    """Images side by side in one picture, some in a colored frame."""
    from matplotlib.colors import to_rgb

    height, width = shape
    edge = max(1, height // 14)
    rows = -(-len(images) // _COLUMNS)
    picture = np.ones((rows * (height + 4 * edge), _COLUMNS * (width + 4 * edge), 3))
    for k, (pixels, frame) in enumerate(zip(images, framed, strict=True)):
        top = k // _COLUMNS * (height + 4 * edge) + 2 * edge
        left = k % _COLUMNS * (width + 4 * edge) + 2 * edge
        if frame:
            picture[top - edge : top + height + edge, left - edge : left + width + edge] = to_rgb(ACCENT)
        picture[top : top + height, left : left + width] = from_pixels(pixels, shape)[..., None]
    ax.imshow(picture)
    ax.axis("off")


def _map(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    drawn = record.results["map"]
    place = np.array([drawn["x"], drawn["y"]])
    foreign, witness = np.array(drawn["foreign"], bool), np.array(drawn["witness"])
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.5, 4), width_ratios=[1, 1.2])
    left.scatter(*place[:, ~foreign], s=4, color=GRAY, linewidth=0, label="draws of the machine")
    left.scatter(*place[:, foreign], s=6, color=ACCENT, linewidth=0, label="true digits")
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)
    order = witness.argsort()  # the highest on top
    low, high = np.quantile(witness, [0.01, 0.99])
    dots = right.scatter(
        *place[:, order], s=5, c=witness[order], cmap="cividis_r", vmin=low, vmax=high, linewidth=0
    )
    figure.colorbar(dots, ax=right, label="witness")
    for ax in (left, right):
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return save(figure, folder / "map.png")
