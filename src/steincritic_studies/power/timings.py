"""Seconds of one test, by part: training, statistic, bootstrap; kernel code in both its forms."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.data.problems import problem
from steincritic.gof.choose import gof_test
from steincritic.gof.combined import Combined
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.test import GofTest
from steincritic.gof.thresholds import THRESHOLDS, ModelWitness, Request
from steincritic.rng import Source, derive
from steincritic.stein.kernels import median_distance
from steincritic.stein.tiles import MEDIAN_RBF, random_signs, stein_sums
from steincritic.training.critic import fit_critic
from steincritic_studies.study import Context

_DRAWS = 500
_LOOP_LIMIT = 1000  # the loop holds n x n arrays and takes minutes beyond


def timings(name: str, sizes: Sequence[int], context: Context) -> list[dict[str, Any]]:
    """One row per method and size; empty without sizes."""
    if not sizes:
        return []
    pair = problem(name).to(context.device, torch.float32)
    rows: list[dict[str, Any]] = []
    for n in sizes:
        x = pair.data.sample(n, seed=derive(context.seed, "timed", n))
        points = ScoredPoints(x, pair.model.score(x))
        for method, parts in (
            ("split", _split(points, pair.model)),
            ("combined", _whole(points, pair.model, Combined(cache=False))),
            ("crossfit", _whole(points, pair.model, CrossFit(cache=False))),
            ("KSD, matrix products", _kernel(points)),
            ("KSD, loop over dimensions", _loop(points) if n <= _LOOP_LIMIT else None),
        ):
            if parts is not None:
                rows.append({"n": n, "method": method, **parts})
    return rows


def _clock(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def _split(points: ScoredPoints, model: Any) -> dict[str, float]:
    half = len(points) // 2
    fit_critic(model, points[:half], callbacks=())  # the first run on a device pays for its start
    training, critic = _clock(lambda: fit_critic(model, points[:half], callbacks=()))
    statistic, values = _clock(lambda: critic.witness(points[half:]).double())
    draw = ModelWitness(model, critic.witness, like=points.x, seed=0)
    request = Request(draws=_DRAWS, pool=50, level=0.05, seed=0)
    bootstrap, _ = _clock(lambda: THRESHOLDS["pooled"](values, draw, request))
    return {"training": training, "statistic": statistic, "bootstrap": bootstrap}


def _whole(points: ScoredPoints, model: Any, test: GofTest) -> dict[str, float]:
    total, _ = _clock(lambda: gof_test(model, points, test))
    return {"training": total, "statistic": 0.0, "bootstrap": 0.0}


def _kernel(points: ScoredPoints) -> dict[str, float]:
    signs = random_signs(len(points), _DRAWS, flip=0.5, source=Source(0, "signs", device=points.x.device))
    stein_sums(points, [MEDIAN_RBF])
    statistic, _ = _clock(lambda: stein_sums(points, [MEDIAN_RBF]))
    both, _ = _clock(lambda: stein_sums(points, [MEDIAN_RBF], signs=signs))
    return {"training": 0.0, "statistic": statistic, "bootstrap": max(0.0, both - statistic)}


def _loop(points: ScoredPoints) -> dict[str, float]:
    """As research code does it: the kernel anew for each dimension, one bootstrap draw at a time."""
    scale = float(median_distance(points.x)) ** 2

    def matrix() -> Tensor:
        total = points.x.new_zeros(len(points), len(points))
        for j in range(points.dim):
            total += _one_dimension(points, j, scale)
        return total

    def bootstrap(u: Tensor) -> list[float]:
        draws = []
        for _ in range(_DRAWS):
            signs = 2.0 * source.integers(2, len(u)) - 1
            draws.append(float(signs @ u @ signs) / len(u) ** 2)
        return draws

    source = Source(0, "loop", device=points.x.device)
    statistic, u = _clock(matrix)
    seconds, _ = _clock(lambda: bootstrap(u))
    return {"training": 0.0, "statistic": statistic, "bootstrap": seconds}


def _one_dimension(points: ScoredPoints, j: int, scale: float) -> Tensor:
    """Coordinate j's part of the Stein kernel of the Gaussian kernel."""
    kernel = torch.exp(-torch.cdist(points.x, points.x).square() / (2 * scale))
    gap = points.x[:, None, j] - points.x[None, :, j]
    score = points.score[:, j]
    return kernel * (
        score[:, None] * score[None, :]
        + (score[:, None] - score[None, :]) * gap / scale
        + 1 / scale
        - gap.square() / scale**2
    )
