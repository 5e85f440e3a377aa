"""Rows of csv text as they come: a pipe, or a file that somebody else still writes to."""

import os
import select
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from steincritic.data.delimited import CsvParser
from steincritic.data.layout import Columns, Table
from steincritic.data.tables import STDIN, finite
from steincritic.errors import FileFormatError, InputError, check_positive, missing_file

_PIECE = 2**16  # bytes
_POLL = 0.1  # seconds
_TABLES = (".npy", ".npz", ".parquet")


class TailReader:
    """Rows in order, as many as asked for; it waits for them where it may.

    Args:
        source: a csv file, or "-" for standard input, which is waited for until it is closed.
        follow: wait for more rows at the end of the file.
        idle: stop waiting after so many seconds without a new line.
        drop_nan: leave out rows with NaN or infinite values, and count them in `dropped`.
        columns: which ones are data; by default all.

    A last line without its newline is left alone while more may come.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        follow: bool = False,
        idle: float | None = None,
        drop_nan: bool = False,
        columns: Columns | None = None,
    ) -> None:
        if idle is not None:
            check_positive(idle, name="idle")
        piped = str(source) == STDIN
        path = Path(source)
        if not piped and not path.is_file():
            raise InputError(missing_file(path))
        if path.suffix.lower() in _TABLES:
            raise FileFormatError(
                f"{path} cannot grow line by line; watch csv text, or use check for a table"
            )
        if idle is not None and not (piped or follow):
            raise InputError("idle is a time to wait for rows, so it goes with follow or standard input")
        self.parser = CsvParser("standard input" if piped else str(path), columns)
        self.drop_nan, self.dropped = drop_nan, 0
        self._lines = _lines(_pipe_pieces(idle) if piped else _file_pieces(path, follow, idle))

    def take(self, count: int) -> Table:
        """The next rows; fewer than asked for only at the end."""
        parts = [self.parser.parse([])]
        missing = count
        while missing and (lines := list(islice(self._lines, missing))):
            parts.append(finite(self.parser.parse(lines), self.parser.source, drop_nan=self.drop_nan))
            missing -= len(parts[-1])
            self.dropped += parts[-1].dropped
        return Table.cat(parts)


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole


def _file_pieces(path: Path, follow: bool, idle: float | None) -> Iterator[bytes]:
    """What is in the file and what is added to it; a newline more where it has come to its end."""
    with path.open("rb") as file:
        last = time.monotonic()
        while True:
            if piece := file.read(_PIECE):
                yield piece
                last = time.monotonic() if b"\n" in piece else last
            elif not follow:
                yield b"\n"
                return
            elif idle is not None and time.monotonic() - last >= idle:
                return
            else:
                _check_same(path, file)
                time.sleep(_POLL)


def _pipe_pieces(idle: float | None) -> Iterator[bytes]:
    pipe = sys.stdin.fileno()
    while idle is None or select.select([pipe], [], [], idle)[0]:
        piece = os.read(pipe, _PIECE)
        yield piece or b"\n"
        if not piece:
            return


def _check_same(path: Path, file: IO[bytes]) -> None:
    """Is the open file still the one of this name, and no shorter than what was read of it?"""
    opened = os.fstat(file.fileno())
    if opened.st_size < file.tell():
        raise InputError(f"{path} was cut while it was watched: it has {opened.st_size} bytes; watch it anew")
    try:
        named = os.stat(path)
    except FileNotFoundError:
        raise InputError(
            f"{path} was removed while it was watched; watch the file that took its place"
        ) from None
    if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino):
        raise InputError(f"{path} was replaced while it was watched (a log that rotates?); watch it anew")
