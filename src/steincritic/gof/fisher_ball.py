r"""FisherBall: is the Fisher divergence more than so much?

For any field g and number a that were not made from the points, the mean of $2 a\,T_q g - a^2 |g|^2$ is at
most the Fisher divergence $E_p |s_q - s_p|^2$. Where its lower confidence bound is above δ², so is the
divergence. Two halves: the fields of each are judged at the points of the other, and twice the smaller
p-value counts.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.frame import model_frame
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_count, check_positive
from steincritic.gof.null import as_null_tensor, bootstrap_t, rank_pvalues, reaching, studentized
from steincritic.gof.result import GofResult, Tolerated
from steincritic.models.base import Model, SamplingModel
from steincritic.rng import Source, derive
from steincritic.training.fit import Training, fit_bank
from steincritic.training.pacing import DEFAULT_STAGING, paced
from steincritic.training.progress import ProgressBar
from steincritic.training.staging import Staged

FEWEST = 40  # points
_CHECKED = 0.2  # of the points that fields come from, for the choice between them
_TOGETHER = 500  # critics trained in one bank
_GROUPS = 4000  # of points whose mean is resampled, at most
_RIDGE = 1e-6  # of the linear field
_SURE = 3.0  # standard errors of the entries of a sparse one


class FisherTerms(NamedTuple):
    """The two parts of the bound's integrand, (..., n) each."""

    stein: Tensor  # T_q g
    square: Tensor  # |g|²

    def values(self, factor: Tensor) -> Tensor:
        """2 T_q(ag) - |ag|² at each point, with one factor a per set of points."""
        a = factor[..., None]
        return 2 * a * self.stein - a * a * self.square

    def best_factor(self) -> Tensor:
        """The factor in [0, 1] that makes the mean value largest: critics that learned noise are shrunk."""
        stein, square = self.stein.mean(-1), self.square.mean(-1)
        return torch.where(square > 0, stein / square, torch.zeros_like(square)).clamp(0, 1)


@dataclass(frozen=True)
class FisherBall:
    r"""H0: the Fisher divergence $E_p|s_q - s_p|^2$ is at most δ², in standard deviations of the model.

    A normal model whose mean is off by δ standard deviations, or the spread of one column by about δ/2, has a
    divergence of δ². Approximate (bootstrap-t), and on the safe side: critics never find all of it.

    Args:
        delta: δ, 0.1 say.
        network: of a critic; None leaves the linear field alone, which sees means, spreads and correlations.
        draws: bootstrap draws.
    """

    name: ClassVar[str] = "fisher-ball"

    delta: float
    network: MLP | None = field(default_factory=MLP)
    training: Training | None = None
    staging: Staged = DEFAULT_STAGING
    draws: int = 1999

    def __post_init__(self) -> None:
        check_positive(self.delta, name="delta")
        check_count(self.draws, name="draws")

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        if len(datasets) < FEWEST:
            raise InputError(
                f"x has n = {len(datasets)}; a bound of the divergence needs {FEWEST} points or more"
            )
        test, results = reaching(self, level), []
        for start in range(0, len(seeds), size := _TOGETHER // 2):
            part = slice(start, start + size)
            results += test._together(model, datasets.sets(part), level, seeds[part])
        return results

    def _together(
        self, model: Model | None, datasets: ScoredPoints, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        trained, checked, tested = _parts(model, datasets, seeds)
        fields = [Linear.of(trained), Linear.of(trained, sure=_SURE)]
        terms = [[each.terms(points) for points in (checked, tested)] for each in fields]
        if self.network is not None:
            terms.append(self._network_terms(trained, checked, tested, seeds))
        factors = torch.stack([pilot.best_factor() for pilot, _ in terms])  # (fields, 2 r)
        hoped = torch.stack([pilot.values(a).mean(-1) for (pilot, _), a in zip(terms, factors, strict=True)])
        values = torch.stack([final.values(a) for (_, final), a in zip(terms, factors, strict=True)])
        chosen = values[hoped.argmax(0), torch.arange(values.shape[1], device=values.device)]  # (2 r, m)
        unit = "model" if isinstance(model, SamplingModel) else "data"
        pairs = chosen.view(len(seeds), 2, -1)
        return [self._judged(pair, unit, level, seed) for pair, seed in zip(pairs, seeds, strict=True)]

    def _network_terms(
        self, trained: ScoredPoints, checked: ScoredPoints, tested: ScoredPoints, seeds: Sequence[int]
    ) -> list[FisherTerms]:
        training, staging = self.training, self.staging
        if training is None:
            training, staging = paced(len(trained), training=None, staging=self.staging)
        fitted = fit_bank(
            trained,
            staging=staging,
            seeds=[derive(seed, "critic", k) for seed in seeds for k in range(2)],
            network=self.network,
            training=training,
            callbacks=[ProgressBar("training critics of both halves")],
        )
        fitted.require_success()
        return [
            FisherTerms(fitted.witness(p).double(), fitted.field(p.x).double().square().sum(-1))
            for p in (checked, tested)
        ]

    def _judged(self, values: Tensor, unit: str, level: float, seed: int) -> GofResult:
        """(2, m) values of the two halves."""
        sides = [
            _Side.of(half, self.delta, self.draws, derive(seed, "half", k)) for k, half in enumerate(values)
        ]
        best = min(sides, key=lambda side: (side.pvalue, -side.statistic))
        null = twice(best.null)
        lower = max(0.0, best.mean - best.error * float(null.quantile(1 - level)))
        size = f"{math.sqrt(lower):.3g}² = {lower:.3g}"
        return GofResult(
            statistic=best.statistic,
            null_distribution=null,
            level=level,
            test=self.name,
            threshold="bootstrap-t",
            exact=False,
            n=values.numel(),
            seed=seed,
            settings=asdict(self) | {"lower": lower, "estimate": float(values.mean())},
            tolerance=Tolerated(
                f"a Fisher divergence of up to {self.delta:g}² = {self.delta**2:.3g}, columns in standard "
                f"deviations of the {unit}",
                (f"The divergence is at least {size} ({1 - level:.0%} confidence).",)
                if lower > self.delta**2
                else (),
            ),
        )


@dataclass(frozen=True, eq=False)
class _Side:
    """The values of one half beside δ²."""

    statistic: float
    null: Tensor
    mean: float
    error: float

    @classmethod
    def of(cls, values: Tensor, delta: float, draws: int, seed: int) -> "_Side":
        groups = min(len(values), _GROUPS)  # of points where there are many; a few points may be left out
        means = values[: len(values) // groups * groups].view(-1, groups).mean(0)
        if not float(means.std()) > 0:  # a field of zeros: nothing was found
            return cls(-1.0, torch.zeros(draws, dtype=torch.float64), 0.0, 0.0)
        null = bootstrap_t(means, draws=draws, source=Source(seed, "bootstrap", device=means.device))
        error = float(means.std()) / math.sqrt(len(means))
        return cls(float(studentized(means - delta**2)), as_null_tensor(null), float(means.mean()), error)

    @property
    def pvalue(self) -> float:
        return float(rank_pvalues(torch.tensor([self.statistic], dtype=torch.float64), self.null))


@dataclass(frozen=True, eq=False)
class Linear:
    r"""The linear field f(z) = A (1, z) with the largest bound at (e, n, d) points, in closed form.

    With z' = (1, z), the bound is $2 \langle A, M \rangle - \mathrm{tr}(A G A^T)$ for
    $M = E[s z'^T] + (0, I)$ and $G = E[z' z'^T]$, so $A = M G^{-1}$: exact for normal models and data.
    """

    matrix: Tensor  # (e, d, 1 + d)

    @classmethod
    def of(cls, points: ScoredPoints, *, sure: float = 0.0) -> "Linear":
        """With those entries of M alone that are so many standard errors from zero."""
        z, s = _lifted(points.x), points.score.double()
        n, d = points.x.shape[-2:]
        cross = s.mT @ z / n
        error = ((s.square().mT @ z.square() / n - cross.square()).clamp(min=0) / n).sqrt()
        cross[..., 1:] += torch.eye(d).to(cross)
        cross = torch.where(cross.abs() >= sure * error, cross, torch.zeros_like(cross))
        gram = z.mT @ z / n + _RIDGE * torch.eye(1 + d).to(cross)
        return cls(torch.linalg.solve(gram, cross.mT).mT)

    def terms(self, points: ScoredPoints) -> FisherTerms:
        f = _lifted(points.x) @ self.matrix.mT
        trace = self.matrix[..., 1:].diagonal(dim1=-2, dim2=-1).sum(-1)
        return FisherTerms((points.score.double() * f).sum(-1) + trace[..., None], f.square().sum(-1))


def _lifted(x: Tensor) -> Tensor:
    x = x.double()
    return torch.cat([torch.ones_like(x[..., :1]), x], -1)


def _parts(
    model: Model | None, datasets: ScoredPoints, seeds: Sequence[int]
) -> tuple[ScoredPoints, ScoredPoints, ScoredPoints]:
    """Points that fields come from, that choose between them, and that judge: (2 r, ., d) each, in frames."""
    half = len(datasets) // 2
    checks = round(_CHECKED * half)
    parts: list[tuple[ScoredPoints, ScoredPoints, ScoredPoints]] = []
    for points, seed in zip(datasets.each(), seeds, strict=True):
        # by as many draws as there are points, so that the units are known as well as the rest
        draws = max(10_000, min(len(points), 10**6))
        inside = model_frame(model, points, seed=derive(seed, "frame"), draws=draws).enter(points)
        halves = inside.split((half, half), seed=derive(seed, "halves"))
        parts += [(a[checks:], a[:checks], b) for a, b in (halves, halves[::-1])]
    first, second, third = (ScoredPoints.stack(list(part)) for part in zip(*parts, strict=True))
    return first, second, third


def twice(null: Tensor) -> Tensor:
    """Null draws whose ranks give twice the p-value: the larger half of them, each two times."""
    upper: Tensor = null.sort(descending=True).values[: (len(null) + 1) // 2]
    return upper.repeat_interleave(2)[: len(null)]
