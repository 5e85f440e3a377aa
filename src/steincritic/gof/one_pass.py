"""One pass over data that may not fit into memory: sums that lenses need, and some rows chosen at random."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from steincritic.data.frame import Frame
from steincritic.data.layout import Rows
from steincritic.data.points import ScoredPoints, scored
from steincritic.data.source import Sample, Source
from steincritic.devices import DeviceLike, resolve_device
from steincritic.engine import EngineName, one_thread, spread
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
    first = next(source.blocks(1))
    for table in source.blocks(block_rows(first.x.shape[1])):
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


def sums_and_sample(task: tuple[Bench, Block, int, int, int]) -> tuple[Tensor, Sample]:
    """Of one block, whose first row is at that place: sums, and so many of its rows by that seed."""
    bench, block, first, size, seed = task
    with one_thread():
        sums = bench.sums(block.points.alone())[0].cpu()
        values = (block.points.x, block.points.score)
        return sums, Sample.of(values, block.rows, first=first, size=size, seed=seed)


def one_pass(
    bench: Bench,
    blocks: Iterable[Block],
    *,
    size: int,
    seed: int = 0,
    engine: EngineName = "threads",
    address: str | None = None,
) -> Passed:
    """Blocks are read and scored in this thread; their sums are taken by the engine, and added in order."""
    head: list[ScoredPoints] = []
    count, dropped = 0, 0

    def tasks() -> Iterator[tuple[Bench, Block, int, int, int]]:
        nonlocal count, dropped
        for block in blocks:
            if count < _HEAD:
                head.append(block.points[: _HEAD - count].map(Tensor.clone))
            yield bench, block, count, size, seed
            count, dropped = count + len(block.points), dropped + block.dropped

    total, sample = None, None
    for sums, part in in_order(spread(sums_and_sample, tasks(), engine, address=address)):
        total = sums if total is None else total + sums
        sample = part if sample is None else sample.joined(part, size)
    if total is None or sample is None:
        raise InputError("no row is left: all of them have NaN or infinite values")
    sample = sample.in_order()
    x, score = sample.values
    return Passed(count, total, ScoredPoints(x, score), sample.rows, ScoredPoints.cat(head), dropped)


def in_order(made: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    """By number, as far as they are ready."""
    ready: dict[int, Any] = {}
    wanted = 0
    for k, one in made:
        ready[k] = one
        while wanted in ready:
            yield ready.pop(wanted)
            wanted += 1


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
        own = z.T @ z / len(z) if x.shape[1] <= _PAIRED else torch.diag(z.square().mean(0))
        (wanted, failed), (root, singular) = (
            torch.linalg.cholesky_ex(matrix) for matrix in (self.covariance, own)
        )
        if int(failed) or int(singular):  # columns that decide each other
            return z + self.mean
        moved: Tensor = torch.linalg.solve_triangular(root, z.T, upper=False).T @ wanted.T
        return moved + self.mean
