"""Numbers from npy, npz and parquet files, in blocks of rows; nothing is unpickled."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from steincritic.data.layout import Columns, Rows, Table, check_shape, native, numbered_names, wrong_dtype
from steincritic.errors import FileFormatError, InputError, listed

_SHOWN = 5
_FOLD, _SMALL = 100, 2**28  # a file unpacks to at most this multiple of its size, or to this many bytes


def arrays_of(path: Path) -> Mapping[str, np.ndarray]:
    """The array of an npy file, which is mapped, or those of an npz file, which are held."""
    if path.suffix.lower() == ".npy":
        return {path.stem: np.lib.format.open_memmap(path, mode="r")}
    with zipfile.ZipFile(path) as archive:
        _check_unpacked(path, path.stat().st_size, sum(part.file_size for part in archive.infolist()))
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def numpy_rows(path: Path) -> int:
    if path.suffix.lower() == ".npy":
        return len(_array_of(path))
    with zipfile.ZipFile(path) as archive:
        if len(archive.namelist()) != 1:
            return 0  # reading says why
        with archive.open(archive.namelist()[0]) as file:
            old = np.lib.format.read_magic(file) == (1, 0)
            read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
            return int(read(file)[0][0])


def numpy_blocks(path: Path, rows: int, columns: Columns) -> Iterator[Table]:
    array = _array_of(path)
    for start in range(0, len(array), rows):
        if isinstance(array, np.memmap):
            array = _array_of(path)  # mapped anew, so that what was read before takes no memory
        x = np.array(array[start : start + rows], native(array.dtype), order="C")
        numbers = Rows(np.arange(start, start + len(x)))
        yield Table(x, numbered_names(x.shape[1]), numbers).chosen(columns, path)


def _array_of(path: Path) -> np.ndarray:
    arrays = arrays_of(path)
    if len(arrays) != 1:
        raise FileFormatError(
            f"{path} must hold one array, it holds {len(arrays)}: {listed(list(arrays), _SHOWN)}; save the "
            "wanted one as .npy"
        )
    (array,) = arrays.values()
    if array.dtype.kind != "f":
        raise InputError(wrong_dtype(path.name, array.dtype, pass_on="save"))
    check_shape(array.shape, name=path.name, pass_on="save")
    return array


def _check_unpacked(path: Path, packed: int, size: int) -> None:
    """Refuse a small file that claims to hold very much, before any of it is unpacked."""
    if size > max(_FOLD * packed, _SMALL):
        raise FileFormatError(
            f"{path} has {packed} bytes and claims to unpack to {size}: no measurements are packed more than "
            f"{_FOLD}-fold; save it as .npy if it is meant"
        )


def parts_of(path: Path) -> list[Path]:
    """The parquet files of a folder, by name; those that begin with a dot or an underscore are not data."""
    if not path.is_dir():
        return [path]
    parts = sorted(part for part in path.glob("*.parquet") if part.is_file())
    return [part for part in parts if part.name[0] not in "._"]


def parquet_rows(path: Path) -> int:
    return int(_dataset(path).count_rows())


def parquet_blocks(path: Path, rows: int, columns: Columns) -> Iterator[Table]:
    """Blocks of a parquet file or a folder of them; whole numbers become floats, gaps NaN."""
    data = _dataset(path)
    names = _names(data.schema, columns, path)
    _check_numeric(path, data, names)
    for part in data.get_fragments():  # where a column is missing, gaps would be read
        if {*_names(part.physical_schema, columns, part.path)} != {*names}:
            raise InputError(
                f"{part.path} has other columns than {parts_of(path)[0].name}: give all parts one schema, or "
                "name the columns that all of them have with --columns"
            )
    packed = sum(part.stat().st_size for part in parts_of(path))
    _check_unpacked(path, packed, 8 * data.count_rows() * len(names))
    read = [*names, *filter(None, [columns.id])]
    start = 0
    for batch in data.to_batches(columns=read, batch_size=rows, batch_readahead=1, fragment_readahead=1):
        if batch.num_rows:
            x = np.column_stack([_as_floats(batch.column(name)) for name in names])
            labels = [] if columns.id is None else batch.column(columns.id).to_pylist()
            ids = np.array([str(label) for label in labels]) if labels else None
            yield Table(x, names, Rows(np.arange(start, start + len(x)), None, ids))
            start += len(x)


def _dataset(path: Path) -> Any:
    try:
        from pyarrow import dataset
    except ImportError:
        raise FileFormatError(f"reading {path} needs pyarrow: pip install 'steincritic[parquet]'") from None
    return dataset.dataset([str(part) for part in parts_of(path)], format="parquet")


def _names(schema: Any, columns: Columns, path: object) -> tuple[str, ...]:
    """Of the columns that are data."""
    names = [name for name in schema.names if not name.startswith("__index_level_")]  # of pandas
    return tuple(names[j] for j in columns.places(names, path)[0]) if names else ()


def _check_numeric(path: Path, data: Any, names: tuple[str, ...]) -> None:
    from pyarrow import types

    numeric = (types.is_floating, types.is_integer, types.is_decimal)
    wrong = [name for name in names if not any(kind(data.schema.field(name).type) for kind in numeric)]
    if not names or data.count_rows() == 0:
        raise FileFormatError(f"{path} must hold rows of numbers, it has no rows or no columns")
    if wrong:
        first = data.head(1, columns=wrong)
        shown = [f"{n} ({data.schema.field(n).type}, such as {str(first[n][0])[:30]!r})" for n in wrong]
        raise FileFormatError(
            f"{path} must hold numbers, got other kinds in columns {listed(shown, _SHOWN)}; leave them out "
            f"with --exclude {','.join(wrong)}, or encode them as numbers"
        )


def _as_floats(column: Any) -> np.ndarray:
    from pyarrow import float64, types

    column = column if types.is_floating(column.type) else column.cast(float64())
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values.astype(np.float32) if values.dtype == np.float16 else values
