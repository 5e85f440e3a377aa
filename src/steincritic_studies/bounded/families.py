"""The families: a model with bounds, and data of the same family with one parameter changed by 25 %."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Beta, Dirichlet, Exponential, Gamma, HalfNormal, Independent, Uniform

from steincritic.models import BoundedModel, PairModel, as_model
from steincritic.models.base import SamplingModel
from steincritic.rng import Source
from steincritic.shapes import Points

Make = Callable[[torch.device], Any]  # a model with its parameters on a device


@dataclass(frozen=True)
class Family:
    name: str
    change: str  # in words
    model: Make
    changed: Make

    def own(self, device: torch.device) -> BoundedModel:
        found = as_model(self.model(device))
        assert isinstance(found, BoundedModel)
        return found

    def other(self, device: torch.device) -> SamplingModel:
        found = as_model(self.changed(device))
        assert isinstance(found, SamplingModel)
        return found


def _torch(kind: Any, *parameters: list[float], joint: bool = False) -> Make:
    def made(device: torch.device) -> Any:
        given = [torch.tensor(values, dtype=torch.float64, device=device) for values in parameters]
        return Independent(kind(*given), 1) if joint else kind(*given)

    return made


def _truncated(low: float, high: float, mean: float, sd: float) -> Make:
    return lambda device: stats.truncnorm((low - mean) / sd, (high - mean) / sd, loc=mean, scale=sd)


@dataclass(frozen=True)
class Visits:
    """Two columns with bounds of their own: wait > 0, share in (0, 1).

    share is uniform, wait given share exponential with mean slow / (1 + share).
    """

    slow: float = 1.0

    def score(self, x: Points) -> Points:
        wait, share = x.unbind(-1)
        return torch.stack([-(1 + share) / self.slow, 1 / (1 + share) - wait / self.slow], -1)

    def sample(self, n: int, seed: int) -> Tensor:
        u = 1 - Source(seed, "visits").uniforms(n, 2, dtype=torch.float64)
        wait = -u[:, 0].log() * self.slow / (1 + u[:, 1])
        return torch.stack([wait, u[:, 1]], -1)


def _visits(slow: float) -> Make:
    def made(device: torch.device) -> BoundedModel:
        law = Visits(slow)
        return BoundedModel(PairModel(law.score, law.sample, dim=2), [(0, None), (0, 1)])

    return made


_INF = float("inf")
FAMILIES = (
    Family("exponential", "mean 1 to 1.25", _torch(Exponential, [1.0]), _torch(Exponential, [0.8])),
    Family(
        "uniform, 2 columns",
        "one column on 3/4 of its interval",
        _torch(Uniform, [0.0, 0.0], [1.0, 1.0], joint=True),
        _torch(Uniform, [0.125, 0.0], [0.875, 1.0], joint=True),
    ),
    Family("beta", "first shape 2 to 2.5", _torch(Beta, [2.0], [3.0]), _torch(Beta, [2.5], [3.0])),
    Family("gamma, shape 0.5", "shape to 0.625", _torch(Gamma, [0.5], [1.0]), _torch(Gamma, [0.625], [1.0])),
    Family("half-normal", "scale 1 to 1.25", _torch(HalfNormal, [1.0]), _torch(HalfNormal, [1.25])),
    Family(
        "Dirichlet, 4 parts",
        "first parameter 2 to 2.5",
        _torch(Dirichlet, [2.0, 3.0, 4.0, 5.0]),
        _torch(Dirichlet, [2.5, 3.0, 4.0, 5.0]),
    ),
    Family(
        "normal above 0",
        "scale 1 to 1.25",
        _truncated(0.0, _INF, 0.5, 1.0),
        _truncated(0.0, _INF, 0.5, 1.25),
    ),
    Family(
        "normal in (0, 1)",
        "scale 0.3 to 0.375",
        _truncated(0.0, 1.0, 0.2, 0.3),
        _truncated(0.0, 1.0, 0.2, 0.375),
    ),
    Family("bounds= of a pair, 2 columns", "mean of one column by 25 %", _visits(1.0), _visits(1.25)),
)
TURNED = (  # changes the other way, of power alone
    Family(
        "gamma, shape 0.5, less",
        "shape to 0.375",
        _torch(Gamma, [0.5], [1.0]),
        _torch(Gamma, [0.375], [1.0]),
    ),
    Family(
        "normal in (0, 1), less",
        "scale 0.3 to 0.225",
        _truncated(0.0, 1.0, 0.2, 0.3),
        _truncated(0.0, 1.0, 0.2, 0.225),
    ),
)
