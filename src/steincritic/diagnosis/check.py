"""check: whether a model fails, how far, and where."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from steincritic.data.conditional import Target, at_rows
from steincritic.data.layout import Rows, Table
from steincritic.data.points import PointsLike, ScoredPoints, arranged, model_and_points, reading_notes
from steincritic.data.source import Source
from steincritic.devices import DeviceLike
from steincritic.diagnosis import conditional
from steincritic.diagnosis.coordinates import Coordinate, find_coordinates
from steincritic.diagnosis.doctor.doctor import Checkup, glance
from steincritic.diagnosis.findings import Finding, beyond_tolerance, fallback, find
from steincritic.diagnosis.fisher import UNITS, FisherBound, Units, fisher_bound
from steincritic.diagnosis.halves import Halves, in_own_columns, own_columns, split_in_halves
from steincritic.diagnosis.points import MissingFindings, PointFindings, find_missing, find_points
from steincritic.diagnosis.regions import Region, find_regions
from steincritic.diagnosis.size import size_sentence
from steincritic.display import GRAY, RED, axes, panel
from steincritic.engine import EngineName, using
from steincritic.errors import DoubtfulWarning, InputError, check_choice, check_level
from steincritic.gof.assumptions import OUTWARD
from steincritic.gof.choose import TestName, gof_test, in_one_pass, tolerant
from steincritic.gof.combined import Combined
from steincritic.gof.fitted import Fitted
from steincritic.gof.large import WentBy, collected, rows_at_once
from steincritic.gof.moment_box import Gaps
from steincritic.gof.null import smallest_draws
from steincritic.gof.result import DATA, GofResult
from steincritic.gof.test import GofTest
from steincritic.gof.tolerance import ToleranceLike
from steincritic.models.base import Model, ModelLike, SamplingModel
from steincritic.models.bounded import coordinates_of
from steincritic.models.conditional import AtRows, is_conditional
from steincritic.models.coordinates import Bounds, columns_of
from steincritic.rng import derive
from steincritic.training.critic import Critic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 3
_SETS = 199  # null sets of lenses that look after another test


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
        subject = self.test.subject
        sentences = [f"Region {region}." for region in self.regions[:_SHOWN]]
        wrong = self.wrong_coordinates
        if wrong and not (self.covariates and len(self.coordinates) == 1):  # y alone: that is the verdict
            listed = ", ".join(map(str, wrong[:_SHOWN]))
            more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
            sentences.insert(0, f"Coordinates that do not fit: {listed}{more}.")
        if len(self.points):
            first = ", ".join(self.row(int(k)) for k in self.points.flagged[:5])
            many = f"{len(self.points)} of {len(self.data)} {subject.points}{self._of_sample}"
            sentences.insert(
                len(sentences) and 1,
                f"{many} are not explained by the {subject.model}, among them rows {first} (false discovery "
                f"rate {self.points.fdr:g}).",
            )
        if self.missing is not None and len(self.missing):
            sentences.append(
                f"{len(self.missing)} of {len(self.missing.witness)} draws of the {subject.model} lie where "
                f"{subject.data} are missing (false discovery rate {self.missing.fdr:g})."
            )
        sentences = [f"{seen}." for seen in self.seen] + sentences
        if self.test.tolerance is not None and self.test.tolerance.within:
            sentences.insert(len(self.seen), self.test.tolerance.within)
        if not sentences:
            sentences.append(
                "The difference is spread thin: no single coordinate, region or point carries enough of it "
                "to be named."
            )
        return tuple(sentences)

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
        if not self.rejected:
            return ""
        if self.fisher.lower > 0:
            unit = "" if self.fisher.units == "standard" else ", in the raw units of the data"
            if coordinates_of(self.critic.model) is not None:
                unit = ", in coordinates without bounds"
            return (
                f"Fisher divergence at least {self.fisher.lower:.3g} ({self.fisher.confidence:.0%} "
                f"confidence; found so far {self.fisher.estimate:.3g}){unit}."
            )
        return ""

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
            "regions": [
                {
                    "rule": r.rule,
                    "conditions": [[c.name, ">" if c.above else "<=", c.cut] for c in r.conditions],
                    "kind": r.kind,
                    "count": r.count,
                    "expected": r.expected,
                    "tested": r.tested,
                    "pvalue": r.pvalue,
                }
                for r in self.regions
            ],
            "rows": len(self.data),
            "columns": list(self.names),
        }

    def save(
        self,
        folder: str | Path,
        *,
        title: str | None = None,
        image_shape: tuple[int, ...] | None = None,
    ) -> list[Path]:
        """Write report.html, result.json, witness.csv and critic.safetensors; returns the files.

        Args:
            title: of the report; a question about data and model, or about draws, by default.
            image_shape: (height, width) or (height, width, 3) where rows are images.
        """
        from steincritic.report.folder import save_check  # results save themselves; see tests/test_layers.py
        from steincritic.report.page import About

        return save_check(
            self,
            Path(folder),
            about=About(title=title or self.test.subject.question),
            image_shape=image_shape,
        )

    def plot(self, ax: "Axes | None" = None, most: int = 20) -> "Axes":
        """The z value of each coordinate, the most telling first."""
        ax = axes(ax, height=0.25 * min(most, len(self.coordinates)) + 1)
        shown = self.coordinates[:most]
        wrong = set(self.wrong_coordinates)
        ax.barh(
            range(len(shown)),
            [c.z for c in shown],
            color=[RED if c in wrong else GRAY for c in shown],
        )
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
        return panel(lines, rejected=self.rejected, items=self.findings)


def check(
    model: ModelLike | None,
    x: PointsLike | Source,
    *,
    test: GofTest | TestName | GofResult | None = None,
    level: float = 0.05,
    fdr: float = 0.1,
    seed: int = 0,
    names: Sequence[str] | None = None,
    device: DeviceLike = None,
    target: Target | None = None,
    dependent: bool = False,
    units: Units = "standard",
    bounds: Bounds | None = None,
    tolerance: ToleranceLike | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
) -> CheckResult:
    """Test the model, and show where it fails if it does.

    Args:
        model: q: anything `as_model` takes, or with a target `as_conditional`. Without a sampler points have
            no p-values and there are no regions; None where x is ScoredPoints.
        x: data: tensor, array, frame, table, ScoredPoints, or the path of a file or of a folder of parquet
            parts. Rows of a table keep the numbers that they have in its file. Of more than 200,000 rows all
            are tested, in one pass, and a sample is searched for where the model fails.
        test: as for `gof_test`; or the result of a test of the same model on the same data.
        level: of the test, of the coordinates together and of the regions together.
        fdr: accepted share of false discoveries in the list of points.
        seed: decides every random choice.
        names: of the columns; those of a frame, else x1, x2, ...
        device: where to compute; a GPU where there is one by default.
        target: the columns of y, where the model is that of y given the others; as for `gof_test`.
        dependent: rows are in time order and depend on each other; as for `gof_test`.
        units: of the Fisher divergence: "standard" for columns in standard deviations of the model, "raw" for
            those of the data. Of a model with bounds it is in coordinates without.
        bounds: where the model ends, as for `gof_test`.
        tolerance: asks "wrong by more than this?", as for `gof_test`.
        engine, address: where null sets are looked at, as for `gof_test`.

    >>> import steincritic as sc, torch
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> x = q.sample(200, seed=1) + torch.tensor([1.0, 0.0])
    >>> sc.check(q, x, test="ksd").coordinates[0].name
    'x1'
    """
    check_level(level)
    check_level(fdr)
    check_choice(units, name="units", choices=UNITS)
    conditional = target is not None or is_conditional(model)
    tested = test if isinstance(test, GofResult) else None
    if tested is not None and tolerance is not None:
        raise InputError("the result of a test has its own tolerance: pass it to that test")
    asked = tolerant(None if isinstance(test, GofResult) else test, tolerance)
    x = collected(x)
    with using(engine, address):
        if tested is None and not conditional and not dependent:
            by = in_one_pass(model, x, asked, level, seed, device, names=names, bounds=bounds)
            if by is not None:
                _warn(by.result)
                return check_sample(by, level=level, fdr=fdr, seed=seed, units=units)
        given, sampled = rows_at_once(x, asked, seed, whole=dependent or isinstance(model, Fitted))
        if conditional:
            model, given = at_rows(model, given, target, names)
            names = given.columns
        adapted, points = model_and_points(model, given, device=device, bounds=bounds, names=names)
        used = arranged(given, adapted)
        columns = names if names is not None and used is given else getattr(used, "columns", None)
        within = coordinates_of(adapted)
        labels = column_names(columns, points.dim if within is None else columns_of(within, points.dim))
        if tested is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DoubtfulWarning)  # told here, where the caller stands
                place = points.x.device
                tested = gof_test(
                    adapted, points, asked, level, seed, place, dependent=dependent, names=labels
                )
            _warn(tested)
            tested = replace(tested, notes=(*tested.notes, *sampled, *reading_notes(given, used)))
        found = diagnose(adapted, points, tested, labels, level=level, fdr=fdr, seed=seed, units=units)
        return replace(found, rows=given.rows) if isinstance(given, Table) else found


def _warn(test: GofResult) -> None:
    """Of what is doubtful, where `check` was called."""
    for doubt in (*test.doubts, *map(str, test.caveats)):
        warnings.warn(doubt, DoubtfulWarning, stacklevel=3)


def check_sample(
    by: WentBy, *, level: float, fdr: float, seed: int, units: Units = "standard"
) -> CheckResult:
    """Where the model fails, looked for among rows chosen at random from those that went by."""
    passed, within = by.result.examined.passed, coordinates_of(by.model)
    dim = passed.sample.dim
    labels = column_names(by.columns, dim if within is None else columns_of(within, dim))
    rows = f"{len(passed.sample):,} rows, chosen at random"
    note = f"Points, coordinates and regions were looked for among {rows}."
    test = replace(by.result, notes=(*by.result.notes, note))
    found = diagnose(by.model, passed.sample, test, labels, level=level, fdr=fdr, seed=seed, units=units)
    return replace(found, rows=passed.rows)


def diagnose(
    model: Model | None,
    points: ScoredPoints,
    test: GofResult,
    names: tuple[str, ...],
    *,
    level: float,
    fdr: float,
    seed: int,
    units: Units = "standard",
    whole: ScoredPoints | None = None,
    lengths: Tensor | None = None,
    in_order: bool = False,
) -> CheckResult:
    """Where the model fails, by critics of both halves and by what the lenses of the test saw.

    Args:
        whole: the points that were tested, if these are some of them that hardly depend on each other.
        lengths: of blocks of such rows.
        in_order: halves are the first and the second half of the rows.
    """
    if isinstance(model, AtRows):
        return _diagnose_given(model, points, test, names, level=level, fdr=fdr, seed=seed, units=units)
    within = coordinates_of(model)
    halves = split_in_halves(model, points, seed=derive(seed, "diagnosis"), in_order=in_order)
    halves = in_own_columns(halves, within)
    looked_at = points if whole is None else whole
    return CheckResult(
        test=test,
        seen=_seen(model, looked_at, names, test, level, lengths) if test.rejected else (),
        points=find_points(halves, fdr=fdr, listed=test.rejected),
        missing=find_missing(halves, fdr=fdr, listed=test.rejected),
        coordinates=find_coordinates(halves, names, seed=derive(seed, "coordinates")),
        regions=find_regions(halves, names, level=level, listed=test.rejected),
        fisher=fisher_bound(halves, units=units),
        checkup=glance(model, points.x, seed=derive(seed, "glance")),
        halves=halves,
        data=own_columns(points, within),
        names=names,
        level=level,
        seed=seed,
    )


def _diagnose_given(
    model: AtRows,
    points: ScoredPoints,
    test: GofResult,
    names: tuple[str, ...],
    *,
    level: float,
    fdr: float,
    seed: int,
    units: Units,
) -> CheckResult:
    """Where q(y | x) fails. Regions of x are among what was seen; x itself is never missing anywhere."""
    if units != "standard":
        raise InputError("the Fisher divergence of y given x is in the model's spread at x: units='standard'")
    rows = conditional.Rows.of(model, points, seed=derive(seed, "diagnosis"))
    return CheckResult(
        test=test,
        seen=rows.seen(test, names, level) if test.rejected else (),
        points=rows.find_points(fdr=fdr, listed=test.rejected, seed=derive(seed, "points")),
        missing=None,
        coordinates=find_coordinates(rows.halves, names, seed=derive(seed, "coordinates")),
        regions=(),
        fisher=fisher_bound(rows.halves),
        checkup=glance(model, points.x, seed=derive(seed, "glance")),
        halves=rows.halves,
        data=points,
        names=names,
        level=level,
        seed=seed,
        covariates=model.covariates,
    )


def _seen(
    model: Model | None,
    points: ScoredPoints,
    names: Sequence[str],
    test: GofResult,
    level: float,
    lengths: Tensor | None,
) -> tuple[Finding, ...]:
    """By the lenses of the test; where it has none, quick ones look for this alone."""
    if any(caveat.kind == OUTWARD for caveat in test.caveats):
        return ()  # of a density that does not exist
    if isinstance(test.examined, Gaps):
        return beyond_tolerance(test.examined, names)
    if test.examined is not None:
        subject, within = test.subject, coordinates_of(model)
        found = find(
            test.examined, points, names, level=level, subject=subject, lengths=lengths, coordinates=within
        )
        return found or fallback(test.readings)
    if not isinstance(model, SamplingModel):
        return ()
    lenses = Combined(critics=None, draws=max(_SETS, smallest_draws(level)), reference=_SETS)
    try:
        (looked,) = lenses.run(model, points.alone(), level=level, seeds=[test.seed])
    except InputError:  # extreme values, which the test that was asked for can bear
        return ()
    within = coordinates_of(model)
    return find(looked.examined, points, names, level=level, subject=test.subject, coordinates=within)


def column_names(names: Iterable[object] | None, dim: int) -> tuple[str, ...]:
    """The names that were given, one per column; x1, x2, ... where none were."""
    if names is None:
        return tuple(f"x{j + 1}" for j in range(dim))
    labels = tuple(map(str, names))
    if len(labels) != dim:
        raise InputError(f"names must name the {dim} columns of x, got {len(labels)} names")
    return labels
