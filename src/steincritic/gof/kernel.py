"""Kernel Stein discrepancy tests, with one kernel or many: by wild bootstrap or by draws of the model."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_choice, check_count
from steincritic.gof.fitted import FITTED_DATA, Fitted
from steincritic.gof.null import as_null_tensor, fresh_statistics, reaching
from steincritic.gof.result import DATA, GofResult
from steincritic.gof.test import EachAlone
from steincritic.models.base import Model
from steincritic.rng import Source
from steincritic.stein.kernels import IMQ, RBF, Kernel
from steincritic.stein.tiles import (
    MEDIAN_RBF,
    STATISTICS,
    check_memory,
    check_pairs,
    random_signs,
    stein_sums,
)


@dataclass(frozen=True, kw_only=True)
class Ksd(EachAlone):
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


FACTORS = tuple(2.0**power for power in range(-6, 3))


def kernels_at(factors: Sequence[float] = FACTORS) -> tuple[Kernel, ...]:
    """RBF and IMQ kernels at multiples of the squared median distance."""
    return (
        *(RBF(factor=factor) for factor in factors),
        *(IMQ(scale="median", factor=factor) for factor in factors),
    )


@dataclass(frozen=True, kw_only=True)
class KsdAgg(EachAlone):
    r"""The test of [schrab2022]: no bandwidth to choose, no data set aside to choose it.

    "wild": a first bootstrap set gives each kernel's p-value $p_k$, the statistic is
    $-\log_{10} \min_k p_k$, and a second set gives its law under the model. [schrab2022] look for
    the largest u such that "some $p_k \le u$" happens in a share of at most the level of the second
    set, by bisection; comparing the observed minimum with those of the second set is the solution.

    "fresh": each kernel's statistic is standardized over the observed and the null datasets
    together, and the statistic is the largest over kernels. All datasets are treated alike, so the
    level is exact.

    Args:
        kernels: those that take part, with equal weights.
        statistic: "u" or "v", as for `Ksd`.
        threshold: "wild" (approximate) or "fresh" (exact).
        draws: null draws of the combined statistic; the default grows for a small level.
        reference: for "wild", further bootstrap draws that turn each kernel's statistic into a p-value.
        flip: as for `Ksd`.
    """

    name: ClassVar[str] = "ksdagg"

    kernels: tuple[Kernel, ...] = kernels_at()
    statistic: Literal["v", "u"] = "u"
    threshold: Literal["wild", "fresh"] = "wild"
    draws: int = 499
    reference: int = 999
    flip: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(self.kernels))
        if not self.kernels:
            raise InputError("kernels must name at least one kernel, for example (RBF(), IMQ())")
        check_choice(self.statistic, name="statistic", choices=STATISTICS)
        check_choice(self.threshold, name="threshold", choices=("wild", "fresh"))
        check_count(self.draws, name="draws")
        check_count(self.reference, name="reference", least=2)
        check_flip(self.flip)

    def _reaching(self, level: float) -> "KsdAgg":
        test = reaching(self, level)
        more = test.draws > self.draws
        return replace(test, reference=max(self.reference, 2 * test.draws)) if more else test

    def _one(self, model: Model | None, points: ScoredPoints, seed: int, *, level: float) -> GofResult:
        check_pairs(points)
        fresh = self.threshold == "fresh"
        observed, null = self._fresh(model, points, seed) if fresh else self._wild(points, seed)
        strongest = self.kernels[int(observed.argmax())]
        return GofResult(
            statistic=float(observed.max()),
            null_distribution=as_null_tensor(null.amax(-1)),
            level=level,
            test=self.name,
            threshold=self.threshold,
            exact=fresh,
            n=len(points),
            seed=seed,
            notes=(f"Of {len(self.kernels)} kernels the strongest was {strongest!r}.",),
            settings=asdict(self) | {"kernels": [repr(kernel) for kernel in self.kernels]},
        )

    def _wild(self, points: ScoredPoints, seed: int) -> tuple[Tensor, Tensor]:
        """Evidence of each kernel, (k,) observed and (draws, k) under the model."""
        signs = bootstrap_signs(points, self.reference + self.draws, flip=self.flip, seed=seed)
        sums = stein_sums(points, self.kernels, signs=signs)
        observed, signed = sums.statistic(self.statistic)[:, None], sums.bootstrap(self.statistic)
        reference, null = signed.split([self.reference, self.draws], dim=-1)  # (k, ...)
        evidence = _evidence(torch.cat([observed, null], -1), reference).T
        return evidence[0], evidence[1:]

    def _fresh(self, model: Model | None, points: ScoredPoints, seed: int) -> tuple[Tensor, Tensor]:
        def statistics(datasets: ScoredPoints) -> Tensor:
            return stein_sums(datasets, self.kernels).statistic(self.statistic)

        n = len(points)
        null = fresh_statistics(statistics, model, n, draws=self.draws, seed=seed, like=points.x, width=n * n)
        runs = torch.cat([statistics(points)[None], null])  # (1 + draws, k)
        runs = (runs - runs.mean(0)) / runs.std(0)
        return runs[0], runs[1:]


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


def _evidence(values: Tensor, reference: Tensor) -> Tensor:
    """-log10 of each value's p-value among the reference draws of its kernel, (k, b) to (k, b).

    Ranks are interpolated between neighboring draws, and go on beyond the largest in units of the
    draws' spread: whole ranks would tie in the tail, where tests are decided.
    """
    count = reference.shape[-1]
    draws = reference.sort(-1).values
    below = torch.searchsorted(draws, values.contiguous())  # draws strictly below, (k, b)
    lower = draws.gather(-1, (below - 1).clamp(min=0))
    upper = draws.gather(-1, below.clamp(max=count - 1))
    gap = torch.where(below < count, upper - lower, values - lower + draws.std(-1, keepdim=True))
    fraction = torch.where(below > 0, (values - lower) / gap, torch.zeros_like(values))
    return -((count + 1 - below - fraction) / (count + 1)).log10()
