"""check: whether a model fails, how far, and where."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from steincritic.data.conditional import Target
from steincritic.data.points import PointsLike, ScoredPoints, column_names
from steincritic.data.source import Source
from steincritic.devices import DeviceLike
from steincritic.diagnosis import conditional
from steincritic.diagnosis.check_result import CheckResult
from steincritic.diagnosis.coordinates import find_coordinates
from steincritic.diagnosis.doctor.doctor import glance
from steincritic.diagnosis.findings import Finding, beyond_tolerance, fallback, find
from steincritic.diagnosis.halves import fisher_bound, in_own_columns, own_columns, split_in_halves
from steincritic.diagnosis.points import find_missing, find_points
from steincritic.diagnosis.regions import find_regions
from steincritic.engine import EngineName, using
from steincritic.errors import DoubtfulWarning, InputError, check_level, without
from steincritic.gof.assumptions import OUTWARD
from steincritic.gof.choose import Asked, TestName, ToleranceLike, question, tested
from steincritic.gof.combined import Combined
from steincritic.gof.large import Tested
from steincritic.gof.moment_box import Gaps
from steincritic.gof.null import smallest_draws
from steincritic.gof.result import GofResult
from steincritic.gof.test import GofTest
from steincritic.models.base import Model, ModelLike, SamplingModel
from steincritic.models.bounded import coordinates_of
from steincritic.models.conditional import AtRows
from steincritic.models.coordinates import Bounds, columns_of
from steincritic.rng import derive

_SETS = 199  # null sets of lenses that look after another test


@without(units="leave it out; columns are in standard deviations of the model")
def check(
    model: ModelLike | None,
    x: PointsLike | Source,
    *,
    test: GofTest | TestName | Asked | GofResult | None = None,
    level: float = 0.05,
    fdr: float = 0.1,
    seed: int = 0,
    names: Sequence[str] | None = None,
    device: DeviceLike = None,
    target: Target | None = None,
    dependent: bool = False,
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
    if isinstance(test, GofResult) and tolerance is not None:
        raise InputError("the result of a test has its own tolerance: pass it to that test")
    about: dict[str, Any] = {"target": target, "names": names, "bounds": bounds}
    with using(engine, address):
        if isinstance(test, GofResult):
            asked = question(model, x, seed, device, whole=dependent, **about)
            outcome = Tested(asked, test)
        else:
            about |= {"dependent": dependent, "tolerance": tolerance}
            outcome = tested(model, x, test, level, seed, device, **about)
            for doubt in (*outcome.result.doubts, *map(str, outcome.result.caveats)):
                warnings.warn(doubt, DoubtfulWarning, stacklevel=3)  # where `check` was called, past @without
        return diagnosed(outcome, level=level, fdr=fdr, seed=seed)


def diagnosed(outcome: Tested, *, level: float, fdr: float, seed: int) -> CheckResult:
    """Where the model fails; of rows that went by, looked for among some that were chosen at random."""
    asked, test = outcome.question, outcome.result
    if outcome.went_by:
        rows = f"{len(asked.points):,} rows, chosen at random"
        note = f"Points, coordinates and regions were looked for among {rows}."
        test = replace(test, notes=(*test.notes, note))
    within, dim = coordinates_of(asked.model), asked.points.dim
    labels = column_names(asked.names, dim if within is None else columns_of(within, dim))
    result = diagnose(asked.model, asked.points, test, labels, level=level, fdr=fdr, seed=seed)
    return result if asked.rows is None else replace(result, rows=asked.rows)


def diagnose(
    model: Model | None,
    points: ScoredPoints,
    test: GofResult,
    names: tuple[str, ...],
    *,
    level: float,
    fdr: float,
    seed: int,
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
    about: dict[str, Any] = {"test": test, "names": names, "level": level, "seed": seed}
    about["checkup"] = glance(model, points.x, seed=derive(seed, "glance"))
    drawn, listed = derive(seed, "coordinates"), test.rejected
    if isinstance(model, AtRows):  # regions of x are among what is seen; x itself is never missing anywhere
        rows = conditional.Rows.of(model, points, seed=derive(seed, "diagnosis"))
        return CheckResult(
            **about,
            seen=rows.findings(test, names, level) if listed else (),
            points=rows.find_points(fdr=fdr, listed=listed, seed=derive(seed, "points")),
            missing=None,
            coordinates=find_coordinates(rows.halves, names, seed=drawn),
            regions=(),
            fisher=fisher_bound(rows.halves),
            halves=rows.halves,
            data=points,
            covariates=model.covariates,
        )
    within = coordinates_of(model)
    halves = split_in_halves(model, points, seed=derive(seed, "diagnosis"), in_order=in_order)
    halves = in_own_columns(halves, within)
    looked_at = points if whole is None else whole
    return CheckResult(
        **about,
        seen=_findings(model, looked_at, names, test, level, lengths) if listed else (),
        points=find_points(halves, fdr=fdr, listed=listed),
        missing=find_missing(halves, fdr=fdr, listed=listed),
        coordinates=find_coordinates(halves, names, seed=drawn),
        regions=find_regions(halves, names, level=level, listed=listed),
        fisher=fisher_bound(halves),
        halves=halves,
        data=own_columns(points, within),
    )


def _findings(
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
            (result,) = lenses.run(model, points.alone(), level=level, seeds=[test.seed])
        except InputError:  # extreme values, which the test that was asked for can bear
            return ()
        examined = result.examined
    subject, space = test.subject, coordinates_of(model)
    findings = find(examined, points, names, level=level, subject=subject, lengths=lengths, coordinates=space)
    return findings or fallback(test.readings)
