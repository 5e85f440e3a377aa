"""A lens on data without draws of the model: each half in the coordinates of the other, under random signs.

See `gof.multiplier` for why.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.data.frame import Frame, Whitening
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.gof.bench import NARROW, Setting, checked_entries
from steincritic.gof.serial import WHITENED, Blocks, summed
from steincritic.lenses.lens import (
    Field,
    Lens,
    PreparedLens,
    Scale,
    Seen,
    SignedLens,
    by_signs,
    is_mean,
    point_values,
    prepare_lens,
)
from steincritic.lenses.modes import PreparedModes
from steincritic.models.base import Model

_UNSEEN = 15.0  # the skewness of n points is too small by so many nths; by hand on seed 1, gamma 5-D, n = 50
_HELD = 2**22  # values of single points, or entries under signs, at a time


@dataclass(frozen=True, eq=False)
class Halves:
    """Points in two halves, and the coordinates that each of them, and all of them, suggest."""

    points: ScoredPoints  # (n, d), the first half first
    whole: Setting
    of_halves: tuple[Setting, Setting]

    @classmethod
    def of(cls, points: ScoredPoints) -> "Halves":
        n = len(points)
        frame, whitening = _frame_and_whitening(points)
        different = n >= WHITENED * points.dim and whitening.condition >= NARROW
        whole = Setting(frame, whitening if different else None)
        first, second = (
            Setting(*_frame_and_whitening(part)) for part in (points[: n // 2], points[n // 2 :])
        )
        return cls(points, whole, (first, second))

    @property
    def parts(self) -> tuple[ScoredPoints, ScoredPoints]:
        half = len(self.points) // 2
        return self.points[:half], self.points[half:]

    def enter(self, lens: Lens) -> tuple[ScoredPoints, ScoredPoints]:
        """Each half in the coordinates of the other."""
        (first, second), (a, b) = self.parts, self.of_halves
        return b.enter(first, lens), a.enter(second, lens)


def _frame_and_whitening(points: ScoredPoints) -> tuple[Frame, Whitening]:
    frame = Frame.of(points.x)
    return frame, Whitening.by_scores(frame.enter(points))


@dataclass(frozen=True, eq=False)
class View:
    """A lens that looks at both halves, in coordinates and by choices of the other half."""

    lens: Lens
    halves: tuple[ScoredPoints, ScoredPoints]  # in the coordinates of the other
    by_half: tuple[PreparedLens, PreparedLens]
    prepared: PreparedLens  # on all points

    @classmethod
    def of(cls, lens: Lens, halves: Halves, *, seed: int, model: Model | None = None) -> "View | None":
        """None if the lens needs draws of the model."""
        n, (first, second) = len(halves.points), halves.parts
        if isinstance(lens, Field) and lens.needs_draws(halves.points.x):
            raise InputError(
                f"lens {lens.name!r} compares a value per point with draws of the model, which has no "
                "sampler: return a field (m, d) instead, whose Stein values have mean zero"
            )
        whole = halves.whole.enter(halves.points, lens)
        prepared = prepare_lens(lens, model, whole, n=n, seed=seed, drawn=False)
        if not by_signs(prepared):
            return None
        by_half: tuple[PreparedLens, PreparedLens] = (prepared, prepared)
        if is_mean(prepared) and not getattr(prepared, "by_model", False):
            a, b = halves.of_halves
            by_half = (
                _aligned(lens.prepare(b.enter(second, lens), n=n, seed=seed), prepared),
                _aligned(lens.prepare(a.enter(first, lens), n=n, seed=seed), prepared),
            )
        return cls(lens, halves.enter(lens), by_half, prepared)

    def under(self, signs: Tensor, reference: int, blocks: Blocks | None = None) -> "Measured":
        """The data, and the data under (b, m) signs of blocks; of single rows by default."""
        blocks = blocks or Blocks.single(signs.shape[1])
        signs = torch.cat([torch.ones_like(signs[:1]), signs])
        if is_mean(self.prepared):
            return self._means(signs, blocks)
        assert isinstance(self.prepared, SignedLens)
        entries = self.prepared.signed(ScoredPoints.cat(self.halves), blocks.spread(signs))
        entries = checked_entries(entries, self.lens, (len(signs), self.prepared.size)).to(torch.float64)
        entries[0] *= blocks.shrink**2
        scale = Scale.of(entries[1 : 1 + reference])
        plain = torch.stack([entries[0], scale.sd])
        return Measured(scale, entries[0], dict(self.prepared.numbers(scale.see(entries))), plain)

    def _means(self, signs: Tensor, blocks: Blocks) -> "Measured":
        n = sum(map(len, self.halves))
        few = n * self.prepared.size <= _HELD
        all_sums = list(self._sums(blocks)) if few else None

        def parts_of() -> Iterable[tuple[slice, Tensor]]:
            return self._sums(blocks) if all_sums is None else all_sums

        length = torch.stack([sums.square().sum(0) for _, sums in parts_of()]).sum(0).sqrt()
        length = torch.where(length > 0, length, torch.inf)
        parts: list[Mapping[str, Tensor]] = []
        for some in signs.split(max(1, _HELD // len(length))):
            z = _corrected(some, length, parts_of())
            if not parts:
                z[0] *= blocks.shrink
                entries = z[0]
            parts.append(self.prepared.numbers(Seen(z, z)))
        numbers = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        zero = torch.zeros_like(length)
        mean = torch.stack([sums.sum(0) for _, sums in parts_of()]).sum(0) / n
        error = torch.where(length < torch.inf, length, 0.0) / (n * blocks.shrink)
        return Measured(Scale(zero, zero + 1, zero), entries, numbers, torch.stack([mean, error]))

    def _sums(self, blocks: Blocks) -> Iterator[tuple[slice, Tensor]]:
        """Blocks and their (blocks, k) sums of Stein values, some at a time as all may not fit."""
        rows, ends = max(1, _HELD // max(1, self.prepared.size)), blocks.lengths.cumsum(0)
        block = start = 0
        for half, prepared in zip(self.halves, self.by_half, strict=True):
            lengths, row = blocks.lengths[(ends > start) & (ends <= start + len(half))], 0
            for some in lengths.split(max(1, rows // int(lengths.max()))):
                end = row + int(some.sum())
                values = point_values(prepared, half[row:end])
                values = checked_entries(values, self.lens, (end - row, prepared.size)).to(torch.float64)
                yield slice(block, block + len(some)), summed(values, some)
                row, block = end, block + len(some)
            start += len(half)


@dataclass(frozen=True, eq=False)
class Measured:
    """What a lens measured of the data, and of the data under signs."""

    scale: Scale
    entries: Tensor  # (k,) of the data
    numbers: dict[str, Tensor]  # (1 + b,) each: of the data, then under signs
    plain: Tensor  # (2, k): entries of the data that are not studentized, and their standard errors


def _corrected(signs: Tensor, length: Tensor, parts: Iterable[tuple[slice, Tensor]]) -> Tensor:
    """(b, k): z under (b, m) signs, its skewness taken out."""
    z = third = torch.zeros(len(signs), len(length), device=length.device)
    unseen = 1 + _UNSEEN / signs.shape[1]
    for some, sums in parts:
        unit, block_signs = (sums / length).float(), signs[:, some].float()
        z, third = z + block_signs @ unit, third + block_signs @ unit.pow(3)
    return hall(z.to(torch.float64), unseen * third.to(torch.float64))


def hall(z: Tensor, third: Tensor) -> Tensor:
    r"""A studentized mean with its skewness taken out, $((1 + g z / 3)^3 - 1) / g + g / 6$, monotone in z.

    Args:
        z: sum of unit values u, whose squares sum to 1.
        third: g, the sum of u^3: the skewness over the root of n.

    References: [hall1992].
    """
    return z + third * z.square() / 3 + third.square() * z.pow(3) / 27 + third / 6


def _aligned(prepared: PreparedLens, like: PreparedLens) -> PreparedLens:
    """The two gates of modes in one order for both halves."""
    if isinstance(prepared, PreparedModes) and isinstance(like, PreparedModes):
        return prepared.turned() if float(prepared.v @ like.v) < 0 else prepared
    return prepared
