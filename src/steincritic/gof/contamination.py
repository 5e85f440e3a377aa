r"""Contamination: are more than so many rows foreign? The robust test of [liu2025].

With the kernel $w(x) \varphi(|x - y|^2) w(y)$, $w(x) = (1 + |x|^2/a^2)^{-b}$ in standardized
coordinates, the Stein kernel is $u(x, y) = w(x) w(y)\, u_0(x, y)$, where $u_0$ is that of φ with the score
$s + \nabla \log w$. It is bounded where the score grows no faster than $1/w$, and a share ε of foreign rows
moves the discrepancy by at most $\varepsilon \sqrt{\tau}$, $\tau = \sup_x u(x, x)$. So the null hypothesis is
the ball of that radius around the model, whatever the foreign rows are, and

$$\mathrm{KSD}(p_n) - \varepsilon \sqrt\tau \le \| \text{error of the mean embedding} \|,$$

whose law is that of a weighted bootstrap.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, checked_score, sample_points
from steincritic.errors import InputError, ModelError, check_count, check_positive
from steincritic.gof.null import as_null_tensor, in_parts, reaching
from steincritic.gof.result import GofResult, Tolerated
from steincritic.models.base import Model, SamplingModel
from steincritic.rng import Source, derive, generator
from steincritic.stein.kernels import IMQ, Kernel, squared_scales
from steincritic.stein.tiles import check_pairs, stein_kernel

_MEDIAN_IMQ = IMQ(scale="median")
_STARTS, _ROUNDS = 4, 40  # of the search for the largest value, from each distance
_FAR = (0.0, 0.25, 0.5, 2.0, 8.0, 30.0, 1000.0)  # where it looks first, in distances of the points
_FURTHEST = 1000.0  # times √d: rows beyond count as there, for beyond it digits are lost
_GROWS = 2.0  # between the last two of these distances: not bounded
_STEPS = 2.0 ** torch.arange(-8, 3, dtype=torch.float64)  # tried along the gradient, in distances
_DRAWS = 2000  # of the model, for its location and scales
Value: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Contamination:
    """H0: at most a share of the rows is foreign, and the others are draws of the model.

    Approximate (a bootstrap), and on the safe side: the foreign rows may lie where they do most harm.

    Args:
        share: of foreign rows that is tolerated, 0.03 for 3 %.
        kernel: RBF or IMQ.
        width: a, the distance from the middle at which rows begin to count less; half the median by default.
        power: b; 1/2 bounds scores that grow linearly, such as those of normal tails, 3/2 cubic ones.
        standardize: around the model's mean, in scales in which its scores spread alike; else around 0 in the
            units of the data.
        most: rows that are looked at, as the kernel needs all pairs; a random choice of more.
        draws: bootstrap draws.
    """

    name: ClassVar[str] = "contamination"

    share: float
    kernel: Kernel = _MEDIAN_IMQ
    width: float | None = None
    power: float = 0.5
    standardize: bool = True
    most: int = 3000
    draws: int = 999

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share < 1:
            raise InputError(f"the share of foreign rows lies in (0, 1), such as 0.03: got {self.share!r}")
        if self.width is not None:
            check_positive(self.width, name="width")
        check_positive(self.power, name="power")
        check_count(self.draws, name="draws")
        check_count(self.most, name="most", least=20)

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        if model is None:
            raise InputError(
                "how far foreign rows may lie needs the score at other points than x: pass the model itself"
            )
        test = reaching(self, level)
        return [test._one(model, *one, level=level) for one in zip(datasets.each(), seeds, strict=True)]

    def _one(self, model: Model, points: ScoredPoints, seed: int, *, level: float) -> GofResult:
        check_pairs(points)
        n = min(len(points), self.most)
        if n < len(points):
            rows = torch.randperm(len(points), generator=generator(seed, "rows"))[:n]
            some = points[rows.to(points.x.device)]
        else:
            some = points
        frame = score_frame(model, some, seed=seed) if self.standardize else Frame.identity(points.dim)
        near = _pulled_in(model, frame, frame.enter(some.to(dtype=torch.float64)), like=some.x)
        tilted = Tilted.of(self, near)
        u = tilted.matrix()
        largest, _ = largest_value(tilted, model, frame, like=some.x, seed=seed)
        value = math.sqrt(max(0.0, float(u.mean())))
        radius = self.share * math.sqrt(largest)
        null = _bootstrap(u, self.draws, Source(seed, "weights", device=u.device))
        sure = max(0.0, value - float(null.quantile(1 - level))) / math.sqrt(largest)
        found = {"ksd": value, "radius": radius, "largest": largest, "at_least": sure}
        looked = f"A random {n} of {len(points)} rows were looked at." if n < len(points) else None
        return GofResult(
            statistic=value - radius,
            null_distribution=as_null_tensor(null),
            level=level,
            test=self.name,
            threshold="weighted",
            exact=False,
            n=n,
            seed=seed,
            notes=() if looked is None else (looked,),
            settings=asdict(self) | {"kernel": repr(self.kernel)} | found,
            tolerance=Tolerated(
                f"up to {100 * self.share:g} % foreign rows, wherever they lie",
                (f"The data are as far off as with {100 * sure:.1f} % foreign rows or more.",)
                if sure > self.share
                else (),
            ),
        )


@dataclass(frozen=True, eq=False)
class Tilted:
    """Points with the score of the weighted kernel, in standardized coordinates."""

    points: ScoredPoints  # score with the gradient of log w
    weight: Tensor  # (n,)
    kernel: Kernel
    squared_scale: Tensor
    width: float
    power: float

    @classmethod
    def of(cls, test: Contamination, points: ScoredPoints) -> "Tilted":
        typical = float(points.x.square().sum(-1).median().sqrt())
        width = typical / 2 if test.width is None else float(test.width)
        (scale,) = squared_scales([test.kernel], points.x)
        weight, push = tilt(points.x, width, test.power)
        moved = ScoredPoints(points.x, points.score + push)
        return cls(moved, weight, test.kernel, scale.to(points.x), width, test.power)

    def matrix(self) -> Tensor:
        """(n, n): u(x_i, x_j)."""
        return stein_kernel(self.points, self.kernel) * self.weight[:, None] * self.weight

    def at(self, z: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        """u(z, z), (n,), and the tilted score; nothing where the score is no number."""
        weight, push = tilt(z, self.width, self.power)
        phi, first, _ = self.kernel.profile(z.new_zeros(()), self.squared_scale)
        tilted = score + push
        values = weight.square() * (phi * tilted.square().sum(-1) - 2 * first * z.shape[-1])
        return torch.where(values.isfinite(), values, 0.0), tilted


def score_frame(model: Model, points: ScoredPoints, *, seed: int) -> Frame:
    """The model's location, and scales in which all scores spread alike.

    With columns in standard deviations instead, the score grows fastest where a column is known best by
    the others, and foreign rows there would decide the bound for all.
    """
    known = points
    if isinstance(model, SamplingModel):
        known = sample_points(model, _DRAWS, seed=derive(seed, "frame"), like=points.x)
    spread = known.score.double().std(0)
    return Frame(known.x.double().mean(0), torch.where(spread > 0, 1 / spread, torch.ones_like(spread)))


def _score_at(model: Model, frame: Frame, z: Tensor, like: Tensor) -> Tensor:
    x = frame.location.to(z) + frame.scale.to(z) * z
    return checked_score(model, x.to(like)).to(z) * frame.scale.to(z)


def _pulled_in(model: Model, frame: Frame, points: ScoredPoints, *, like: Tensor) -> ScoredPoints:
    """Foreign rows at an absurd distance are as foreign nearer by."""
    z = _within(points.x)
    far = (z != points.x).any(-1)
    if not bool(far.any()):
        return points
    score = points.score.clone()
    score[far] = _score_at(model, frame, z[far], like)
    return ScoredPoints(z, score)


def _within(z: Tensor) -> Tensor:
    radius = z.norm(dim=-1, keepdim=True)
    most = _FURTHEST * math.sqrt(z.shape[-1])
    return torch.where(radius > most, z * (most / radius), z)


def tilt(x: Tensor, width: float, power: float) -> tuple[Tensor, Tensor]:
    """w(x), (n,), and the gradient of its logarithm, (n, d)."""
    inside = 1 + x.square().sum(-1) / width**2
    return inside**-power, -2 * power / width**2 * x / inside[:, None]


def largest_value(
    tilted: Tilted, model: Model, frame: Frame, *, like: Tensor, seed: int
) -> tuple[float, Tensor]:
    r"""$\sup_x u(x, x)$ and where, in standardized coordinates: uphill from points at all distances.

    The tilted score is a gradient, so half the gradient of its square is its own derivative along itself,
    which two scores tell.
    """

    def value(z: Tensor) -> tuple[Tensor, Tensor]:
        return tilted.at(z, _score_at(model, frame, z, like))

    own = tilted.points.x
    some = own[torch.randperm(len(own), generator=generator(seed, "starts"))[:200].to(own.device)]
    starts = torch.cat([own, *(_within(factor * some) for factor in _FAR)])
    first, _ = value(starts)
    far, further = first[-2 * len(some) :].view(2, -1).amax(-1).tolist()
    if further > _GROWS * far and further > float(first[: len(own)].amax()):
        raise ModelError(
            "the score grows faster than the distance, so that a foreign row can do any harm: take a "
            "stronger weight, sc.Contamination(share, power=1.5)"
        )
    groups = [len(own), *(len(some) for _ in _FAR)]
    ends = zip(first.split(groups), starts.split(groups), strict=True)
    best, z = (torch.cat(each) for each in zip(*(_top(*end) for end in ends), strict=True))
    for _ in range(_ROUNDS):
        z, values = _uphill(z, value, tilted.width)
        if not bool((values > best * (1 + 1e-6)).any()):
            break
        best = values
    return float(best.max()), z[best.argmax()]


def _top(values: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    best, place = values.topk(min(_STARTS, len(values)))
    return best, z[place]


def _uphill(z: Tensor, value: Value, width: float) -> tuple[Tensor, Tensor]:
    """The best of some steps along the gradient of log u, for each point."""
    here, tilted = value(z)
    step = 1e-3 * width / tilted.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    ahead, behind = (value(z + sign * step * tilted)[1] for sign in (1, -1))
    slope = (ahead - behind) / (2 * step)  # half the gradient of |tilted score|²
    away = z / z.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    reach, tried = z.norm(dim=-1, keepdim=True).clamp(min=width), [z]
    for direction in (slope, -away, away):
        unit = direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        tried += [z + float(length) * reach * unit for length in _STEPS]
    every = _within(torch.stack(tried))  # (k, n, d)
    values = value(every.flatten(0, 1))[0].view(len(tried), -1)
    best = values.argmax(0)
    index = torch.arange(len(z), device=z.device)
    return every[best, index], torch.maximum(values[best, index], here)


def _bootstrap(u: Tensor, draws: int, source: Source) -> Tensor:
    """(draws,): lengths of the mean embedding's error, by multinomial weights less one."""
    n = len(u)

    def squares(count: int) -> Tensor:
        index = source.integers(n, count, n)
        weights = torch.full(index.shape, -1.0, dtype=u.dtype, device=u.device)
        weights.scatter_add_(1, index, torch.ones_like(weights))
        return ((weights @ u) * weights).sum(-1) / n**2

    return in_parts(squares, draws, width=4 * n).clamp(min=0).sqrt()
