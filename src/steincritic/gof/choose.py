"""gof_test: the one door to every test, and the rule that picks a test where none is named."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from steincritic.data.conditional import Target, at_rows
from steincritic.data.layout import Table
from steincritic.data.points import (
    PointsLike,
    ScoredPoints,
    arranged,
    column_names,
    model_and_points,
    reading_notes,
    scored,
    within_bounds,
)
from steincritic.data.source import Source, first_row
from steincritic.devices import DeviceLike, resolve_device
from steincritic.engine import EngineName, using
from steincritic.errors import DoubtfulWarning, InputError, check_level, did_you_mean, listed, without
from steincritic.gof import combined, multiplier
from steincritic.gof.assumptions import OF_SERIES, find_caveats, slowness, unseen_weights
from steincritic.gof.combined import FEWEST as _FEW
from steincritic.gof.combined import Combined
from steincritic.gof.conditional import caveats_at_rows
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.fisher_ball import FisherBall
from steincritic.gof.fitted import Fitted
from steincritic.gof.hypothesis import PLENTIFUL
from steincritic.gof.kernel import Ksd, KsdAgg
from steincritic.gof.large import Question, Tested, large_source, rows_at_once
from steincritic.gof.moment_box import Gaps, MomentBox
from steincritic.gof.one_pass import one_pass, scored_blocks
from steincritic.gof.result import Caveat, GofResult
from steincritic.gof.serial import stein_series
from steincritic.gof.split import Split
from steincritic.gof.streamed import Judged, Streamed
from steincritic.gof.test import GofTest
from steincritic.lenses.noise import Noise
from steincritic.models.base import Model, ModelLike, SamplingModel, as_model
from steincritic.models.bounded import coordinates_of, unbounded
from steincritic.models.conditional import AtRows, is_conditional
from steincritic.models.coordinates import Bounds, columns_of
from steincritic.models.mixing import autocorrelation_time
from steincritic.training.fit import Training

TestName: TypeAlias = Literal["combined", "crossfit", "split", "ksd", "ksdagg"]
TESTS: dict[str, GofTest] = {
    test.name: test for test in (Combined(), CrossFit(), Split(), Ksd(), KsdAgg())
}  # a name stands for the default value
ToleranceLike: TypeAlias = float | str | MomentBox | FisherBall
_TOLERANCES: dict[str, Callable[[float], GofTest]] = {"moments": MomentBox, "fisher": FisherBall}
_BY_DRAWS = ("fresh", "refitted", "pooled", "permutation", "scaled")  # thresholds
_LEAST_WORTH = 20  # independent rows
_SLOWER = 8  # rows per change of sign, in rows that are worth one; found on autoregressions with seed 5
FEWEST = 4 * CrossFit().folds  # points below which critics have nothing to learn from


@without(before="leave it out; a bar shows how far long work is")
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
) -> GofResult:
    """Does the model fit the data?

    Args:
        model: q: anything `as_model` takes, or with a target `as_conditional`; None where x is ScoredPoints
            and the test needs no draws.
        x: the data: tensor, array, frame, path of a file or of a folder of parquet parts, or ScoredPoints.
            More than 200,000 rows go by in one pass: see `gof.streamed`.
        test: a value such as `sc.Split(train=0.3)`, or the name of one with its defaults: "combined",
            "crossfit", "split", "ksd" or "ksdagg". None takes the combined test: exact where the
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
            "fisher:0.1" or `sc.FisherBall(0.1)` for a Fisher divergence of at most 0.1².
        engine: where null sets are looked at: "serial" (this thread), "threads", "local" (processes) or
            "dask"; by default threads on a CPU, this thread on a GPU. The numbers are the same.
        address: of a Dask scheduler; without it the Dask client that is open in this process, else a cluster
            on this machine (`docs/howto/cluster.md`).

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> sc.gof_test(q, q.sample(100, seed=1) + 1.0, "ksd").rejected
    True
    """
    outcome = tested(
        model,
        x,
        test,
        level,
        seed,
        device,
        target=target,
        dependent=dependent,
        names=names,
        bounds=bounds,
        tolerance=tolerance,
        engine=engine,
        address=address,
    )
    for doubt in (*outcome.result.doubts, *map(str, outcome.result.caveats)):
        warnings.warn(doubt, DoubtfulWarning, stacklevel=3)  # where `gof_test` was called, past @without
    return outcome.result


def tested(
    model: ModelLike | None,
    x: PointsLike | Source,
    test: "GofTest | TestName | Asked | None",
    level: float,
    seed: int,
    device: DeviceLike,
    *,
    target: Target | None = None,
    dependent: bool = False,
    names: Sequence[str] | None = None,
    bounds: Bounds | None = None,
    tolerance: ToleranceLike | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
) -> Tested:
    """As `gof_test`, with what is needed to look where the model fails; doubts are not warned of."""
    check_level(level)
    test = tolerant(test, tolerance)
    with using(engine, address):
        if not (target is not None or is_conditional(model) or dependent):
            by = in_one_pass(model, x, test, level, seed, device, names=names, bounds=bounds)
            if by is not None:
                return by
        asked = question(model, x, seed, device, target=target, whole=dependent, names=names, bounds=bounds)
        adapted, points, named = asked.model, asked.points, asked.names
        chosen, notes = _settled(test, adapted, points, dependent=dependent)
        if engine is not None and not isinstance(chosen, Combined | CrossFit):
            raise InputError(f"engine spreads null runs of combined and crossfit; {chosen.name} has none")
        (result,) = chosen.run(adapted, points.alone(), level=level, seeds=[seed])
        if isinstance(result.examined, Gaps) and named is not None:
            result = replace(result, tolerance=result.examined.tolerated(named))
        caveats = caveats_of(result, adapted, points, named, dependent=dependent)
        all_notes = (*notes, *result.notes, *bounds_notes(adapted, points.dim, named), *asked.notes)
        return Tested(asked, replace(result, notes=all_notes, caveats=caveats))


def question(
    model: ModelLike | None,
    x: PointsLike | Source,
    seed: int,
    device: DeviceLike,
    *,
    target: Target | None,
    whole: bool,
    names: Sequence[str] | None,
    bounds: Bounds | None,
) -> Question:
    """Model and data in memory: all rows where the whole is needed, else a sample of very many."""
    data, sampled = rows_at_once(x, seed, whole=whole or isinstance(model, Fitted))
    if target is not None or is_conditional(model):
        model, data = at_rows(model, data, target, names)
        names = data.columns
    adapted, points = model_and_points(model, data, device=device, bounds=bounds, names=names)
    used = arranged(data, adapted)
    columns = names if names is not None and used is data else getattr(used, "columns", None)
    if columns is not None:
        within = coordinates_of(adapted)
        columns = column_names(columns, points.dim if within is None else columns_of(within, points.dim))
    return Question(
        adapted,
        points,
        columns,
        data.rows if isinstance(data, Table) else None,
        getattr(data, "dropped", 0),
        (*sampled, *reading_notes(data, used)),
    )


def _settled(
    test: "GofTest | TestName | Asked | None",
    model: Model | None,
    points: ScoredPoints,
    *,
    dependent: bool,
) -> tuple[GofTest, list[str]]:
    """The test for such a model and such points, and what to say about it."""
    chosen, reason = choose_test(test, model, len(points))
    notes = [] if reason is None else [f"Test {chosen.name}: {reason}."]
    if isinstance(model, AtRows):
        if chosen.name != "combined":
            by = "the combined test, which keeps x as it is"
            raise InputError(f"a conditional model is tested by {by}; got {chosen.name}")
        if dependent:
            raise InputError(
                "dependent rows are for models of all columns: a conditional model draws y row by row"
            )
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


def in_one_pass(
    model: ModelLike | None,
    x: PointsLike | Source,
    test: "GofTest | TestName | Asked | None",
    level: float,
    seed: int,
    device: DeviceLike,
    *,
    names: Sequence[str] | None,
    bounds: Bounds | None,
) -> Tested | None:
    """The test of rows that are too many to be tested at once; None where they are not, or need to be."""
    source = large_source(x)
    if source is None or model is None or isinstance(model, Fitted):
        return None
    adapted = as_model(model)
    chosen, reason = choose_test(test, adapted, source.rows)
    if not isinstance(chosen, Combined) or not chosen.goes_by(unbounded(adapted), source.rows):
        return None
    head = first_row(source)
    if bounds is not None:
        adapted = within_bounds(adapted, bounds, arranged(head, adapted), names)
    first = scored(adapted, head, names=names).x
    like = first[:0].to(resolve_device(device, first))
    streamed = Streamed(chosen, unbounded(adapted), like, level=level, seed=seed)
    passed = one_pass(streamed.summing, scored_blocks(adapted, source, device=device, names=names))
    if passed.n <= combined.EXACT_UP_TO:
        return None
    result = Judged(streamed, passed).result()
    head = replace(head, dropped=passed.dropped)
    used = arranged(head, adapted)
    columns = used.columns if names is None else tuple(map(str, names))
    why = () if reason is None else (f"Test {chosen.name}: {reason}.",)
    within = bounds_notes(streamed.model, passed.head.dim, columns)
    all_notes = (*why, *result.notes, *reading_notes(head, used), *within)
    caveats = caveats_of(result, streamed.model, passed.head, columns)
    asked = Question(streamed.model, passed.sample, columns, passed.rows, passed.dropped)
    return Tested(asked, replace(result, notes=all_notes, caveats=caveats), went_by=True)


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


def tolerant(
    test: "GofTest | TestName | Asked | None", tolerance: ToleranceLike | None
) -> "GofTest | TestName | Asked | None":
    """The test that a tolerance stands for, where one is given."""
    if tolerance is None:
        return test
    if test is not None:
        raise InputError("pass test or tolerance, not both: a tolerance has a test of its own")
    return as_tolerance(tolerance)


def as_tolerance(tolerance: ToleranceLike) -> GofTest:
    """A test whose null hypothesis is "wrong by no more than this": a number, "kind:number", or the test."""
    if isinstance(tolerance, MomentBox | FisherBall):
        return tolerance
    if not isinstance(tolerance, str):
        return MomentBox(tolerance)
    kind, _, size = tolerance.rpartition(":")
    try:
        return _TOLERANCES[kind.strip() or "moments"](float(size))
    except (KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        if kind.strip() == "foreign":  # for one release
            raise InputError("tolerance foreign: is gone: ask for a share, such as 0.05") from None
        hint = did_you_mean(kind, _TOLERANCES)
        raise InputError(
            f"a tolerance is a number such as 0.05, or fisher:0.1; got {tolerance!r}{hint}"
        ) from None


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
        return tuple(caveats_at_rows(model, points, labels))
    caveats = find_caveats(model, points, labels, by_scores=result.threshold not in _BY_DRAWS)
    if result.threshold not in _BY_DRAWS and Noise.name not in result.settings.get("lenses", ()):
        caveats = (*caveats, *unseen_weights(model, points))
    if dependent:
        caveats = tuple(caveat for caveat in caveats if caveat.kind not in OF_SERIES)
        worth = result.n / slowness(points.x.double().cpu())
        if worth < _LEAST_WORTH:
            few = (
                f"Rows change so slowly that {result.n} of them are worth about {worth:.0f} independent "
                "ones: this test can hardly reject anything. Collect rows over a longer time."
            )
            caveats = (Caveat("too few points", few, grave=True), *caveats)
    least = 2.0 ** (1 - result.n)  # of a bootstrap by signs: all of them alike
    if result.threshold in ("wild", "multiplier") and least > result.level:
        few = (
            f"{result.n} points cannot give a p-value below {least:.2g} without draws of the model, so this "
            "test cannot reject: give the model a sampler, or collect more points."
        )
        caveats = (Caveat("too few points", few, grave=True), *caveats)
    return caveats


def slowed(test: GofTest, worth: float, chains: int = 1) -> GofTest | None:
    """The test where so many rows in a row are worth one; None if it is for independent rows alone."""
    slow: Any = test
    if hasattr(test, "slowness"):
        return cast(GofTest, replace(slow, slowness=worth, chains=chains))
    if hasattr(test, "flip"):
        return cast(GofTest, replace(slow, flip=min(0.5, 1 / (_SLOWER * worth))))
    return None


@dataclass(frozen=True)
class Asked:
    """A test that is named, or chosen for the model and the data, with settings of the command line."""

    test: GofTest | str | None = None
    draws: int | None = None
    cache: bool = True
    early_stopping: bool = False  # of the split test's critic

    def set_up(self, test: GofTest) -> GofTest:
        changes: dict[str, Any] = {"cache": self.cache} if hasattr(test, "cache") else {}
        if self.early_stopping:
            changes["training"] = Training(selection="monitor")
        if self.draws is not None:
            changes["draws"] = self.draws
        return cast(GofTest, replace(cast(Any, test), **changes))


def choose_test(
    test: GofTest | str | Asked | None, model: Model | None, n: int
) -> tuple[GofTest, str | None]:
    """The test that was asked for; where none was, the one for such a model and n points, with the reason."""
    if isinstance(test, Asked):
        chosen, reason = choose_test(test.test, model, n)
        return test.set_up(chosen), reason
    if isinstance(model, Fitted):
        return _for_fitted(test)
    if test is None:
        return _automatic(model, n)
    if isinstance(test, str):
        if test == "fssd":  # for one release
            raise InputError("test fssd is gone: take ksdagg, or stein_witness for where a model fails")
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
