"""Dask arrays and frames as data: partitions are computed where Dask computes, and never all at once here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from steincritic.data.binary import check_shape, native, numbered_names, wrong_dtype
from steincritic.data.layout import Rows, Table
from steincritic.data.tables import IN_MEMORY, finite
from steincritic.engine import cluster_in_use
from steincritic.errors import InputError

Cut = list[tuple[int, slice]]  # numbers of partitions, and which of their rows


def is_collection(x: object) -> bool:
    """A Dask array or frame; does not import Dask."""
    return type(x).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(x, "to_delayed")


@dataclass(frozen=True, eq=False)
class Collection:
    """A source of rows in partitions; nothing is held but those of one block."""

    parts: Sequence[Any]  # delayed
    names: tuple[str, ...]
    known: tuple[int, ...] | None  # rows of each, where Dask knows

    @classmethod
    def of(cls, x: Any) -> "Collection":
        if getattr(x, "ndim", None) != 2:
            came = f"{type(x).__name__} of {getattr(x, 'ndim', 'no')} dimensions"
            raise InputError(f"x must be a Dask frame or array of shape (n, d), got {came}")
        if hasattr(x, "columns"):
            return cls(x.to_delayed(), tuple(map(str, x.columns)), None)
        if x.dtype.kind != "f":
            raise InputError(wrong_dtype("x", x.dtype))
        whole = x.rechunk({1: -1})
        known = None if np.isnan(whole.shape[0]) else tuple(whole.chunks[0])
        return cls(whole.to_delayed().ravel().tolist(), numbered_names(int(whole.shape[1])), known)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each partition; where Dask does not know them, they are counted there."""
        if self.known is not None:
            return self.known
        from dask.base import compute
        from dask.delayed import delayed

        counted = [delayed(len)(part) for part in self.parts]
        cluster = cluster_in_use()
        if cluster is None:
            lengths: tuple[int, ...] = compute(*counted)  # type: ignore[no-untyped-call]
            return lengths
        return tuple(future.result() for future in [cluster.compute(one) for one in counted])

    @property
    def rows(self) -> int:
        return sum(self.sizes)

    def blocks(self, rows: int) -> Iterator[Table]:
        held: dict[int, Any] = {}
        for first, cut in self.cuts(rows):
            held = {k: held[k] if k in held else self._computed(k) for k, _ in cut}
            yield table_of([held[k] for k, _ in cut], [some for _, some in cut], self.names, first)

    def cuts(self, rows: int) -> Iterator[tuple[int, Cut]]:
        """So many rows at a time: the place of the first, and where they lie."""
        check_shape((self.rows, len(self.names)), name="x")
        cut: Cut = []
        first, missing = 0, rows
        for k, size in enumerate(self.sizes):
            start = 0
            while start < size:
                stop = min(size, start + missing)
                cut.append((k, slice(start, stop)))
                missing, start = missing - (stop - start), stop
                if missing == 0:
                    yield first, cut
                    first, cut, missing = first + rows, [], rows
        if cut:
            yield first, cut

    def _computed(self, k: int) -> Any:
        cluster = cluster_in_use()
        return self.parts[k].compute() if cluster is None else cluster.compute(self.parts[k]).result()


def table_of(parts: Sequence[Any], cut: Sequence[slice], names: tuple[str, ...], first: int) -> Table:
    """These rows of some partitions, the first of which is at that place."""
    arrays = [np.asarray(part)[some] for part, some in zip(parts, cut, strict=True)]
    x = np.concatenate(arrays)
    if x.dtype.kind != "f":
        raise InputError(wrong_dtype("x", x.dtype))
    rows = Rows(np.arange(first, first + len(x)))
    return finite(Table(x.astype(native(x.dtype), copy=False), names, rows), "x", way_out=IN_MEMORY)
