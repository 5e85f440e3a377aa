"""Tables and figures of the Gaussian mixtures, drawn from their records: the paper's numbers beside ours."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from steincritic.report.style import ACCENT, GRAY, INK
from studies import show
from studies.paper.published import MSE_SCALE, SPEEDUP, STATISTIC
from studies.record import Record
from studies.show import Row, mean_and_error, mean_curve, scheme_colors

AGREES = 0.2  # of a published number that is given as "around" or "about"


def mixture_table(record: Record) -> str:
    rows, config = record.results["rows"], record.config
    probed = "probed monitor" in rows[0]["rules"]  # the paper is exact up to two dimensions
    main, way = ("probed monitor", "probed") if probed else ("exact monitor", "exact")

    def power(rule: str, way: str) -> Callable[[Row], str]:
        return lambda row: mean_and_error(row["rules"][rule]["power"][way])

    def epoch(rule: str, form: str = "{:.1f}") -> Callable[[Row], str]:
        return lambda row: form.format(row["rules"][rule]["epoch"]["mean"])

    def quarter(row: Row) -> str:
        return mean_and_error({k: MSE_SCALE * row["rules"][main]["mse_q"][k] for k in ("mean", "se")})

    columns: show.Columns = {
        "λ": "{scheme}",
        "paper (sd)": "{published[power]:.3f} ({published[power_sd]:.3f})",
        f"ours, common epoch, {way} test": power("common epoch", way),
        f"{way} monitor and test": power(main, way),
    }
    epochs: show.Columns = {
        "λ": "{scheme}",
        "epoch of the power, paper": "{published[epoch]}",
        "ours, common": epoch("common epoch", "{:.0f}"),
        "mean stopping epoch, paper": "{published[stopping_epoch]:.1f}",
        f"ours, {way} monitor": epoch(main),
        **({"ours, exact monitor": epoch("exact monitor")} if probed else {}),
        "MSE_q/4, paper": "{published[mse_q]:.3f}",
        "MSE_q/4, ours": quarter,
        "MSE_q, ours, as defined": lambda row: mean_and_error(row["rules"][main]["mse_q"]),
    }
    if probed:
        columns = {
            **columns,
            "exact monitor, probed test": power("exact monitor", "probed"),
            "exact monitor and test": power("exact monitor", "exact"),
        }
    ceilings = "; ".join(f"{name} {value['power']:.3f}" for name, value in record.results["ceilings"].items())
    early = [f"{r['scheme']} {r['stopping_before_20']}" for r in rows if "staged" in r["scheme"]]
    return show.document(
        record,
        "Power:\n\n" + show.listing(rows, columns),
        "Epochs and errors:\n\n" + show.listing(rows, epochs),
        f"Power at n = {config['tested']}, level 0.05: mean over {config['replicas']} critics ± standard "
        f"error, {config['runs']} tests each. Ceilings at this n: {ceilings}.",
        "The paper's power is that of one epoch for all critics of a scheme, read off near the mean stopping "
        "epoch; ours is that mean, rounded. A monitor chooses an epoch for each critic. Probed is the "
        "divergence estimated with one Gaussian probe a point, as in the released code; in two dimensions "
        "the paper, too, is exact.",
        "The released code lets staged schemes stop after epoch 20 only. Critics whose monitor was lowest "
        f"before, of {config['replicas']}: {', '.join(early)}.",
        "MSE_q/4 is the scale of the published tables: the released code computes a quarter of the paper's "
        "definition.",
    )


def draw_mixture(record: Record, folder: Path) -> list[Path]:
    """MSE through training and power by scheme; in two dimensions the critic's field as well."""
    rows, paths = record.results["rows"], [folder / "mse.png", folder / "power.png"]
    with show.picture(paths[0], 6, 3.6) as ax:
        for row, color in scheme_colors(rows):
            mean_curve(ax, row["curves"]["mse_q"], color, row["scheme"])
        ax.set_ylim(*_readable_range(rows, "mse_q"))
        ax.set(xlabel="epoch", ylabel="MSE of λf on model draws")
        show.legend_beside(ax, title="λ", title_fontsize=8)
    _draw_power(record, paths[1])
    if "fields" in record.results:
        paths.append(folder / "fields.png")
        _draw_fields(record, paths[2])
    return paths


def _readable_range(rows: list[Row], key: str) -> tuple[float, float]:
    """Down to the best curve, up to a little above where training starts; runaways leave the picture."""
    means = [row["curves"][key]["mean"] for row in rows]
    lowest, start = min(map(min, means)), float(np.median([mean[0] for mean in means]))
    return 0.8 * lowest, max(1.15 * start, 1.5 * lowest)


def _draw_power(record: Record, path: Path) -> None:
    rows = record.results["rows"]
    position = np.arange(len(rows))
    shown = [(0.12, "exact monitor", "exact", INK, "ours, lowest monitor, exact divergence")]
    if "probed monitor" in rows[0]["rules"]:
        shown += [(-0.12, "common epoch", "probed", GRAY, "ours, as the paper: one epoch, one probe a point")]
    with show.picture(path, 6, 3.6) as ax:
        for offset, rule, way, color, label in shown:
            powers = [row["rules"][rule]["power"][way] for row in rows]
            mean, sd = np.array([[power[part] for part in ("mean", "sd")] for power in powers]).T
            ends = np.minimum(sd, mean), np.minimum(sd, 1 - mean)
            ax.errorbar(position + offset, mean, ends, fmt="o", ms=4, color=color, capsize=2, label=label)
        published = [row["published"]["power"] for row in rows]
        ax.plot(position, published, "x", color=ACCENT, label="paper")
        ceiling = record.results["ceilings"]["optimal critic"]["power"]
        ax.axhline(ceiling, color=INK, linewidth=0.8, linestyle=":", label="optimal critic")
        ax.set_xticks(position, [row["scheme"] for row in rows], rotation=35, ha="right")
        ax.set(xlabel="λ", ylabel=f"power at n = {record.config['tested']}, level 0.05", ylim=(0, 1.04))
        show.legend_above(ax, columns=2)


def _draw_fields(record: Record, path: Path) -> None:
    fields = record.results["fields"]
    grid = np.array(fields["grid"])
    panels = [
        (f"after {critic['epochs']} epoch{'s' if critic['epochs'] > 1 else ''}", critic["field"])
        for critic in fields["critics"]
    ] + [("optimum f*", fields["optimal"])]
    longest = np.linalg.norm(np.array(fields["optimal"]), axis=1).max()
    style = {"cmap": "cividis", "width": 0.006, "scale": 7 * longest, "clim": (0, longest)}
    with show.picture(path, 3 * len(panels), 3.1, ncols=len(panels), sharey=True) as axes:
        for ax, (title, arrows) in zip(axes, panels, strict=True):
            u, v = np.array(arrows).T
            ax.quiver(*grid.T, u, v, np.hypot(u, v), **style)
            ax.set(title=title, aspect="equal")


def one_dimension_table(record: Record) -> str:
    results, config = record.results, record.config
    columns: show.Columns = {
        "roles": "{roles}",
        "epoch": "{epochs}",
        "λ": "{lam:.3f}",
        "statistics": "{statistics}",
        "raw T": "{mean[data]:.2f}",
        f"raw T, {config['critics']} critics (sd)": "{critics[mean]:.2f} ({critics[sd]:.2f})",
        "T times λ": "{scaled_mean:.3f}",
        "null 95 %, fresh": "{quantile95[model, fresh]:.2f}",
        "pooled": "{quantile95[model, pooled]:.2f}",
        "power, fresh": "{power[model, fresh]:.3f}",
        "power, pooled": "{power[model, pooled]:.3f}",
        "raw T, paper": f"around {STATISTIC:g}",
        "verdict": lambda row: _verdict(row["mean"]["data"], STATISTIC),
    }
    speed: show.Columns = {
        "dimensions": "{dim}",
        "fresh, s": "{seconds[fresh]:.3f}",
        "pooled, s": "{seconds[pooled]:.3f}",
        "ratio": "{seconds[ratio]:.1f}",
        "ratio, paper": f"about {SPEEDUP:g}",
        "verdict": lambda row: _verdict(row["seconds"]["ratio"], SPEEDUP),
    }
    return show.document(
        record,
        show.listing(results["statistics"], columns),
        f"Figure 2: raw T is the mean of T_q f over {config['tested']} points, as a mean over so many "
        f"statistics; quantiles and power are of raw T, level 0.05. It agrees if within {AGREES:.0%} of the "
        "paper's number. In the text q has variance one at -1 and 1, and p lies at -0.8 and 1 with standard "
        "deviations 1 and 0.5; the released code has them the other way round (data at -1 and 1). The paper "
        "says only that the critic saw a few epochs. As the optimum is f*/λ, raw T grows while λ falls: its "
        "size says how long training was and which roles were taken. T times λ does not grow so.",
        "Two misprints of the paper are read as meant: (A.1) has (x+1) before the component at -0.8, for "
        '(x+0.8); "1,000 training samples from q" are from p.',
        show.listing(results["speed"], speed),
        f"Seconds of {config['draws']} null statistics of {config['tested']} points, draws of q counted, a "
        f"critic of {config['width']}-{config['width']}: all from fresh draws, or from a pool of "
        f"{config['pool']} times as many draws as points; medians of {config['repetitions']} repetitions "
        "after a first one.",
    )


def _verdict(ours: float, published: float) -> str:
    return "agrees" if abs(ours - published) <= AGREES * published else "differs"


def draw_one_dimension(record: Record, folder: Path) -> list[Path]:
    results, paths = record.results, [folder / "critic.png", folder / "bootstrap.png"]
    grid, optimal = np.array(results["grid"]), np.array(results["optimal"])
    with show.picture(paths[0], 10, 5, nrows=2, ncols=len(results["critics"]), sharex=True) as axes:
        for column, critic in enumerate(results["critics"]):
            lam = critic["lam"]
            for row, (key, optimum) in enumerate((("critic", optimal / lam), ("scaleless", optimal))):
                axes[row, column].plot(grid, optimum, color=GRAY, linewidth=2.5, label="optimum")
                axes[row, column].plot(grid, critic[key], color=ACCENT, linewidth=1.4, label="critic")
            axes[0, column].set_title(f"epoch {critic['epochs']}, λ = {lam:.3g}")
        axes[0, 0].set_ylabel("f")
        axes[1, 0].set_ylabel("λf")
        axes[0, 0].legend()
    partly = [row for row in results["statistics"] if row["roles"] == results["statistics"][0]["roles"]][-1]
    with show.picture(paths[1], 10, 3.4, ncols=2) as (left, right):
        left.plot(grid, optimal, color=GRAY, linewidth=2.5, label="optimum f*")
        left.plot(grid, partly["scaleless"], color=ACCENT, label=f"critic, {partly['epochs']} epochs")
        left.set_ylabel("λf")
        left.legend()
        edges = np.array(partly["edges"])
        for name, color in (("model, fresh", INK), ("model, pooled", GRAY), ("data", ACCENT)):
            right.stairs(partly["counts"][name], edges, color=color, label=name, linewidth=1.4)
        right.axvline(partly["quantile95"]["model, fresh"], color=INK, linestyle=":", label="95 % of fresh")
        right.axvline(STATISTIC, color=ACCENT, linestyle="--", label="mean on data, paper")
        right.set(xlabel=f"mean of T_q f over {record.config['tested']} points", yticks=[])
        show.legend_above(right, columns=3)
    return paths


def adaptive_table(record: Record) -> str:
    columns: show.Columns = {
        "λ": "{scheme}",
        "lowest MSE on data": lambda row: mean_and_error(row["lowest"]["mse_p"]),
        "lowest MSE on model draws": lambda row: mean_and_error(row["lowest"]["mse_q"]),
    }
    return show.document(
        record,
        show.listing(record.results["rows"], columns),
        f"Mean over {record.config['replicas']} critics ± standard error, by the definition of the MSE.",
    )


def draw_adaptive(record: Record, folder: Path) -> list[Path]:
    rows, path = record.results["rows"], folder / "adaptive.png"
    titles = {"mse_p": "MSE on data", "mse_q": "MSE on model draws", "lam": "λ"}
    with show.picture(path, 11, 3.2, ncols=3) as axes:
        for ax, (key, title) in zip(axes, titles.items(), strict=True):
            for row, color in scheme_colors(rows):
                mean_curve(ax, row["curves"][key], color, row["scheme"])
            ax.set(title=title, xlabel="epoch")
            if key == "lam":
                ax.set_yscale("log")
            else:
                ax.set_ylim(*_readable_range(rows, key))
        handles, labels = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(handles, labels, ncol=6, loc="lower center", bbox_to_anchor=(0.5, -0.1))
    return [path]
