"""More rows than a test takes at once: they go by in the combined test, others get a sample of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steincritic.data.layout import Table
from steincritic.data.points import PointsLike, ScoredPoints, arranged, reading_notes, scored, within_bounds
from steincritic.data.source import Source, as_source, sampled
from steincritic.devices import DeviceLike, resolve_device
from steincritic.gof.combined import Combined
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


def loaded(x: PointsLike | Source) -> PointsLike:
    """The whole table of a source or a file; anything else as it is."""
    if not on_disk(x):
        return x
    return Table.cat(list(as_source(x).blocks(2**16)))


def some_rows(source: Source, *, seed: int) -> tuple[Table, str]:
    """A sample for a test that takes all rows at once, and a sentence about it."""
    table, count = sampled(source, LARGE, seed=derive(seed, "sample"))
    return table, f"Tested on {len(table):,} of {count:,} rows, chosen at random: this test takes no more."


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
        head = next(source.blocks(1))
        if bounds is not None:
            model = within_bounds(model, bounds, arranged(head, model), names)
        return cls(model, source, names, head)

    @property
    def columns(self) -> tuple[str, ...]:
        used = arranged(self.head, self.model).columns
        return used if self.names is None else tuple(map(str, self.names))

    def tested(
        self, test: Combined, *, level: float, seed: int, device: DeviceLike
    ) -> tuple[Model, GofResult] | None:
        """The model in coordinates without bounds, and the result; None where rows are not so many."""
        first = scored(self.model, self.head, names=self.names).x
        like, free = first[:0].to(resolve_device(device, first)), unbounded(self.model)
        streamed = Streamed(test, free, like, level=level, seed=seed)
        passed = streamed.look(scored_blocks(self.model, self.source, device=device, names=self.names))
        if passed.n <= test.exact_up_to:
            return None
        given = replace(self.head, dropped=passed.dropped)
        result = streamed.result(passed)
        notes = reading_notes(given, arranged(given, self.model))
        return free, replace(result, notes=(*result.notes, *notes))
