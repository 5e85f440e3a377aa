"""Null runs: what a test measures of datasets drawn from the model, each of them numbered.

A run is the same whenever it is made, whatever was made before, so runs are kept on disk and a later test of
the same model goes on where an earlier one stopped. On a CPU it is also the same wherever it is made, to the
last bit: how torch rounds depends on how many datasets go together, so they do by the same pieces everywhere.

On disk there is one safetensors file per key, written whole or not at all; the oldest go when the folder has
grown past its bound. A key is a hash of what the model does (some of its draws and scores), n, d, the
settings, the code of this package and the versions of torch and NumPy, so a changed model, or changed code,
never meets an old file. The key is in the file too, so a file under another's name is not believed.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints, sample_points, sample_sets
from steincritic.engine import EngineName, at_a_time, in_order, in_use, spread
from steincritic.errors import InputError
from steincritic.files import read_tensors, write_tensors
from steincritic.models.base import SamplingModel
from steincritic.models.conditional import AtRows
from steincritic.rng import derive
from steincritic.training.progress import StepBar

_SAVED = 5.0  # seconds after which what is made is kept
_PIECE = 4  # datasets that a thread or a worker takes at a time
_TOGETHER = 4  # pieces that fit into memory together
_BLOCK, _NUMBERS = 20, 2**22  # datasets drawn together, as a chain sampler is slow for few; their coordinates
_KIND = "null runs"
PASS_ON = "pass it to gof_test, check, compare, power or calibrate"  # an engine; tests have none
_BOUND = 256 * 2**20  # bytes
_FEWEST_DRAWS, _MOST_DRAWS = 64, 5000  # of the model, in its fingerprint

Measure = Callable[[ScoredPoints, Sequence[int]], Tensor]  # (r, n, d) and a seed each to (r, k)


@dataclass(frozen=True, eq=False)
class NullSets:
    """Datasets of n draws of the model, by their numbers."""

    model: SamplingModel
    n: int
    like: Tensor
    seed: int
    _last: dict[int, ScoredPoints] = field(default_factory=dict)

    def __getitem__(self, numbers: range) -> ScoredPoints:
        size = self.block
        first, last = numbers.start // size, -(-numbers.stop // size)
        blocks = [self._block(b) for b in range(first, last)]
        rows = slice(numbers.start - first * size, numbers.stop - first * size)
        return ScoredPoints.cat(blocks).cut(self.n).sets(rows)

    @property
    def block(self) -> int:
        """Datasets drawn together; decided by shape alone, so that draws never depend on memory."""
        return max(1, min(_BLOCK, _NUMBERS // (self.n * self.like.shape[-1])))

    def _block(self, b: int) -> ScoredPoints:
        """Drawn once if it is asked for again right away."""
        if b not in self._last:
            seed = derive(self.seed, "null block", b)
            fresh = sample_sets(self.model, self.block, self.n, seed=seed, like=self.like)
            self._last.clear()
            self._last[b] = fresh.map(lambda t: t.flatten(0, 1))
        return self._last[b]

    def seeds(self, numbers: range) -> list[int]:
        return [derive(self.seed, "null run", k) for k in numbers]


class NullRuns:
    """Rows of numbers, one per null dataset.

    Args:
        measure: importable by its name where processes are used.
        settings: all that the measure depends on, besides the datasets; runs are kept by them and the title.
        cache: whether runs are kept, or in which folder.
        most: datasets that fit into memory together.
        piece: datasets that a thread or a worker takes at a time.

    They are made by the engine in use; where there is none, by threads on a CPU, in this thread on a GPU.
    """

    def __init__(
        self,
        sets: NullSets,
        measure: Measure,
        *,
        settings: Mapping[str, Any],
        cache: bool | Path,
        most: int,
        title: str = "null runs",
        piece: int = _PIECE,
    ) -> None:
        self._sets, self._measure = sets, measure
        key = fingerprint(sets.model, sets.n, sets.like, settings)
        self._key, self._cache, self._title = f"{key}-{title.replace(' ', '-')}", NullCache.at(cache), title
        on_cpu = sets.like.device.type == "cpu"
        self._engine: EngineName = in_use() or ("threads" if on_cpu else "serial")
        self._size = most
        if on_cpu:
            self._size = max(1, min(most // _TOGETHER, piece))
        elif self._engine != "serial":
            self._size = min(most, _BLOCK)
        self._threads = max(1, min(torch.get_num_threads(), most // self._size))
        self._even = on_cpu or self._engine != "serial"
        runs = (self._cache.get(self._key) or {}).get("runs")
        if runs is not None and ((runs.ndim, runs.dtype) != (2, torch.float64) or bool(runs.isnan().any())):
            runs = None
        self._known = runs if runs is not None and runs.numel() else None
        self.reused = self.known

    @property
    def known(self) -> int:
        """How many there are by now."""
        return 0 if self._known is None else len(self._known)

    def rows(self, start: int, count: int) -> Tensor:
        """Runs number start to start + count, (count, k); those not known yet are made, and kept."""
        have = self.known
        if have < start + count:
            saved = time.monotonic()
            for fresh in self._made(have, self._whole(start + count - have)):
                self._known = fresh if self._known is None else torch.cat([self._known, fresh])
                if time.monotonic() - saved > _SAVED:
                    self._cache.put(self._key, {"runs": self._known})
                    saved = time.monotonic()
            assert self._known is not None
            self._cache.put(self._key, {"runs": self._known})
        assert self._known is not None
        return self._known[start : start + count]

    def _whole(self, count: int) -> int:
        """In whole pieces, one per worker: ranks are looked at often, and more sets will be needed."""
        if not self._even:
            return count
        batch = self._size * (at_a_time() if self._engine in ("local", "dask") else 1)
        return -(-count // batch) * batch

    def _made(self, start: int, count: int) -> Iterator[Tensor]:
        stop = start + count
        pieces = [range(first, min(first + self._size, stop)) for first in range(start, stop, self._size)]
        tasks = ((self._sets[numbers], self._sets.seeds(numbers)) for numbers in pieces)
        function = partial(_measured, self._measure)
        if self._engine == "threads":
            runs = spread(function, tasks, "threads", workers=self._threads)
        else:
            runs = spread(function, tasks)
        with StepBar(self._title, count) as bar, closing(runs):
            for numbers, rows in zip(pieces, in_order(runs), strict=True):
                yield rows
                bar.advance(len(numbers))


def _measured(measure: Measure, task: tuple[ScoredPoints, list[int]]) -> Tensor:
    datasets, seeds = task
    return measure(datasets, seeds).to("cpu", torch.float64)


@dataclass(frozen=True)
class NullCache:
    """A folder of null runs, or none."""

    folder: Path | None
    bound: int = _BOUND

    @classmethod
    def at(cls, place: bool | Path) -> "NullCache":
        folder = usual_folder() if place is True else place
        return cls(Path(folder) if folder else None)

    def get(self, key: str) -> dict[str, Tensor] | None:
        """What is kept under the key; a damaged file, or one of another key, counts as none."""
        if self.folder is None:
            return None
        try:
            tensors, about = read_tensors(self.folder / f"{key}.safetensors", kind=_KIND)
        except (InputError, OSError):
            return None
        return tensors if about.get("key") == key else None

    def put(self, key: str, tensors: Mapping[str, Tensor]) -> None:
        """Keep them if the folder can be written; a test never fails for want of a cache."""
        if self.folder is None:
            return
        try:
            write_tensors(self.folder / f"{key}.safetensors", dict(tensors), {"key": key}, kind=_KIND)
            files = sorted(self.folder.glob("*.safetensors"), key=lambda file: file.stat().st_mtime)
            total = sum(file.stat().st_size for file in files)
            for file in files[:-1]:  # the newest stays
                if total <= self.bound:
                    return
                total -= file.stat().st_size
                file.unlink(missing_ok=True)
        except (InputError, OSError):  # OSError: another process took a file away meanwhile
            return


def usual_folder() -> Path | None:
    """In the user's cache folder; none where there is no home."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".cache") / "steincritic" / "null"
    except RuntimeError:
        return None


@cache
def _code() -> str:
    """A hash of what null runs are made by."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def fingerprint(model: SamplingModel, n: int, like: Tensor, settings: Mapping[str, Any]) -> str:
    """A hash of the model's behavior, the size of the data and the settings."""
    draws = sample_points(model, min(max(n, _FEWEST_DRAWS), _MOST_DRAWS), seed=0, like=like)
    about = (_code(), torch.__version__, np.__version__, n, str(like.dtype), like.device.type, settings)
    digest = hashlib.sha256(repr(about).encode())
    rows = [model.rows] if isinstance(model, AtRows) else []  # of which the draws may show some alone
    for tensor in (draws.x, draws.score, *rows):
        digest.update(tensor.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
