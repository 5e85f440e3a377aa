"""Table and figures of the models of digits, drawn from their record."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.digits.data import from_pixels
from steincritic_studies.drawing import METHOD_COLORS
from steincritic_studies.record import Record
from steincritic_studies.tables import document, markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROWS = {
    "highest": "digits with the highest witness",
    "lowest": "digits with the lowest witness",
    "draws": "draws of the model",
    "lacking": "draws with the lowest witness",
}


def images_table(record: Record) -> str:
    parts = [_block(name, record) for name in record.results["models"]]
    notes = [
        f"Rejection rate at level 0.05 with its Wilson 95 % interval; {record.config['trials']} subsamples "
        "of digits that the models have not seen, the same for all methods, and sets of own draws."
    ]
    if record.config["digits"] == "mnist":
        published = ", ".join(f"{name} {power:g}" for name, power in record.results["published"].items())
        notes.append(f"Published for another flow on MNIST at n = 500: {published}.")
    return document(
        record,
        *parts,
        " ".join(notes),
    )


def draw_images(record: Record, folder: Path) -> list[Path]:
    with styled():
        galleries = [_gallery(name, record, folder) for name in record.results["models"]]
        return [_power(record, folder), *galleries, _where(record, folder)]


def _block(name: str, record: Record) -> str:
    rows = [row for row in record.results["rows"] if row["model"] == name]
    places = list(dict.fromkeys((row["data"], row["n"]) for row in rows))
    cells = {(row["method"], row["data"], row["n"]): _cell(row) for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    table = markdown(
        ["method", *(f"{data}, n = {n}" for data, n in places)],
        [[method, *(cells[method, *place] for place in places)] for method in methods],
    )
    return f"**{name}**: {_facts(record.results['models'][name])}\n\n{table}"


def _cell(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    return f"{row['power']:.2f} [{low:.2f}, {high:.2f}]"


def _facts(model: dict[str, Any]) -> str:
    facts = []
    if "bits_per_pixel" in model:
        facts.append(
            f"{model['bits_per_pixel']:.3f} bits per pixel on digits not learned from, "
            f"{model['bits_per_pixel_trained_on']:.3f} on others"
        )
    if "fisher_held_out" in model:
        first, last = model["fisher_held_out"]
        facts.append(f"Fisher divergence found by its teacher {first:.3g} at first, {last:.3g} at the end")
    listed, of = model["missing"]
    facts.append(
        f"diagnosis of {model['diagnosed']} digits: p = {model['pvalue']:.2g}, Fisher divergence at least "
        f"{model['fisher']:.3g}, {model['flagged']} digits and {listed} of {of} draws listed"
    )
    return "; ".join(facts) + "."


def _power(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    names = list(record.results["models"])
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.4 * len(names) + 1.2, 3.4), squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        own = [row for row in record.results["rows"] if row["model"] == name]
        for method in dict.fromkeys(row["method"] for row in own):
            rows = [row for row in own if row["method"] == method and row["data"] == "digits"]
            n, power = [row["n"] for row in rows], [row["power"] for row in rows]
            low, high = np.array([row["interval"] for row in rows], float).T
            color = METHOD_COLORS.get(method, GRAY)
            ax.plot(n, power, "-o", color=color, markersize=3, label=method)
            ax.fill_between(n, low, high, color=color, alpha=0.12, linewidth=0)
            for row in own:
                if row["method"] == method and row["data"] != "digits":
                    ax.plot(row["n"], row["power"], "x", color=color, markersize=5)
        ax.axhline(0.05, color=GRAY, linewidth=0.7, linestyle="--")
        places = sorted({row["n"] for row in own})
        ax.set(xscale="log", ylim=(-0.02, 1.04), xlabel="n", title=name)
        ax.set_xticks(places, [str(place) for place in places])
        ax.minorticks_off()
    axes[0][0].set_ylabel("power (crosses: the model's own draws)")
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save(figure, folder / "power.png")


def _gallery(name: str, record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    model = record.results["models"][name]
    figure, axes = pyplot.subplots(len(_ROWS), 1, figsize=(8, 0.95 * len(_ROWS) + 0.6))
    for ax, (key, title) in zip(axes, _ROWS.items(), strict=True):
        images = model[key]["images"] if isinstance(model[key], dict) else model[key]
        ax.imshow(_strip(images, model["image_shape"]), cmap="gray", vmin=0, vmax=1)
        ax.set_title(f"{name}: {title}", loc="left", fontsize=8)
        ax.axis("off")
    figure.tight_layout()
    return save(figure, folder / f"gallery-{name}.png")


def _strip(images: list[str], shape: list[int]) -> np.ndarray:
    """Images side by side, a white line between."""
    gray = [from_pixels(pixels, shape) for pixels in images]
    gap = np.ones((shape[0], 1))
    return np.concatenate([part for image in gray for part in (image, gap)][:-1], axis=1)


def _where(record: Record, folder: Path) -> Path:
    """Pixels by their share of the witness, and the mean witness of each digit."""
    from matplotlib import pyplot

    models = record.results["models"]
    figure, axes = pyplot.subplots(
        len(models), 2, figsize=(7.6, 2.9 * len(models)), squeeze=False, layout="constrained"
    )
    for (left, right), (name, model) in zip(axes, models.items(), strict=True):
        ratios = np.array(model["pixels"], float).reshape(model["image_shape"])
        most = max(1.0, float(np.abs(ratios).max()))
        shown = left.imshow(ratios, cmap="RdBu_r", vmin=-most, vmax=most)
        figure.colorbar(shown, ax=left, label="z of a pixel's share")
        left.set(xticks=[], yticks=[], title=name)
        _classes(right, model["by_class"])
    return save(figure, folder / "where.png")


def _classes(ax: "Axes", classes: list[dict[str, Any]]) -> None:
    x = [one["class"] for one in classes]
    ax.errorbar(
        x, [one["mean"] for one in classes], yerr=[2 * one["se"] for one in classes], fmt="o", color=ACCENT
    )
    ax.axhline(0, color=INK, linewidth=0.7)
    ax.set_xticks(x)
    ax.set(xlabel="digit", ylabel="mean witness ± 2 standard errors")
