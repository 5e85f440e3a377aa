"""Aggregated KSD: many kernels at once, at the price of one correction."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints, scored
from steincritic.errors import InputError, check_choice, check_count
from steincritic.gof.fresh import fresh_statistics
from steincritic.gof.kernel import bootstrap_signs, check_flip
from steincritic.gof.null import as_null_tensor, check_draws
from steincritic.gof.result import GofResult
from steincritic.models.base import as_model
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
    """The test of [schrab2022]: no bandwidth to choose, no data set aside to choose it.

    Args:
        kernels: those that take part, with equal weights.
        statistic: "u" or "v", as for `Ksd`.
        threshold: "wild" (approximate) or "fresh" (exact), see `ksdagg_test`.
        draws: null draws of the combined statistic.
        reference: for "wild", further bootstrap draws that turn each kernel's statistic into a p-value.
        flip: as for `Ksd`.
    """

    kernels: tuple[Kernel, ...] = kernels_at()
    statistic: str = "u"
    threshold: str = "wild"
    draws: int = 499
    reference: int = 999
    flip: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(self.kernels))
        if not self.kernels:
            raise InputError("kernels must name at least one kernel, for example (RBF(), IMQ())")
        check_choice(self.statistic, name="statistic", choices=STATISTICS)
        check_choice(self.threshold, name="threshold", choices=tuple(_THRESHOLDS))
        check_count(self.draws, name="draws")
        check_count(self.reference, name="reference", least=2)
        check_flip(self.flip)


def ksdagg_test(
    model: Any, x: Any, *, level: float = 0.05, seed: int = 0, config: KsdAgg | None = None
) -> GofResult:
    r"""Test H0: p = q by the strongest of many kernels.

    "wild": a first bootstrap set gives each kernel's p-value $p_k$, the statistic is
    $-\log_{10} \min_k p_k$, and a second set gives its law under the model. [schrab2022] look for
    the largest u such that "some $p_k \le u$" happens in a share of at most the level of the second
    set, by bisection; comparing the observed minimum with those of the second set is the solution.

    "fresh": each kernel's statistic is standardized over the observed and the null datasets
    together, and the statistic is the largest over kernels. All datasets are treated alike, so the
    level is exact.

    Args:
        model: q. May be None for the wild bootstrap when x is ScoredPoints.
        x: the data.
    """
    config = config or KsdAgg()
    check_draws(config.draws, level)
    points = scored(model, x)
    check_pairs(points)
    observed, null = _THRESHOLDS[config.threshold](model, points, config, seed)  # (k,), (draws, k)
    strongest = config.kernels[int(observed.argmax())]
    return GofResult(
        statistic=float(observed.max()),
        null_distribution=as_null_tensor(null.amax(-1)),
        level=level,
        method="ksdagg",
        threshold=config.threshold,
        exact=config.threshold == "fresh",
        n=len(points),
        seed=seed,
        notes=(f"Of {len(config.kernels)} kernels the strongest was {strongest!r}.",),
        settings=asdict(config) | {"kernels": [repr(kernel) for kernel in config.kernels]},
    )


def _wild(model: Any, points: ScoredPoints, config: KsdAgg, seed: int) -> tuple[Tensor, Tensor]:
    signs = bootstrap_signs(points, config.reference + config.draws, flip=config.flip, seed=seed)
    sums = stein_sums(points, config.kernels, signs=signs)
    observed, signed = sums.statistic(config.statistic)[:, None], sums.bootstrap(config.statistic)
    reference, null = signed.split([config.reference, config.draws], dim=-1)  # (k, ...)
    evidence = _evidence(torch.cat([observed, null], -1), reference).T
    return evidence[0], evidence[1:]


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


def _fresh(model: Any, points: ScoredPoints, config: KsdAgg, seed: int) -> tuple[Tensor, Tensor]:
    def statistics(datasets: ScoredPoints) -> Tensor:
        return stein_sums(datasets, config.kernels).statistic(config.statistic)

    n = len(points)
    null = fresh_statistics(
        statistics, as_model(model), n, draws=config.draws, seed=seed, like=points.x, width=n * n
    )
    runs = torch.cat([statistics(points)[None], null])  # (1 + draws, k)
    runs = (runs - runs.mean(0)) / runs.std(0)
    return runs[0], runs[1:]


_THRESHOLDS: dict[str, Callable[[Any, ScoredPoints, KsdAgg, int], tuple[Tensor, Tensor]]] = {
    "wild": _wild,
    "fresh": _fresh,
}
