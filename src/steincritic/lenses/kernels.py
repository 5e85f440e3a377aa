"""Kernels: the kernel Stein discrepancy at several bandwidths, in one pass.

For few points the sum over pairs of

    k(x, y) (s(x).s(y) + (s(x) - s(y)).(x - y)/h^2 + d/h^2 - |x - y|^2/h^4),

for more of them in time linear in n: the RBF kernel is a mean of cosines, k(x, y) = E cos(w.(x - y)/h) with w
normal [rahimi2007], so the discrepancy is a mean over frequencies of squared lengths of summed Stein values,
and no pair of points is ever formed. Bandwidths halve, so that kernels or cosines of one give those of the
next.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.errors import check_count, check_positive
from steincritic.lenses.lens import Seen
from steincritic.rng import generator
from steincritic.stein.kernels import RBF
from steincritic.stein.tiles import stein_sums

_PAIRS = 400  # points up to which pairs are summed
_DISTANCES = 500  # draws whose distances give the median
_SIGNED = 2**22  # numbers of one wave under signs, or before, at a time
_TOGETHER = {"cpu": 2**18, "cuda": 2**28}  # cosines held at a time


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """RBF kernels at the median distance between draws of the model, and at halves of it.

    Args:
        widest: the largest bandwidth, in median distances.
        octaves: bandwidths, each half of the one before.
        frequencies: random ones that stand for the kernel; by default none for up to 400 points, 96 for
            1,000, and fewer for more of them.
    """

    name: ClassVar[str] = "kernels"
    widest: float = 1.0
    octaves: int = 4
    frequencies: int | None = None
    whitened: bool = False

    def __post_init__(self) -> None:
        check_positive(self.widest, name="widest")
        check_count(self.octaves, name="octaves")
        if self.frequencies is not None:
            check_count(self.frequencies, name="frequencies")

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedKernels":
        x = draws.x[:_DISTANCES]
        median = float(torch.pdist(x).median()) or 1.0
        source = generator(seed, "frequencies")
        count = self.frequencies or min(256, max(32, 96_000 // n))
        w = torch.randn(count, x.shape[-1], generator=source).to(x) / (self.widest * median)
        bandwidths = tuple(self.widest / 2**k for k in range(self.octaves))
        return PreparedKernels(w, bandwidths, median, self.frequencies is None and n <= _PAIRS)


@dataclass(frozen=True, eq=False)
class PreparedKernels:
    linear: ClassVar[bool] = False
    frequencies: Tensor  # (f, d) of the largest bandwidth
    bandwidths: tuple[float, ...]  # in median distances
    median: float
    by_pairs: bool

    @property
    def how(self) -> str | None:
        """A sentence, where pairs of points are not what is summed."""
        count = len(self.frequencies)
        return None if self.by_pairs else f"Kernels were taken at {count} random frequencies."

    @property
    def size(self) -> int:
        return len(self.bandwidths)

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        r"""U-statistics: $(|\sum_i \xi_i|^2 - \sum_i |\xi_i|^2) / (n (n - 1))$ with Stein values $\xi$."""
        n, f = len(datasets), len(self.frequencies)
        on, numbers = datasets.x.device.type, n * n if self.by_pairs else n * f
        sets = max(1, _TOGETHER.get(on, _TOGETHER["cpu"]) // numbers)
        if self.by_pairs and on == "cpu":
            sets = 1  # as caches like it
        parts = [datasets.sets(slice(k, k + sets)) for k in range(0, len(datasets.x), sets)]
        if self.by_pairs:
            return torch.cat([self._pair_sums(part) for part in parts]) / (n * (n - 1))
        return torch.cat([self.of_sums(self.sums(part), n) for part in parts])

    @property
    def width(self) -> int:
        f, d = self.frequencies.shape
        return 2 * self.size * f * (d + 1) + 1

    def sums(self, datasets: ScoredPoints) -> Tensor:
        """Of cosines and sines times the score and 1, by bandwidth; and of the score's squared length."""
        score = _with_ones(datasets.score).mT
        waves = [score @ wave for _, *pair in self._waves(datasets.x) for wave in pair]  # (r, d + 1, f) each
        score_length = datasets.score.square().sum((-1, -2))
        return torch.cat([torch.stack(waves, 1).flatten(1), score_length[:, None]], -1)

    def of_sums(self, sums: Tensor, n: int) -> Tensor:
        w = self.frequencies.to(sums)
        shape = (self.size, 2, w.shape[1] + 1, len(w))
        waves = sums[:, :-1].unflatten(-1, shape).mT.unbind(1)
        pairs = [both.unbind(1) for both in waves]
        squares = [_length(even, odd, 2**k * w) / len(w) for k, (even, odd) in enumerate(pairs)]
        return (torch.stack(squares, -1) - self._diagonal(sums[:, -1], n)) / (n * (n - 1))

    def _pair_sums(self, datasets: ScoredPoints) -> Tensor:
        x, s, d = datasets.x, datasets.score, datasets.dim
        square, inner = x.square().sum(-1), (x * s).sum(-1)
        cross = x @ s.mT
        distance = (square[..., :, None] + square[..., None, :] - 2 * x @ x.mT).clamp(min=0)
        product = inner[..., :, None] + inner[..., None, :] - cross - cross.mT  # (s - s').(x - x')
        terms = torch.stack([s @ s.mT, product, distance, torch.ones_like(product)], 1).flatten(2)
        h = self.bandwidths[0] * self.median
        kernel = torch.exp(distance / (-2 * h * h))
        kernel.diagonal(dim1=-2, dim2=-1).zero_()
        sums = []
        for _ in self.bandwidths:
            score, slope, far, count = (terms @ kernel.flatten(1)[..., None])[..., 0].unbind(1)
            sums.append(score + (slope + d * count) / h**2 - far / h**4)
            kernel, h = kernel.square().square_(), h / 2
        return torch.stack(sums, -1)

    def signed(self, points: ScoredPoints, signs: Tensor) -> Tensor:
        """By the kernels themselves where pairs of points are fewer than values at frequencies."""
        if len(points) > 2 * len(self.frequencies) * (points.dim + 1):
            return self._signed_waves(points, signs)
        kernels = [RBF(bandwidth=h * self.median) for h in self.bandwidths]
        return stein_sums(points, kernels, signs=signs).bootstrap("u").mT

    def _signed_waves(self, points: ScoredPoints, signs: Tensor) -> Tensor:
        """Some frequencies at a time, as signs of all points meet the values of all of them."""
        n = len(points)
        some = max(1, _SIGNED // (max(n, len(signs)) * (points.dim + 1)))
        signs, score = signs.to(points.x), _with_ones(points.score)
        squares = points.x.new_zeros(len(signs), self.size)
        for k, (w, cos, sin) in enumerate(self._waves(points.x)):
            for at in (slice(j, j + some) for j in range(0, len(w), some)):
                even, odd = (
                    (signs @ (wave[:, at, None] * score[:, None]).flatten(1)).unflatten(
                        1, (-1, points.dim + 1)
                    )
                    for wave in (cos, sin)
                )
                squares[:, k] += _length(even, odd, w[at])
        diagonal = self._diagonal(points.score.square().sum(), n)
        return (squares / len(self.frequencies) - diagonal) / (n * (n - 1))

    def _diagonal(self, score_length: Tensor, n: int) -> Tensor:
        """(..., bandwidths): the sum over points of |xi|^2 = |s|^2 + |w|^2, in the mean over frequencies."""
        rough = self.frequencies.to(score_length).square().sum(-1).mean() * n
        return torch.stack([score_length + 4**k * rough for k in range(self.size)], -1)

    def _waves(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Frequencies, cosines and sines at each bandwidth, (f, d) and (..., n, f)."""
        angle = x @ self.frequencies.mT
        cos, sin, unit = angle.cos(), angle.sin(), torch.ones((), dtype=x.dtype, device=x.device)
        for k in range(self.size):
            yield 2**k * self.frequencies, cos, sin
            cos, sin = torch.addcmul(-unit, cos, cos, value=2), torch.addcmul(0 * unit, sin, cos, value=2)

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        return {f"kernel at {h:g}": seen.fair[..., k] for k, h in enumerate(self.bandwidths)}


def _with_ones(score: Tensor) -> Tensor:
    return torch.cat([score, torch.ones_like(score[..., :1])], -1)


def _length(even: Tensor, odd: Tensor, w: Tensor) -> Tensor:
    """Squared, of sums of cos s - sin w and sin s + cos w; even and odd are (..., f, d + 1) with s and 1."""
    first = even[..., :-1] - odd[..., -1:] * w
    second = odd[..., :-1] + even[..., -1:] * w
    return (first.square() + second.square()).sum((-1, -2))
