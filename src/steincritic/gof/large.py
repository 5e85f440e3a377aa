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
from steincritic.gof.one_pass import scored_blocks
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


def on_disk(x: object) -> bool:
    return isinstance(x, str | Path | Source)


def collected(x: PointsLike | Source) -> PointsLike | Source:
    """A Dask array or frame as a source; anything else as it is."""
    given: Any = x
    return Collection.of(given) if is_collection(given) else x


def loaded(x: PointsLike | Source) -> PointsLike:
    """The whole table of a source or a file; anything else as it is."""
    if isinstance(x, str | Path):
        return load_table(x)
    if isinstance(x, Source):
        return Table.cat(list(x.blocks(2**16)) or [first_row(x)])  # which says that there is none
    return x


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


@dataclass(frozen=True, eq=False)
class Large:
    """Rows that go by, and the model that scores them."""

    model: Model
    source: Source
    names: Sequence[str] | None
    head: Table  # the first row

    @classmethod
    def of(
        cls, model: Model, source: Source, *, bounds: Bounds | None, names: Sequence[str] | None
    ) -> "Large":
        head = first_row(source)
        if bounds is not None:
            model = within_bounds(model, bounds, arranged(head, model), names)
        return cls(model, source, names, head)

    @property
    def columns(self) -> tuple[str, ...]:
        used = arranged(self.head, self.model).columns
        return used if self.names is None else tuple(map(str, self.names))

    def tested(
        self,
        test: Combined,
        *,
        level: float,
        seed: int,
        device: DeviceLike,
        before: Callable[[Forecast], None] | None = None,
    ) -> WentBy | None:
        """None where rows are not so many after all."""
        first = scored(self.model, self.head, names=self.names).x
        like, free = first[:0].to(resolve_device(device, first)), unbounded(self.model)
        streamed = Streamed(test, free, like, level=level, seed=seed)
        with using(test.engine, test.address):
            if before is not None:
                some = scored_blocks(self.model, self.source, device=device, names=self.names)
                before(of_streamed(streamed, some, self.source.rows))
            return self._streamed(streamed, device)

    def _streamed(self, streamed: Streamed, device: DeviceLike) -> WentBy | None:
        passed = streamed.look_over(self.model, self.source, device=device, names=self.names)
        if passed.n <= streamed.config.exact_up_to:
            return None
        given = replace(self.head, dropped=passed.dropped)
        result = streamed.result(passed)
        notes = reading_notes(given, arranged(given, self.model))
        return WentBy(streamed.model, replace(result, notes=(*result.notes, *notes)), self.columns)
