"""From what people have (arrays, frames, files) to a clean (n, d) tensor of floats."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.errors import FileFormatError, InputError
from steincritic.shapes import Points


def as_points(x: Any, *, name: str = "x", dim: int | None = None) -> Points:
    """Accept a tensor, array, data frame, nested list or file path; refuse what is no sample of vectors."""
    if isinstance(x, str | Path):
        x = read_points(x)
    tensor = as_float_tensor(x, name=name)
    if tensor.ndim == 1:
        raise InputError(
            f"{name} must have shape (n, d), got {tuple(tensor.shape)}; for n numbers pass {name}[:, None]"
        )
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise InputError(f"{name} must have shape (n, d) with n and d at least 1, got {tuple(tensor.shape)}")
    if dim is not None and tensor.shape[1] != dim:
        raise InputError(
            f"{name} has {tensor.shape[1]} columns but the model has {dim} dimensions; "
            "give the model and the data the same coordinates"
        )
    check_finite(tensor, name=name)
    return tensor


def check_finite(x: Points, *, name: str) -> None:
    bad = ~x.isfinite().all(-1)
    if bool(bad.any()):
        raise InputError(
            f"{name} has NaN or infinite values in {int(bad.sum())} of {len(x)} rows, the first is row "
            f"{int(bad.nonzero()[0, 0])}; drop or repair them first"
        )


def read_points(path: str | Path) -> np.ndarray:
    """Read npy, npz (one array), csv (header optional) or parquet (with pyarrow). Nothing is unpickled."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no such data file: {path}")
    readers = {".npy": _read_numpy, ".npz": _read_numpy, ".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix not in readers:
        raise FileFormatError(f"{path} must end in one of {', '.join(readers)}")
    try:
        return readers[path.suffix](path)
    except FileFormatError:
        raise
    except Exception as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileFormatError(f"{path} cannot be read as {path.suffix[1:]}: {first_line}") from None


def as_float_tensor(given: Any, *, name: str) -> Tensor:
    """An array of floats of any shape, as a tensor."""
    x = given
    if hasattr(x, "to_numpy"):  # pandas and polars frames
        x = x.to_numpy()
    if not isinstance(x, Tensor):
        try:
            array = np.asarray(x)
        except ValueError:
            raise InputError(f"{name} must be a rectangular (n, d) array, got ragged rows") from None
        if array.dtype.kind != "f":
            raise InputError(_wrong_dtype(name, array.dtype))
        native = np.float32 if array.dtype.itemsize <= 4 else np.float64  # also of long or swapped floats
        return torch.as_tensor(np.require(array, native, ["C", "W"]))
    if not x.is_floating_point():
        raise InputError(_wrong_dtype(name, x.dtype))
    return x


def _wrong_dtype(name: str, dtype: object) -> str:
    return (
        f"{name} must hold floating-point numbers, got {dtype}; a score exists for continuous data only: "
        f"if these are measurements pass {name}.astype(float)"
    )


def _read_numpy(path: Path) -> np.ndarray:
    with path.open("rb") as file:  # opened here, so that it is closed when the content is damaged
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        if len(loaded.files) != 1:
            raise FileFormatError(
                f"{path} must hold one array, it holds {len(loaded.files)}: {', '.join(loaded.files)}; "
                "save the wanted one as .npy"
            )
        array: np.ndarray = loaded[loaded.files[0]]
        return array


def _read_csv(path: Path) -> np.ndarray:
    with path.open(encoding="utf-8-sig") as lines:
        first = lines.readline()
    has_header = any(not _is_number(cell) for cell in first.split(","))
    return np.loadtxt(
        path, delimiter=",", skiprows=int(has_header), ndmin=2, dtype=float, encoding="utf-8-sig"
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> np.ndarray:
    try:
        from pyarrow import parquet
    except ImportError:
        raise FileFormatError(f"reading {path} needs pyarrow: pip install 'steincritic[parquet]'") from None
    return np.column_stack([c.to_numpy() for c in parquet.read_table(path).itercolumns()])
