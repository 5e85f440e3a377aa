"""Whole tables from files: the numbers and the names of their columns."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steincritic.data.stream import bad_rows, checked_path, file_blocks
from steincritic.errors import InputError
from steincritic.shapes import counted

_BLOCK = 2**16  # rows of csv and parquet read at a time
_WHOLE = 2**62


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A sample with the names of its coordinates."""

    x: np.ndarray  # (n, d) floats
    columns: tuple[str, ...]  # of a csv header or a parquet schema, else x1, x2, ...
    dropped: int = 0  # rows left out because of NaN or infinite values

    def __repr__(self) -> str:
        return f"Table({counted(len(self.x), 'row')} of {counted(len(self.columns), 'column')})"


def read_table(path: str | Path, *, drop_nan: bool = False) -> Table:
    """Read npy, npz (one array), csv (header optional) or parquet (with pyarrow). Nothing is unpickled.

    csv cells are separated by commas, semicolons or tabs; empty cells and NA count as NaN.

    Args:
        drop_nan: leave out rows with NaN or infinite values, which are an error otherwise.
    """
    table = load_table(path)
    bad = bad_rows(table.x)
    if not bad.any():
        return table
    count = int(bad.sum())
    if not drop_nan:
        raise InputError(
            f"{path} has NaN or infinite values in {count} of {len(bad)} rows, the first is row "
            f"{int(bad.argmax())}; repair them or leave them out with --drop-nan (drop_nan=True)"
        )
    if count == len(bad):
        raise InputError(f"{path} has NaN or infinite values in all of its {count} rows; nothing is left")
    return Table(table.x[~bad], table.columns, count)


def load_table(path: str | Path) -> Table:
    """The table as it is in the file, NaN included."""
    path = checked_path(path)
    rows = _WHOLE if path.suffix.lower() in (".npy", ".npz") else _BLOCK
    blocks = list(file_blocks(path, rows))
    x = blocks[0][0] if len(blocks) == 1 else np.concatenate([values for values, _ in blocks])
    return Table(x, blocks[0][1])
