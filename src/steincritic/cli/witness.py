"""witness: the witness of new data under a saved critic, for tables of any size."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from steincritic.cli.guard import FITS, described
from steincritic.cli.options import (
    Advanced,
    AsJson,
    Common,
    Data,
    DataPath,
    Model,
    OnDevice,
    OnEngine,
    Options,
    check_writable,
    device_named,
    model_named,
)
from steincritic.errors import InputError, check_count

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from steincritic.data.layout import Rows, Table
    from steincritic.models import base
    from steincritic.training.critic import Critic

_PIECE = 8192  # rows whose layers stay in a processor's cache
_LARGEST = 10
_TELLING = 3  # columns that are named, at most
_PART = 0.1  # of a row's positive shares, for a column to be named


@dataclass(frozen=True, kw_only=True)
class _CriticFile(Options):
    critic: Path
    """A critic as check or Critic.save writes it."""

    def check(self) -> None:
        super().check()
        if not self.critic.is_file():
            raise InputError(f"no such file: {self.critic}")


@dataclass(frozen=True, kw_only=True)
class Witness(Common, AsJson, OnEngine, OnDevice, _CriticFile, Model, Data):
    """Apply a saved critic to new data: one witness value per row, large where the model fails.

    Data of any size are read and written in chunks. On draws of the model the witness has mean zero.
    """

    data: DataPath
    """npy, npz, csv or parquet file, or a folder of parquet files; - for csv on standard input."""
    out: Path | None = None
    """csv file for row (from 0), line, id, witness, pvalue, and the columns that contribute most."""
    chunk: Advanced[int] = 100_000
    """Rows held in memory at a time."""
    draws: Advanced[int] = 1999
    """Draws of the model that rows are ranked among; a p-value is the share with as large a witness."""

    takes_stdin: ClassVar[bool] = True
    folder: ClassVar[None] = None  # --out is a file

    def check(self) -> None:
        super().check()
        check_count(self.chunk, name="chunk")
        check_count(self.draws, name="draws")
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
        from steincritic.data.tables import estimated_rows, read_chunks
        from steincritic.files import atomic_file, csv_text
        from steincritic.training.critic import load_critic
        from steincritic.training.progress import StepBar

        model = model_named(self.model)
        critic = load_critic(self.critic, model).to(device_named(self.device))
        chunks = read_chunks(self.data, rows=self.chunk, drop_nan=self.drop_nan, columns=self.chosen())
        summary = Summary()
        with (
            StepBar("rows", estimated_rows(self.data)) as bar,
            nullcontext() if self.out is None else atomic_file(self.out) as file,
        ):
            for found in witnesses(critic, model, chunks, draws=self.draws):
                if file is not None:
                    file.write(csv_text(found.cells(), header=file.tell() == 0).encode())
                summary.add(found)
                bar.advance(len(found.values) + found.table.dropped)
        if summary.rows == 0:
            raise InputError(f"no row of {self.data} is free of NaN and infinite values")
        about = {"model": self.model, "critic": str(self.critic), "data": str(self.data)}
        self.tell(described(summary.to_dict(), command="witness", **about), lambda: self._print(summary))
        return FITS

    def _print(self, summary: "Summary") -> None:
        from steincritic.cli.printing import print_lines, print_table
        from steincritic.data.tables import STDIN

        dropped = f", {summary.dropped} left out" if summary.dropped else ""
        name = "standard input" if str(self.data) == STDIN else str(self.data)
        error = "none" if summary.standard_error is None else f"{summary.standard_error:.2g}"
        print_lines(
            f"{name} under {self.critic}: {summary.rows} rows{dropped}",
            f"Mean witness {summary.mean:.5g}, standard error {error}",
        )
        largest = [
            [f"{v:.5g}" if isinstance(v, float) else str(v) for v in row.values()] for row in summary.largest
        ]
        print_table(tuple(summary.largest[0]), largest, title="Largest", left=True)
        if self.out is not None:
            print_lines(f"File: {self.out}")


Judged: TypeAlias = tuple["np.ndarray", "np.ndarray | None", list[str]]  # witness, p-values, telling columns


@dataclass(frozen=True, eq=False)
class Found:
    """What the critic says of some rows."""

    table: "Table"
    values: "np.ndarray"  # (k,) witness
    pvalues: "np.ndarray | None"  # among draws of the model; None for one that cannot be sampled
    telling: list[str]  # columns that contribute most to each row's witness

    def cells(self, rows: "np.ndarray | slice" = slice(None)) -> dict[str, list[Any]]:
        """By column of the csv file."""
        named = self.table.rows[rows].cells() | {"witness": [float(f"{v:.9g}") for v in self.values[rows]]}
        if self.pvalues is not None:
            named["pvalue"] = [float(f"{p:.6g}") for p in self.pvalues[rows]]
        telling = self.telling[rows] if isinstance(rows, slice) else [self.telling[k] for k in rows]
        return named | {"columns": telling}


class Summary:
    """A summary of many witness values, merged chunk by chunk."""

    def __init__(self) -> None:
        self.rows = 0
        self.dropped = 0
        self.mean = 0.0
        self.largest: list[dict[str, Any]] = []  # row, witness and what else is known, the largest first
        self._squares = 0.0  # sum of squared distances from the mean

    def add(self, found: Found) -> None:
        """One more chunk; the moments are merged as in Chan, Golub and LeVeque (1983)."""
        import numpy as np

        values = found.values
        self.dropped += found.table.dropped
        if not len(values):
            return
        count, mean = len(values), float(values.mean())
        total, away = self.rows + count, mean - self.mean
        self._squares += float(((values - mean) ** 2).sum()) + away**2 * self.rows * count / total
        self.mean += away * count / total
        self.rows = total
        cells = found.cells(np.argsort(-values, kind="stable")[:_LARGEST])
        top = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
        self.largest = sorted([*self.largest, *top], key=lambda row: -row["witness"])[:_LARGEST]

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
            "largest": self.largest,
        }


def witnesses(
    critic: "Critic", model: "base.Model", chunks: Iterable["Table"], *, draws: int
) -> Iterator[Found]:
    """Each chunk with its witness values, ranked among so many draws of the model; in their order."""
    from steincritic.data.points import arranged
    from steincritic.engine import in_order, spread
    from steincritic.models.bounded import unbounded

    judge = Judge(critic, model, _reference(critic, unbounded(model), draws))
    waiting: dict[int, Table] = {}

    def numbered() -> Iterator["Table"]:
        for k, chunk in enumerate(chunks):
            waiting[k] = arranged(chunk, model)
            yield waiting[k]

    with closing(spread(judge, numbered())) as made:
        for k, judged in enumerate(in_order(made)):
            yield Found(waiting.pop(k), *judged)


@dataclass(frozen=True, eq=False)
class Judge:
    """What a critic says of a chunk; score and change of variables in the precision of the data."""

    critic: "Critic"
    model: "base.Model"
    reference: "Tensor | None"

    def __call__(self, chunk: "Table") -> Judged:
        import numpy as np
        import torch

        from steincritic.diagnosis.coordinates import block_name
        from steincritic.gof.null import rank_pvalues
        from steincritic.models.bounded import coordinates_of
        from steincritic.stein.operator import coordinate_blocks

        self._check_width(chunk)
        width = len(self.critic.frame.scale) if coordinates_of(self.model) else chunk.x.shape[1]
        blocks = coordinate_blocks(width)
        names = [block_name(chunk.columns, block) for block in blocks]
        pieces = [slice(start, start + _PIECE) for start in range(0, len(chunk), _PIECE)]
        shares = [self._shares(chunk, piece, blocks) for piece in pieces]
        values = np.concatenate([np.empty(0), *(part.sum(1) for part in shares)])
        telling = [name for part in shares for name in _telling(part, names)]
        if self.reference is None:
            return values, None, telling
        return values, rank_pvalues(torch.from_numpy(values), self.reference).numpy(), telling

    def _check_width(self, chunk: "Table") -> None:
        from steincritic.models.base import dimension

        dim, width = dimension(self.model), chunk.x.shape[1]
        if dim is not None and width != dim:
            raise InputError(f"the data have {width} columns but the model has {dim} dimensions")

    def _shares(self, chunk: "Table", piece: slice, blocks: Sequence[slice]) -> "np.ndarray":
        """Of the witness, by block of coordinates."""
        import torch

        from steincritic.data.points import score_points
        from steincritic.models.bounded import coordinates_of, unbounded
        from steincritic.models.coordinates import entered

        given, rows = torch.from_numpy(chunk.x[piece]), chunk.rows[piece]
        within = coordinates_of(self.model)
        if within is not None:
            given = entered(within, given, chunk.columns, rows.name)
        points = score_points(unbounded(self.model), given, name=f"rows from {rows.name(0)}")
        _check_finite(points.score.cpu().numpy(), rows, "the model's score")
        shares = self.critic.shares(points, blocks).cpu().double().numpy()
        _check_finite(shares, rows, "the witness")
        return shares


def _reference(critic: "Critic", model: "base.Model", draws: int) -> "Tensor | None":
    """Witness values of the model's own draws, where it has any."""
    import torch

    from steincritic.data.points import sample_points
    from steincritic.models.base import SamplingModel

    if not isinstance(model, SamplingModel):
        return None
    points = sample_points(model, draws, seed=0, like=critic.frame.location.cpu()[None])
    pieces = (points[start : start + _PIECE] for start in range(0, draws, _PIECE))
    return torch.cat([critic.witness(piece).cpu().double() for piece in pieces])


def _telling(shares: "np.ndarray", names: list[str]) -> list[str]:
    """The columns with the largest shares of each row's witness, the largest first."""
    import numpy as np

    order = np.argsort(-shares, axis=1)[:, :_TELLING]
    largest = np.take_along_axis(shares, order, 1)
    named = largest > _PART * np.clip(shares, 0, None).sum(1, keepdims=True)
    pairs = zip(order.tolist(), named.tolist(), strict=True)
    return ["; ".join(names[j] for j, shown in zip(*pair, strict=True) if shown) for pair in pairs]


def _check_finite(values: "np.ndarray", rows: "Rows", name: str) -> None:
    from steincritic.data.tables import bad_rows

    bad = bad_rows(values)
    if bad.any():
        raise InputError(
            f"{name} is not finite in row {rows.name(int(bad.argmax()))}; is that point far outside, or the "
            "critic damaged?"
        )
