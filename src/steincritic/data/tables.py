"""Whole tables from files: the numbers and the names of their columns."""

from pathlib import Path

import numpy as np

from steincritic.data.layout import Columns, Table
from steincritic.data.stream import bad_rows, checked_path, file_blocks
from steincritic.errors import InputError, listed

_BLOCK = 2**16  # rows of csv and parquet read at a time
_WHOLE = 2**62
_SHOWN = 5  # columns that a message names


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
    if not bad.any():
        return table
    count = int(bad.sum())
    if not drop_nan:
        raise InputError(
            f"{path} has NaN or infinite values in {count} of {len(bad)} rows, the first is row "
            f"{table.rows.name(int(bad.argmax()))}; repair them or leave them out with --drop-nan "
            f"(drop_nan=True){_empty(table)}"
        )
    if count == len(bad):
        raise InputError(
            f"{path} has NaN or infinite values in all of its {count} rows; nothing is left{_empty(table)}"
        )
    return table.without(bad)


def load_table(path: str | Path, columns: Columns | None = None) -> Table:
    """The table as it is in the file, NaN included."""
    path = checked_path(path)
    rows = _WHOLE if path.suffix.lower() in (".npy", ".npz") else _BLOCK
    return Table.cat(list(file_blocks(path, rows, columns or Columns())))


def _empty(table: Table) -> str:
    """A hint at columns without any number, such as one behind a last separator."""
    holds = np.isfinite(table.x).any(0)
    names = [name for name, some in zip(table.columns, holds, strict=True) if not some]
    if not names or not holds.any():
        return ""
    return f"; no number is in {listed(names, _SHOWN)}, so perhaps --exclude {','.join(names[:_SHOWN])}"
