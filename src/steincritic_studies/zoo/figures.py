"""Table and figure of the zoo, drawn from its record."""

from pathlib import Path
from typing import Any

import numpy as np

from steincritic.report.style import save, styled
from steincritic_studies.record import Record
from steincritic_studies.tables import devices, document, markdown

_LEVEL = 0.05


class _Powers:
    """Power by fault and method, and what the default lacks to the best method of each fault."""

    def __init__(self, record: Record) -> None:
        rows = record.results["rows"]
        self.methods = list(dict.fromkeys(row["method"] for row in rows))
        self.faults = list({row["fault"]: row for row in rows}.values())
        found = {(row["fault"], row["method"]): row["power"] for row in rows}
        self.power = np.array(
            [[found.get((row["fault"], m), np.nan) for m in self.methods] for row in self.faults]
        )
        self.best = np.nanmax(self.power, 1)
        self.regret = self.best - self.power[:, self.methods.index(record.results["default"])]

    def winners(self, fault: int) -> str:
        tied = [
            m for m, power in zip(self.methods, self.power[fault], strict=True) if power == self.best[fault]
        ]
        return tied[0] if len(tied) == 1 else f"{len(tied)} methods"


def zoo_table(record: Record) -> str:
    """One row per fault, one column per method, then the best of them and the regret of the default."""
    powers, default = _Powers(record), record.results["default"]
    rows = [
        [
            fault["kind"],
            fault["fault"],
            str(fault["d"]),
            str(fault["n"]),
            *("-" if np.isnan(power) else f"{power:.2f}" for power in powers.power[k]),
            f"{powers.best[k]:.2f} ({powers.winners(k)})",
            f"{powers.regret[k]:.2f}",
        ]
        for k, fault in enumerate(powers.faults)
    ]
    means = [f"{mean:.2f}" for mean in np.nanmean(powers.power, 0)]
    regret = f"{powers.regret.mean():.2f} (worst {powers.regret.max():.2f})"
    last = ["", "mean", "", "", *means, f"{powers.best.mean():.2f}", regret]
    header = ["kind", "fault", "d", "n", *powers.methods, "best in hindsight", f"regret of {default}"]
    trials = sorted({row["trials"] for row in record.results["rows"]})
    return document(
        record,
        markdown(header, [*rows, last]),
        f"Rejection rate at level {_LEVEL} on {' or '.join(map(str, trials))} datasets per cell, the first "
        "of them the same for all methods; its 95 % interval reaches at most "
        f"{0.98 / trials[0] ** 0.5:.2f} to either side (see the record). Regret is the power of the best "
        "method in hindsight less that of the default; the best of several measured rates is a little too "
        f"high, and so is regret. {devices(record)}",
    )


def draw_zoo(record: Record, folder: Path) -> list[Path]:
    """A map of power: faults from top to bottom by kind, methods from left to right."""
    from matplotlib import pyplot

    powers = _Powers(record)
    columns = [*powers.methods, "best in\nhindsight"]
    shown = np.column_stack([powers.power, powers.best])
    with styled():
        size = (3.6 + 0.62 * len(columns), 1.0 + 0.2 * len(shown))
        figure, ax = pyplot.subplots(figsize=size)
        image = ax.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (k, m), power in np.ndenumerate(shown):
            color = "white" if power > 0.6 else "black"
            ax.text(
                m,
                k,
                "" if np.isnan(power) else f"{power:.2f}",
                ha="center",
                va="center",
                fontsize=6.5,
                color=color,
            )
        ax.set_yticks(range(len(shown)), [_label(fault) for fault in powers.faults])
        ax.set_xticks(range(len(columns)), columns, rotation=35, ha="left")
        ax.tick_params(length=0, labeltop=True, labelbottom=False)
        ax.axvline(len(powers.methods) - 0.5, color="white", linewidth=3)
        figure.colorbar(image, ax=ax, label=f"power at level {_LEVEL}", shrink=0.4)
        return [save(figure, folder / "power.png")]


def _label(fault: dict[str, Any]) -> str:
    return f"{fault['fault']} (d = {fault['d']}, n = {fault['n']})"
