"""GofResult: the outcome of one goodness-of-fit test, whichever test it was."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from steincritic.display import GRAY, RED, axes, panel
from steincritic.errors import InputError, check_level
from steincritic.files import json_fields, write_json
from steincritic.gof.null import rank_pvalues

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WORDS = {
    "fresh": "fresh Monte Carlo",
    "refitted": "parametric bootstrap",
    "pooled": "pooled bootstrap",
    "permutation": "permutation against model draws",
    "wild": "wild bootstrap",
    "multiplier": "multiplier bootstrap",
    "scaled": "null sets of fewer rows, scaled",
}


@dataclass(frozen=True)
class Subject:
    """What is tested, in words."""

    data: str
    model: str
    points: str
    wrong: str  # the verdict
    right: str
    question: str

    def __repr__(self) -> str:
        return f"Subject({self.data} beside a {self.model})"


DATA = Subject(
    "data",
    "model",
    "points",
    "The data do not look like draws from the model",
    "No evidence against the model",
    "Does the model fit the data?",
)
DRAWS = Subject(
    "draws",
    "posterior",
    "draws",
    "These draws do not match the posterior",
    "No evidence that these draws are not from the posterior",
    "Are these draws from the posterior?",
)


@dataclass(frozen=True)
class Reading:
    """How one lens stands: its p-value alone, and the number that spoke loudest."""

    lens: str
    number: str
    pvalue: float


@dataclass(frozen=True)
class Caveat:
    """Something that the p-value takes for granted and that does not look so in these data."""

    kind: str
    detail: str  # a sentence: what was seen, and the way out
    grave: bool = False  # to be read before the p-value

    def __str__(self) -> str:
        return self.detail


@dataclass(frozen=True)
class Tolerated:
    """What a test with a tolerance asked, and what it found beside that, in words."""

    null: str  # what is tolerated, as the end of a sentence
    beyond: tuple[str, ...] = ()  # sentences about what is more than that
    within: str = ""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class GofResult:
    """Outcome of one test of H0: the data come from the model. A large statistic is evidence against it."""

    statistic: float
    null_distribution: Tensor  # (b,) the statistic under the model
    level: float
    test: str  # its name
    threshold: str  # how the null distribution was made
    exact: bool  # is the level guaranteed for any n?
    n: int  # points the statistic was computed on
    seed: int
    notes: tuple[str, ...] = ()  # what a reader should know, the doubts among it
    doubts: tuple[str, ...] = ()  # why the level may be weaker than it looks
    settings: Mapping[str, Any] = field(default_factory=dict)
    spent: float = 0.0  # level given to an earlier step of the test, which did not decide
    readings: tuple[Reading, ...] = ()  # of each lens, the loudest first
    caveats: tuple[Caveat, ...] = ()  # see gof.assumptions
    examined: Any = None  # what lenses saw, for sentences about it; see diagnosis.findings
    subject: Subject = DATA
    tolerance: Tolerated | None = None  # H0 where it is not "the data come from the model"

    JSON_FIELDS: ClassVar = (
        *("statistic", "pvalue", "smallest", "rejected", "undecided", "level", "test", "threshold", "exact"),
        *("n", "seed", "notes", "doubts", "caveats", "tolerance", "spent", "readings", "settings"),
        "null_distribution",
    )

    def __post_init__(self) -> None:
        check_level(self.level)
        if not math.isfinite(self.statistic) or not bool(self.null_distribution.isfinite().all()):
            raise InputError(
                "the statistic and its null distribution must be finite: a comparison with NaN would count "
                "as evidence against the model"
            )

    @property
    def pvalue(self) -> float:
        """Share of null draws at least as large, counting the observed one, so never zero."""
        observed = torch.tensor([self.statistic], dtype=self.null_distribution.dtype)
        return min(1.0, self.spent + float(rank_pvalues(observed, self.null_distribution)))

    @property
    def smallest(self) -> bool:
        """Is the p-value only as small as so many null draws allow?"""
        return not bool((self.null_distribution >= self.statistic).any())

    @property
    def rejected(self) -> bool:
        return self.pvalue <= self.level

    @property
    def undecided(self) -> bool:
        """Not rejected, and something must be settled before that says anything."""
        return not self.rejected and any(caveat.grave for caveat in self.caveats)

    @property
    def decided(self) -> bool | None:
        """Whether the model is rejected; None where that is undecided."""
        return None if self.undecided else self.rejected

    @property
    def threshold_words(self) -> str:
        """The threshold as a sentence has it."""
        return _WORDS.get(self.threshold, self.threshold)

    def __repr__(self) -> str:
        verdict = "rejected" if self.rejected else "not rejected"
        return (
            f"GofResult({verdict} at level {self.level:g}: statistic={self.statistic:.4g}, "
            f"p={self.pvalue:.3g}, {len(self.null_distribution)} null draws, {self.test})"
        )

    def summary(self) -> str:
        """What must be known first, the verdict, what else to know about the data, how the test was done."""
        before, after = self.caveat_lines
        how = self.how_done(doubtful=bool(self.caveats))
        sizes = () if self.tolerance is None else (*self.tolerance.beyond, self.tolerance.within)
        return "\n".join([*before, self.verdict, *after, *filter(None, sizes), *how])

    @property
    def verdict(self) -> str:
        if self.tolerance is not None:
            answer = "yes" if self.rejected else "no evidence"
            return (
                f"Wrong by more than is tolerated: {answer} ({self.pvalue_words}, level {self.level:g}). "
                f"Tolerated: {self.tolerance.null}."
            )
        words = self.subject.wrong if self.rejected else self.subject.right
        if self.undecided:
            words = "No verdict: not rejected, but the line above must be settled first"
        return f"{words} ({self.pvalue_words}, level {self.level:g})."

    @property
    def caveat_lines(self) -> tuple[list[str], list[str]]:
        """What is said before the verdict, and what below it."""
        before = [f"Read this first: {caveat}" for caveat in self.caveats if caveat.grave]
        return before, [f"Caution: {caveat}" for caveat in self.caveats if not caveat.grave]

    def how_done(self, *, doubtful: bool) -> list[str]:
        """How the test was done; `doubtful` if something was said that an exact level rests on."""
        strength = "exact for any sample size" if self.exact else "approximate"
        if self.exact and doubtful:
            strength = "exact but for what is said above"
        lines = [
            f"Statistic {self.statistic:.4g} on {self.n} {self.subject.points}, against "
            f"{len(self.null_distribution)} values under the null hypothesis; test {self.test}, threshold "
            f"{self.threshold_words} ({strength}).",
        ]
        if self.readings:
            by_lens = ", ".join(f"{r.lens} {r.pvalue:.2g} ({r.number})" for r in self.readings)
            lines.append(f"p-values of each lens alone: {by_lens}.")
        return [*lines, *self.notes]

    @property
    def pvalue_words(self) -> str:
        """The p-value as a sentence has it; says where only the number of null draws keeps it from less."""
        if not self.smallest:
            return f"p = {self.pvalue:.3g}"
        count = len(self.null_distribution)
        return f"p <= {self.pvalue:.3g}, the smallest that {count} null draws allow"

    def _repr_html_(self) -> str:
        return panel(self.summary().splitlines(), rejected=self.decided)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return json_fields(self, self.JSON_FIELDS) | {"settings": dict(self.settings)}

    def save(self, folder: str | Path) -> list[Path]:
        """Write result.json into the folder; returns the files."""
        path = Path(folder) / "result.json"
        write_json(path, self.to_dict())
        return [path]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The null distribution with the observed statistic."""
        ax = axes(ax)
        null = self.null_distribution.double().cpu()
        edge = max(1.05 * self.statistic, float(null.quantile(0.99)))  # what lies beyond is in the last bar
        ax.hist(null.clamp(max=edge).numpy(), bins=40, color=GRAY, label="under the model")
        ax.axvline(self.statistic, color=RED, linewidth=2, label="observed")
        ax.set_xlabel("statistic")
        ax.set_yticks([])
        ax.set_title(f"p = {self.pvalue:.3g}")
        ax.legend(frameon=False)
        return ax
