"""Comparison: which of several models is nearest to the data, in numbers and in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from steincritic.display import DARK, GRAY, axes, panel
from steincritic.files import json_fields, write_json
from steincritic.gof.result import GofResult
from steincritic.shapes import BankPerPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Comparison:
    """K models compared on the same points; near means a small Fisher divergence F = E_p|s_q - s_p|².

    Differences of F and the ranking come from `values`.
    """

    names: tuple[str, ...]
    values: BankPerPoint  # (k, n) one number per point; the mean is F less a constant of the data
    critical: float  # an interval is a difference ± this many of its standard errors
    tests: tuple[GofResult, ...] | None  # of each model on all points
    n: int
    level: float
    seed: int
    caveats: tuple[str, ...] = ()  # what all of this takes for granted and the data do not show
    notes: tuple[str, ...] = ()  # on how the data were read

    JSON_FIELDS: ClassVar = (
        *("names", "ranking", "critical", "pvalues", "any_right_pvalue", "rejected", "n", "level", "seed"),
        *("caveats", "notes"),
    )

    @property
    def differences(self) -> Tensor:
        """(k, k): Fisher divergence of the row's model minus that of the column's; unbiased estimates."""
        return self._paired.mean(-1)

    @property
    def intervals(self) -> tuple[Tensor, Tensor]:
        """Lower and upper ends for the differences, (k, k) each, for all pairs at once."""
        half = self.critical * errors_of(self._paired)
        return self.differences - half, self.differences + half

    @property
    def _paired(self) -> Tensor:
        return self.values[:, None] - self.values[None]  # (k, k, m)

    @property
    def _order(self) -> list[int]:
        order: list[int] = self.values.mean(-1).argsort(stable=True).tolist()
        return order

    @property
    def ranking(self) -> tuple[tuple[str, ...], ...]:
        """Groups of names, nearest first; neighbors in a group cannot be told apart."""
        upper = self.intervals[1]
        groups = [[self._order[0]]]
        for before, after in pairwise(self._order):
            if bool(upper[before, after] < 0):
                groups.append([])
            groups[-1].append(after)
        return tuple(tuple(self.names[k] for k in group) for group in groups)

    @property
    def pvalues(self) -> tuple[float, ...] | None:
        return None if self.tests is None else tuple(test.pvalue for test in self.tests)

    @property
    def any_right_pvalue(self) -> float | None:
        """The largest p-value: small when every candidate is refuted."""
        return None if self.pvalues is None else max(self.pvalues)

    @property
    def rejected(self) -> bool | None:
        """Are all candidates rejected? None where they were not tested."""
        return None if self.any_right_pvalue is None else self.any_right_pvalue <= self.level

    def __repr__(self) -> str:
        p = self.any_right_pvalue
        right = "not tested" if p is None else f"any right: p={p:.3g}"
        in_line = " < ".join(" ~ ".join(group) for group in self.ranking)
        return f"Comparison({in_line}; {right}; {self.n} points)"

    def summary(self) -> str:
        """The ranking, the evidence for it and the verdict, in sentences."""
        pairs = [
            f"{near} is nearer than {far} by {by:.3g} ({low:.3g} to {high:.3g})."
            for near, far, by, low, high in self._separated_pairs()
        ]
        lines = [self.ranking_sentence(), *pairs]
        if self.tests is not None:
            lines.append(self.verdict_sentence())
        confidence = f"{100 * (1 - self.level):g} % confidence for all pairs together"
        return "\n".join([*lines, *self.caution_lines, f"{self.n} points; {confidence}.", *self.notes])

    @property
    def caution_lines(self) -> list[str]:
        return [f"Caution: {caveat}" for caveat in self.caveats]

    def ranking_sentence(self) -> str:
        if len(self.ranking) == 1:
            return f"Cannot tell which model is nearest to the data: {self._group_words(self.ranking[0])}."
        parts = [
            self._group_words(group) + (" (cannot tell which is nearer)" if len(group) > 1 else "")
            for group in self.ranking
        ]
        return f"Nearest to the data first: {'; then '.join(parts)}."

    def _group_words(self, group: Sequence[str]) -> str:
        """The names, and which of them can be told apart although their neighbors cannot."""
        apart = [f"{a} is nearer than {b}" for a, b, *_ in self._separated_pairs() if {a, b} <= set(group)]
        return _listed(group, "and") + (f", though {_listed(apart, 'and')}" if apart else "")

    def verdict_sentence(self) -> str:
        if self.tests is None or self.any_right_pvalue is None:
            return "Whether any of them is right was not tested."
        approximate = [name for name, t in zip(self.names, self.tests, strict=True) if not t.exact]
        doubt = f" The p-values of {_listed(approximate, 'and')} are approximate." if approximate else ""
        if self.rejected:
            return (
                f"None of them is right: each is rejected at level {self.level:g} (largest p = "
                f"{self.any_right_pvalue:.3g}).{doubt}"
            )
        remaining = [name for name, test in zip(self.names, self.tests, strict=True) if not test.rejected]
        return (
            f"No evidence against {_listed(remaining, 'or')} (largest p = {self.any_right_pvalue:.3g}, "
            f"level {self.level:g}).{doubt}"
        )

    def _separated_pairs(self) -> list[tuple[str, str, float, float, float]]:
        """Every pair whose interval leaves out zero: nearer, farther, difference and its interval."""
        lower, upper = (end.tolist() for end in self.intervals)
        return [
            (self.names[a], self.names[b], float(self.differences[b, a]), lower[b][a], upper[b][a])
            for a, b in combinations(self._order, 2)
            if lower[b][a] > 0
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        lower, upper = self.intervals
        return {
            **json_fields(self, self.JSON_FIELDS),
            "differences": self.differences.tolist(),
            "differences_lower": lower.tolist(),
            "differences_upper": upper.tolist(),
            "tests": None if self.tests is None else [test.test for test in self.tests],
            "summary": self.summary(),
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write comparison.json into the folder; returns the files."""
        path = Path(folder) / "comparison.json"
        write_json(path, self.to_dict())
        return [path]

    def rows(self) -> list[tuple[str, ...]]:
        """A table, nearest first, with the headings `COLUMNS`."""
        place = {name: k for k, group in enumerate(self.ranking, start=1) for name in group}
        first, (lower, upper) = self._order[0], self.intervals
        pvalues = [""] * len(self.names) if self.pvalues is None else [f"{p:.3g}" for p in self.pvalues]
        return [
            (
                str(place[self.names[k]]),
                self.names[k],
                ""
                if k == first
                else f"{self.differences[k, first]:.3g} ({lower[k, first]:.3g} to {upper[k, first]:.3g})",
                pvalues[k],
            )
            for k in self._order
        ]

    def _repr_html_(self) -> str:
        lines = [self.ranking_sentence(), self.verdict_sentence(), *self.caution_lines]
        return panel(lines, rejected=self.rejected, rows=self.rows(), head=COLUMNS)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """How much farther from the data each model is than the nearest, with intervals; nearest on top."""
        ax = axes(ax, height=0.8 + 0.4 * len(self.names))
        first, order = self._order[0], self._order[::-1]
        excess, (lower, upper) = self.differences[order, first], self.intervals
        places = range(len(order))
        ax.hlines(places, lower[order, first], upper[order, first], color=GRAY, linewidth=3)
        ax.plot(excess, places, "o", color=DARK)
        ax.axvline(0, color=GRAY, linewidth=1, zorder=0)
        ax.set_yticks(list(places), [self.names[k] for k in order])
        ax.set_xlabel(f"Fisher divergence above that of {self.names[first]}")
        return ax


COLUMNS = ("rank", "model", "farther than the first by", "p")


def errors_of(values: Tensor) -> Tensor:
    """Standard errors of means over the last axis; zero where the values only differ by rounding."""
    error = values.std(-1) / values.shape[-1] ** 0.5
    rounding = torch.finfo(values.dtype).eps * values.abs().amax(-1)
    return torch.where(error > rounding, error, torch.zeros_like(error))


def _listed(names: Sequence[str], word: str) -> str:
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last
