"""CheckResult: what a check found, in numbers, in words and in pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from steincritic.data.layout import Rows
from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.coordinates import Coordinate
from steincritic.diagnosis.doctor.doctor import Checkup
from steincritic.diagnosis.findings import Finding
from steincritic.diagnosis.fisher import FisherBound
from steincritic.diagnosis.halves import Halves
from steincritic.diagnosis.points import MissingFindings, PointFindings
from steincritic.diagnosis.regions import Region
from steincritic.diagnosis.size import size_sentence
from steincritic.display import GRAY, RED, axes, panel
from steincritic.errors import listed
from steincritic.gof.result import DATA, GofResult
from steincritic.models.bounded import coordinates_of
from steincritic.training.critic import Critic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 3
_SEVERAL = "are not explained by the {}, among them rows {}"
_THIN = (
    "The difference is spread thin: no single coordinate, region or point carries enough of it to be named."
)


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
        where = [*self._about_coordinates(), *(f"Region {region}." for region in self.regions[:_SHOWN])]
        where[1:1] = self._about_points()  # after what is most telling
        told = [*(f"{seen}." for seen in self.seen), *within, *where, *self._about_missing()]
        return tuple(told) or (_THIN,)

    def _about_coordinates(self) -> Iterator[str]:
        wrong = self.wrong_coordinates
        if wrong and not (self.covariates and len(self.coordinates) == 1):  # y alone: that is the verdict
            yield f"Coordinates that do not fit: {listed(list(map(str, wrong)), _SHOWN)}."

    def _about_points(self) -> Iterator[str]:
        if len(self.points):
            subject, first = self.test.subject, ", ".join(self.row(k) for k in self.points.flagged[:5])
            which = "is not explained by the {}, row {}" if len(self.points) == 1 else _SEVERAL
            yield (
                f"{len(self.points)} of {len(self.data)} {subject.points}{self._of_sample} "
                f"{which.format(subject.model, first)} (false discovery rate {self.points.fdr:g})."
            )

    def _about_missing(self) -> Iterator[str]:
        if self.missing is not None and len(self.missing):
            subject = self.test.subject
            yield (
                f"{len(self.missing)} of {len(self.missing.witness)} draws of the {subject.model} lie where "
                f"{subject.data} are missing (false discovery rate {self.missing.fdr:g})."
            )

    def summary(self) -> str:
        """What must be known first, verdict, cautions, findings and size, then how the test was done."""
        return "\n".join(self.reading(self.findings))

    def reading(self, findings: Sequence[str]) -> list[str]:
        """Lines to read in their order, with these findings among them."""
        before, after = self.test.caveat_lines
        told = [self.size, *after, *self.model_problems, *findings, self.how_wrong]
        how = self.test.how_done(doubtful=bool(self.test.caveats or self.model_problems))
        return [*before, self.test.verdict, *filter(None, told), *how]

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
        unit = "" if self.fisher.units == "standard" else ", in the raw units of the data"
        if coordinates_of(self.critic.model) is not None:
            unit = ", in coordinates without bounds"
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
            "fisher_units": self.fisher.units,
            "model_problems": [asdict(f) for f in self.checkup.problems],
            "seen": [seen.to_dict() for seen in self.seen],
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
            "coordinates": [
                {"name": c.name, "share": c.share, "z": c.z, "pvalue": c.pvalue} for c in self.coordinates
            ],
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
