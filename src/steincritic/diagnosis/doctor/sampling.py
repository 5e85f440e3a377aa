"""Draws from the model, and whether the seed alone decides them."""

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch

from steincritic.data.points import answer, checked_draws
from steincritic.diagnosis.doctor.patient import FEW, Verdict
from steincritic.errors import ModelError
from steincritic.models.base import Model, SamplingModel, dimension
from steincritic.rng import derive
from steincritic.shapes import Points

MOST_DRAWS, LEAST_DRAWS = 50_000, 5_000
_NUMBERS = 1_000_000  # coordinates drawn by default: the power against a wrong scale grows with d n
_PILOT = 1_000
_PATIENCE = 5.0  # seconds that drawing and scoring may take by default


def draw(model: Model, n: int | None, seed: int, data: Points | None) -> tuple[Points | None, Verdict]:
    if not isinstance(model, SamplingModel):
        return None, ("skipped", "The model has no sample(n, seed=0): exact tests are not possible.")
    try:
        dim = dimension(model) if data is None else data.shape[1]
        if n is None:
            n = _affordable(model, seed, dim)
        draws = _sampled(model, n, derive(seed, "draws"), dim)
        return draws, _seeded(model, draws.shape[1], seed)
    except ModelError as error:
        return None, ("failed", f"{error}.")


def _sampled(model: SamplingModel, n: int, seed: int, dim: int | None) -> Points:
    draws = checked_draws(model, n, seed, dim=dim)
    if not bool(draws.isfinite().all()):
        rows = int((~draws.isfinite().all(-1)).sum())
        raise ModelError(f"model.sample({n}) has NaN or infinite values in {rows} rows")
    return draws


def _affordable(model: SamplingModel, seed: int, dim: int | None) -> int:
    """How many draws to look at: as many as are useful, 1, 2 or 5 times a power of ten if that is slow."""
    start = time.perf_counter()
    pilot = _sampled(model, _PILOT, derive(seed, "draws"), dim)
    with suppress(ModelError):  # the checks report it
        answer(lambda: model.score(pilot), "model.score")
    useful = min(MOST_DRAWS, max(LEAST_DRAWS, _NUMBERS // pilot.shape[1]))
    possible = max(_PILOT, int(_PILOT * _PATIENCE / (time.perf_counter() - start)))
    if possible >= useful:
        return useful
    unit: int = 10 ** int(math.log10(possible))
    return max(k * unit for k in (1, 2, 5) if k * unit <= possible)


def _seeded(model: SamplingModel, dim: int, seed: int) -> Verdict:
    """The seed alone decides: two calls with the global generators moved on in between, one other seed."""
    first_seed, other_seed = derive(seed, "first"), derive(seed, "other")
    first = _sampled(model, FEW, first_seed, dim)
    _ = torch.rand(3), np.random.random(3), random.random()
    before = _global_state()
    second = _sampled(model, FEW, first_seed, dim)
    touched = _global_state() != before
    other = _sampled(model, FEW, other_seed, dim)
    _sampled(model, 1, other_seed, dim)
    if not torch.equal(first, second):
        return "failed", (
            "The same seed gave other draws once the global generators had moved on: let the seed alone "
            "decide, with a generator made from it."
        )
    shared = float((first[:, None] == other).all(-1).any(1).double().mean())
    if torch.equal(first, other):
        return "failed", "Two seeds gave the same draws: the sampler does not use its seed."
    if shared > 0:
        return "warning", (
            f"{shared:.0%} of {FEW} draws came again under another seed: a sampler that picks from stored "
            "points has no fresh draws for a null distribution."
        )
    if touched:
        return "warning", (
            "Sampling changes the global random generators, and with them what other code draws: use a "
            "generator of its own, or torch.random.fork_rng."
        )
    return "passed", "n asked is n given; the same seed gives the same draws, another seed others."


@contextmanager
def generators_restored() -> Iterator[None]:
    """Whatever the model does to global generators is undone afterwards."""
    states = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            yield
        finally:
            np.random.set_state(states[0])
            random.setstate(states[1])


def _global_state() -> tuple[bytes, bytes, int, object]:
    state: Any = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), state[1].tobytes(), state[2], random.getstate()
