"""Data of any size as blocks of rows: files, folders of parquet parts, arrays; and samples of them.

A sample holds the rows with the smallest of random numbers that are counted by the place of a row, so it is
uniform, does not depend on how rows were cut into blocks, and samples of parts join to that of the whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from steincritic.data.arrays import ArrayLike, as_float_tensor
from steincritic.data.layout import Columns, Rows, Table, check_shape, native, numbered_names, wrong_dtype
from steincritic.data.tables import IN_MEMORY, estimated_rows, finite, read_chunks
from steincritic.errors import InputError
from steincritic.rng import Source as Random

_READ = 2**16  # rows of a file read at a time
_FIRST = 256  # rows among which a first one is looked for, at a time
_NONE_LEFT = "no row is left: all of them have NaN or infinite values"


@runtime_checkable
class Source(Protocol):
    """Rows of numbers, as often as they are asked for."""

    @property
    def rows(self) -> int:
        """How many there are; a guess for csv."""
        ...

    def blocks(self, rows: int) -> Iterator[Table]:
        """All of them in their order, so many at a time, all finite; the last block may be smaller."""
        ...


@dataclass(frozen=True)
class FileSource:
    """A file, or a folder of parquet parts; nothing is held but one block."""

    path: Path
    columns: Columns | None = None
    drop_nan: bool = False

    @property
    def rows(self) -> int:
        return estimated_rows(self.path)

    def blocks(self, rows: int) -> Iterator[Table]:
        read = read_chunks(self.path, rows=min(rows, _READ), drop_nan=self.drop_nan, columns=self.columns)
        return _of_size(read, rows)


@dataclass(frozen=True, eq=False)
class ArraySource:
    """An array in memory, or one that is mapped from disk."""

    x: np.ndarray | Tensor
    names: tuple[str, ...]
    places: Rows | None = None  # of its rows in a file
    dropped: int = 0

    @property
    def rows(self) -> int:
        return len(self.x)

    def blocks(self, rows: int) -> Iterator[Table]:
        for start in range(0, len(self.x), rows):
            part = self.x[start : start + rows]
            block = part.detach().cpu().numpy() if isinstance(part, Tensor) else np.array(part)
            at = slice(start, start + len(block))
            places = Rows(np.arange(at.start, at.stop)) if self.places is None else self.places[at]
            dropped = self.dropped if start == 0 else 0
            table = Table(block.astype(native(block.dtype), copy=False), self.names, places, dropped)
            yield finite(table, "x", way_out=IN_MEMORY)


def as_source(x: ArrayLike | Source) -> Source:
    """Whatever holds rows: a path of a file or a folder, a table, an array, a tensor or a frame."""
    if isinstance(x, Source):
        return x
    if isinstance(x, str | Path):
        return FileSource(Path(x))
    if isinstance(x, Table):
        return ArraySource(x.x, x.columns, x.rows, x.dropped)
    array: Any = x.to_numpy() if hasattr(x, "to_numpy") else x
    if not isinstance(array, np.ndarray):
        array = as_float_tensor(array, name="x")
    elif array.dtype.kind != "f":
        raise InputError(wrong_dtype("x", array.dtype))
    check_shape(tuple(array.shape), name="x")
    named = getattr(x, "columns", None)
    names = numbered_names(array.shape[1]) if named is None else tuple(map(str, named))
    return ArraySource(array, names)


def first_row(source: Source) -> Table:
    """The first one that is there."""
    for block in source.blocks(_FIRST):
        return block[:1]
    raise InputError(_NONE_LEFT)


def _of_size(tables: Iterator[Table], rows: int) -> Iterator[Table]:
    """The same rows in tables of so many each, which wait for a next row: others may be left out before."""
    parts: list[Table] = []
    count = 0
    for table in tables:
        while count + len(table) > rows:
            if missing := rows - count:
                parts.append(table[:missing])
                table = table[missing:]
            yield Table.cat(parts)
            parts, count = [], 0
        parts.append(table)
        count += len(table)
    if count:
        yield Table.cat(parts)


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows chosen at random: those whose random numbers are smallest."""

    order: Tensor  # (k,) random numbers
    places: Tensor  # (k,) among all rows, from 0
    values: Sequence[Tensor]  # (k, ...) each: whatever is known of these rows
    rows: Rows

    @classmethod
    def of(cls, values: Sequence[Tensor], rows: Rows, *, first: int, size: int, seed: int) -> "Sample":
        """So many of these rows, the first of which is at that place."""
        random = Random(seed, "reservoir")
        random.hashes = first
        places = torch.arange(first, first + len(rows))
        return cls(random.integers(2**62, len(rows)), places, tuple(values), rows)._smallest(size)

    def __len__(self) -> int:
        return len(self.order)

    def joined(self, other: "Sample", size: int) -> "Sample":
        """The sample of both."""
        if len(self) == size:
            other = other._at(other.order < self.order.max())
        if not len(other):
            return self
        pairs = zip(self.values, other.values, strict=True)
        both = Sample(
            torch.cat([self.order, other.order]),
            torch.cat([self.places, other.places]),
            tuple(torch.cat(pair) for pair in pairs),
            Rows.cat([self.rows, other.rows]),
        )
        return both._smallest(size)

    def in_order(self) -> "Sample":
        """By their places."""
        return self._at(self.places.argsort())

    def _smallest(self, size: int) -> "Sample":
        return self if len(self) <= size else self._at(self.order.topk(size, largest=False).indices)

    def _at(self, index: Tensor) -> "Sample":
        values = tuple(value[index.to(value.device)] for value in self.values)
        return Sample(self.order[index], self.places[index], values, self.rows[index.numpy()])


def sampled(source: Source, size: int, *, seed: int) -> tuple[Table, int]:
    """So many rows of a source at random, in their order, and how many rows there are."""
    sample: Sample | None = None
    columns: tuple[str, ...] = ()
    count = dropped = 0
    for block in source.blocks(_READ):
        part = Sample.of([torch.from_numpy(block.x)], block.rows, first=count, size=size, seed=seed)
        sample = part if sample is None else sample.joined(part, size)
        columns, count, dropped = block.columns, count + len(block), dropped + block.dropped
    if sample is None:
        raise InputError(_NONE_LEFT)
    sample = sample.in_order()
    return replace(Table(sample.values[0].numpy(), columns, sample.rows), dropped=dropped), count
