r"""Means, spreads and correlations of points beside those of a model that is known by its score alone.

A normal model has the score $s = -\Sigma^{-1}(x - \mu)$, so that from any points

$$\Sigma = -\mathrm{Cov}[x, s]^{-1}\,\mathrm{Cov}[x], \qquad \bar x - \mu = -\Sigma\,\bar s.$$

For any other model and its own draws, Stein's identity ($\mathrm{Cov}[x, s] = -I$ and $E\,s = 0$) makes
$\Sigma$ the covariance and $\bar x - \mu$ zero: where nothing is wrong, nothing is found. In between the
sizes are approximate, and strong correlations do no harm. A shift of a model with heavy tails is found nearer
to its size with the geometric mean of $\mathrm{Cov}[x]$ and $\mathrm{Cov}[s]^{-1}$, that of `Whitening`.

Standard errors come from leaving out one block of rows after another, so that rows may depend on their
neighbors.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from steincritic.data.frame import Frame, Whitening
from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.estimates import Estimate
from steincritic.gof.serial import WHITENED
from steincritic.lenses.lens import pair_columns

_GROUPS, _FEWEST = 30, 8  # of rows that are left out in turn: about, and at least
_MOST = 60  # coordinates
_STRAIGHT, _BENT = 2.5, 25.0  # between the two covariances, at most, for sizes or signs to mean something
_QUIET = 0.3  # of the loudest coordinate: others below it show what that one does to them
_QUIET_BENT = 0.7
_ALIKE = 0.75  # of all coordinates, that are said together
_PAIRS = 3  # that are listed
_PARTS = 32  # of independent draws, that are left out in turn
_LEAST = 1e-6  # of a precision or a variance, beside the largest or beside those of the draws


@dataclass(frozen=True)
class Difference:
    """A way in which points differ from the model, with its size."""

    kind: str  # as in `diagnosis.words.KINDS`
    columns: tuple[int, ...]
    estimate: Estimate
    pvalue: float  # adjusted for all of its kind, and for the kinds
    rough: bool = False  # the score is far from linear: only the sign of the difference is to be believed


def differences(
    points: ScoredPoints, lengths: Tensor | None = None, *, level: float
) -> list[Difference] | None:
    """What is beyond chance, the loudest first.

    Loud is a coordinate whose own Stein values are far from zero: its fault may show in the means and
    spreads of others, and less so there. None where sizes cannot be told: too few points, too many
    coordinates, or scores far from those of a normal model.

    Args:
        lengths: of blocks of rows that depend on each other.
    """
    standard = Frame.of(points.x).enter(points.to("cpu", torch.float64))
    compared = compare(standard, lengths)
    if compared is None:
        return None
    values = torch.stack([standard.score, standard.x * standard.score + 1])
    loudness = values.mean(1).abs() / values.std(1).clamp(min=1e-300)  # (2, d)
    single = [
        (float(loudness[k, j]), compared.single(kind, j))
        for k, kind in enumerate(("shift", "spread"))
        for j in range(points.dim)
    ]
    significant = sorted((pair for pair in single if pair[1].pvalue <= level), key=lambda pair: -pair[0])
    quiet = _QUIET_BENT if compared.rough else _QUIET
    loudest = [difference for size, difference in significant if size >= quiet * significant[0][0]]
    pairs = [compared.pair(at) for at in range(len(pair_columns(points.dim)))]
    pairs = sorted((pair for pair in pairs if pair.pvalue <= level), key=lambda pair: -pair.estimate.gap)
    return [*_together(loudest, compared), *pairs[:_PAIRS]]


def _together(differences: list[Difference], compared: "Compared") -> list[Difference]:
    """Spreads of most coordinates that are wrong alike, as one."""
    joint = compared.scale()
    alike = [
        difference
        for difference in differences
        if difference.kind == "spread"
        and difference.estimate.above == joint.estimate.above
        and difference.estimate.reaches(joint.estimate.value, 3)
    ]
    if len(alike) < max(3, _ALIKE * compared.dim):
        return differences
    return [joint, *(difference for difference in differences if difference not in alike)]


@dataclass(frozen=True, eq=False)
class Compared:
    """What points are beside the model, with standard errors, by kind.

    Shifts of the mean in standard deviations of the model, logarithms of standard deviations over those of
    the model, (d,) each, and their mean; correlations of the points and what they have beyond those of the
    model, (pairs,) each, by Fisher's z.
    """

    values: dict[str, Tensor]
    errors: dict[str, Tensor]
    freedom: int  # of the errors
    rough: bool

    @property
    def dim(self) -> int:
        return len(self.values["shift"])

    def single(self, kind: str, j: int) -> Difference:
        return self._difference(kind, (j,), kind, j, many=self.dim)

    def scale(self) -> Difference:
        return self._difference("scale", tuple(range(self.dim)), "scale", 0, many=1)

    def pair(self, at: int) -> Difference:
        """The correlation of the points, with its own error; whether it is wrong goes by the difference."""
        columns, of_model = pair_columns(self.dim), self.values["own"][at] - self.values["beyond"][at]
        gap = self._difference("pair", columns[at], "beyond", at, many=len(columns))
        z = self._estimate("own", at)
        value, low, high, model = (math.tanh(v) for v in (z.value, z.low, z.high, float(of_model)))
        return replace(gap, estimate=Estimate(value, low, high, model, gap.estimate.gap))

    def _difference(
        self, kind: str, columns: tuple[int, ...], number: str, at: int, *, many: int
    ) -> Difference:
        from scipy.special import stdtr  # slow to import

        e = self._estimate(number, at)
        pvalue = 6 * many * float(stdtr(self.freedom, -e.gap))  # two sides, three kinds
        if kind in ("spread", "scale"):
            e = Estimate(math.exp(e.value), math.exp(e.low), math.exp(e.high), 1.0, e.gap)
        return Difference(kind, columns, e, min(1.0, pvalue), self.rough)

    def _estimate(self, number: str, at: int) -> Estimate:
        value, error = float(self.values[number][at]), max(float(self.errors[number][at]), 1e-12)
        reach = error * student_quantile(0.975, self.freedom)
        return Estimate(value, value - reach, value + reach, 0.0, abs(value) / error)


def student_quantile(share: float, freedom: int) -> float:
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(freedom, share))


def compare(points: ScoredPoints, lengths: Tensor | None = None) -> Compared | None:
    n, d = points.x.shape
    ends = torch.arange(1, n + 1) if lengths is None else lengths.cumsum(0)
    count = min(len(ends), _GROUPS)
    last = ends[torch.arange(1, count + 1) * len(ends) // count - 1].tolist()
    groups = [slice(start, end) for start, end in zip([0, *last[:-1]], last, strict=True)]
    if n < 2 * WHITENED * d or d > _MOST or len(groups) < _FEWEST:
        return None
    whole, jackknife = _beside(points), []
    rest = torch.ones(n, dtype=torch.bool)
    for rows in groups:
        rest[rows] = False
        without = _beside(points[rest])
        rest[rows] = True
        if whole is None or without is None:
            return None
        jackknife.append(without[0])
    assert whole is not None
    values, bend = whole
    replicates = {number: torch.stack([part[number] for part in jackknife]) for number in values}
    errors = {
        number: ((part - part.mean(0)).square().mean(0) * (len(groups) - 1)).sqrt()
        for number, part in replicates.items()
    }
    return Compared(values, errors, len(groups) - 1, rough=bend > _STRAIGHT)


def _beside(points: ScoredPoints) -> tuple[dict[str, Tensor], float] | None:
    """The values of `Compared`, and how far the score is from linear; None where it is too far."""
    x, s = points.x - points.x.mean(0), points.score - points.score.mean(0)
    covariance, cross = x.T @ x / len(x), -x.T @ s / len(x)
    model = torch.linalg.solve_ex(cross, covariance).result
    model = (model + model.T) / 2
    whitening = Whitening.by_scores(points)
    ratios = torch.linalg.eigvalsh(whitening.inverse @ model.nan_to_num(0.0, 0.0, 0.0) @ whitening.inverse)
    bend = max(float(ratios[-1]), 1 / max(float(ratios[0]), 1e-300))
    if bend > _BENT:
        return None
    sd, own_sd = model.diagonal().sqrt(), covariance.diagonal().sqrt()
    shift = -(whitening.root @ (whitening.root @ points.score.mean(0))) / sd
    spread, fisher = (own_sd / sd).log(), _fisher(covariance, own_sd)
    beyond = fisher - _fisher(model, sd)
    values = {"shift": shift, "spread": spread, "scale": spread.mean()[None], "own": fisher, "beyond": beyond}
    return values, bend


def _fisher(covariance: Tensor, sd: Tensor) -> Tensor:
    j, k = torch.triu_indices(len(sd), len(sd), 1)
    return (covariance[j, k] / sd[j] / sd[k]).clamp(-1 + 1e-9, 1 - 1e-9).atanh()


@dataclass(frozen=True, eq=False)
class Gaps:
    r"""How far draws are from a posterior, by coordinate; z is the value over its standard error.

    In coordinates y in which the draws have mean 0 and covariance I, with scores t, the best line
    $t \approx -P (y - m)$ has $P = -\tfrac12 E[y t^\top + t y^\top]$ and $m = P^{-1} E[t]$: precision and
    mean of a normal posterior, wherever the draws lie. Unlike `differences` it always gives a size: far from
    the posterior its density may be no hill, with a P that is not positive, and then each coordinate has a
    line of its own. Errors are those of independent draws.
    """

    shift: Tensor  # (d,) mean of the draws less that of the posterior, in its standard deviations
    log_ratio: Tensor  # (d,) of the spread of the draws to that of the posterior
    shift_z: Tensor
    spread_z: Tensor

    @classmethod
    def of(cls, points: ScoredPoints) -> "Gaps":
        points = points.to("cpu", torch.float64)
        points = Frame.of(points.x).enter(points)
        n, d, groups = len(points), points.dim, min(_PARTS, len(points) // 2)
        filled = points.map(lambda t: pad(t, (0, 0, 0, -n % groups)).view(-1, groups, d).transpose(0, 1))
        x, s = filled.x, filled.score  # (groups, ., d)
        sums = torch.cat([x.sum(1), s.sum(1), *((x.mT @ t).flatten(1) for t in (x, s))], -1)
        sizes = (torch.arange(n) % groups).bincount()
        whole = sums.sum(0)
        means = torch.cat([whole[None] / n, (whole - sums) / (n - sizes)[:, None]])
        gaps = _gaps(means, d)
        error = (gaps[1:] - gaps[1:].mean(0)).square().sum(0).mul((groups - 1) / groups).sqrt()
        return cls(*gaps[0], *(gaps[0] / torch.where(error > 0, error, torch.inf)))

    @property
    def bound(self) -> float:
        """A z that the largest of all exceeds with probability 0.05 where the draws are right."""
        return student_quantile(1 - 0.025 / (2 * len(self.shift)), _PARTS - 1)


def _gaps(means: Tensor, d: int) -> Tensor:
    """(g, 2, d) shifts and log ratios, from means (g, 2 d + 2 d^2) of x, s, xx' and xs'."""
    x, s, xx, xs = means.split([d, d, d * d, d * d], -1)
    xx, xs = (both.unflatten(-1, (d, d)) - x[:, :, None] * t[:, None] for both, t in ((xx, x), (xs, s)))
    values, vectors = torch.linalg.eigh(xx)
    root, whiten = (
        vectors @ torch.diag_embed(values.clamp(min=_LEAST) ** power) @ vectors.mT for power in (0.5, -0.5)
    )
    yt = whiten @ xs @ root
    precision = -(yt + yt.mT) / 2
    if float(torch.linalg.eigvalsh(precision[0])[0]) > _LEAST:
        values, vectors = torch.linalg.eigh(precision)
        covariance = root @ vectors @ torch.diag_embed(1 / values.clamp(min=_LEAST)) @ vectors.mT @ root
    else:
        slopes = [matrix.diagonal(dim1=-2, dim2=-1) for matrix in (xx, -xs)]
        covariance = torch.diag_embed(slopes[0].clamp(min=_LEAST).square() / slopes[1].clamp(min=_LEAST))
    variance, spread = (matrix.diagonal(dim1=-2, dim2=-1) for matrix in (covariance, xx))
    shift = -(covariance @ s[..., None])[..., 0]
    return torch.stack([shift / variance.sqrt(), (spread.clamp(min=_LEAST) / variance).log() / 2], 1)
