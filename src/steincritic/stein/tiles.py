r"""The Stein kernel, and its sums over all pairs of points, tile by tile.

For $k(x, y) = \varphi(r)$ with $r = |x - y|^2$, and s the model's score,

$$u(x, y) = \varphi\, s_x \cdot s_y
          - 2 \varphi' \left[(s_x - s_y) \cdot (x - y) + d\right] - 4 \varphi'' r.$$

All that depends on two points at once are three matrix products: r, $s_x \cdot s_y$ and the bracket.
They are formed once per tile and shared by every kernel; tiles below the diagonal are never formed, as
u is symmetric. Besides the (n, d) factors and the (b, n) signs of a bootstrap, a pass holds one tile,
whose size follows from `WORKSPACE`. Sums are float64 whatever the input.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from steincritic.data.arrays import check_finite
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError, check_choice
from steincritic.rng import Source
from steincritic.stein.kernels import RBF, Kernel, distance_factors, squared_scales

WORKSPACE = {"cpu": 2**26, "cuda": 2**31}  # bytes that the arrays of one tile may take together
STATISTICS = ("v", "u")
MEDIAN_RBF = RBF()
_TILE_ARRAYS = 10  # (t, t) arrays alive at once, the float64 copy that a sum makes included
_LARGEST = 1e75  # of a value whose fourth power is a float64
_SIGN_ARRAYS = 6  # (b, t) arrays alive at once


@dataclass(frozen=True)
class SteinSums:
    """Sums of k Stein kernels over the pairs of n points; leading axes are those of the points."""

    n: int
    diagonal: Tensor  # (..., k) sum of u(x_i, x_i)
    pairs: Tensor  # (..., k) sum of u(x_i, x_j) over i ≠ j
    signed: Tensor  # (..., k, b) sum of ε_i ε_j u(x_i, x_j) over i ≠ j, for each row ε of the signs

    def statistic(self, kind: str) -> Tensor:
        """(..., k): "v", the mean of all n² values, or "u", the mean without the diagonal."""
        return self._normalized(self.pairs, self.diagonal, kind)

    def bootstrap(self, kind: str) -> Tensor:
        """(..., k, b): the same with signs; ε_i² = 1, so the diagonal is that of the data."""
        return self._normalized(self.signed, self.diagonal[..., None], kind)

    def _normalized(self, pairs: Tensor, diagonal: Tensor, kind: str) -> Tensor:
        check_choice(kind, name="statistic", choices=STATISTICS)
        return (pairs + diagonal) / self.n**2 if kind == "v" else pairs / (self.n * (self.n - 1))


@torch.no_grad()
def stein_sums(
    points: ScoredPoints, kernels: Sequence[Kernel], *, signs: Tensor | None = None, tile: int | None = None
) -> SteinSums:
    """One pass over the pairs of points, for all kernels and all sign vectors together.

    Args:
        points: (..., n, d); leading axes hold separate datasets, each with its own median.
        kernels: k of them.
        signs: (b, n) of -1 and 1.
        tile: rows and columns of a tile; from WORKSPACE when left out. Changes rounding only.
    """
    points = _computable(points)
    n, batch, like = len(points), points.x.shape[:-2], points.x
    b = 0 if signs is None else len(signs)
    tile = tile or tile_size(n, sets=math.prod(batch), draws=b, like=like)
    factors = _Factors.of(points)
    scales = [scale.to(like)[..., None, None] for scale in squared_scales(kernels, points.x)]
    diagonal = torch.zeros(*batch, len(kernels), dtype=torch.float64, device=like.device)
    pairs = torch.zeros_like(diagonal)
    signed = diagonal.new_zeros(*batch, len(kernels), b)
    for rows, columns in _tiles(n, tile):
        shared = factors.tile(rows, columns)
        weight = 1 if rows == columns else 2  # the mirrored tile counts too
        sides = None if signs is None else (signs[:, rows].to(like), signs[:, columns].to(like))
        for k, (kernel, scale) in enumerate(zip(kernels, scales, strict=True)):
            u = _combined(kernel, scale, *shared)  # (..., t, t)
            if rows == columns:
                on_diagonal = u.diagonal(dim1=-2, dim2=-1)
                diagonal[..., k] += on_diagonal.sum(-1, dtype=torch.float64)
                on_diagonal.zero_()
            pairs[..., k] += weight * u.sum((-2, -1), dtype=torch.float64)
            if sides is not None:
                product = (sides[0] @ u).mul_(sides[1])  # (..., b, t)
                signed[..., k, :] += weight * product.sum(-1, dtype=torch.float64)
    if signs is not None:  # signs all alike give the plain sum: a tie that rounding must not break
        alike = signs.amax(-1) == signs.amin(-1)
        signed = torch.where(alike, pairs[..., None], signed)
    return SteinSums(n, diagonal, pairs, signed)


def stein_kernel(points: ScoredPoints, kernel: Kernel) -> Tensor:
    """The whole matrix u(x_i, x_j), (..., n, n): for as many points as fit in memory."""
    points = _computable(points)
    (scale,) = squared_scales([kernel], points.x)
    everything = slice(0, len(points))
    shared = _Factors.of(points).tile(everything, everything)
    return _combined(kernel, scale.to(points.x)[..., None, None], *shared)


def ksd(points: ScoredPoints, kernel: Kernel = MEDIAN_RBF, statistic: str = "v") -> float:
    """The squared kernel Stein discrepancy of points from the model whose score they carry.

    Args:
        points: (n, d).
        kernel: for example RBF(bandwidth=1.0) or IMQ(); RBF at the median distance when left out.
        statistic: "v" is the mean of all n² Stein kernel values (never negative); "u" leaves the
            diagonal out and divides by n(n - 1) (unbiased).

    >>> x = torch.tensor([[0.0], [1.0]])
    >>> round(ksd(ScoredPoints(x, -x), RBF(bandwidth=1.0)), 4)
    0.4467
    """
    check_pairs(points)
    check_choice(statistic, name="statistic", choices=STATISTICS)
    return float(stein_sums(points, [kernel]).statistic(statistic)[0])


def check_pairs(points: ScoredPoints) -> None:
    if not isinstance(points, ScoredPoints):
        raise InputError(f"expected ScoredPoints(x, score), got {type(points).__name__}")
    if points.x.ndim != 2 or len(points) < 2:
        raise InputError(
            f"a kernel discrepancy compares at least 2 points of shape (n, d), got {tuple(points.x.shape)}"
        )
    check_finite(points.x, name="x")
    check_finite(points.score, name="the score at x")
    largest = max(float(points.x.abs().amax()), float(points.score.abs().amax()))
    if largest > _LARGEST:
        raise InputError(
            f"x or its score has values of size {largest:.0e}, of which kernels take fourth powers: give "
            "model and data other units, in which they are near 1"
        )


def random_signs(n: int, draws: int, *, flip: float, source: Source) -> Tensor:
    """(draws, n) of -1 and 1, int8: chains whose next sign differs with probability `flip`.

    At flip = 1/2 the signs are independent; below, neighbors agree for about 1/flip rows, as is
    wanted for rows that depend on their neighbors [chwialkowski2016].
    """
    signs = torch.empty(draws, n, dtype=torch.int8, device=source.device)
    probability = torch.full((n,), flip, device=source.device)
    probability[0] = 0.5
    rows = max(1, 2**22 // n)  # bounds the float32 numbers held at a time
    for part in signs.split(rows):
        uniform = source.uniforms(*part.shape)
        turns = 1 - 2 * (uniform < probability).to(torch.int8)
        torch.cumprod(turns, -1, dtype=torch.int8, out=part)
    return signs


def tile_size(n: int, *, sets: int, draws: int, like: Tensor) -> int:
    """The largest tile, evened out over n, whose arrays stay within WORKSPACE."""
    room = WORKSPACE.get(like.device.type, WORKSPACE["cpu"]) / like.element_size()
    quadratic, linear = sets * _TILE_ARRAYS, sets * _SIGN_ARRAYS * draws
    largest = (math.sqrt(linear**2 + 4 * quadratic * room) - linear) / (2 * quadratic)
    return math.ceil(n / math.ceil(n / max(16, int(largest))))


def check_memory(n: int, dim: int, draws: int, like: Tensor) -> None:
    """Refuse a bootstrap whose signs and factors cannot be held, before anything is allocated."""
    fixed = n * (6 * dim + 6) * like.element_size() + WORKSPACE.get(like.device.type, 0)
    free = available_memory(like.device)
    if free is not None and fixed + n * draws > free:
        fits = max(0, (free - fixed) // n)
        raise InputError(
            f"{draws} bootstrap draws over {n} points need {(fixed + n * draws) / 2**30:.3g} GiB and "
            f"{free / 2**30:.3g} GiB are free: at most {fits} draws fit"
        )


def available_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        names = getattr(os, "sysconf_names", {})
        if "SC_AVPHYS_PAGES" not in names:
            return None
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:  # a container may be allowed less than the machine has
        group = Path("/sys/fs/cgroup")
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):
        return free
    return min(free, limit - used)


@dataclass(frozen=True)
class _Factors:
    """Pairs (A, B) whose products A B' are the three arrays that two points share."""

    distance: tuple[Tensor, Tensor]  # |x_i - x_j|²
    score: tuple[Tensor, Tensor]  # s_i · s_j
    cross: tuple[Tensor, Tensor]  # (s_i - s_j) · (x_i - x_j) + d
    dim: int

    @classmethod
    def of(cls, points: ScoredPoints) -> "_Factors":
        x = points.x - points.x.mean(-2, keepdim=True)  # only differences of x matter,
        s = points.score - points.score.mean(-2, keepdim=True)  # and here only those of s
        inner = (s * x).sum(-1, keepdim=True) + points.dim / 2
        ones = torch.ones_like(inner)
        cross = torch.cat([-s, -x, inner, ones], -1), torch.cat([x, s, ones, inner], -1)
        return cls(distance_factors(x), (points.score, points.score), cross, points.dim)

    def tile(self, rows: slice, columns: slice) -> tuple[Tensor, Tensor, Tensor]:
        r, ss, cross = (
            left[..., rows, :] @ right[..., columns, :].mT
            for left, right in (self.distance, self.score, self.cross)
        )
        r.clamp_(min=0)
        if rows == columns:  # known exactly
            r.diagonal(dim1=-2, dim2=-1).zero_()
            cross.diagonal(dim1=-2, dim2=-1).fill_(self.dim)
        return r, ss, cross


def _combined(kernel: Kernel, squared_scale: Tensor, r: Tensor, ss: Tensor, cross: Tensor) -> Tensor:
    """u = φ s·s' - 2 φ' [(s - s')·(x - x') + d] - 4 φ'' r."""
    phi, first, second = kernel.profile(r, squared_scale)
    return (phi * ss).addcmul_(first, cross, value=-2).addcmul_(second, r, value=-4)


def _tiles(n: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Tiles on and above the diagonal."""
    blocks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    for i, rows in enumerate(blocks):
        for columns in blocks[i:]:
            yield rows, columns


def _computable(points: ScoredPoints) -> ScoredPoints:
    """Both arrays detached and in one dtype of at least 32 bits."""
    dtype = torch.promote_types(torch.promote_types(points.x.dtype, points.score.dtype), torch.float32)
    return points.map(lambda t: t.detach().to(dtype))
