"""gof_test: the one door to every test, and the rule that picks a test where none is named."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from steincritic.data.conditional import Target, at_rows
from steincritic.data.points import PointsLike, ScoredPoints, arranged, model_and_points, reading_notes
from steincritic.data.source import Source
from steincritic.devices import DeviceLike
from steincritic.engine import EngineName, using
from steincritic.errors import DoubtfulWarning, InputError, check_level, did_you_mean, listed
from steincritic.gof import multiplier
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.assumptions import OF_SERIES, find_caveats, slowness, unseen_weights
from steincritic.gof.combined import FEWEST as _FEW
from steincritic.gof.combined import Combined
from steincritic.gof.conditional import caveats_at_rows, check_for_rows
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.fitted import Fitted
from steincritic.gof.forecast import Forecast, begin
from steincritic.gof.fssd import Fssd
from steincritic.gof.hypothesis import PLENTIFUL
from steincritic.gof.kernel import Ksd
from steincritic.gof.large import WentBy, collected, large_source, rows_at_once, stream_test
from steincritic.gof.moment_box import Gaps
from steincritic.gof.result import Caveat, GofResult
from steincritic.gof.serial import stein_series
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.gof.tolerance import ToleranceLike, as_tolerance
from steincritic.lenses.noise import Noise
from steincritic.models.base import Model, ModelLike, SamplingModel, as_model
from steincritic.models.bounded import coordinates_of, unbounded
from steincritic.models.conditional import AtRows, is_conditional
from steincritic.models.coordinates import Bounds, columns_of
from steincritic.models.mixing import autocorrelation_time

TestName: TypeAlias = Literal["combined", "crossfit", "split", "ksd", "ksdagg", "fssd"]
TESTS: dict[str, GofTest] = {
    test.name: test for test in (Combined(), CrossFit(), Split(), Ksd(), KsdAgg(), Fssd())
}  # a name stands for the default value
_BY_DRAWS = ("fresh", "refitted", "pooled", "permutation", "scaled")  # thresholds
_LEAST_WORTH = 20  # independent rows
_SLOWER = 8  # rows per change of sign, in rows that are worth one; found on autoregressions with seed 5
FEWEST = 4 * CrossFit().folds  # points below which critics have nothing to learn from


def gof_test(
    model: ModelLike | None,
    x: PointsLike | Source,
    test: GofTest | TestName | None = None,
    level: float = 0.05,
    seed: int = 0,
    device: DeviceLike = None,
    *,
    target: Target | None = None,
    dependent: bool = False,
    names: Sequence[str] | None = None,
    bounds: Bounds | None = None,
    tolerance: ToleranceLike | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
    before: Callable[[Forecast], None] | None = None,
) -> GofResult:
    """Does the model fit the data?

    Args:
        model: q: anything `as_model` takes, or with a target `as_conditional`; None where x is ScoredPoints
            and the test needs no draws.
        x: the data: tensor, array, frame, path of a file or of a folder of parquet parts, or ScoredPoints.
            More than 200,000 rows go by in one pass: see `gof.streamed`.
        test: a value such as `sc.Split(train=0.3)`, or the name of one with its defaults: "combined",
            "crossfit", "split", "ksd", "ksdagg" or "fssd". None takes the combined test: exact where the
            model can be sampled, approximate where it cannot. The result says which and why.
        level: the accepted probability of a false alarm.
        seed: decides every random choice.
        device: where to compute; a GPU where there is one by default.
        target: the column of y, or several, by name or by number from 0, where the model is that of y given
            the other columns.
        dependent: rows are in time order and depend on each other. The test then goes by scores alone, with
            random signs for blocks that are longer the more slowly the rows change; approximate.
        names: of the columns, for what is said about them; those of a frame, else x1, x2, ...
        bounds: where the model ends, by column: {"age": (0, None), "share": (0, 1)}, a list with a pair or
            None per column, or "simplex". Distributions that state their support need none.
        tolerance: asks "wrong by more than this?" instead: 0.05 for means and spreads of columns,
            "fisher:0.1" or `sc.FisherBall(0.1)`, "foreign:0.03" or `sc.Contamination(0.03)`. See
            `gof.tolerance`.
        engine: where null sets are looked at: "serial" (this thread), "threads", "local" (processes) or
            "dask"; by default threads on a CPU, this thread on a GPU. The numbers are the same.
        address: of a Dask scheduler; without it the Dask client that is open in this process, else a cluster
            on this machine (`docs/howto/cluster.md`).
        before: told how long the test takes before it starts, such as `print`; may raise to stop it.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> sc.gof_test(q, q.sample(100, seed=1) + 1.0, "ksd").rejected
    True
    """
    check_level(level)
    test = tolerant(test, tolerance)
    conditional = target is not None or is_conditional(model)
    x = collected(x)
    with using(engine, address):
        if not conditional and not dependent:
            by = in_one_pass(model, x, test, level, seed, device, names=names, bounds=bounds, before=before)
            if by is not None:
                return _doubted(by.result)
        x, sampled = rows_at_once(x, test, seed, whole=dependent or isinstance(model, Fitted))
        if conditional:
            model, x = at_rows(model, x, target, names)
            names = x.columns
        adapted, points = model_and_points(model, x, device=device, bounds=bounds, names=names)
        used = arranged(x, adapted)
        chosen, notes = _settled(test, adapted, points, sampled, dependent=dependent)
        if engine is not None and not hasattr(chosen, "engine"):
            raise InputError(f"engine spreads null runs of combined and crossfit; {chosen.name} has none")
        result = _done(chosen, adapted, points, level=level, seed=seed, before=before)
        named = names if names is not None else getattr(used, "columns", None)
        if isinstance(result.examined, Gaps) and named is not None:
            result = replace(result, tolerance=result.examined.told([str(name) for name in named]))
        caveats = caveats_of(result, adapted, points, named, dependent=dependent)
        told = (*notes, *result.notes, *bounds_notes(adapted, points.dim, named), *reading_notes(x, used))
        return _doubted(replace(result, notes=told, caveats=caveats))


def _settled(
    test: GofTest | TestName | None,
    model: Model | None,
    points: ScoredPoints,
    sampled: Sequence[str],
    *,
    dependent: bool,
) -> tuple[GofTest, list[str]]:
    """The test for such a model and such points, and what to say about it beside what was sampled."""
    chosen, reason = choose_test(test, model, len(points))
    notes = [*([] if reason is None else [f"Test {chosen.name}: {reason}."]), *sampled]
    if isinstance(model, AtRows):
        check_for_rows(chosen, dependent=dependent)
        if len(points) >= PLENTIFUL:
            notes.append(f"From {PLENTIFUL:,} rows on, y given x is looked at by quick lenses alone.")
    if not dependent:
        return chosen, notes
    if isinstance(model, Fitted):
        raise InputError("rows that depend on each other cannot be tested against a Fitted model yet")
    worth = autocorrelation_time(stein_series(points))
    slow = slowed(chosen, worth)
    if slow is None:
        tests = "combined, split, ksd and ksdagg"
        raise InputError(f"dependent rows are for the tests {tests}; got {chosen.name}")
    return slow, [f"Rows were taken as dependent: about {worth:.1f} of them are worth one."]


def _done(
    test: GofTest,
    model: Model | None,
    points: ScoredPoints,
    *,
    level: float,
    seed: int,
    before: Callable[[Forecast], None] | None,
) -> GofResult:
    """The test of one dataset, by its own engine if it has one; what it takes is told before."""
    with using(getattr(test, "engine", None), getattr(test, "address", None)):
        begun = begin(test, model, points, level=level, seed=seed)
        if before is not None:
            before(begun.forecast())
        return begun.result()


def _doubted(result: GofResult) -> GofResult:
    """The result; its doubts are warned of where `gof_test` was called."""
    for doubt in (*result.doubts, *map(str, result.caveats)):
        warnings.warn(doubt, DoubtfulWarning, stacklevel=3)
    return result


def in_one_pass(
    model: ModelLike | None,
    x: PointsLike | Source,
    test: GofTest | TestName | None,
    level: float,
    seed: int,
    device: DeviceLike,
    *,
    names: Sequence[str] | None,
    bounds: Bounds | None,
    before: Callable[[Forecast], None] | None = None,
) -> WentBy | None:
    """The test of rows that are too many to be tested at once; None where they are not, or need to be."""
    source = large_source(x, test)
    if source is None or model is None or isinstance(model, Fitted):
        return None
    adapted = as_model(model)
    chosen, reason = choose_test(test, adapted, source.rows)
    if not isinstance(chosen, Combined) or not chosen.goes_by(unbounded(adapted), source.rows):
        return None
    by = stream_test(adapted, source, chosen, level, seed, device, names=names, bounds=bounds, before=before)
    if by is None:
        return None
    head, notes = by.result.examined.passed.head, [] if reason is None else [f"Test {chosen.name}: {reason}."]
    told = (*notes, *by.result.notes, *bounds_notes(by.model, head.dim, by.columns))
    caveats = caveats_of(by.result, by.model, head, by.columns)
    return replace(by, result=replace(by.result, notes=told, caveats=caveats))


def bounds_notes(model: Model | None, dim: int, names: Sequence[object] | None) -> tuple[str, ...]:
    """In which coordinates a model with bounds was tested."""
    within = coordinates_of(model)
    if within is None:
        return ()
    columns = columns_of(within, dim)
    free = within.names([f"x{j + 1}" for j in range(columns)] if names is None else list(map(str, names)))
    notes = [f"Tested in coordinates without bounds: {listed(free, 6)}."]
    if (cut := getattr(model, "cut", 0.0)) > 0:
        notes.append(f"{cut:.1%} of the model's draws lie outside of the bounds: it was cut off there.")
    return tuple(notes)


def tolerant(test: GofTest | TestName | None, tolerance: ToleranceLike | None) -> GofTest | TestName | None:
    """The test that a tolerance stands for, where one is given."""
    if tolerance is None:
        return test
    if test is not None:
        raise InputError("pass test or tolerance, not both: a tolerance has a test of its own")
    return as_tolerance(tolerance)


def caveats_of(
    result: GofResult,
    model: Model | None,
    points: ScoredPoints,
    names: Sequence[object] | None = None,
    *,
    dependent: bool = False,
) -> tuple[Caveat, ...]:
    """What this test takes for granted and these points do not show."""
    labels = None if names is None else [str(name) for name in names]
    if isinstance(model, AtRows):
        return caveats_at_rows(model, points, labels)
    found = find_caveats(model, points, labels, by_scores=result.threshold not in _BY_DRAWS)
    if result.threshold not in _BY_DRAWS and Noise.name not in result.settings.get("lenses", ()):
        found = (*found, *unseen_weights(model, points))
    if dependent:
        found = tuple(caveat for caveat in found if caveat.kind not in OF_SERIES)
        worth = result.n / slowness(points.x.double().cpu())
        if worth < _LEAST_WORTH:
            few = (
                f"Rows change so slowly that {result.n} of them are worth about {worth:.0f} independent "
                "ones: this test can hardly reject anything. Collect rows over a longer time."
            )
            found = (Caveat("too few points", few, grave=True), *found)
    least = 2.0 ** (1 - result.n)  # of a bootstrap by signs: all of them alike
    if result.threshold in ("wild", "multiplier") and least > result.level:
        few = (
            f"{result.n} points cannot give a p-value below {least:.2g} without draws of the model, so this "
            "test cannot reject: give the model a sampler, or collect more points."
        )
        found = (Caveat("too few points", few, grave=True), *found)
    return found


def slowed(test: GofTest, worth: float, chains: int = 1) -> GofTest | None:
    """The test where so many rows in a row are worth one; None if it is for independent rows alone."""
    slow: Any = test
    if hasattr(test, "slowness"):
        return cast(GofTest, replace(slow, slowness=worth, chains=chains))
    if hasattr(test, "flip"):
        return cast(GofTest, replace(slow, flip=min(0.5, 1 / (_SLOWER * worth))))
    return None


def choose_test(test: GofTest | str | None, model: Model | None, n: int) -> tuple[GofTest, str | None]:
    """The test that was asked for; where none was, the one for such a model and n points, with the reason."""
    if isinstance(model, Fitted):
        return _for_fitted(test)
    if test is None:
        return _automatic(model, n)
    if isinstance(test, str):
        if test not in TESTS:
            known = f"{', '.join(TESTS)} or a value of one"
            raise InputError(f"test must be one of {known}; got {test!r}{did_you_mean(test, TESTS)}")
        return TESTS[test], None
    if isinstance(test, type):
        raise InputError(f"test must be a value such as {test.__name__}(), got the class itself")
    if not hasattr(test, "run"):
        names = ", ".join(type(known).__name__ for known in TESTS.values())
        raise InputError(f"test must be a name or a value of {names}; got {test!r}")
    return test, None


def _for_fitted(test: GofTest | str | None) -> tuple[GofTest, str | None]:
    """Names stand for what refits: quick lenses alone, or one kernel."""
    if test in (None, Combined.name):
        return Combined(critics=None), "the model was fitted to these data, so null sets are fitted anew"
    chosen, _ = choose_test(test, None, 0)
    if isinstance(chosen, Combined):
        return chosen, None
    if isinstance(chosen, Ksd):
        return replace(chosen, threshold="fresh"), None
    raise InputError(
        f"a Fitted model is for the tests combined and ksd, which fit it anew; got {chosen.name}"
    )


def _automatic(model: Model | None, n: int) -> tuple[GofTest, str]:
    if not isinstance(model, SamplingModel):
        if n < multiplier.FEWEST:
            return Ksd(), "the model cannot be sampled, so the threshold is a wild bootstrap"
        return Combined(), "the model cannot be sampled, so lenses look at its scores under random signs"
    if n < _FEW:
        return Ksd(threshold="fresh"), f"{n} points are too few for lenses, so one kernel and an exact level"
    if n < FEWEST:
        return Combined(critics=None), f"{n} points are too few to train critics on, so quick lenses alone"
    return Combined(), "the model can be sampled, so every lens looks"
