"""Numbers from csv text that comes in pieces: a file, a pipe, a file that still grows."""

import codecs
import csv
import re
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from steincritic.data.layout import Columns, Rows, Table
from steincritic.errors import FileFormatError, listed

_SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
_MISSING = {"", "na", "n/a", "null", "none"}  # besides nan, which is a number to float()
_SHOWN = 5  # columns that a message names


class CsvParser:
    """Lines in, rows of floats out. Knows separator and names from the first lines, counts every line."""

    def __init__(self, source: str, chosen: Columns | None = None) -> None:
        self.source = source
        self.columns: tuple[str, ...] = ()  # that are data
        self.lines = 0
        self.rows = 0
        self._chosen = chosen or Columns()
        self._names: tuple[str, ...] = ()  # of all columns
        self._used: list[int] = []
        self._id: int | None = None
        self._separator = ","
        self._comment = b""

    def parse(self, lines: Sequence[bytes]) -> Table:
        """The rows of the next whole lines; blank lines and lines that begin with # hold none."""
        first = self.lines + 1
        if first == 1 and lines:
            lines = [lines[0].removeprefix(codecs.BOM_UTF8), *lines[1:]]
        self.lines += len(lines)
        skipped = 0 if self._names else self._begin(lines)
        numbered = [(k, line) for k, line in enumerate(lines[skipped:], first + skipped) if _has_cells(line)]
        if not self._names or not numbered:
            return self._table([], [], [])
        quick = self._quickly(numbered)
        return self._carefully(numbered) if quick is None else quick

    def _table(self, values: Any, lines: Sequence[int], ids: Sequence[str]) -> Table:
        x = np.asarray(values, dtype=float).reshape(len(lines), len(self.columns))
        numbers = np.arange(self.rows, self.rows + len(x))
        self.rows += len(x)
        names = None if self._id is None else np.array(ids, dtype=str)
        return Table(x, self.columns, Rows(numbers, np.array(lines, dtype=int), names))

    def _begin(self, lines: Sequence[bytes]) -> int:
        """Learn the layout from the first line with cells; how many lines hold no row."""
        for k, raw in enumerate(lines):
            if not _has_cells(raw):
                self._comment = raw if raw.strip() else self._comment
                continue
            line = self._decoded(raw, self.lines - len(lines) + k + 1)
            self._separator = next((mark for mark in _SEPARATORS if mark in line), ",")
            cells = self._cells(line)
            header = _is_header(cells)
            names = cells if header else self._commented_names(len(cells))
            self._names = tuple(name.strip().lstrip("# ") or f"x{j}" for j, name in enumerate(names, 1))
            self._used, self._id = self._chosen.places(self._names, self.source)
            self.columns = tuple(self._names[j] for j in self._used)
            return k + header
        return len(lines)

    def _commented_names(self, count: int) -> list[str]:
        """numpy.savetxt writes its header behind a #."""
        line = self._comment.decode("utf-8", "replace").strip().lstrip("# ")
        cells = self._cells(line) if line else []
        return cells if len(cells) == count and _is_header(cells) else [""] * count

    def _quickly(self, numbered: Sequence[tuple[int, bytes]]) -> Table | None:
        """By numpy's own reader, or None where it meets anything but plain rows."""
        lines, ids = [line for _, line in numbered], []
        whole = self._used == list(range(len(self._names)))
        if not whole:  # that reader looks at no other columns, nor counts them
            mark, more = self._separator.encode(), len(self._names) - 1
            if any(b'"' in line or line.count(mark) != more for line in lines):
                return None
            if self._id is not None:
                ids = [line.split(mark)[self._id].strip().decode("utf-8", "replace") for line in lines]
        try:
            values = np.loadtxt(
                lines,
                delimiter=self._separator,
                ndmin=2,
                dtype=float,
                comments=None,
                quotechar='"',
                usecols=None if whole else self._used,
            )
        except ValueError:
            return None
        if values.shape != (len(lines), len(self.columns)):
            return None
        return self._table(values, [number for number, _ in numbered], ids)

    def _carefully(self, numbered: Sequence[tuple[int, bytes]]) -> Table:
        """Cell by cell: gaps become NaN, anything else is named with its line."""
        reader = self._reader([self._decoded(raw, number) for number, raw in numbered])
        rows: list[list[float]] = []
        lines: list[int] = []
        ids: list[str] = []
        text: dict[int, tuple[str, int]] = {}  # by column: the first cell that is no number, its line
        spoiled = 0  # rows that hold such a cell
        try:
            for cells in reader:
                number = numbered[reader.line_num - 1][0]
                if len(cells) != len(self._names):
                    break
                row = [_number(cells[j]) for j in self._used]
                new = {j: (cells[self._used[j]], number) for j, value in enumerate(row) if value is None}
                text, spoiled = new | text, spoiled + bool(new)
                rows.append([np.nan if value is None else value for value in row])
                lines.append(number)
                ids += [] if self._id is None else [cells[self._id].strip()]
            else:
                if not text:
                    return self._table(rows, lines, ids)
        except csv.Error as error:
            number = numbered[min(reader.line_num, len(numbered) - 1)][0]
            raise FileFormatError(f"{self.source} cannot be read as csv: line {number}, {error}") from None
        alone = spoiled == 1 < len(rows)
        raise FileFormatError(self._text(text, alone) if text else self._ragged(number, len(cells)))

    def _text(self, cells: dict[int, tuple[str, int]], alone: bool) -> str:
        """Which cells are no numbers, and what to do; the row stands alone where it is one of many."""
        short = {j: cell if len(cell) <= 30 else f"{cell[:27]}..." for j, (cell, _) in cells.items()}
        shown = [f"{self.columns[j]} ({short[j]!r} in line {line})" for j, (_, line) in sorted(cells.items())]
        cell, line = next(iter(cells.values()))
        columns, it = ("columns", "them") if len(cells) > 1 else ("column", "it")
        names = shlex.quote(",".join(self.columns[j] for j in sorted(cells)))
        kind = "text"
        way_out = f"leave {it} out with --exclude {names}, name rows by it with --id-column, or encode it"
        if re.fullmatch(r"\s*[+-]?\d+,\d+(e[+-]?\d+)?\s*", cell, re.IGNORECASE):
            kind, way_out = "decimal commas", "write 1.5, not 1,5, or pass pandas.read_csv(path, decimal=',')"
        elif len(parts := cell.split()) > 1 and all(_number(part) is not None for part in parts):
            kind, way_out = "numbers separated by spaces", "separate them by commas"
        if alone:
            way_out = f"repair line {line} or remove it"
        return f"{self.source} must hold numbers, got {kind} in {columns} {listed(shown, _SHOWN)}; {way_out}"

    def _ragged(self, number: int, count: int) -> str:
        cells = "cell" if count == 1 else "cells"
        return (
            f"{self.source} has {count} {cells} in line {number} but {len(self._names)} columns; give "
            f"every line {len(self._names)} cells, separated by {_SEPARATORS[self._separator]}"
        )

    def _reader(self, lines: Sequence[str]) -> Any:  # the class has no public name
        return csv.reader(lines, delimiter=self._separator, skipinitialspace=True)

    def _cells(self, line: str) -> list[str]:
        try:
            return list(next(self._reader([line])))
        except csv.Error as error:
            old = "its lines end in carriage returns alone, save it with line feeds"
            what = old if "\r" in line.strip() else error
            raise FileFormatError(f"{self.source} cannot be read as csv: {what}") from None

    def _decoded(self, line: bytes, number: int) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError:
            raise FileFormatError(
                f"{self.source} cannot be read as csv: line {number} is not UTF-8 text; save it as UTF-8"
            ) from None


def _has_cells(line: bytes) -> bool:
    start = line.lstrip()
    return bool(start) and not start.startswith(b"#")


def _is_header(cells: Sequence[str]) -> bool:
    """Are these names? A whole number may be one (a year), a measurement such as 1.5 may not."""
    numbers = [cell for cell in cells if _number(cell) is not None]
    return len(numbers) < len(cells) and all(cell.strip().isdigit() or not cell.strip() for cell in numbers)


def _number(cell: str) -> float | None:
    cell = cell.strip()
    if cell.lower() in _MISSING:
        return np.nan
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None
