"""witness: the witness of new data under a saved critic, for tables of any size."""

import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

from steincritic.cli.guard import FITS, described, print_json
from steincritic.cli.options import (
    AsJson,
    Common,
    Data,
    DataPath,
    Model,
    OnDevice,
    OptionalPath,
    Options,
    check_writable,
    device_named,
    model_named,
)
from steincritic.errors import InputError, check_count

if TYPE_CHECKING:
    import numpy as np

    from steincritic.data.stream import Chunk
    from steincritic.models import base
    from steincritic.training.critic import Critic

_PIECE = 8192  # rows whose layers stay in a processor's cache
_LARGEST = 10


@dataclass(frozen=True, kw_only=True)
class _CriticFile(Options):
    critic: Path
    """A critic as check or Critic.save writes it."""

    def check(self) -> None:
        super().check()
        if not self.critic.is_file():
            raise InputError(f"no such file: {self.critic}")


@dataclass(frozen=True, kw_only=True)
class Witness(Common, AsJson, OnDevice, _CriticFile, Model, Data):
    """Apply a saved critic to new data: one witness value per row, large where the model fails.

    Data of any size are read and written in chunks. On draws of the model the witness has mean zero.
    """

    data: DataPath
    """npy, npz, csv or parquet file, one point per row; - for csv on standard input."""
    out: OptionalPath = None
    """csv file for row,witness; rows are numbered from 0."""
    chunk: int = 100_000
    """Rows held in memory at a time."""
    drop_nan: bool = False
    """Leave out rows with NaN or infinite values instead of stopping there."""

    takes_stdin: ClassVar[bool] = True

    def check(self) -> None:
        super().check()
        check_count(self.chunk, name="chunk")
        if self.out is not None:
            self._check_out(self.out)
            check_writable(self.out)

    def _check_out(self, out: Path) -> None:
        """Nothing that is read is written over."""
        model = {Path(self.model.removeprefix("rbm:")): "model", Path(self.model.rpartition(":")[0]): "model"}
        for path, name in {self.data: "data", self.critic: "critic", **model}.items():
            if out.resolve() == path.resolve():
                raise InputError(f"--out {out} is the {name}; name another file")

    def __call__(self) -> int:
        from steincritic.data.stream import estimated_rows, read_chunks
        from steincritic.files import atomic_file
        from steincritic.training.critic import load_critic
        from steincritic.training.progress import StepBar

        model = model_named(self.model)
        critic = load_critic(self.critic, model).to(device_named(self.device))
        chunks = read_chunks(self.data, rows=self.chunk, drop_nan=self.drop_nan)
        summary = Summary()
        with (
            StepBar("rows", estimated_rows(self.data)) as bar,
            nullcontext() if self.out is None else atomic_file(self.out) as file,
        ):
            if file is not None:
                file.write(b"row,witness\n")
            for chunk, values in witnesses(critic, model, chunks):
                summary.add(chunk, values)
                if file is not None:
                    write_rows(file, chunk.rows, values)
                bar.advance(len(values) + chunk.dropped)
        if summary.rows == 0:
            raise InputError(f"no row of {self.data} is free of NaN and infinite values")
        if self.json:
            about = {"model": self.model, "critic": str(self.critic), "data": str(self.data)}
            print_json(described(summary.to_dict(), command="witness", **about))
        else:
            self._print(summary)
        return FITS

    def _print(self, summary: "Summary") -> None:
        from steincritic.cli.printing import print_lines, print_table
        from steincritic.data.stream import STDIN

        dropped = f", {summary.dropped} left out" if summary.dropped else ""
        name = "standard input" if str(self.data) == STDIN else str(self.data)
        error = "none" if summary.standard_error is None else f"{summary.standard_error:.2g}"
        print_lines(
            f"{name} under {self.critic}: {summary.rows} rows{dropped}",
            f"Mean witness {summary.mean:.5g}, standard error {error}",
        )
        largest = [(str(row), f"{value:.5g}") for row, value in summary.largest]
        print_table(("row", "witness"), largest, title="Largest", left=True)
        if self.out is not None:
            print_lines(f"File: {self.out}")


class Summary:
    """A summary of many witness values, merged chunk by chunk."""

    def __init__(self) -> None:
        self.rows = 0
        self.dropped = 0
        self.mean = 0.0
        self.largest: list[tuple[int, float]] = []  # row and witness
        self._squares = 0.0  # sum of squared distances from the mean

    def add(self, chunk: "Chunk", values: "np.ndarray") -> None:
        """One more chunk; the moments are merged as in Chan, Golub and LeVeque (1983)."""
        import numpy as np

        self.dropped += chunk.dropped
        if not len(values):
            return
        count, mean = len(values), float(values.mean())
        total, away = self.rows + count, mean - self.mean
        self._squares += float(((values - mean) ** 2).sum()) + away**2 * self.rows * count / total
        self.mean += away * count / total
        self.rows = total
        top = np.argsort(-values, kind="stable")[:_LARGEST]
        found = zip(chunk.rows[top].tolist(), values[top].tolist(), strict=True)
        self.largest = sorted([*self.largest, *found], key=lambda pair: -pair[1])[:_LARGEST]

    @property
    def standard_error(self) -> float | None:
        """Of the mean, for independent rows; a single row has none."""
        return math.sqrt(self._squares / (self.rows - 1) / self.rows) if self.rows > 1 else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "dropped": self.dropped,
            "mean": self.mean,
            "standard_error": self.standard_error,
            "largest": [{"row": row, "witness": value} for row, value in self.largest],
        }


def witnesses(
    critic: "Critic", model: "base.Model", chunks: Iterable["Chunk"]
) -> Iterator[tuple["Chunk", "np.ndarray"]]:
    """Each chunk with its (k,) witness values.

    Score and change of variables are taken in the precision of the data, the network in its own.
    """
    import numpy as np
    import torch

    from steincritic.data.points import score_points
    from steincritic.models.base import dimension

    dim = dimension(model)
    for chunk in chunks:
        width = chunk.x.shape[1]
        if dim is not None and width != dim:
            raise InputError(f"the data have {width} columns but the model has {dim} dimensions")
        values = np.empty(len(chunk.x))
        for start in range(0, len(values), _PIECE):
            piece, rows = (part[start : start + _PIECE] for part in (chunk.x, chunk.rows))
            points = score_points(model, torch.from_numpy(piece), name=f"rows from {rows[0]}")
            _check_finite(points.score.cpu().numpy(), rows, "the model's score")
            witness = critic.witness(points).cpu().numpy()
            _check_finite(witness[:, None], rows, "the witness")
            values[start : start + _PIECE] = witness
        yield chunk, values


def write_rows(file: IO[bytes], rows: "np.ndarray", values: "np.ndarray") -> None:
    """Lines of row,witness. One format of all lines takes half the time of a format for each."""
    cells: list[float] = [0] * (2 * len(rows))
    cells[::2], cells[1::2] = rows.tolist(), values.tolist()
    file.write((("%d,%.9g\n" * len(rows)) % tuple(cells)).encode())


def _check_finite(values: "np.ndarray", rows: "np.ndarray", name: str) -> None:
    from steincritic.data.stream import bad_rows

    bad = bad_rows(values)
    if bad.any():
        row = rows[bad.argmax()]
        raise InputError(
            f"{name} is not finite in row {row}; is that point far outside, or the critic damaged?"
        )
