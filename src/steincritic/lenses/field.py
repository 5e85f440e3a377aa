"""Field: a question of your own ("my physics says this should vanish")."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.lenses.lens import Seen, normal_evidence
from steincritic.stein.divergence import exact
from steincritic.stein.operator import stein_values


@dataclass(frozen=True)
class Field:
    """One number per dataset from a function of the points, in the units of the data.

    Args:
        function: (m, d) points to (m, d), a vector field whose Stein values s.f + div f are averaged; or to
            (m,), any value per point, whose mean is compared with that of the model's draws.
        name: of the lens.
    """

    function: Callable[[Tensor], Tensor]
    name: str = "field"
    whitened: bool = False
    own_units: bool = True

    def needs_draws(self, x: Tensor) -> bool:
        """Is it a value per point, whose mean under the model is not known?"""
        return torch.as_tensor(self.function(x[:2])).ndim != 2

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedField":
        return PreparedField(self.function, self.name)


@dataclass(frozen=True)
class PreparedField:
    means: ClassVar[bool] = True
    centered: ClassVar[bool] = True
    function: Callable[[Tensor], Tensor]
    name: str

    @property
    def size(self) -> int:
        return 1

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        x, score = datasets.x.flatten(0, 1), datasets.score.flatten(0, 1)
        values = torch.as_tensor(self.function(x)).detach()
        if values.shape == x.shape and values.ndim == 2:
            values = stein_values(score, *exact(self.function, x)).detach()
        if values.shape != (len(x),):
            raise InputError(
                f"lens {self.name!r} must map points {tuple(x.shape)} to a field of that shape or to "
                f"one value per point ({len(x)},), got {tuple(values.shape)}"
            )
        return values.view(len(datasets.x), -1).mean(1, keepdim=True)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        return {self.name: normal_evidence(seen.fair[..., 0])}
