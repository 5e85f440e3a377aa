"""CheckResult: what a check found, in numbers, in words and in pictures.

How large what is wrong is, is said in a sentence: with many rows a harmless fault is significant too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from steincritic.data.layout import Rows
from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.coordinates import Coordinate
from steincritic.diagnosis.doctor.doctor import Checkup
from steincritic.diagnosis.findings import Finding
from steincritic.diagnosis.halves import FisherBound, Halves
from steincritic.diagnosis.points import MissingFindings, PointFindings
from steincritic.diagnosis.regions import Region
from steincritic.display import GRAY, RED, axes, panel
from steincritic.errors import listed
from steincritic.files import json_fields, json_value
from steincritic.gof.result import DATA, GofResult, Subject
from steincritic.lenses.moments import DIRECTIONS
from steincritic.models.bounded import coordinates_of
from steincritic.training.critic import Critic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 3
_SEVERAL = "are not explained by the {}, among them rows {}"
_THIN = (
    "The difference is spread thin: no single coordinate, region or point carries enough of it to be named."
)
_RATIOS = ("spread", "scale", *DIRECTIONS)  # kinds whose sizes are compared by the logarithm of a ratio
_SCALES = {  # from where on a difference of a kind is moderate, and large
    **dict.fromkeys(("shift", "shift, all alike"), (0.2, 0.5)),
    **dict.fromkeys(_RATIOS, (math.log(1.1), math.log(1.35))),
    **dict.fromkeys(("pair", "bend"), (0.1, 0.3)),
    "skewness": (0.3, 1.0),
    # shares of all rows
    **dict.fromkeys(("tails", "tails, all alike", "radial tails", "extreme together", "cell"), (0.01, 0.05)),
}
_NARROW = 0.005  # intervals that need four digits
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


@dataclass(frozen=True, eq=False, repr=False)
class CheckResult:
    """What a model gets wrong. Lists are empty where the test does not reject the model.

    What was seen comes from quick lenses; points, coordinates and regions come from critics, and every value
    there from one that was not trained on the point.
    """

    test: GofResult
    seen: tuple[Finding, ...]  # what is wrong in words, the loudest first
    points: PointFindings
    missing: MissingFindings | None  # None for a model that cannot be sampled
    coordinates: tuple[Coordinate, ...]  # all of them, the most telling first
    regions: tuple[Region, ...]
    fisher: FisherBound
    checkup: Checkup  # what a glance at the model found
    halves: Halves
    data: ScoredPoints
    names: tuple[str, ...]
    level: float
    seed: int
    covariates: int = 0  # first columns, which the model is given
    rows: Rows | None = None  # where the data stand in their file; None where x was no table

    def row(self, k: int | Tensor) -> str:
        """What the k-th point is called: its row, counted from 0 in the file, its line and its id."""
        return str(int(k)) if self.rows is None else self.rows.name(int(k))

    def numbers(self, points: Tensor) -> list[int]:
        """Rows of these points, counted from 0 in the file."""
        return points.tolist() if self.rows is None else self.rows.numbers[points.cpu().numpy()].tolist()

    @property
    def rejected(self) -> bool:
        return self.test.rejected

    @property
    def fisher_lower_bound(self) -> float:
        """The Fisher divergence between data and model is at least this, with 95 % confidence."""
        return self.fisher.lower

    @property
    def critic(self) -> Critic:
        """One of the two critics, for new data."""
        return self.halves.first.critic

    @property
    def wrong_coordinates(self) -> tuple[Coordinate, ...]:
        """Those whose adjusted p-value is below the level; none where the test does not reject."""
        return tuple(c for c in self.coordinates if c.pvalue <= self.level) if self.rejected else ()

    @property
    def findings(self) -> tuple[str, ...]:
        """What was found, in sentences: what is wrong, then where critics see it."""
        if not self.rejected:
            return ()
        tolerance = self.test.tolerance
        within = [tolerance.within] if tolerance is not None and tolerance.within else []
        where, subject = [f"Region {region}." for region in self.regions[:_SHOWN]], self.test.subject
        wrong = [str(coordinate) for coordinate in self.wrong_coordinates]
        if wrong and not (self.covariates and len(self.coordinates) == 1):  # y alone: that is the verdict
            where.insert(0, f"Coordinates that do not fit: {listed(wrong, _SHOWN)}.")
        if len(self.points):
            first = ", ".join(self.row(k) for k in self.points.flagged[:5])
            which = "is not explained by the {}, row {}" if len(self.points) == 1 else _SEVERAL
            points = (
                f"{len(self.points)} of {len(self.data)} {subject.points}{self._of_sample} "
                f"{which.format(subject.model, first)} (false discovery rate {self.points.fdr:g})."
            )
            where.insert(1, points)  # after what is most telling
        if self.missing is not None and len(self.missing):
            where.append(
                f"{len(self.missing)} of {len(self.missing.witness)} draws of the {subject.model} lie where "
                f"{subject.data} are missing (false discovery rate {self.missing.fdr:g})."
            )
        return (*(f"{finding}." for finding in self.seen), *within, *where) or (_THIN,)

    def summary(self) -> str:
        """What must be known first, verdict, cautions, findings and size, then how the test was done."""
        return "\n".join(self.reading(self.findings))

    def reading(self, findings: Sequence[str]) -> list[str]:
        """Lines to read in their order, with these findings among them."""
        before, after = self.test.caveat_lines
        sentences = [self.size, *after, *self.model_problems, *findings, self.how_wrong]
        how = self.test.how_done(doubtful=bool(self.test.caveats or self.model_problems))
        return [*before, self.test.verdict, *filter(None, sentences), *how]

    @property
    def rows_tested(self) -> int:
        """All rows; `data` are a sample of them where they went by in one pass."""
        return self.test.n if self._of_sample else len(self.data)

    @property
    def _of_sample(self) -> str:
        """Words for points where they are some of those that were tested."""
        passed = getattr(self.test.examined, "passed", None)
        return " in the sample" if passed is not None and len(self.data) < passed.n else ""

    @property
    def model_problems(self) -> list[str]:
        """What a glance at the model's own score and draws found, in sentences."""
        return self.checkup.problem_lines

    @property
    def size(self) -> str:
        """How large what is wrong is, in a sentence; nothing where the model is not rejected."""
        if not self.rejected:
            return ""
        if measured := size_sentence(self.seen, self.rows_tested, self.test.subject):
            return measured
        if any(finding.estimate is not None for finding in self.seen):
            return ""  # its sentence tells the size
        if self.fisher.lower > 0:
            return "No single difference could be measured; its size is known by the Fisher divergence alone."
        subject = self.test.subject
        off = "the model is" if subject.data == DATA.data else "they are"
        return f"These {subject.data} cannot tell how far off {off}."

    @property
    def how_wrong(self) -> str:
        """A lower bound of the Fisher divergence, where the model is rejected and there is one."""
        if not self.rejected or not self.fisher.lower > 0:
            return ""
        bounded = coordinates_of(self.critic.model) is not None
        unit = ", in coordinates without bounds" if bounded else ""
        return (
            f"Fisher divergence at least {self.fisher.lower:.3g} ({self.fisher.confidence:.0%} "
            f"confidence; estimate {self.fisher.estimate:.3g}){unit}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Those of the test and what was found, as plain values ready for JSON."""
        return self.test.to_dict() | {
            "size": self.size,
            "fisher_lower_bound": self.fisher.lower,
            "fisher_estimate": self.fisher.estimate,
            "fisher_confidence": self.fisher.confidence,
            "model_problems": json_value(self.checkup.problems),
            "seen": json_value(self.seen),
            "findings": list(self.findings),
            "points": {
                "flagged": self.numbers(self.points.flagged),
                "fdr": self.points.fdr,
                "worst": self.numbers(worst := self.points.worst(20)),
                **({} if self.rows is None else self.rows[worst.cpu().numpy()].words("worst")),
            },
            "missing": None
            if self.missing is None
            else {"flagged": len(self.missing), "of": len(self.missing.witness), "fdr": self.missing.fdr},
            "coordinates": [json_fields(c, ("name", "share", "z", "pvalue")) for c in self.coordinates],
            "regions": [region.to_dict() for region in self.regions],
            "rows": len(self.data),
            "columns": list(self.names),
        }

    def save(
        self, folder: str | Path, *, title: str | None = None, image_shape: tuple[int, ...] | None = None
    ) -> list[Path]:
        """Write report.html, result.json, witness.csv and critic.safetensors; returns the files.

        Args:
            title: of the report; a question about data and model, or about draws, by default.
            image_shape: (height, width) or (height, width, 3) where rows are images.
        """
        from steincritic.report.folder import save_check  # results save themselves; see tests/test_layers.py
        from steincritic.report.page import About

        about = About(title=title or self.test.subject.question)
        return save_check(self, Path(folder), about=about, image_shape=image_shape)

    def plot(self, ax: "Axes | None" = None, most: int = 20) -> "Axes":
        """The z value of each coordinate, the most telling first."""
        shown, wrong = self.coordinates[:most], set(self.wrong_coordinates)
        ax = axes(ax, height=0.25 * len(shown) + 1)
        ax.barh(range(len(shown)), [c.z for c in shown], color=[RED if c in wrong else GRAY for c in shown])
        ax.set_yticks(range(len(shown)), [c.name for c in shown])
        ax.invert_yaxis()
        ax.set_xlabel("z of its share of the witness (red: below the level)")
        return ax

    def plot_finding(self, number: int = 0, ax: "Axes | None" = None) -> "Axes":
        """Data beside draws of the model, in the columns that the finding `seen[number]` is about."""
        from steincritic.report.findings import plot_finding  # results draw themselves

        return plot_finding(self, number, axes(ax, 4.2, 3.2))

    def __repr__(self) -> str:
        verdict = "rejected" if self.rejected else "not rejected"
        return (
            f"CheckResult({verdict}, p={self.test.pvalue:.3g}, Fisher divergence >= {self.fisher.lower:.3g}, "
            f"{len(self.points)} points, {len(self.wrong_coordinates)} coordinates, "
            f"{len(self.regions)} regions)"
        )

    def _repr_html_(self) -> str:
        lines = self.reading(())  # the findings among them are a list of their own
        return panel(lines, rejected=self.test.decided, items=self.findings)


def size_sentence(findings: Sequence[Finding], n: int, subject: Subject = DATA) -> str:
    """Of the largest difference that was measured; nothing where none was."""
    sized = [(finding, *size) for finding in findings if (size := _size(finding, n)) is not None]
    if not sized:
        return ""
    finding, _, word = max(sized, key=lambda measured: measured[1])
    if (phrase := _phrase(finding, subject)) is not None:
        return f"The largest difference is {word}: {phrase}."
    return f"The largest difference is {word}, the {_ORDINALS[findings.index(finding)]} of the findings."


def _size(finding: Finding, n: int) -> tuple[float, str] | None:
    """In parts of what is large of its kind, and in a word."""
    kind, by, _ = finding.kind.removesuffix(" within a mode").partition(" by ")
    scale = None if by and kind == "shift" else _SCALES.get(kind)  # of y over x: in the units of y
    if scale is None or finding.estimate is None or finding.interval is None or finding.expected is None:
        return None
    if finding.interval[0] <= finding.expected <= finding.interval[1]:
        return None
    rows, (moderate, large) = n if finding.kind == "cell" else 1, scale
    size, expected = finding.estimate / rows, finding.expected / rows
    if kind in _RATIOS:
        size, expected = (math.log(max(value, 1e-12)) for value in (size, expected))
    apart = abs(size - expected)
    return apart / large, "small" if apart < moderate else "moderate" if apart < large else "large"


def _phrase(finding: Finding, subject: Subject) -> str | None:
    """A mean or a spread in a few words; None where only the finding's own sentence says it."""
    if finding.kind not in ("shift", "spread") or subject is not DATA:
        return None
    assert finding.estimate is not None and finding.interval is not None
    numbers = (finding.estimate, *finding.interval)
    few = abs(finding.interval[1] - finding.interval[0]) < _NARROW
    value, low, high = (f"{v:.{4 if few else 3 if abs(v) < 0.1 else 2}f}" for v in numbers)
    if finding.kind == "shift":
        return f"the mean of {finding.names[0]} is off by {value} of a standard deviation ({low} to {high})"
    return f"{finding.names[0]} spreads {value} times as much as the model says ({low} to {high})"
