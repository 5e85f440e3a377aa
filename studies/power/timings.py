"""Seconds of one test, by part: training, statistic, bootstrap; kernel code in both its forms."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from steincritic import Combined, CrossFit, GofTest, ScoredPoints, fit_critic, gof_test
from steincritic.data import problem
from steincritic.gof.thresholds import THRESHOLDS, ModelWitness, Request
from steincritic.rng import Source, derive
from steincritic.stein import median_distance, stein_sums
from steincritic.stein.tiles import MEDIAN_RBF, random_signs
from studies.study import Context

_DRAWS = 500
_LOOP_LIMIT = 1000  # the loop holds n x n arrays and takes minutes beyond
Parts = tuple[float, float, float]  # training, statistic, bootstrap


def timings(name: str, sizes: Sequence[int], context: Context) -> list[dict[str, Any]]:
    """One row per method and size; empty without sizes."""
    rows: list[dict[str, Any]] = []
    for n in sizes:
        pair = problem(name).to(context.device, torch.float32)
        x = pair.data.sample(n, seed=derive(context.seed, "timed", n))
        points = ScoredPoints(x, pair.model.score(x))
        parts = {
            "split": _split(points, pair.model),
            "combined": _whole(Combined(cache=False), points, pair.model),
            "crossfit": _whole(CrossFit(cache=False), points, pair.model),
            "KSD, matrix products": _kernel(points),
        }
        if n <= _LOOP_LIMIT:
            parts["KSD, loop over dimensions"] = _loop(points)
        names = ("training", "statistic", "bootstrap")
        for method, seconds in parts.items():
            rows.append({"n": n, "method": method, **dict(zip(names, seconds, strict=True))})
    return rows


def _clock(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def _whole(test: GofTest, points: ScoredPoints, model: Any) -> Parts:
    return _clock(lambda: gof_test(model, points, test))[0], 0.0, 0.0


def _split(points: ScoredPoints, model: Any) -> Parts:
    half = len(points) // 2
    fit_critic(model, points[:half], callbacks=())  # the first run on a device pays for its start
    training, critic = _clock(lambda: fit_critic(model, points[:half], callbacks=()))
    statistic, values = _clock(lambda: critic.witness(points[half:]).double())
    draw = ModelWitness(model, critic.witness, like=points.x, seed=0)
    request = Request(draws=_DRAWS, pool=50, seed=0)
    return training, statistic, _clock(lambda: THRESHOLDS["pooled"](values, draw, request))[0]


def _kernel(points: ScoredPoints) -> Parts:
    signs = random_signs(len(points), _DRAWS, flip=0.5, source=Source(0, "signs", device=points.x.device))
    stein_sums(points, [MEDIAN_RBF])
    statistic, _ = _clock(lambda: stein_sums(points, [MEDIAN_RBF]))
    both, _ = _clock(lambda: stein_sums(points, [MEDIAN_RBF], signs=signs))
    return 0.0, statistic, max(0.0, both - statistic)


def _loop(points: ScoredPoints) -> Parts:
    """As research code does it: the kernel anew for each dimension, one bootstrap draw at a time."""
    scale = float(median_distance(points.x)) ** 2
    source = Source(0, "loop", device=points.x.device)

    def matrix() -> Tensor:
        total = points.x.new_zeros(len(points), len(points))
        for j in range(points.dim):
            kernel = torch.exp(-torch.cdist(points.x, points.x).square() / (2 * scale))
            gap, score = points.x[:, None, j] - points.x[None, :, j], points.score[:, j]
            crossed = (score[:, None] - score[None, :]) * gap / scale
            total += kernel * (score[:, None] * score + crossed + 1 / scale - (gap / scale).square())
        return total

    def draw(u: Tensor) -> float:
        signs = 2.0 * source.integers(2, len(u)) - 1
        return float(signs @ u @ signs) / len(u) ** 2

    statistic, u = _clock(matrix)
    return 0.0, statistic, _clock(lambda: [draw(u) for _ in range(_DRAWS)])[0]
