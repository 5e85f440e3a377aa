"""What a table is: numbers, the names of its columns, and where its rows stand in their file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steincritic.errors import InputError, did_you_mean, listed
from steincritic.shapes import counted

_SHOWN = 8  # columns that a message names


def check_shape(shape: tuple[int, ...], *, name: str, pass_on: str = "pass") -> None:
    """Raise unless the shape is (n, d) with at least one row and one column."""
    if len(shape) == 1:
        raise InputError(f"{name} must have shape (n, d), got {shape}; for n numbers {pass_on} x[:, None]")
    if len(shape) != 2 or min(shape) < 1:
        raise InputError(f"{name} must have shape (n, d) with n and d at least 1, got {shape}")


def wrong_dtype(name: str, dtype: object, *, pass_on: str = "pass") -> str:
    return (
        f"{name} must hold floating-point numbers, got {dtype}; a score exists for continuous data only: "
        f"if these are measurements {pass_on} x.astype(float)"
    )


def native(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """float32 or float64, for floats of any other width or byte order."""
    return np.float32 if dtype.itemsize <= 4 else np.float64


def numbered_names(count: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(1, count + 1))


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a file are data, and which one names its rows.

    Args:
        keep: these, in this order; by default all.
        exclude: all but these.
        id: the column with names of rows, which may hold text; it is no part of the data.
    """

    keep: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    id: str | None = None

    def __post_init__(self) -> None:
        if self.keep is not None and self.exclude:
            raise InputError("name columns to keep (--columns) or columns to leave out (--exclude), not both")
        if self.keep is not None and self.id in self.keep:
            raise InputError(f"column {self.id!r} names the rows, so it is no part of the data: keep others")

    def places(self, names: Sequence[str], source: object) -> tuple[list[int], int | None]:
        """Numbers of the columns that are data, and of the one with ids, among these names."""
        asked = [*(self.keep or ()), *self.exclude, *(() if self.id is None else (self.id,))]
        for name in asked:
            if name not in names:
                hint = did_you_mean(name, names) or f"; it has {listed(list(names), _SHOWN)}"
                raise InputError(f"{source} has no column {name!r}{hint}")
        columns = list(self.keep or (n for n in names if n not in self.exclude and n != self.id))
        if not columns:
            raise InputError(f"no column of {source} is left as data: it has {listed(list(names), _SHOWN)}")
        count, times = Counter(names), Counter(columns)
        twice = [name for name in [*columns, self.id] if name and max(count[name], times[name]) > 1]
        if twice:
            raise InputError(f"{source} must have each column once, {twice[0]!r} is there more than once")
        place = {name: j for j, name in enumerate(names)}
        return [place[name] for name in columns], None if self.id is None else place[self.id]


@dataclass(frozen=True, eq=False)
class Rows:
    """Where rows stand in their file."""

    numbers: np.ndarray  # (k,) from 0
    lines: np.ndarray | None = None  # (k,) of text, from 1
    ids: np.ndarray | None = None  # (k,) strings

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> "Rows":
        return type(self)(*(None if part is None else part[index] for part in self._parts()))  # type: ignore[arg-type]

    def name(self, k: int) -> str:
        """The k-th of these, as a sentence has it: 17 (line 19, id anna)."""
        line = [] if self.lines is None else [f"line {self.lines[k]}"]
        row_id = [] if self.ids is None else [f"id {self.ids[k]}"]
        return f"{self.numbers[k]}" + (f" ({', '.join(line + row_id)})" if line or row_id else "")

    def cells(self) -> dict[str, list[Any]]:
        """What is known of each, by the names that files have for it: row, line and id."""
        parts = zip(("row", "line", "id"), self._parts(), strict=True)
        return {name: part.tolist() for name, part in parts if part is not None}

    def words(self, what: str) -> dict[str, list[Any]]:
        """Lines and ids as JSON has them, where they are known."""
        return {f"{what}_{name}s": values for name, values in self.cells().items() if name != "row"}

    def _parts(self) -> tuple[np.ndarray | None, ...]:
        return self.numbers, self.lines, self.ids

    @staticmethod
    def cat(parts: Sequence["Rows"]) -> "Rows":
        pieces = zip(*(part._parts() for part in parts), strict=True)
        return Rows(*(None if piece[0] is None else np.concatenate(piece) for piece in pieces))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A sample, or some consecutive rows of one, with the names of its columns."""

    x: np.ndarray  # (n, d) floats
    columns: tuple[str, ...]  # of a csv header or a parquet schema, else x1, x2, ...
    rows: Rows
    dropped: int = 0  # rows left out between these because of NaN or infinite values

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"Table({counted(len(self.x), 'row')} of {counted(len(self.columns), 'column')})"

    def __getitem__(self, rows: slice) -> "Table":
        """Some rows; those that were left out count with the first."""
        first = not rows.start
        return Table(self.x[rows], self.columns, self.rows[rows], self.dropped if first else 0)

    def take(self, names: Sequence[str]) -> "Table":
        """These columns, in this order."""
        places = [self.columns.index(name) for name in names]
        return Table(self.x[:, places], tuple(names), self.rows, self.dropped)

    def without(self, bad: np.ndarray) -> "Table":
        """The other rows; those that are marked count as dropped."""
        if not bad.any():
            return self
        return Table(self.x[~bad], self.columns, self.rows[~bad], self.dropped + int(bad.sum()))

    def chosen(self, columns: Columns, source: object) -> "Table":
        """The columns that are data, with ids from one of the others."""
        places, id_col = columns.places(self.columns, source)
        ids = self.rows.ids if id_col is None else np.array([f"{value:.17g}" for value in self.x[:, id_col]])
        rows = Rows(self.rows.numbers, self.rows.lines, ids)
        return Table(self.x[:, places], tuple(self.columns[j] for j in places), rows, self.dropped)

    @staticmethod
    def cat(parts: Sequence["Table"]) -> "Table":
        """Parts one after the other."""
        if len(parts) == 1:
            return parts[0]
        whole = [part for part in parts if len(part)] or list(parts[:1])
        x, rows = np.concatenate([part.x for part in whole]), Rows.cat([part.rows for part in whole])
        return Table(x, whole[0].columns, rows, sum(part.dropped for part in parts))
