"""Numbers from npy, npz and parquet files, in blocks of rows; nothing is unpickled."""

import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from steincritic.data.layout import Columns, Rows, Table
from steincritic.errors import FileFormatError, InputError, listed

_SHOWN = 5
_FOLD, _SMALL = 100, 2**28  # a file unpacks to at most this multiple of its size, or to this many bytes


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


def numpy_rows(path: Path) -> int:
    with _opened(path) as (file, size):
        return int(_header(path, file, size)[0][0])


def numpy_blocks(path: Path, rows: int, columns: Columns) -> Iterator[Table]:
    """Blocks of an npy file, or of the one array in an npz file, read one after the other."""
    with _opened(path) as (file, size):
        (n, d), by_column, dtype = _header(path, file, size)
        names = numbered_names(d)
        first = file.tell()
        if by_column and path.suffix.lower() == ".npz":  # to go back there is to unpack again
            file, first = io.BytesIO(_exactly(path, file, n * d * dtype.itemsize)), 0
        for start in range(0, n, rows):
            count = min(rows, n - start)
            if by_column:
                x = np.empty((count, d), dtype)
                for j in range(d):
                    file.seek(first + (j * n + start) * dtype.itemsize)
                    x[:, j] = np.frombuffer(_exactly(path, file, count * dtype.itemsize), dtype)
            else:
                data = _exactly(path, file, count * d * dtype.itemsize)
                x = np.frombuffer(data, dtype).reshape(count, d)
            numbers = Rows(np.arange(start, start + count))
            yield Table(x.astype(native(dtype), copy=False), names, numbers).chosen(columns, path)


def numbered_names(count: int) -> tuple[str, ...]:
    return tuple(f"x{j}" for j in range(1, count + 1))


def parquet_rows(path: Path) -> int:
    return int(_parquet(path).metadata.num_rows)


def parquet_blocks(path: Path, rows: int, columns: Columns) -> Iterator[Table]:
    """Blocks of a parquet file by its row groups; whole numbers become floats, gaps NaN."""
    file = _parquet(path)
    there = [f for f in file.schema_arrow if not f.name.startswith("__index_level_")]  # of pandas
    places = columns.places([f.name for f in there], path)[0] if there else []
    _check_numeric(path, file, [there[j] for j in places])
    names = tuple(there[j].name for j in places)
    check_unpacked(path, 8 * file.metadata.num_rows * len(names))
    start = 0
    for batch in file.iter_batches(batch_size=rows, columns=[*names, *filter(None, [columns.id])]):
        if not batch.num_rows:
            continue
        x = np.column_stack([_as_floats(batch.column(name)) for name in names])
        ids = None if columns.id is None else np.array([str(v) for v in batch.column(columns.id).to_pylist()])
        yield Table(x, names, Rows(np.arange(start, start + len(x)), None, ids))
        start += len(x)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The bytes of the one array in the file, and how many there are."""
    if path.suffix.lower() == ".npy":
        with path.open("rb") as file:
            yield file, path.stat().st_size
        return
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        if len(parts) != 1:
            shown = ", ".join(part.filename.removesuffix(".npy") for part in parts)
            raise FileFormatError(
                f"{path} must hold one array, it holds {len(parts)}: {shown}; save the wanted one as .npy"
            )
        check_unpacked(path, parts[0].file_size)
        with archive.open(parts[0]) as file:
            yield file, parts[0].file_size


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a small file that claims to hold very much, before any of it is unpacked."""
    packed = path.stat().st_size
    if size > max(_FOLD * packed, _SMALL):
        raise FileFormatError(
            f"{path} has {packed} bytes and claims to unpack to {size}: no measurements are packed more than "
            f"{_FOLD}-fold; save it as .npy if it is meant"
        )


def _header(path: Path, file: IO[bytes], size: int) -> tuple[tuple[int, int], bool, np.dtype[Any]]:
    """Shape, whether columns lie together, and dtype; refuses what is no table of floats."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, by_column, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject:
        raise FileFormatError(
            f"{path} cannot be read as {path.suffix[1:]}: it holds pickled objects, which are never loaded; "
            "save plain numbers, x.astype(float)"
        )
    if dtype.kind != "f":
        raise InputError(wrong_dtype(path.name, dtype, pass_on="save"))
    check_shape(shape, name=path.name, pass_on="save")
    missing = math.prod(shape) * dtype.itemsize + file.tell() - size
    if missing > 0:  # checked before memory is allocated
        raise FileFormatError(f"{path} is cut off: {missing} bytes are missing; write it again")
    return (shape[0], shape[1]), by_column, dtype


def _exactly(path: Path, file: IO[bytes], size: int) -> bytearray:
    data = bytearray(size)  # writable, so that tensors can share it
    view, done = memoryview(data), 0
    while done < size:
        got = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not got:
            raise FileFormatError(f"{path} ends {size - done} bytes too early; write it again")
        done += got
    return data


def _parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise FileFormatError(f"reading {path} needs pyarrow: pip install 'steincritic[parquet]'") from None
    return parquet.ParquetFile(path)


def _check_numeric(path: Path, file: Any, columns: list[Any]) -> None:
    from pyarrow import types

    def numeric(kind: Any) -> bool:
        return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_decimal(kind))

    wrong = [field for field in columns if not numeric(field.type)]
    if not columns or file.metadata.num_rows == 0:
        raise FileFormatError(f"{path} must hold rows of numbers, it has no rows or no columns")
    if wrong:
        first = next(file.iter_batches(batch_size=1, columns=[field.name for field in wrong[:_SHOWN]]))
        shown = [
            f"{field.name} ({field.type}, such as {str(first.column(k)[0])[:30]!r})"
            for k, field in enumerate(wrong[:_SHOWN])
        ] + [field.name for field in wrong[_SHOWN:]]
        raise FileFormatError(
            f"{path} must hold numbers, got other kinds in {'columns' if len(wrong) > 1 else 'column'} "
            f"{listed(shown, _SHOWN)}; leave them out with --exclude {','.join(f.name for f in wrong)}, or "
            "encode them as numbers"
        )


def _as_floats(column: Any) -> np.ndarray:
    from pyarrow import float64, types

    column = column if types.is_floating(column.type) else column.cast(float64())
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values.astype(np.float32) if values.dtype == np.float16 else values
