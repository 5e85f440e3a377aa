"""The model under examination: what more than one check looks at, and its draws, which a seed decides."""

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from steincritic.data.points import ScoredPoints, answer, checked_draws, checked_score
from steincritic.diagnosis.doctor.identity import Identity, robust_frame, stein_identity
from steincritic.errors import ModelError
from steincritic.models.base import DensityModel, Model, SamplingModel, dimension
from steincritic.models.mixing import autocorrelation_time
from steincritic.rng import derive
from steincritic.shapes import PerPoint, Points

Status = Literal["passed", "warning", "failed", "skipped"]
Verdict = tuple[Status, str]  # with a sentence: what was found, in numbers, and the way out

_LEAST_WORTH = 100  # independent draws below which Stein's identity is not judged
FEW = 48  # points of each kind where single values are compared
MOST_DRAWS, LEAST_DRAWS = 50_000, 5_000
_NUMBERS = 1_000_000  # coordinates drawn by default: the power against a wrong scale grows with d n
_PILOT = 1_000
_PATIENCE = 5.0  # seconds that drawing and scoring may take by default


@dataclass(frozen=True, kw_only=True, eq=False)
class Patient:
    """The model with everything that more than one check looks at, each asked for once."""

    model: Model
    draws: Points | None
    data: Points | None
    seed: int

    @cached_property
    def points(self) -> Points:
        """Some data and some draws, in the dtype of the data where there are any."""
        samples = [p[:: max(1, len(p) // FEW)][:FEW] for p in (self.data, self.draws) if p is not None]
        return torch.cat([part.to(samples[0]) for part in samples])

    @cached_property
    def precise(self) -> Points:
        """The same in double precision where the model takes it."""
        try:
            self.score(self.points.double())
        except ModelError:
            return self.points
        return self.points.double()

    @cached_property
    def scored_draws(self) -> ScoredPoints | None:
        """The model's draws with its score there, in double precision."""
        if self.draws is None:
            return None
        return ScoredPoints(self.draws.double(), self.score(self.draws).double())

    @cached_property
    def slowness(self) -> float:
        """How many draws in a row are worth one independent draw."""
        assert self.scored_draws is not None
        inside = robust_frame(self.scored_draws.x).enter(self.scored_draws)
        step = max(1, inside.dim // 32)
        return autocorrelation_time(torch.cat([inside.x, inside.x * inside.score], dim=1)[:, ::step])

    @property
    def too_slow(self) -> bool:
        """Are the draws worth too few to judge by?"""
        return self.draws is not None and len(self.draws) / self.slowness < _LEAST_WORTH

    @cached_property
    def identity(self) -> Identity:
        assert self.scored_draws is not None
        return stein_identity(self.scored_draws, self.slowness)

    def score(self, x: Points) -> Points:
        return checked_score(self.model, x.clone())

    def log_prob(self, x: Points) -> PerPoint:
        model = self.model
        assert isinstance(model, DensityModel)
        value = answer(lambda: model.log_prob(x), f"model.log_prob(x of shape {tuple(x.shape)})")
        if value.shape != x.shape[:1]:
            raise ModelError(
                f"model.log_prob must return one number per row, shape ({len(x)},); got {tuple(value.shape)}"
            )
        return value


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
    second = _sampled(model, FEW, first_seed, dim)
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
