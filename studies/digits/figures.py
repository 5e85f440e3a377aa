"""Tables and figures of the studies of digits, drawn from their records."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK
from studies import show
from studies.digits.claims import CLEAR, CLOSE, claims
from studies.digits.data import from_pixels
from studies.record import Record
from studies.show import LEVEL, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4  # of images
DIGITS = "digits"  # among the kinds of data of a row
_STRIPS = {
    "highest": "digits with the highest witness",
    "lowest": "digits with the lowest witness",
    "draws": "draws of the model",
    "lacking": "draws with the lowest witness",
}
_TRAINING = {
    "P̂, epochs 1 to 5": ("early_power_proxy", 2),
    "P̂, last": ("last_power_proxy", 2),
    "discrepancy, epochs 1 to 5": ("early_discrepancy", 2),
    "statistic, sd from its null": ("separation", 1),
    "power": ("power", 3),
}


def digits_table(record: Record) -> str:
    config, results = record.config, record.results
    judged, tested = config["judged"], config["tested"]
    finding = {
        "ROC area": ("roc_area", 4),
        f"true among {config['shown']} highest": ("highest", 1),
        "listed": ("listed", 1),
        "false share": ("false_share", 3),
        "recall": ("recall", 3),
    }

    def by_scheme(columns: dict[str, tuple[str, int]]) -> str:
        rows = [
            [row["scheme"], *(show.mean_and_error(row[key], digits) for key, digits in columns.values())]
            for row in results["rows"]
        ]
        return show.markdown(["λ", *columns], rows)

    def by_machine(key: str) -> Callable[[Row], str]:
        return lambda row: " / ".join(f"{value:.2f}" for value in row[key]["machines"])

    def lead(key: str) -> Callable[[Row], str]:
        return lambda row: "{:+.2f} [{:+.2f}, {:+.2f}]".format(row[key]["mean"], *row[key]["interval"])

    compared = {
        "P̂, epochs 1 to 5": "early_power_proxy",
        "P̂, last": "last_power_proxy",
        "discrepancy, epochs 1 to 5": "early_discrepancy",
    }
    machines: show.Columns = {
        "RBM": "{number}",
        "Fisher divergence, first": "{fisher_held_out[0]:.0f} (step {step[0]:.0f})",
        "last": lambda row: f"{row['fisher_held_out'][-1]:.0f} (step {row['step'][-1]:.0f})",
        "mean of draws": "{mean[draws]:.2f}",
        "mean of data": "{mean[data]:.2f}",
        "learned in": "{seconds:.0f} s",
    }
    count, critics = config["machines"], config["replicas"]
    return show.document(
        record,
        show.markdown(["the paper", "here", "verdict", "why"], [list(claim) for claim in claims(record)]),
        f"Surely above or below: the 95 % interval of the difference over {count} RBMs is. Comparable: at "
        f"most {CLOSE:.0%} below the best fixed λ. Clear: {CLEAR:g} standard deviations of the null.",
        by_scheme(_TRAINING),
        f"Mean over {count} RBMs of {critics} critics each ± standard error over RBMs. P̂, the paper's power "
        f"proxy, and the discrepancy of λf on {config['validated']} points of p and as many draws of q. "
        f"Statistic and power at {tested} points and level 0.05: the statistic of one set, the power over "
        "sets drawn again from the points below; a share of "
        f"{(1 - config['share']) ** tested:.3f} of such sets has no true digit.",
        show.listing(
            results["leads"],
            {"staged less λ =": "{scheme}", **{name: lead(key) for name, key in compared.items()}},
        ),
        "Differences of critics on the same data from the same weights: mean, and 95 % interval by Student's "
        "t over RBMs.",
        show.listing(
            results["rows"], {"λ": "{scheme}", **{name: by_machine(key) for name, key in compared.items()}}
        ),
        "By RBM.",
        show.listing(
            [{"number": k, **machine} for k, machine in enumerate(results["machines"], start=1)], machines
        ),
        "The RBMs: what their teacher found on digits of the test part while they learned. A critic finds "
        "less than there is, most of all at first.",
        by_scheme(finding),
        f"{judged} points of p, of them {round(config['share'] * judged)} true digits "
        f"{config['foreign_class']}, ranked by their witness, and the list of Benjamini and Hochberg at a "
        f"false discovery rate of {config['fdr']:g}.",
    )


def draw_digits(record: Record, folder: Path) -> list[Path]:
    """Power proxy, null and discrepancy; both ends of the ranking; the machines; the map."""
    results, machines, null = record.results, record.results["machines"], record.results["null"]
    paths = [folder / f"{name}.png" for name in ("curves", "gallery", "machine", "map")]
    with show.picture(paths[0], 12, 3.3, ncols=3, layout="tight") as (left, middle, right):
        for row, color in show.scheme_colors(results["rows"]):
            show.mean_curve(left, row["curves"]["power_proxy"], color, row["scheme"])
            show.mean_curve(right, row["curves"]["discrepancy"], color, row["scheme"])
        left.set(xlabel="epoch", ylabel="power proxy P̂")
        right.set(xlabel="epoch", ylabel="Stein discrepancy of λf, validation")
        left.legend(title="λ", title_fontsize=8)
        middle.stairs(null["counts"], null["edges"], color=GRAY, fill=True, label="under the model")
        middle.axvline(null["quantile95"], color=INK, linestyle=":", label="95 %")
        middle.axvline(null["statistic"], color=ACCENT, label="observed")
        words = f"mean witness of {record.config['tested']} points, λ {null['scheme']}"
        middle.set(xlabel=words, yticks=[])
        middle.legend()
    shape = machines[0]["image_shape"]
    with show.picture(paths[1], 9, 3.4, ncols=2) as axes:
        for ax, (name, images) in zip(axes, results["gallery"].items(), strict=True):
            foreign = [image["foreign"] for image in images]
            _tiles(ax, [image["pixels"] for image in images], shape, framed=foreign)
            ax.set_title(f"{name} witness: {sum(foreign)} of {len(images)} are true digits")
    with show.picture(paths[2], 9, 3.4, ncols=2) as (left, right):
        for machine in machines:
            left.plot(machine["step"], machine["fisher_held_out"], color=INK, linewidth=0.9)
        left.set(xlabel="step of the machine", ylabel="Fisher divergence found by the critic", ylim=(0, None))
        _tiles(right, [pixels for machine in machines for pixels in machine["draws"][:_COLUMNS]], shape)
        right.set_title("draws, a line for each machine")
    _map(results["map"], paths[3])
    return paths


def _tiles(ax: "Axes", images: list[str], shape: list[int], *, framed: Sequence[bool] = ()) -> None:
    """Images side by side in one picture, some in a colored frame."""
    from matplotlib.colors import to_rgb

    height, width = shape
    edge = max(1, height // 14)
    line, column = height + 4 * edge, width + 4 * edge
    canvas = np.ones((-(-len(images) // _COLUMNS) * line, _COLUMNS * column, 3))
    for k, pixels in enumerate(images):
        top, left = k // _COLUMNS * line + 2 * edge, k % _COLUMNS * column + 2 * edge
        if any(framed[k : k + 1]):
            canvas[top - edge : top + height + edge, left - edge : left + width + edge] = to_rgb(ACCENT)
        canvas[top : top + height, left : left + width] = from_pixels(pixels, shape)[..., None]
    ax.imshow(canvas)
    ax.axis("off")


def _map(points: dict[str, list[Any]], path: Path) -> None:
    place = np.array([points["x"], points["y"]])
    foreign, witness = np.array(points["foreign"], bool), np.array(points["witness"])
    with show.picture(path, 9.5, 4, ncols=2, width_ratios=[1, 1.2]) as (left, right):
        left.scatter(*place[:, ~foreign], s=4, color=GRAY, linewidth=0, label="draws of the machine")
        left.scatter(*place[:, foreign], s=6, color=ACCENT, linewidth=0, label="true digits")
        show.legend_above(left, columns=2)
        order = witness.argsort()  # the highest on top
        low, high = np.quantile(witness, [0.01, 0.99])
        colors = {"c": witness[order], "cmap": "cividis_r", "vmin": low, "vmax": high}
        dots = right.scatter(*place[:, order], s=5, linewidth=0, **colors)
        right.figure.colorbar(dots, ax=right, label="witness")
        for ax in (left, right):
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)


def images_table(record: Record) -> str:
    note = (
        f"Rejection rate at level 0.05 with its Wilson 95 % interval; {record.config['trials']} subsamples "
        "of digits that the models have not seen, the same for all methods, and sets of own draws."
    )
    if record.config["digits"] == "mnist":
        published = ", ".join(f"{name} {power:g}" for name, power in record.results["published"].items())
        note += f" Published for another flow on MNIST at n = 500: {published}."
    return show.document(record, *(_block(name, record) for name in record.results["models"]), note)


def _block(name: str, record: Record) -> str:
    """What is known of a model, and its rejection rates."""
    rows = [row for row in record.results["rows"] if row["model"] == name]
    table = show.pivot(
        [row | {"place": (row["data"], row["n"])} for row in rows],
        {"method": "method"},
        "place",
        lambda row: show.shown(show.rate_of(row)),
        title=lambda place: f"{place[0]}, n = {place[1]}",
    )
    model, facts = record.results["models"][name], []
    if "bits_per_pixel" in model:
        facts.append(
            f"{model['bits_per_pixel']:.3f} bits per pixel on digits not learned from, "
            f"{model['bits_per_pixel_trained_on']:.3f} on others"
        )
    if "fisher_held_out" in model:
        first, *_, last = model["fisher_held_out"]
        facts.append(f"Fisher divergence found by its teacher {first:.3g} at first, {last:.3g} at the end")
    listed, of = model["missing"]
    facts.append(
        f"diagnosis of {model['diagnosed']} digits: p = {model['pvalue']:.2g}, Fisher divergence at least "
        f"{model['fisher']:.3g}, {model['flagged']} digits and {listed} of {of} draws listed"
    )
    return f"**{name}**: {'; '.join(facts)}.\n\n{table}"


def draw_images(record: Record, folder: Path) -> list[Path]:
    models, rows = record.results["models"], record.results["rows"]
    paths = [folder / "power.png", *(folder / f"gallery-{name}.png" for name in models), folder / "where.png"]
    size: dict[str, Any] = {"nrows": 1, "ncols": len(models), "squeeze": False}
    with show.picture(paths[0], 4.4 * len(models) + 1.2, 3.4, **size) as axes:
        for ax, name in zip(axes[0], models, strict=True):
            _power(ax, [row for row in rows if row["model"] == name])
            ax.set_title(name)
        axes[0, 0].set_ylabel("power (crosses: the model's own draws)")
        show.legend_beside(axes[0, -1])
    for path, (name, model) in zip(paths[1:-1], models.items(), strict=True):
        with show.picture(path, 8, 0.95 * len(_STRIPS) + 0.6, nrows=len(_STRIPS), layout="tight") as axes:
            for ax, (key, title) in zip(axes, _STRIPS.items(), strict=True):
                images = model[key]["images"] if isinstance(model[key], dict) else model[key]
                gray = [from_pixels(pixels, model["image_shape"]) for pixels in images]
                strip = np.hstack([*np.pad(gray, ((0, 0), (0, 0), (0, 1)), constant_values=1)])
                ax.imshow(strip[:, :-1], cmap="gray", vmin=0, vmax=1)
                ax.set_title(f"{name}: {title}", loc="left", fontsize=8)
                ax.axis("off")
    size |= {"nrows": len(models), "ncols": 2, "layout": "constrained"}
    with show.picture(paths[-1], 7.6, 2.9 * len(models), **size) as axes:
        for (left, right), (name, model) in zip(axes, models.items(), strict=True):
            ratios = np.array(model["pixels"], float).reshape(model["image_shape"])
            most = max(1.0, float(np.abs(ratios).max()))
            shares = left.imshow(ratios, cmap="RdBu_r", vmin=-most, vmax=most)
            left.figure.colorbar(shares, ax=left, label="z of a pixel's share")
            left.set(xticks=[], yticks=[], title=name)
            x, mean, se = ([row[key] for row in model["by_class"]] for key in ("class", "mean", "se"))
            right.errorbar(x, mean, yerr=2 * np.array(se), fmt="o", color=ACCENT)
            right.axhline(0, color=INK, linewidth=0.7)
            right.set(xticks=x, xlabel="digit", ylabel="mean witness ± 2 standard errors")
    return paths


def _power(ax: "Axes", rows: list[Row]) -> None:
    """Rejection rates of digits against n, those of own draws as crosses."""
    for method, data in show.unique(rows, "method", "data"):
        of_method = [row for row in rows if (row["method"], row["data"]) == (method, data)]
        n, powers = [row["n"] for row in of_method], [show.rate_of(row) for row in of_method]
        color = show.METHOD_COLORS.get(method, GRAY)
        if data == DIGITS:
            show.curve(ax, n, powers, color, label=method)
        else:
            ax.plot(n, [power.value for power in powers], "x", color=color, markersize=5)
    ax.axhline(LEVEL, color=GRAY, linewidth=0.7, linestyle="--")
    places = sorted(show.unique(rows, "n"))
    ax.set(xscale="log", ylim=(-0.02, 1.04), xlabel="n")
    ax.set_xticks(places, [str(place) for place in places])
    ax.minorticks_off()
