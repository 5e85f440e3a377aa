"""Every point tested: cross-fitted critics, with the null by rerunning the whole pipeline on model draws.

The panel of statistics (`gof/panel.py`) of the observed data stands beside those of B datasets of n
model draws; everything is standardized over the B + 1 runs alike. So under the model the B + 1 values
are exchangeable and the rank of the observed one is an exact p-value, whatever training does inside.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch

from steincritic.data.frame import Frame, model_frame
from steincritic.data.points import ScoredPoints, sample_points, scored
from steincritic.devices import best_device
from steincritic.errors import InputError, ModelError
from steincritic.gof.cache import NullCache, fingerprint
from steincritic.gof.null import as_null_tensor, check_draws
from steincritic.gof.panel import MEMBERS, CrossFit, Panel, chunks, panel
from steincritic.gof.result import GofResult
from steincritic.models.base import SamplingModel, as_model
from steincritic.rng import derive
from steincritic.shapes import NullDraws
from steincritic.training.progress import StepBar

DRAWS = {"cpu": 59, "cuda": 199}
_BLOCK = 20  # null datasets drawn together
_UNHASHED = ("draws", "stop_early", "memory_gib", "cache")  # settings that change no run


def crossfit_test(
    model: Any,
    x: Any,
    *,
    level: float = 0.05,
    seed: int = 0,
    config: CrossFit | None = None,
    device: torch.device | str | None = None,
) -> GofResult:
    """Test H0: p = q with every point; exact for any sample size and any model that can be sampled."""
    config = config or CrossFit()
    model = as_model(model)
    if not isinstance(model, SamplingModel):
        raise ModelError(
            "the cross-fit test reruns itself on draws of the model, which has no sample(n, seed=0); "
            "methods split and ksd work without, and LangevinModel(model) adds a sampler"
        )
    points = scored(model, x)
    points = points.to(device=device if device is not None else best_device(points.x))
    check_folds(len(points), config)
    draws = config.draws or DRAWS[points.x.device.type]
    check_draws(draws, level)
    frame = model_frame(model, points, seed=0)
    observed = panel(
        _one(frame.enter(points.shuffled(seed=derive(seed, "order")))), [derive(seed, "observed")], config
    )
    null = NullRuns(model, frame, points, config)
    statistic, null_distribution = _ranked(observed, null, draws, config)
    return GofResult(
        statistic=statistic,
        null_distribution=as_null_tensor(null_distribution),
        level=level,
        method="crossfit",
        threshold="full-pipeline Monte Carlo",
        exact=True,
        n=len(points),
        seed=seed,
        notes=null.notes,
        settings={k: v for k, v in asdict(config).items() if k != "cache"} | {"draws": draws},
    )


def check_folds(n: int, config: CrossFit) -> None:
    if n < 2 * config.folds:
        raise InputError(
            f"x has {n} points; {config.folds} folds need at least two each: collect {2 * config.folds} "
            "points, or use a kernel test"
        )


def _ranked(observed: Panel, null: "NullRuns", draws: int, config: CrossFit) -> tuple[float, NullDraws]:
    """The observed statistic and its null draws."""
    if config.stop_early is None:
        values = observed.joined(null.runs(0, draws)).statistic()
        return float(values[0]), values[1:]
    scale = null.runs(0, pilot := max(20, draws // 4))
    statistic, collected, done = observed.statistic(scale), torch.zeros(0, dtype=torch.float64), 0
    while done < draws and int((collected >= statistic).sum()) < config.stop_early:
        count = min(draws - done, max(config.stop_early, 10))
        fresh = null.runs(pilot + done, count).statistic(scale)
        collected, done = torch.cat([collected, fresh]), done + count
    return float(statistic), collected


class NullRuns:
    """Panels of datasets drawn from the model: numbered, so that a run is the same whenever it is made."""

    def __init__(self, model: SamplingModel, frame: Frame, points: ScoredPoints, config: CrossFit) -> None:
        self._model, self._frame, self._like, self._config = model, frame, points, config
        self.notes: tuple[str, ...] = ()
        self._cache = NullCache.at(config.cache)
        settings = {k: v for k, v in asdict(config).items() if k not in _UNHASHED}
        self._key = fingerprint(model, len(points), points.x, settings)
        kept = self._cache.get(self._key)
        self._known = None if kept is None else Panel(*(kept[k] for k in MEMBERS))
        if self._known is not None:
            self.notes = (f"{len(self._known)} null runs came from the cache.",)

    def runs(self, start: int, count: int) -> Panel:
        """Runs number start to start + count; those not known yet are made, and kept."""
        have = 0 if self._known is None else len(self._known)
        if have < start + count:
            for fresh in self._made(have, start + count - have):
                self._known = fresh if self._known is None else self._known.joined(fresh)
                self._cache.put(self._key, {k: getattr(self._known, k) for k in MEMBERS})
        assert self._known is not None
        return self._known[start : start + count]

    def _made(self, start: int, count: int) -> Iterator[Panel]:
        """In pieces: of what fits the memory budget, and short ones on a CPU, where that costs nothing."""
        largest = next(chunks(count, len(self._like), self._like.dim, self._config)).stop
        size = min(largest, _BLOCK) if self._like.x.device.type == "cpu" else largest
        with StepBar("null runs", count) as bar:
            for first in range(start, start + count, size):
                numbers = range(first, min(first + size, start + count))
                seeds = [derive(self._config.null_seed, "null run", k) for k in numbers]
                yield panel(self._datasets(numbers), seeds, self._config)
                bar.advance(len(numbers))

    def _datasets(self, numbers: range) -> ScoredPoints:
        """Datasets by their numbers; drawn in blocks, as a chain sampler is slow for few draws."""
        first, last = numbers.start // _BLOCK, -(-numbers.stop // _BLOCK)
        n, d, seed = len(self._like), self._like.dim, self._config.null_seed
        blocks = [
            sample_points(self._model, _BLOCK * n, seed=derive(seed, "null block", b), like=self._like.x)
            for b in range(first, last)
        ]
        drawn = self._frame.enter(
            ScoredPoints(torch.cat([b.x for b in blocks]), torch.cat([b.score for b in blocks]))
        )
        rows = slice(numbers.start - first * _BLOCK, numbers.stop - first * _BLOCK)
        return ScoredPoints(drawn.x.view(-1, n, d)[rows], drawn.score.view(-1, n, d)[rows])


def _one(points: ScoredPoints) -> ScoredPoints:
    return ScoredPoints(points.x[None], points.score[None])
