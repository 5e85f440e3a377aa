"""More rows than a test takes at once: they go by in the combined test, others get a sample of them."""

from dataclasses import dataclass
from pathlib import Path

from steincritic.data.layout import Rows, Table
from steincritic.data.points import PointsLike, ScoredPoints
from steincritic.data.source import FileSource, Source, as_source, first_row, sampled
from steincritic.data.tables import load_table, read_table
from steincritic.gof import combined
from steincritic.gof.result import GofResult
from steincritic.models.base import Model
from steincritic.rng import derive


def large_source(x: PointsLike | Source) -> Source | None:
    """Data of more rows than go through a test at once; by their guessed number for csv."""
    if isinstance(x, ScoredPoints | list | tuple):
        return None
    source = as_source(x)
    return source if source.rows > combined.EXACT_UP_TO else None


def rows_at_once(x: PointsLike | Source, seed: int, *, whole: bool) -> tuple[PointsLike, list[str]]:
    """Data in memory: all of them, or a sample of a large file, and a sentence about that."""
    if isinstance(x, str | Path | Source) and not whole and (source := large_source(x)) is not None:
        return some_rows(source, seed=seed)
    if isinstance(x, str | Path):
        return load_table(x), []
    if isinstance(x, FileSource):
        return read_table(x.path, drop_nan=x.drop_nan, columns=x.columns), []
    if isinstance(x, Source):
        return Table.cat(list(x.blocks(2**16)) or [first_row(x)]), []  # which says that there is none
    return x, []


def some_rows(source: Source, *, seed: int) -> tuple[Table, list[str]]:
    """A sample for a test that takes all rows at once, and a sentence about it."""
    table, count = sampled(source, combined.EXACT_UP_TO, seed=derive(seed, "sample"))
    few = f"Tested on {len(table):,} of {count:,} rows, chosen at random: this test takes no more at once."
    return table, [few] if len(table) < count else []


@dataclass(frozen=True, eq=False)
class Question:
    """A model and points in memory, ready for a test and for a look at where the model fails."""

    model: Model | None  # in coordinates without bounds
    points: ScoredPoints
    names: tuple[str, ...] | None  # of the columns, where they have any
    rows: Rows | None  # where the points stand in their file
    dropped: int = 0
    notes: tuple[str, ...] = ()  # how the data were read


@dataclass(frozen=True, eq=False)
class Tested:
    """A test that was done. Of rows that went by, the points of the question are a sample."""

    question: Question
    result: GofResult
    went_by: bool = False
