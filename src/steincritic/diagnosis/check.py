"""check: whether a model fails, how far, and where."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import Tensor

from steincritic.data.binary import numbered_names
from steincritic.data.conditional import Target, at_rows
from steincritic.data.layout import Table
from steincritic.data.points import PointsLike, ScoredPoints, arranged, model_and_points, reading_notes
from steincritic.data.source import Source
from steincritic.devices import DeviceLike
from steincritic.diagnosis import conditional
from steincritic.diagnosis.check_result import CheckResult
from steincritic.diagnosis.coordinates import find_coordinates
from steincritic.diagnosis.doctor.doctor import glance
from steincritic.diagnosis.findings import Finding, beyond_tolerance, fallback, find
from steincritic.diagnosis.fisher import UNITS, Units, fisher_bound
from steincritic.diagnosis.halves import in_own_columns, own_columns, split_in_halves
from steincritic.diagnosis.points import find_missing, find_points
from steincritic.diagnosis.regions import find_regions
from steincritic.engine import EngineName, using
from steincritic.errors import DoubtfulWarning, InputError, check_choice, check_level
from steincritic.gof.assumptions import OUTWARD
from steincritic.gof.choose import TestName, gof_test, in_one_pass, tolerant
from steincritic.gof.combined import Combined
from steincritic.gof.fitted import Fitted
from steincritic.gof.large import WentBy, collected, rows_at_once
from steincritic.gof.moment_box import Gaps
from steincritic.gof.null import smallest_draws
from steincritic.gof.result import GofResult
from steincritic.gof.test import GofTest
from steincritic.gof.tolerance import ToleranceLike
from steincritic.models.base import Model, ModelLike, SamplingModel
from steincritic.models.bounded import coordinates_of
from steincritic.models.conditional import AtRows, is_conditional
from steincritic.models.coordinates import Bounds, columns_of
from steincritic.rng import derive

_SETS = 199  # null sets of lenses that look after another test


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
    examined = test.examined
    if isinstance(examined, Gaps):
        return beyond_tolerance(examined, names)
    if examined is None:
        if not isinstance(model, SamplingModel):
            return ()
        lenses = Combined(critics=None, draws=max(_SETS, smallest_draws(level)), reference=_SETS)
        try:
            (looked,) = lenses.run(model, points.alone(), level=level, seeds=[test.seed])
        except InputError:  # extreme values, which the test that was asked for can bear
            return ()
        examined = looked.examined
    subject, within = test.subject, coordinates_of(model)
    found = find(examined, points, names, level=level, subject=subject, lengths=lengths, coordinates=within)
    return found or fallback(test.readings)


def column_names(names: Iterable[object] | None, dim: int) -> tuple[str, ...]:
    """The names that were given, one per column; x1, x2, ... where none were."""
    if names is None:
        return numbered_names(dim)
    labels = tuple(map(str, names))
    if len(labels) != dim:
        raise InputError(f"names must name the {dim} columns of x, got {len(labels)} names")
    return labels
