"""The kernel Stein discrepancy test, by wild bootstrap or by fresh draws of the model."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from steincritic.data.points import ScoredPoints, scored
from steincritic.errors import InputError, check_choice, check_count
from steincritic.gof.fresh import fresh_statistics
from steincritic.gof.null import as_null_tensor, check_draws
from steincritic.gof.result import GofResult
from steincritic.models.base import as_model
from steincritic.rng import generator
from steincritic.stein.kernels import Kernel
from steincritic.stein.tiles import (
    MEDIAN_RBF,
    STATISTICS,
    check_memory,
    check_pairs,
    random_signs,
    stein_sums,
)


@dataclass(frozen=True, kw_only=True)
class Ksd:
    """The test of [liu2016] and [chwialkowski2016] with one kernel.

    Args:
        kernel: RBF or IMQ, at a given length or at the median distance of each dataset.
        statistic: "v" or "u". Their wild bootstraps differ by one constant, so the p-values agree;
            with fresh draws they are different tests.
        threshold: "wild" bootstrap, which needs no draws of the model (approximate), or "fresh", the
            statistic recomputed on datasets drawn from the model (exact).
        draws: null draws.
        flip: probability that a sign of the wild bootstrap differs from that of the row before. The
            default is for independent rows; lower it for rows in time order that depend on each other.
    """

    kernel: Kernel = MEDIAN_RBF
    statistic: str = "v"
    threshold: str = "wild"
    draws: int = 999
    flip: float = 0.5

    def __post_init__(self) -> None:
        check_choice(self.statistic, name="statistic", choices=STATISTICS)
        check_choice(self.threshold, name="threshold", choices=tuple(_THRESHOLDS))
        check_count(self.draws, name="draws")
        check_flip(self.flip)


def ksd_test(
    model: Any, x: Any, *, level: float = 0.05, seed: int = 0, config: Ksd | None = None
) -> GofResult:
    """Test H0: p = q by the kernel Stein discrepancy.

    Args:
        model: q. May be None for the wild bootstrap when x is ScoredPoints.
        x: the data.
    """
    config = config or Ksd()
    check_draws(config.draws, level)
    points = scored(model, x)
    check_pairs(points)
    observed, null = _THRESHOLDS[config.threshold](model, points, config, seed)
    return GofResult(
        statistic=float(observed),
        null_distribution=as_null_tensor(null),
        level=level,
        method="ksd",
        threshold=config.threshold,
        exact=config.threshold == "fresh",
        n=len(points),
        seed=seed,
        settings=asdict(config) | {"kernel": repr(config.kernel)},
    )


def check_flip(flip: float) -> None:
    if not (isinstance(flip, float) and 0 < flip <= 0.5):
        raise InputError(
            f"flip is the probability that the next sign differs, in (0, 0.5] with 0.5 for independent "
            f"rows: got {flip!r}"
        )


def bootstrap_signs(points: ScoredPoints, draws: int, *, flip: float, seed: int) -> Tensor:
    """(draws, n) signs on the device of the points, refused if they cannot be held."""
    check_memory(len(points), points.dim, draws, points.x)
    source = generator(seed, "signs", device=points.x.device)
    return random_signs(len(points), draws, flip=flip, generator=source)


def _wild(model: Any, points: ScoredPoints, config: Ksd, seed: int) -> tuple[Tensor, Tensor]:
    signs = bootstrap_signs(points, config.draws, flip=config.flip, seed=seed)
    sums = stein_sums(points, [config.kernel], signs=signs)
    return sums.statistic(config.statistic)[0], sums.bootstrap(config.statistic)[0]


def _fresh(model: Any, points: ScoredPoints, config: Ksd, seed: int) -> tuple[Tensor, Tensor]:
    def statistic(datasets: ScoredPoints) -> Tensor:
        return stein_sums(datasets, [config.kernel]).statistic(config.statistic)[..., 0]

    n = len(points)
    null = fresh_statistics(
        statistic, as_model(model), n, draws=config.draws, seed=seed, like=points.x, width=n * n
    )
    return statistic(points), null


_THRESHOLDS: dict[str, Callable[[Any, ScoredPoints, Ksd, int], tuple[Tensor, Tensor]]] = {
    "wild": _wild,
    "fresh": _fresh,
}
