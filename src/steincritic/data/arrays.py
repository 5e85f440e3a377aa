"""From what people have (arrays, frames, files) to a clean (n, d) tensor of floats."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from steincritic.data.layout import Table, check_shape, native, wrong_dtype
from steincritic.data.tables import load_table
from steincritic.errors import InputError, listed
from steincritic.shapes import Points

_SHOWN = 8  # columns in a message


class DataFrame(Protocol):
    """A pandas or polars frame."""

    def to_numpy(self) -> np.ndarray: ...


ArrayLike: TypeAlias = Tensor | np.ndarray | DataFrame | Table | Sequence[Sequence[float]] | str | Path


def as_points(x: ArrayLike, *, name: str = "x", dim: int | None = None) -> Points:
    """Accept a tensor, array, frame, table, nested list or file path; refuse what is not (n, d) floats."""
    if isinstance(x, str | Path):
        x = load_table(x)
    if isinstance(x, Table):
        x = x.x
    tensor = as_float_tensor(x, name=name)
    check_shape(tuple(tensor.shape), name=name)
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
        if len(x) > 1 and bool(bad.all()):
            raise InputError(f"{name} has NaN or infinite values in every row: look at what made it")
        raise InputError(
            f"{name} has NaN or infinite values in {int(bad.sum())} of {len(x)} rows, the first is row "
            f"{int(bad.nonzero()[0, 0])}; drop or repair them first"
        )


def as_float_tensor(array_like: Any, *, name: str) -> Tensor:
    """An array of floats of any shape, as a tensor."""
    x = array_like
    if hasattr(x, "to_delayed"):
        raise InputError(
            f"{name} is a Dask {type(x).__name__}, which is not read here: pass a folder of parquet files "
            "(to_parquet), or x.compute()"
        )
    if hasattr(x, "to_numpy"):  # pandas and polars frames
        x = x.to_numpy()
    if not isinstance(x, Tensor):
        try:
            array = np.asarray(x)
        except ValueError:
            raise InputError(f"{name} must be a rectangular (n, d) array, got ragged rows") from None
        if array.dtype == object and array.ndim == 0:
            what = type(array_like).__name__
            raise InputError(
                f"{name} must be an array of floats, got {what}: the model comes first, then the data"
            )
        labels = getattr(array_like, "columns", ()) if array.dtype == object else ()
        if text := [str(c) for c in labels if np.asarray(array_like[c]).dtype.kind not in "fiub"]:
            raise InputError(f"columns of {name} hold no numbers: {listed(text, _SHOWN)}; leave them out")
        if array.dtype.kind != "f":
            raise InputError(wrong_dtype(name, array.dtype))
        return torch.as_tensor(np.require(array, native(array.dtype), ["C", "W"]))
    if x.is_meta or x.is_nested or x.layout != torch.strided:
        kind = "a meta tensor, which holds no numbers" if x.is_meta else "a sparse or nested tensor"
        raise InputError(f"{name} must be a dense array of numbers, got {kind}; pass x.to_dense()")
    if not x.is_floating_point():
        raise InputError(wrong_dtype(name, x.dtype))
    return x
