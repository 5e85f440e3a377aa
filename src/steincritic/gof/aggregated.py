"""Aggregated KSD: many kernels at once, at the price of one correction."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_choice, check_count
from steincritic.gof.kernel import bootstrap_signs, check_flip
from steincritic.gof.null import as_null_tensor, fresh_statistics, reaching
from steincritic.gof.result import GofResult
from steincritic.models.base import Model
from steincritic.stein.kernels import IMQ, RBF, Kernel
from steincritic.stein.tiles import STATISTICS, check_pairs, stein_sums

FACTORS = tuple(2.0**power for power in range(-6, 3))


def kernels_at(factors: Sequence[float] = FACTORS) -> tuple[Kernel, ...]:
    """RBF and IMQ kernels at multiples of the squared median distance."""
    return (
        *(RBF(factor=factor) for factor in factors),
        *(IMQ(scale="median", factor=factor) for factor in factors),
    )


@dataclass(frozen=True, kw_only=True)
class KsdAgg:
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

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        test = reaching(self, level)
        if test.draws > self.draws:
            test = replace(test, reference=max(self.reference, 2 * test.draws))
        return [test._one(model, *one, level=level) for one in zip(datasets.each(), seeds, strict=True)]

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
