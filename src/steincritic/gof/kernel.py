"""The kernel Stein discrepancy test, by wild bootstrap or by fresh draws of the model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_choice, check_count
from steincritic.gof.fitted import FITTED_DATA, Fitted
from steincritic.gof.null import as_null_tensor, fresh_statistics, reaching
from steincritic.gof.result import DATA, GofResult
from steincritic.models.base import Model
from steincritic.rng import Source
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
        draws: null draws; the default grows for a small level.
        flip: probability that a sign of the wild bootstrap differs from that of the row before. The
            default is for independent rows; lower it for rows in time order that depend on each other.
    """

    name: ClassVar[str] = "ksd"

    kernel: Kernel = MEDIAN_RBF
    statistic: Literal["v", "u"] = "v"
    threshold: Literal["wild", "fresh"] = "wild"
    draws: int = 999
    flip: float = 0.5

    def __post_init__(self) -> None:
        check_choice(self.statistic, name="statistic", choices=STATISTICS)
        check_choice(self.threshold, name="threshold", choices=("wild", "fresh"))
        check_count(self.draws, name="draws")
        check_flip(self.flip)

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        test = reaching(self, level)
        return [test._one(model, *one, level=level) for one in zip(datasets.each(), seeds, strict=True)]

    def _one(self, model: Model | None, points: ScoredPoints, seed: int, *, level: float) -> GofResult:
        check_pairs(points)
        fresh, fitted = self.threshold == "fresh", None
        if isinstance(model, Fitted):
            fitted, scored = model.anew(points.alone())
            model, points = fitted, next(scored.each())
        observed, null = self._fresh(model, points, seed) if fresh else self._wild(points, seed)
        return GofResult(
            statistic=float(observed),
            null_distribution=as_null_tensor(null),
            level=level,
            test=self.name,
            threshold=self.threshold if fitted is None else "refitted",
            exact=fresh and fitted is None,
            n=len(points),
            seed=seed,
            notes=() if fitted is None else (fitted.refits.note,),
            subject=DATA if fitted is None else FITTED_DATA,
            settings=asdict(self) | {"kernel": repr(self.kernel)},
        )

    def _wild(self, points: ScoredPoints, seed: int) -> tuple[Tensor, Tensor]:
        signs = bootstrap_signs(points, self.draws, flip=self.flip, seed=seed)
        sums = stein_sums(points, [self.kernel], signs=signs)
        return sums.statistic(self.statistic)[0], sums.bootstrap(self.statistic)[0]

    def _fresh(self, model: Model | None, points: ScoredPoints, seed: int) -> tuple[Tensor, Tensor]:
        def statistic(datasets: ScoredPoints) -> Tensor:
            return stein_sums(datasets, [self.kernel]).statistic(self.statistic)[..., 0]

        n = len(points)
        null = fresh_statistics(statistic, model, n, draws=self.draws, seed=seed, like=points.x, width=n * n)
        return statistic(points), null


def check_flip(flip: float) -> None:
    if not (isinstance(flip, float) and 0 < flip <= 0.5):
        raise InputError(
            f"flip is the probability that the next sign differs, in (0, 0.5] with 0.5 for independent "
            f"rows: got {flip!r}"
        )


def bootstrap_signs(points: ScoredPoints, draws: int, *, flip: float, seed: int) -> Tensor:
    """(draws, n) signs on the device of the points, refused if they cannot be held."""
    check_memory(len(points), points.dim, draws, points.x)
    source = Source(seed, "signs", device=points.x.device)
    return random_signs(len(points), draws, flip=flip, source=source)
