"""The model under examination, with everything that more than one check looks at."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch

from steincritic.data.points import ScoredPoints, answer, checked_score
from steincritic.diagnosis.doctor.identity import Identity, robust_frame, stein_identity
from steincritic.errors import ModelError
from steincritic.models.base import DensityModel, Model
from steincritic.models.mixing import autocorrelation_time
from steincritic.shapes import PerPoint, Points

Status = Literal["passed", "warning", "failed", "skipped", "advice"]
Verdict = tuple[Status, str]  # with a sentence: what was found, in numbers, and the way out

_LEAST_WORTH = 100  # independent draws below which Stein's identity is not judged
FEW = 48  # points of each kind where single values are compared


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
        some = [p[:: max(1, len(p) // FEW)][:FEW] for p in (self.data, self.draws) if p is not None]
        return torch.cat([part.to(some[0]) for part in some])

    @cached_property
    def precise(self) -> Points:
        """The same in double precision where the model takes it."""
        try:
            self.score(self.points.double())
        except ModelError:
            return self.points
        return self.points.double()

    @cached_property
    def own(self) -> ScoredPoints | None:
        """The model's draws with its score there, in double precision."""
        if self.draws is None:
            return None
        return ScoredPoints(self.draws.double(), self.score(self.draws).double())

    @cached_property
    def slowness(self) -> float:
        """How many draws in a row are worth one independent draw."""
        assert self.own is not None
        inside = robust_frame(self.own.x).enter(self.own)
        step = max(1, inside.dim // 32)
        return autocorrelation_time(torch.cat([inside.x, inside.x * inside.score], dim=1)[:, ::step])

    @property
    def too_slow(self) -> bool:
        """Are the draws worth too few to judge by?"""
        return self.draws is not None and len(self.draws) / self.slowness < _LEAST_WORTH

    @cached_property
    def identity(self) -> Identity:
        assert self.own is not None
        return stein_identity(self.own, self.slowness)

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
