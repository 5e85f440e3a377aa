"""The finite set Stein discrepancy test: linear time, with places where the model fails."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_choice, check_count, check_positive
from steincritic.gof.null import as_null_tensor, fresh_statistics, in_parts, reaching
from steincritic.gof.result import GofResult
from steincritic.models.base import Model
from steincritic.rng import Source, derive, generator
from steincritic.stein.fssd import fssd, gaussian_locations, null_weights, power_criterion, stein_features
from steincritic.stein.kernels import Kernel, squared_scales
from steincritic.stein.tiles import MEDIAN_RBF, check_pairs

_SCALE_RANGE = math.log(4)  # how far a log squared scale may move: beyond, few training points decide
_LEAST_POINTS = 2
_FEWEST = 30  # tested points below which the simulated law is doubtful

Places = tuple[Tensor, Tensor]  # locations (..., J, d) and squared scale (...)
Choice = Callable[[ScoredPoints], Places]  # of the places at which a dataset is tested


@dataclass(frozen=True, kw_only=True)
class Fssd:
    """The test of [jitkrittum2017], by the Stein witness at a few places.

    The places are in the result's settings; `stein_witness` gives the witness anywhere.

    Args:
        kernel: RBF or IMQ; its scale is where an optimization begins.
        locations: J, the number of places.
        choice: "random", drawn from a Gaussian fitted to the data, all of which are tested; or
            "optimized", where locations and scale climb the power criterion on a training part and
            the rest is tested.
        train: share of the data to optimize on.
        steps: of Adam.
        learning_rate: of Adam, in standard deviations of the data.
        threshold: "spectrum", the weighted chi-square limit (approximate), or "fresh" draws of the
            model (exact).
        draws: null draws; the default grows for a small level.
    """

    name: ClassVar[str] = "fssd"

    kernel: Kernel = MEDIAN_RBF
    locations: int = 5
    choice: Literal["random", "optimized"] = "optimized"
    train: float = 0.2
    steps: int = 100
    learning_rate: float = 0.05
    threshold: Literal["spectrum", "fresh"] = "spectrum"
    draws: int = 999

    def __post_init__(self) -> None:
        check_choice(self.choice, name="choice", choices=("random", "optimized"))
        check_choice(self.threshold, name="threshold", choices=("spectrum", "fresh"))
        for name in ("locations", "steps", "draws"):
            check_count(getattr(self, name), name=name)
        check_positive(self.learning_rate, name="learning_rate")
        if not 0 < self.train < 1:
            raise InputError(f"train is the share of points to optimize on, in (0, 1): got {self.train}")

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        test = reaching(self, level)
        return [test._one(model, *one, level=level) for one in zip(datasets.each(), seeds, strict=True)]

    def _one(self, model: Model | None, points: ScoredPoints, seed: int, *, level: float) -> GofResult:
        check_pairs(points)
        tested, choose = (_random if self.choice == "random" else _optimized)(points, self, seed)
        locations, squared_scale = choose(tested)
        features = stein_features(tested, self.kernel, squared_scale, locations)
        if self.threshold == "fresh":
            null = _fresh(model, tested, choose, self, seed)
        else:
            source = Source(seed, "spectrum", device=features.device)
            null = weighted_chi_square(null_weights(features), self.draws, source=source) / len(tested)
        doubts = _doubts(len(tested), self)
        found = {"locations": locations.tolist(), "squared_scale": float(squared_scale)}
        return GofResult(
            statistic=float(fssd(features)),
            null_distribution=as_null_tensor(null),
            level=level,
            test=self.name,
            threshold=self.threshold,
            exact=self.threshold == "fresh",
            n=len(tested),
            seed=seed,
            notes=doubts,
            doubts=doubts,
            settings=asdict(self) | {"kernel": repr(self.kernel), "found": found},
        )


def _doubts(n: int, config: Fssd) -> tuple[str, ...]:
    if config.threshold == "fresh" or n >= _FEWEST:
        return ()
    return (
        f"the simulated law of FSSD holds for many points, {n} are tested: measured level 0.08 for 0.05 with "
        'data of 20 points; threshold="fresh" is exact',
    )


def weighted_chi_square(weights: Tensor, draws: int, *, source: Source) -> Tensor:
    r"""Draws of $\sum_i \omega_i (Z_i^2 - 1)$."""

    def sums(count: int) -> Tensor:
        z = source.normals(count, len(weights), dtype=weights.dtype)
        return (z.square() - 1) @ weights

    return in_parts(sums, draws, width=len(weights))


def _fresh(model: Model | None, tested: ScoredPoints, choose: Choice, config: Fssd, seed: int) -> Tensor:
    def statistic(datasets: ScoredPoints) -> Tensor:
        locations, squared_scale = choose(datasets)
        return fssd(stein_features(datasets, config.kernel, squared_scale, locations))

    n = len(tested)
    width = max(config.locations * tested.x.numel(), n * n if config.choice == "random" else 0)
    return fresh_statistics(statistic, model, n, draws=config.draws, seed=seed, like=tested.x, width=width)


def _random(points: ScoredPoints, config: Fssd, seed: int) -> tuple[ScoredPoints, Choice]:
    """All points are tested; each dataset, observed or drawn, has its own places, from the same normals."""
    normals = _normals(len(points), config, seed)

    def choose(datasets: ScoredPoints) -> Places:
        (squared_scale,) = squared_scales([config.kernel], datasets.x)
        return gaussian_locations(datasets.x, normals), squared_scale

    return points, choose


def _optimized(points: ScoredPoints, config: Fssd, seed: int) -> tuple[ScoredPoints, Choice]:
    """A part is tested, at places that depend on the other part alone."""
    trained = round(config.train * len(points))
    if min(trained, len(points) - trained) < _LEAST_POINTS:
        raise InputError(
            f"x has {len(points)} points, too few to optimize on a share of {config.train:g} and test the "
            f"rest with at least {_LEAST_POINTS} points each; use choice='random'"
        )
    train, test = points.split([trained, len(points) - trained], seed=derive(seed, "split"))
    (squared_scale,) = squared_scales([config.kernel], train.x)
    start = gaussian_locations(train.x, _normals(trained, config, seed))
    places = optimize_places(train, config, (start, squared_scale.to(train.x)))
    return test, lambda datasets: places


def optimize_places(points: ScoredPoints, config: Fssd, start: Places) -> Places:
    """Gradient ascent of the power criterion; locations stay in the box of the data."""
    spread = points.x.std(0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    low, high = ((end - start[0]) / spread for end in (points.x.amin(0), points.x.amax(0)))
    shift = torch.zeros_like(start[0], requires_grad=True)
    log_factor = torch.zeros_like(start[1], requires_grad=True)
    ascent = torch.optim.Adam([shift, log_factor], lr=config.learning_rate, maximize=True)

    def places() -> Places:
        return start[0] + spread * shift, start[1] * log_factor.exp()

    with torch.enable_grad():
        for _ in range(config.steps):
            ascent.zero_grad()
            locations, squared_scale = places()
            power_criterion(stein_features(points, config.kernel, squared_scale, locations)).backward()
            ascent.step()
            with torch.no_grad():
                shift.copy_(torch.maximum(torch.minimum(shift, high), low))
                log_factor.clamp_(-_SCALE_RANGE, _SCALE_RANGE)
    locations, squared_scale = places()
    return locations.detach(), squared_scale.detach()


def _normals(n: int, config: Fssd, seed: int) -> Tensor:
    return torch.randn(config.locations, n, generator=generator(seed, "locations"), dtype=torch.float64)
