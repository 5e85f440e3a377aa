"""One pass over data that may not fit into memory: sums that lenses need, and some rows chosen at random."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from steincritic.data.frame import Frame
from steincritic.data.layout import Rows
from steincritic.data.points import ScoredPoints, scored
from steincritic.data.source import Sample, Source, first_row
from steincritic.devices import DeviceLike, resolve_device
from steincritic.engine import EngineName, in_order, in_use, one_thread, spread
from steincritic.errors import InputError
from steincritic.gof.bench import Bench, piece_rows
from steincritic.lenses.lens import Seen
from steincritic.models.base import Model

_SAMPLE = (50_000, 2**23)  # rows, chosen at random, for a critic and for findings; coordinates, at most
_HEAD = 5_000  # first rows, in which what a test takes for granted is looked at
_PIECES = 8  # summed up together by a thread
_PAIRED = 200  # columns up to which correlations are counted


@dataclass(frozen=True, eq=False)
class Block:
    """Some consecutive rows, scored by the model."""

    points: ScoredPoints
    rows: Rows
    dropped: int = 0


def block_rows(dim: int) -> int:
    """Rows of a block: whole pieces, so that sums do not depend on how data came in."""
    return _PIECES * piece_rows(dim)


def sample_size(dim: int) -> int:
    most, numbers = _SAMPLE
    return max(1000, min(most, numbers // dim))


def scored_blocks(
    model: Model, source: Source, *, device: DeviceLike = None, names: Sequence[str] | None = None
) -> Iterator[Block]:
    """A source block by block, in coordinates without bounds where the model has bounds."""
    for table in source.blocks(block_rows(first_row(source).x.shape[1])):
        at = f"rows {table.rows.numbers[0]} to {table.rows.numbers[-1]}"
        points = scored(model, table, name=at, names=names)
        yield Block(points.to(device=resolve_device(device, points.x)), table.rows, table.dropped)


def blocks_of(points: ScoredPoints) -> Iterator[Block]:
    """Scored points in memory, block by block."""
    size = block_rows(points.dim)
    for start in range(0, len(points), size):
        part = points[start : start + size]
        yield Block(part, Rows(np.arange(start, start + len(part))))


@dataclass(frozen=True, eq=False)
class Passed:
    """What is known of all rows after one pass over them."""

    n: int
    sums: Tensor  # (p,) that the bench makes entries of
    sample: ScoredPoints  # some rows, chosen at random
    rows: Rows  # where these stand in their file
    head: ScoredPoints  # the first rows
    dropped: int


Found = tuple[Tensor, Sample, ScoredPoints, int, int]  # sums, sample, first rows, counts of rows and left out


@dataclass(frozen=True, eq=False)
class Summing:
    """What is wanted of every block: sums, and some of its rows by that seed."""

    bench: Bench
    size: int
    seed: int

    def __call__(self, task: tuple[Block, int]) -> Found:
        """Of a block whose first row is at that place."""
        block, first = task
        with one_thread():
            sums = self.bench.sums(block.points.alone())[0].cpu()
            values = (block.points.x, block.points.score)
            sample = Sample.of(values, block.rows, first=first, size=self.size, seed=self.seed)
        head = block.points[: max(0, _HEAD - first)].map(Tensor.clone)
        return sums, sample, head, len(block.points), block.dropped


def one_pass(summing: Summing, blocks: Iterable[Block]) -> Passed:
    """Blocks are read and scored in this thread; their sums are taken by the engine, and added in order."""

    def tasks() -> Iterator[tuple[Block, int]]:
        count = 0
        for block in blocks:
            yield block, count
            count += len(block.points)

    on_cpu = summing.bench.setting.frame.location.device.type == "cpu"
    engine: EngineName = "threads" if on_cpu else "serial"
    heads: list[ScoredPoints] = []
    total, sample, n, dropped = None, None, 0, 0
    for sums, part, head, rows, left_out in in_order(spread(summing, tasks(), None if in_use() else engine)):
        total = sums if total is None else total + sums
        n, dropped = n + rows, dropped + left_out
        sample = part if sample is None else sample.joined(part, summing.size)
        if len(head):
            heads.append(head)
    if total is None or sample is None:
        raise InputError("no row is left: all of them have NaN or infinite values")
    sample = sample.in_order()
    x, score = sample.values
    return Passed(n, total, ScoredPoints(x, score), sample.rows, ScoredPoints.cat(heads), dropped)


@dataclass(frozen=True)
class Means:
    """No entries: sums of the coordinates and of their products, of which sentences tell sizes."""

    name: ClassVar[str] = "means"
    whitened: ClassVar[bool] = False

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedMeans":
        return PreparedMeans(draws.dim)


@dataclass(frozen=True)
class PreparedMeans:
    linear: ClassVar[bool] = True
    size: ClassVar[int] = 0
    dim: int

    @property
    def width(self) -> int:
        return self.dim * (1 + (self.dim if self.dim <= _PAIRED else 1))

    def sums(self, datasets: ScoredPoints) -> Tensor:
        x = datasets.x
        second = (x.mT @ x).flatten(-2) if self.dim <= _PAIRED else x.square().sum(-2)
        return torch.cat([x.sum(-2), second], -1)

    def of_sums(self, sums: Tensor, n: int) -> Tensor:
        return sums[..., :0]

    def total(self, sums: Tensor, n: int, frame: Frame) -> "Total":
        """Of n rows with these (p,) sums, in the units of the data."""
        first, second = (sums.cpu() / n).split([self.dim, self.width - self.dim])
        frame = Frame(frame.location.cpu(), frame.scale.cpu())
        if self.dim > _PAIRED:
            covariance = torch.diag(second - first.square())
        else:
            covariance = second.unflatten(-1, (self.dim, self.dim)) - first.outer(first)
        return Total(n, frame.location + frame.scale * first, covariance * frame.scale.outer(frame.scale))

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        return datasets.x.new_zeros(len(datasets.x), 0)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        return {}


@dataclass(frozen=True, eq=False)
class Total:
    """Mean and covariance of all rows; of columns one by one where there are very many."""

    n: int
    mean: Tensor  # (d,)
    covariance: Tensor  # (d, d)

    def matched(self, x: Tensor) -> Tensor:
        """Some rows, moved a little so that they have the mean and the covariance of all rows."""
        z = x - x.mean(0)
        covariance = z.T @ z / len(z) if x.shape[1] <= _PAIRED else torch.diag(z.square().mean(0))
        (target, failed), (root, singular) = (
            torch.linalg.cholesky_ex(matrix) for matrix in (self.covariance, covariance)
        )
        if int(failed) or int(singular):  # columns that decide each other
            return z + self.mean
        moved: Tensor = torch.linalg.solve_triangular(root, z.T, upper=False).T @ target.T
        return moved + self.mean
