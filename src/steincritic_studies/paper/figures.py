"""Tables and figures of the Gaussian mixtures, drawn from their records: the paper's numbers beside ours."""

from pathlib import Path
from typing import Any

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK, save, styled
from steincritic_studies.drawing import band, scheme_colors
from steincritic_studies.record import Record
from steincritic_studies.tables import document, markdown, mean_and_error


def mixture_table(record: Record) -> str:
    rows = [
        [
            row["scheme"],
            _paper(row, "power", "power_sd"),
            mean_and_error(row["power_stochastic"]),
            mean_and_error(row["power_exact"]),
            _paper(row, "mse_q"),
            mean_and_error(row["mse_q_published_scale"]),
            mean_and_error(row["mse_q"]),
            _paper(row, "stopping_epoch", digits=1),
            f"{row['stopping_epoch']['mean']:.1f}",
        ]
        for row in record.results["rows"]
    ]
    header = [
        "λ",
        "power, paper (sd)",
        "power, ours, stochastic test",
        "power, ours, exact",
        "MSE_q/4, paper",
        "MSE_q/4, ours",
        "MSE_q, ours, as defined",
        "epoch, paper",
        "epoch, ours",
    ]
    ceilings = "; ".join(f"{name} {value['power']:.3f}" for name, value in record.results["ceilings"].items())
    config = record.config
    return document(
        record,
        markdown(header, rows),
        f"Power at n = {config['tested']}, level 0.05: mean over {config['replicas']} critics ± standard "
        f"error, {config['runs']} tests each. Ceilings at this n: {ceilings}.",
        "MSE_q/4 is the scale of the published tables: the released code computes a quarter of the paper's "
        "definition. The epoch is each critic's minimum of the validation monitor.",
    )


def _paper(row: dict[str, Any], key: str, spread: str | None = None, digits: int = 3) -> str:
    published = row["published"]
    if not published:
        return "–"
    sd = f" ({published[spread]:.{digits}f})" if spread else ""
    return f"{published[key]:.{digits}f}{sd}"


def draw_mixture(record: Record, folder: Path) -> list[Path]:
    """MSE through training and power by scheme; in two dimensions the critic's field as well."""
    with styled():
        paths = [_mse_curves(record, folder), _power(record, folder)]
        if "fields" in record.results:
            paths.append(_fields(record, folder))
    return paths


def one_dimension_table(record: Record) -> str:
    statistics = record.results["statistics"]
    rows = [
        [name, f"{statistics['mean'][name]:.4f}", f"{statistics['quantile95'][name]:.4f}"]
        for name in statistics["mean"]
    ]
    return document(
        record,
        markdown(["statistics of", "mean", "95 % quantile"], rows),
        f"{record.config['statistics']} statistics each, n = {record.config['tested']}; power of the partly "
        f"trained critic {statistics['power']:.3f}.",
    )


def draw_one_dimension(record: Record, folder: Path) -> list[Path]:
    with styled():
        return [_critic_curves(record, folder), _bootstrap(record, folder)]


def adaptive_table(record: Record) -> str:
    rows = [
        [row["scheme"], *(mean_and_error(row["lowest"][key]) for key in ("mse_p", "mse_q"))]
        for row in record.results["rows"]
    ]
    return document(
        record,
        markdown(["λ", "lowest MSE on data", "lowest MSE on model draws"], rows),
        f"Mean over {record.config['replicas']} critics ± standard error, by the definition of the MSE.",
    )


def draw_adaptive(record: Record, folder: Path) -> list[Path]:
    from matplotlib import pyplot

    with styled():
        figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.2))
        for ax, key, title in zip(
            axes, ("mse_p", "mse_q", "lam"), ("MSE on data", "MSE on model draws", "λ"), strict=True
        ):
            for row, color in scheme_colors(record.results["rows"]):
                band(ax, row["curves"][key], color, row["scheme"])
            ax.set(title=title, xlabel="epoch")
            if key == "lam":
                ax.set_yscale("log")
            else:
                ax.set_ylim(*_readable_range([row["curves"][key] for row in record.results["rows"]]))
        figure.legend(
            *axes[0].get_legend_handles_labels(), ncol=6, loc="lower center", bbox_to_anchor=(0.5, -0.1)
        )
        return [save(figure, folder / "adaptive.png")]


def _readable_range(curves: list[dict[str, list[float]]]) -> tuple[float, float]:
    """Down to the best curve, up to a little above where training starts; runaways leave the picture."""
    lowest = min(min(curve["mean"]) for curve in curves)
    start = float(np.median([curve["mean"][0] for curve in curves]))
    return 0.8 * lowest, max(1.15 * start, 1.5 * lowest)


def _mse_curves(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    rows = record.results["rows"]
    figure, ax = pyplot.subplots(figsize=(6, 3.6))
    for row, color in scheme_colors(rows):
        band(ax, row["curves"]["mse_q"], color, row["scheme"])
    ax.set_ylim(*_readable_range([row["curves"]["mse_q"] for row in rows]))
    ax.set(xlabel="epoch", ylabel="MSE of λf on model draws")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="λ", title_fontsize=8)
    return save(figure, folder / "mse.png")


def _power(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    rows = record.results["rows"]
    figure, ax = pyplot.subplots(figsize=(6, 3.6))
    position = np.arange(len(rows))
    for offset, key, color, label in (
        (-0.12, "power_stochastic", GRAY, "ours, the paper's stochastic test"),
        (0.12, "power_exact", INK, "ours, exact divergence"),
    ):
        if rows[0][key] is None:
            continue
        ax.errorbar(
            position + offset,
            [row[key]["mean"] for row in rows],
            yerr=[row[key]["sd"] for row in rows],
            fmt="o",
            markersize=4,
            color=color,
            capsize=2,
            label=label,
        )
    published = [(k, row["published"]) for k, row in enumerate(rows) if row["published"]]
    ax.plot(
        [k for k, _ in published],
        [p["power"] for _, p in published],
        "x",
        color=ACCENT,
        label="paper",
    )
    ceiling = record.results["ceilings"]["optimal critic"]["power"]
    ax.axhline(ceiling, color=INK, linewidth=0.8, linestyle=":", label="optimal critic")
    ax.set_xticks(position, [row["scheme"] for row in rows], rotation=35, ha="right")
    ax.set(xlabel="λ", ylabel=f"power at n = {record.config['tested']}, level 0.05", ylim=(0, 1.04))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)
    return save(figure, folder / "power.png")


def _fields(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    fields = record.results["fields"]
    grid = np.array(fields["grid"])
    panels = [
        (f"after {critic['epochs']} epoch{'s' if critic['epochs'] > 1 else ''}", critic["field"])
        for critic in fields["critics"]
    ] + [("optimum f*", fields["optimal"])]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3 * len(panels), 3.1), sharey=True)
    longest = np.linalg.norm(np.array(fields["optimal"]), axis=1).max()
    for ax, (title, arrows) in zip(axes, panels, strict=True):
        u, v = np.array(arrows).T
        ax.quiver(
            *grid.T, u, v, np.hypot(u, v), cmap="cividis", width=0.006, scale=7 * longest, clim=(0, longest)
        )
        ax.set(title=title, aspect="equal")
    return save(figure, folder / "fields.png")


def _critic_curves(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    results = record.results
    grid, optimal = np.array(results["grid"]), np.array(results["optimal"])
    figure, axes = pyplot.subplots(2, len(results["critics"]), figsize=(10, 5), sharex=True)
    for column, critic in enumerate(results["critics"]):
        lam = critic["lam"]
        for row, (key, wanted) in enumerate((("critic", optimal / lam), ("scaleless", optimal))):
            ax = axes[row, column]
            ax.plot(grid, wanted, color=GRAY, linewidth=2.5, label="optimum")
            ax.plot(grid, critic[key], color=ACCENT, linewidth=1.4, label="critic")
        axes[0, column].set_title(f"epoch {critic['epochs']}, λ = {lam:.3g}")
    axes[0, 0].set_ylabel("f")
    axes[1, 0].set_ylabel("λf")
    axes[0, 0].legend()
    return save(figure, folder / "critic.png")


def _bootstrap(record: Record, folder: Path) -> Path:
    from matplotlib import pyplot

    results = record.results
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.2))
    left.plot(results["grid"], results["optimal"], color=GRAY, linewidth=2.5, label="optimum f*")
    partly = results["partly_trained"]
    left.plot(results["grid"], partly["scaleless"], color=ACCENT, label=f"critic, {partly['epochs']} epochs")
    left.set_ylabel("λf")
    left.legend()
    statistics = results["statistics"]
    edges = np.array(statistics["edges"])
    for name, color in (("model, fresh", INK), ("model, pooled", GRAY), ("data", ACCENT)):
        right.stairs(statistics["counts"][name], edges, color=color, label=name, linewidth=1.4)
    right.axvline(
        statistics["quantile95"]["model, fresh"], color=INK, linestyle=":", label="95 % under the model"
    )
    right.set(xlabel=f"mean witness of {record.config['tested']} points", yticks=[])
    right.legend()
    return save(figure, folder / "bootstrap.png")
