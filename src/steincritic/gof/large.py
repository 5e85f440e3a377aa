"""More rows than a test takes at once: they go by in the combined test, others get a sample of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steincritic.data.collection import Collection, is_collection
from steincritic.data.layout import Table
from steincritic.data.points import PointsLike, ScoredPoints, arranged, reading_notes, scored, within_bounds
from steincritic.data.source import Source, as_source, first_row, sampled
from steincritic.data.tables import load_table
from steincritic.devices import DeviceLike, resolve_device
from steincritic.engine import using
from steincritic.gof.combined import Combined
from steincritic.gof.forecast import Forecast, of_streamed
from steincritic.gof.one_pass import pass_over, scored_blocks
from steincritic.gof.result import GofResult
from steincritic.gof.streamed import Streamed
from steincritic.models.base import Model
from steincritic.models.bounded import unbounded
from steincritic.models.coordinates import Bounds
from steincritic.rng import derive

LARGE = Combined().exact_up_to


def large_source(x: PointsLike | Source, test: object = None) -> Source | None:
    """Data of more rows than go through a test at once; by their guessed number for csv."""
    if isinstance(x, ScoredPoints | list | tuple):
        return None
    source = as_source(x)
    return source if source.rows > (test.exact_up_to if isinstance(test, Combined) else LARGE) else None


def collected(x: PointsLike | Source) -> PointsLike | Source:
    """A Dask array or frame as a source; anything else as it is."""
    given: Any = x
    return Collection.of(given) if is_collection(given) else x


def rows_at_once(
    x: PointsLike | Source, test: object, seed: int, *, whole: bool
) -> tuple[PointsLike, list[str]]:
    """Data in memory: all of them, or a sample of a large file, and a sentence about that."""
    if isinstance(x, str | Path | Source) and not whole and (source := large_source(x, test)) is not None:
        return some_rows(source, seed=seed)
    if isinstance(x, str | Path):
        return load_table(x), []
    if isinstance(x, Source):
        return Table.cat(list(x.blocks(2**16)) or [first_row(x)]), []  # which says that there is none
    return x, []


def some_rows(source: Source, *, seed: int) -> tuple[Table, list[str]]:
    """A sample for a test that takes all rows at once, and a sentence about it."""
    table, count = sampled(source, LARGE, seed=derive(seed, "sample"))
    few = f"Tested on {len(table):,} of {count:,} rows, chosen at random: this test takes no more at once."
    return table, [few] if len(table) < count else []


@dataclass(frozen=True, eq=False)
class WentBy:
    """The result of a test of rows that went by."""

    model: Model  # in coordinates without bounds
    result: GofResult
    columns: tuple[str, ...]


def stream_test(
    model: Model,
    source: Source,
    test: Combined,
    level: float,
    seed: int,
    device: DeviceLike,
    *,
    names: Sequence[str] | None,
    bounds: Bounds | None,
    before: Callable[[Forecast], None] | None,
) -> WentBy | None:
    """The combined test of rows that go by; None where they are not so many after all."""
    head = first_row(source)
    if bounds is not None:
        model = within_bounds(model, bounds, arranged(head, model), names)
    first = scored(model, head, names=names).x
    like = first[:0].to(resolve_device(device, first))
    streamed = Streamed(test, unbounded(model), like, level=level, seed=seed)
    with using(test.engine, test.address):
        if before is not None:
            some = scored_blocks(model, source, device=device, names=names)
            before(of_streamed(streamed, some, source.rows))
        passed = pass_over(streamed.summing, model, source, device=device, names=names)
        if passed.n <= test.exact_up_to:
            return None
        result = streamed.result(passed)
    given = replace(head, dropped=passed.dropped)
    used = arranged(given, model)
    told = replace(result, notes=(*result.notes, *reading_notes(given, used)))
    return WentBy(streamed.model, told, used.columns if names is None else tuple(map(str, names)))
