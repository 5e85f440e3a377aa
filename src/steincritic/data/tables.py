"""Tables from files, whole or a chunk of rows at a time, and from standard input."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from steincritic.data.binary import numpy_blocks, numpy_rows, parquet_blocks, parquet_rows, parts_of
from steincritic.data.delimited import CsvParser
from steincritic.data.layout import Columns, Table
from steincritic.errors import FileFormatError, InputError, check_count, first_line, listed, missing_file

STDIN = "-"
_EMPTY = 5  # columns that a message names
_SAMPLE = 2**16  # bytes of a csv file by which its rows are estimated
_BLOCK = 2**16  # rows of csv and parquet read at a time
_WHOLE = 2**62


def read_table(path: str | Path, *, drop_nan: bool = False, columns: Columns | None = None) -> Table:
    """Read npy, npz (one array), csv (header optional) or parquet (with pyarrow). Nothing is unpickled.

    csv cells are separated by commas, semicolons or tabs; empty cells and NA count as NaN.

    Args:
        drop_nan: leave out rows with NaN or infinite values, which are an error otherwise. The others keep
            their numbers.
        columns: which ones are data; by default all.
    """
    table = load_table(path, columns)
    bad = bad_rows(table.x)
    if not bad.any() or (drop_nan and not bad.all()):
        return table.without(bad)
    holds = np.isfinite(table.x).any(0)
    names = [name for name, some in zip(table.columns, holds, strict=True) if not some]
    hint = ""
    if names and holds.any():  # such as one behind a last separator
        hint = f"; no number is in {listed(names, _EMPTY)}, so perhaps --exclude {','.join(names[:_EMPTY])}"
    if drop_nan:
        raise InputError(
            f"{path} has NaN or infinite values in all of its {len(bad)} rows; nothing is left{hint}"
        )
    raise InputError(
        f"{path} has NaN or infinite values in {int(bad.sum())} of {len(bad)} rows, the first is row "
        f"{table.rows.name(int(bad.argmax()))}; repair them or leave them out: --drop-nan, "
        f"or read_table(path, drop_nan=True) in Python{hint}"
    )


def load_table(path: str | Path, columns: Columns | None = None) -> Table:
    """The table as it is in the file, NaN included."""
    path = checked_path(path)
    rows = _WHOLE if path.suffix.lower() in (".npy", ".npz") else _BLOCK
    return Table.cat(list(file_blocks(path, rows, columns or Columns())))


def read_chunks(
    source: str | Path, *, rows: int = 100_000, drop_nan: bool = False, columns: Columns | None = None
) -> Iterator[Table]:
    """Read npy, npz, csv, parquet or a folder of parquet parts, or csv from standard input for "-".

    In constant memory, but for an npz file. Rows with NaN or infinite values are an error that names the
    first, or are left out. Nothing is unpickled.
    """
    check_count(rows, name="rows")
    chosen, name = columns or Columns(), "standard input" if str(source) == STDIN else str(source)
    if str(source) == STDIN:
        blocks = _text_blocks(sys.stdin.buffer, name, rows, chosen)
    else:
        blocks = file_blocks(source, rows, chosen)
    return (finite(block, name, drop_nan=drop_nan) for block in blocks)


def estimated_rows(source: str | Path) -> int:
    """How many rows there will be: exact but for csv, where it is a guess; 0 for standard input."""
    if str(source) == STDIN:
        return 0
    path = checked_path(source)
    with reading(path):
        return _KINDS[".parquet" if path.is_dir() else path.suffix.lower()][1](path)


def file_blocks(path: str | Path, rows: int, columns: Columns) -> Iterator[Table]:
    """Blocks of floats of a file, of at least one row each and one in all; they may hold NaN."""
    path = checked_path(path)
    with reading(path):
        read, _ = _KINDS[".parquet" if path.is_dir() else path.suffix.lower()]
        yield from read(path, rows, columns)


def checked_path(path: str | Path) -> Path:
    """The path, if it is that of a file of a kind that can be read, or of a folder with parquet parts."""
    path = Path(path)
    if path.is_dir() and parts_of(path):
        return path
    if not path.is_file():
        raise InputError(missing_file(path))
    if path.suffix.lower() not in _KINDS:
        came = f"got {path.suffix}" if path.suffix else "it has no ending"
        raise FileFormatError(
            f"{path} must end in one of {', '.join(_KINDS)}, {came}; text with commas, semicolons or tabs "
            "can be renamed to .csv"
        )
    return path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong while reading, in one line that names the file."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; take a part of its rows") from None
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:
        kind = path.suffix[1:].lower() or "parquet"  # of a folder
        raise FileFormatError(
            f"{path} cannot be read as {kind}: {first_line(error)}; it is damaged or no {kind} file"
        ) from None


def bad_rows(x: np.ndarray) -> np.ndarray:
    """Which rows hold NaN or infinite values."""
    return np.asarray(~np.isfinite(x).all(axis=1))


_LEAVE_OUT = "repair such rows or leave them out with --drop-nan (drop_nan=True)"
IN_MEMORY = "drop or repair it"  # where rows come from no file


def finite(table: Table, source: str, *, drop_nan: bool = False, way_out: str = _LEAVE_OUT) -> Table:
    """The table without rows that hold NaN or infinite values; the first is named where they may not be."""
    bad = bad_rows(table.x)
    if bad.any() and not drop_nan:
        raise InputError(
            f"{source} has NaN or infinite values in row {table.rows.name(int(bad.argmax()))}; {way_out}"
        )
    return table.without(bad)


def _csv_blocks(path: Path, rows: int, columns: Columns) -> Iterator[Table]:
    with path.open("rb") as file:
        yield from _text_blocks(file, str(path), rows, columns)


def _text_blocks(file: IO[bytes], source: str, rows: int, columns: Columns) -> Iterator[Table]:
    parser = CsvParser(source, columns)
    while lines := list(islice(file, rows)):
        if len(table := parser.parse(lines)):
            yield table
    check_rows(parser)


def check_rows(parser: CsvParser) -> None:
    """Raise if there were none."""
    if parser.rows == 0:
        came = f"only the header {', '.join(parser.columns)}" if parser.columns else "nothing"
        raise FileFormatError(f"{parser.source} must hold rows of numbers, it holds {came}")


def _csv_rows(path: Path) -> int:
    with path.open("rb") as file:
        sample = file.read(_SAMPLE)
    lines = max(1, sample.count(b"\n"))
    return round(lines * path.stat().st_size / max(1, len(sample)))


_Reader = Callable[[Path, int, Columns], Iterator[Table]]
_KINDS: dict[str, tuple[_Reader, Callable[[Path], int]]] = {  # read, count
    ".npy": (numpy_blocks, numpy_rows),
    ".npz": (numpy_blocks, numpy_rows),
    ".csv": (_csv_blocks, _csv_rows),
    ".parquet": (parquet_blocks, parquet_rows),
}
