"""Numbers from csv text that comes in pieces: a file, a pipe, a file that still grows."""

import codecs
import csv
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from steincritic.errors import FileFormatError, listed

_SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
_MISSING = {"", "na", "n/a", "null", "none"}  # besides nan, which is a number to float()
_SHOWN = 5  # columns that a message names


class CsvParser:
    """Lines in, rows of floats out. Knows separator and names from the first lines, counts every line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.columns: tuple[str, ...] = ()
        self.lines = 0
        self.rows = 0
        self._separator = ","
        self._comment = b""

    def parse(self, lines: Sequence[bytes]) -> np.ndarray:
        """The rows of the next whole lines, (k, d); blank lines and lines that begin with # hold none."""
        first = self.lines + 1
        if first == 1 and lines:
            lines = [lines[0].removeprefix(codecs.BOM_UTF8), *lines[1:]]
        self.lines += len(lines)
        skipped = 0 if self.columns else self._begin(lines)
        body = lines[skipped:]
        if not self.columns or not any(map(_has_cells, body)):
            return np.empty((0, len(self.columns)))
        values = self._quickly(body)
        if values is None:
            numbered = [(k, line) for k, line in enumerate(body, first + skipped) if _has_cells(line)]
            values = self._quickly([line for _, line in numbered]) if len(numbered) < len(body) else None
            values = self._carefully(numbered) if values is None else values
        self.rows += len(values)
        return values

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
            self.columns = tuple(name.strip().lstrip("# ") or f"x{j}" for j, name in enumerate(names, 1))
            return k + header
        return len(lines)

    def _commented_names(self, count: int) -> list[str]:
        """numpy.savetxt writes its header behind a #."""
        line = self._comment.decode("utf-8", "replace").strip().lstrip("# ")
        cells = self._cells(line) if line else []
        return cells if len(cells) == count and _is_header(cells) else [""] * count

    def _quickly(self, lines: Sequence[bytes]) -> np.ndarray | None:
        """By numpy's own reader, or None where it meets anything but plain rows."""
        try:
            values = np.loadtxt(
                lines, delimiter=self._separator, ndmin=2, dtype=float, comments=None, quotechar='"'
            )
        except ValueError:
            return None
        return values if values.shape[1] == len(self.columns) else None

    def _carefully(self, numbered: Sequence[tuple[int, bytes]]) -> np.ndarray:
        """Cell by cell: gaps become NaN, anything else is named with its line."""
        reader = self._reader([self._decoded(raw, number) for number, raw in numbered])
        rows: list[list[float]] = []
        text: dict[int, tuple[str, int]] = {}  # by column: the first cell that is no number, its line
        try:
            for cells in reader:
                number = numbered[reader.line_num - 1][0]
                if len(cells) != len(self.columns):
                    break
                row = [_number(cell) for cell in cells]
                text |= {j: (cells[j], number) for j, v in enumerate(row) if v is None and j not in text}
                rows.append([np.nan if value is None else value for value in row])
            else:
                if not text:
                    return np.array(rows, dtype=float)
        except csv.Error as error:
            number = numbered[min(reader.line_num, len(numbered) - 1)][0]
            raise FileFormatError(f"{self.source} cannot be read as csv: line {number}, {error}") from None
        raise FileFormatError(self._text(text) if text else self._ragged(number, len(cells)))

    def _text(self, found: dict[int, tuple[str, int]]) -> str:
        shown = [
            f"{self.columns[j]} ({_short(cell)} in line {number})"
            for j, (cell, number) in sorted(found.items())
        ]
        kind, way_out = _kind(next(iter(found.values()))[0])
        columns = "columns" if len(found) > 1 else "column"
        return f"{self.source} must hold numbers, got {kind} in {columns} {listed(shown, _SHOWN)}; {way_out}"

    def _ragged(self, number: int, count: int) -> str:
        cells = "cell" if count == 1 else "cells"
        return (
            f"{self.source} has {count} {cells} in line {number} but {len(self.columns)} columns; give "
            f"every line {len(self.columns)} cells, separated by {_SEPARATORS[self._separator]}"
        )

    def _reader(self, lines: Sequence[str]) -> Any:  # the class has no public name
        return csv.reader(lines, delimiter=self._separator, skipinitialspace=True)

    def _cells(self, line: str) -> list[str]:
        try:
            return list(next(self._reader([line])))
        except csv.Error as error:
            raise FileFormatError(f"{self.source} cannot be read as csv: {error}") from None

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


def _kind(cell: str) -> tuple[str, str]:
    """What a cell is that is no number, and what to do about such a column."""
    cell = cell.strip()
    if cell.lower() in {"true", "false", "yes", "no"}:
        return "truth values", "a score exists for continuous data only: drop the column"
    if re.match(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b", cell) or re.fullmatch(r"\d+:\d\d(:\d\d.*)?", cell):
        return "dates", "drop the column or write it as a number, such as days since a start"
    if re.fullmatch(r"[+-]?\d+,\d+(e[+-]?\d+)?", cell, re.IGNORECASE):
        return "decimal commas", "write 1.5, not 1,5"
    if len(parts := cell.split()) > 1 and all(_number(part) is not None for part in parts):
        return "numbers separated by spaces", "separate them by commas"
    return "text", "drop the column or encode it as numbers"


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 30 else cell[:27] + "...")
