r"""Published tests that studies compare with: the finite set Stein discrepancy of [jitkrittum2017].

The Stein witness is looked at in J places only, which climb the power criterion on a part of the data; the
rest is tested there. Cost and memory grow as n J d.

$$\xi(x, v) = k(x, v)\, s(x) + \nabla_x k(x, v), \qquad g(v) = E_p\, \xi(x, v), \qquad
  \mathrm{FSSD}^2 = \frac{1}{dJ} \sum_{j=1}^{J} |g(v_j)|^2$$
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.gof.null import as_null_tensor, fresh_statistics, in_parts, reaching
from steincritic.gof.result import GofResult
from steincritic.models.base import Model
from steincritic.rng import Source, derive, generator
from steincritic.stein.kernels import squared_scales
from steincritic.stein.tiles import MEDIAN_RBF, check_pairs

_SCALE_RANGE = math.log(4)  # how far a log squared scale may move: beyond, few training points decide
_CRITERION_FLOOR = 1e-2  # share of mean |τ|² added to the standard deviation, so that it cannot vanish

Places = tuple[Tensor, Tensor]  # squared scale () of the kernel, locations (J, d)


@dataclass(frozen=True, kw_only=True)
class Fssd:
    """The test of [jitkrittum2017].

    Args:
        locations: J, the number of places.
        train: share of the data to optimize the places on.
        steps, learning_rate: of Adam; the rate is in standard deviations of the data.
        threshold: "spectrum", the weighted chi-square limit (approximate), or "fresh" draws of the model
            (exact).
    """

    name: ClassVar[str] = "fssd"

    locations: int = 5
    train: float = 0.2
    steps: int = 100
    learning_rate: float = 0.05
    threshold: Literal["spectrum", "fresh"] = "spectrum"
    draws: int = 999

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        test = reaching(self, level)
        return [test._one(model, *pair, level=level) for pair in zip(datasets.each(), seeds, strict=True)]

    def _one(self, model: Model | None, points: ScoredPoints, seed: int, *, level: float) -> GofResult:
        check_pairs(points)
        count = round(self.train * len(points))
        train, tested = points.split([count, len(points) - count], seed=derive(seed, "split"))
        places = optimized_places(train, self, seed)
        features = stein_features(tested, *places)
        if self.threshold == "fresh":
            null = fresh_statistics(
                lambda datasets: fssd(stein_features(datasets, *places)),
                model,
                len(tested),
                draws=self.draws,
                seed=seed,
                like=tested.x,
                width=self.locations * tested.x.numel(),
            )
        else:
            source = Source(seed, "spectrum", device=features.device)
            null = weighted_chi_square(null_weights(features), self.draws, source=source) / len(tested)
        return GofResult(
            statistic=float(fssd(features)),
            null_distribution=as_null_tensor(null),
            level=level,
            test=self.name,
            threshold=self.threshold,
            exact=self.threshold == "fresh",
            n=len(tested),
            seed=seed,
            settings=asdict(self),
        )


def optimized_places(points: ScoredPoints, config: Fssd, seed: int) -> Places:
    """Gradient ascent of the power criterion, from draws of a Gaussian fitted to the points; in their box."""
    (start_scale,) = squared_scales([MEDIAN_RBF], points.x)
    start_scale, mean = start_scale.to(points.x), points.x.mean(0)
    source, shape = generator(seed, "locations"), (config.locations, len(points))
    normals = torch.randn(*shape, generator=source, dtype=torch.float64)
    start = mean + normals.to(points.x) @ (points.x - mean) / math.sqrt(len(points) - 1)
    spread = points.x.std(0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    low, high = ((end - start) / spread for end in (points.x.amin(0), points.x.amax(0)))
    shift = torch.zeros_like(start, requires_grad=True)
    log_factor = torch.zeros_like(start_scale, requires_grad=True)
    ascent = torch.optim.Adam([shift, log_factor], lr=config.learning_rate, maximize=True)
    with torch.enable_grad():
        for _ in range(config.steps):
            ascent.zero_grad()
            places = start_scale * log_factor.exp(), start + spread * shift
            power_criterion(stein_features(points, *places)).backward()
            ascent.step()
            with torch.no_grad():
                shift.copy_(torch.maximum(torch.minimum(shift, high), low))
                log_factor.clamp_(-_SCALE_RANGE, _SCALE_RANGE)
    return (start_scale * log_factor.exp()).detach(), (start + spread * shift).detach()


def stein_features(points: ScoredPoints, squared_scale: Tensor, locations: Tensor) -> Tensor:
    r"""$\xi(x_i, v_j) = \varphi\, s(x_i) + 2 \varphi' (x_i - v_j)$ of (..., n, d) points, (..., n, J, d)."""
    away = points.x[..., :, None, :] - locations
    phi, first, _ = MEDIAN_RBF.profile(away.square().sum(-1), squared_scale.to(away)[..., None, None])
    return phi[..., None] * points.score[..., :, None, :] + 2 * first[..., None] * away


def fssd(features: Tensor) -> Tensor:
    r"""The unbiased estimate, (..., n, J, d) to (...): $\tau_i \cdot \tau_j$ averaged over pairs i ≠ j."""
    tau = _flat(features).to(torch.float64)  # (..., n, J d)
    n = tau.shape[-2]
    return (tau.sum(-2).square().sum(-1) - tau.square().sum((-2, -1))) / (n * (n - 1))


def power_criterion(features: Tensor) -> Tensor:
    r"""FSSD² over its standard deviation where the model fails: of $2 \tau \cdot E \tau$."""
    tau = _flat(features)
    along = tau @ tau.mean(-2)[..., None]  # (n, 1)
    return fssd(features) / (2 * along.std() + _CRITERION_FLOOR * tau.square().sum(-1).mean())


def null_weights(features: Tensor) -> Tensor:
    r"""Weights of the limit law $n\, \mathrm{FSSD}^2 \to \sum_i \omega_i (Z_i^2 - 1)$, of cov τ."""
    tau = _flat(features).to(torch.float64)
    tau = tau - tau.mean(-2, keepdim=True)
    n, size = tau.shape
    matrix = tau.mT @ tau if size <= n else tau @ tau.mT
    return torch.linalg.eigvalsh(matrix / (n - 1)).clamp(min=0)  # type: ignore[no-any-return]


def weighted_chi_square(weights: Tensor, draws: int, *, source: Source) -> Tensor:
    r"""Draws of $\sum_i \omega_i (Z_i^2 - 1)$."""

    def sums(count: int) -> Tensor:
        return (source.normals(count, len(weights), dtype=weights.dtype).square() - 1) @ weights

    return in_parts(sums, draws, width=len(weights))


def _flat(features: Tensor) -> Tensor:
    """τ: (..., n, J d)."""
    return features.flatten(-2) / math.sqrt(features.shape[-1] * features.shape[-2])
