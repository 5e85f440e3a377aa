r"""Noise: wrong weights of separated modes, seen where added noise makes the modes meet.

Between far modes no score tells anything, so no Stein value of the data depends on how much each of them
holds. Points with normal noise of a third to two thirds of the distance between modes do tell, by the score
$s_\sigma$ of the model with that noise. With $r_k(y)$ the share of mode k at y, centers $m_k$ and a variance
c within a mode, noise included,

$$r_k \propto w_k e^{-|y - m_k|^2 / 2c}, \qquad \nabla r_k = r_k (m_k - \bar m) / c, \quad
  \bar m = \sum_j r_j m_j,$$

is the direction in which the noised score changes with the weight of mode k, up to a factor, and

$$r_k \Big( s_\sigma \cdot \frac{m_k - \bar m}{c} + \frac{|m_k - \bar m|^2 - v}{c^2} \Big), \quad
  v = \sum_j r_j |m_j - \bar m|^2,$$

its Stein value: positive in the mean if mode k holds too little beside its neighbors. Weights of many modes
are judged together by uncorrelated combinations of these. The noise of a point is
a function of the point, so datasets are treated alike, whatever they are and however they are cut.

The noised score is the model's own where it knows it (`with_noise`), and else a kernel estimate from draws.
An estimate will do where null sets stand beside the data, and not under random signs. Modes and levels come
from draws of the model, or from points that follow its noised scores: see `models.ladder`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, sample_points, score_points
from steincritic.errors import InputError, check_count
from steincritic.lenses.cells import Partition, modes_in
from steincritic.lenses.lens import Entries, Seen, normal_evidence
from steincritic.models.base import Model, NoisedModel, SamplingModel, knows_noise, noise_levels
from steincritic.models.ladder import KernelNoise, ladder_draws, nearest_level, noise_for
from steincritic.rng import derive, generator, hashed_uniforms

PILOT = 1000  # draws that choose modes, where a model has no sampler
_KERNELS = 500  # draws of a kernel estimate
_LOWEST, _HIGHEST = 0.3, 0.5  # noise, in distances between neighboring modes: the nearest, the furthest
_STEP = 2.0  # between levels, at most
_CONTRASTED = 400  # draws by which weights of modes are made uncorrelated
_FLAT = 1e-3  # variance of a combination that is left out, in those of the largest
_TOGETHER = {"cpu": 2**16, "cuda": 2**22}  # noised points at a time


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Weights of separated modes, at several levels of added noise; nothing for a model with one mode.

    Args:
        levels: standard deviations of the noise, in those of the model within a mode (one over that of the
            score); by default from 0.3 of the distance between the nearest modes to 0.5 of that across the
            widest gap.
        copies: of each point, with other noise, whose values are averaged.
        by_draws: estimate the noised score from draws even if the model knows it.
    """

    name: ClassVar[str] = "noise"
    levels: tuple[float, ...] | None = None
    copies: int = 8
    by_draws: bool = False
    whitened: ClassVar[bool] = False
    own_units: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(self.copies, name="copies")
        if self.levels is not None and not (self.levels and min(self.levels) > 0):
            raise InputError(f"levels must be positive standard deviations of noise, got {self.levels}")

    def prepare(self, draws: ScoredPoints, *, n: int, seed: int) -> "PreparedNoise":
        return self.prepare_for(None, draws, n=n, seed=seed)

    def prepare_for(
        self, model: Model | None, points: ScoredPoints, *, n: int, seed: int, drawn: bool = True
    ) -> "PreparedNoise":
        """With the model at hand.

        Args:
            drawn: whether the points are draws of the model; else only the model's own noised score will do.
        """
        known = model if knows_noise(model) and not self.by_draws else None
        kind = PreparedNoise if known is None else SignedNoise
        if known is None and not drawn:
            return kind.nothing(points.dim, "it needs draws of the model, or its noised score")
        draws = points
        if not drawn:  # draws that no dataset is made of; nearly draws where only noised scores are known
            pilot = derive(seed, "pilot")
            if isinstance(model, SamplingModel):
                draws = sample_points(model, PILOT, seed=pilot, like=points.x)
            else:
                assert isinstance(model, NoisedModel)
                draws = score_points(model, ladder_draws(model, points.x, PILOT, seed=pilot))
        native = noise_levels(known)
        frame = Frame.by_scores(draws)
        if native is not None:  # one standard deviation for all coordinates
            frame = Frame(frame.location, frame.scale.square().mean().sqrt().expand_as(frame.scale))
        x = draws.x.to(torch.float64)
        modes = FarModes.of((x - frame.location) / frame.scale, seed=derive(seed, "modes"))
        if modes is None:
            return kind.nothing(points.dim, "the model has one mode")
        levels = self.levels or modes.levels()
        if native is not None:
            unit = float(frame.scale[0])
            levels = tuple(dict.fromkeys(nearest_level(native, level * unit) / unit for level in levels))
        noised = tuple(
            known.with_noise(noise_for(known, level * frame.scale))
            if isinstance(known, NoisedModel)
            else KernelNoise(x[:_KERNELS], level * frame.scale)
            for level in levels
        )
        plain = kind(frame, modes, levels, noised, self.copies, derive(seed, "noise"))
        source = generator(seed, "contrasts")
        return replace(plain, contrasts=tuple(_contrasts(v, source) for v in plain.by_mode(x[:_CONTRASTED])))


def _contrasts(values: Tensor, source: torch.Generator) -> Tensor:
    """(k, c) combinations of (m, k) Stein values by mode: uncorrelated, and each of all modes, as values of
    one mode among many are skewed. None for two modes, which say the same."""
    k = values.shape[-1]
    if k < 3:
        return values.new_zeros(k, 0)
    variances, axes = torch.linalg.eigh(values.T.cov())
    mask = variances > _FLAT * variances[-1]
    turn = torch.linalg.qr(torch.randn(int(mask.sum()), int(mask.sum()), generator=source)).Q
    contrasts: Tensor = axes[:, mask] / variances[mask].sqrt() @ turn.to(values)
    return contrasts


@dataclass(frozen=True, eq=False)
class FarModes:
    """Separated modes of the model, in coordinates with about one standard deviation within each."""

    part: Partition
    within: float  # variance of a coordinate in a mode

    @classmethod
    def of(cls, x: Tensor, *, seed: int) -> "FarModes | None":
        """From draws; None if there are not at least two."""
        part = modes_in(x, x, seed=seed)
        if len(part.shares) < 2:
            return None
        within = (x - part.places[part.of_points(x)]).square().mean()
        return cls(part, float(within))

    @property
    def centers(self) -> Tensor:
        return self.part.places

    def levels(self) -> tuple[float, ...]:
        """In even steps from the smallest gap between modes to the widest that must be crossed."""
        gaps = _spanning(self.centers)
        low, high = _LOWEST * min(gaps), _HIGHEST * max(gaps)
        steps = max(1, math.ceil(math.log(high / low) / math.log(_STEP) - 1e-9))
        return tuple(low * (high / low) ** (k / steps) for k in range(steps + 1))

    def stein_values(self, points: ScoredPoints, variance: float) -> Tensor:
        """(m, k) of (m, d) points, by mode; the variance is that of the noise."""
        y, score = points.x, points.score
        m, c = self.centers.to(y), self.within + variance
        square = m.square().sum(-1)
        r = (self.part.shares.to(y).log() + (y @ m.T - square / 2) / c).softmax(-1)
        middle = r @ m
        away = square - 2 * middle @ m.T + middle.square().sum(-1, keepdim=True)
        pull = score @ m.T - (score * middle).sum(-1, keepdim=True)
        return r * (pull / c + (away - (r * away).sum(-1, keepdim=True)) / c**2)


def _spanning(centers: Tensor) -> list[float]:
    """Lengths of the edges of the shortest tree between centers."""
    distance = torch.cdist(centers, centers)
    reach, edges = distance[0].clone(), []
    outside = torch.ones(len(centers), dtype=torch.bool, device=centers.device)
    outside[0] = False
    for _ in range(len(centers) - 1):
        nearest = int(reach.masked_fill(~outside, torch.inf).argmin())
        edges.append(float(reach[nearest]))
        outside[nearest] = False
        reach = torch.minimum(reach, distance[nearest])
    return edges


@dataclass(frozen=True, eq=False)
class PreparedNoise:
    frame: Frame  # of the model
    modes: FarModes | None
    levels: tuple[float, ...]  # standard deviations of the noise in that frame
    noised: tuple[Model, ...]  # by level
    copies: int
    seed: int
    contrasts: tuple[Tensor, ...] = ()  # (k, c) by level
    left_out: str | None = None

    @classmethod
    def nothing(cls, dim: int, why: str) -> "PreparedNoise":
        return cls(Frame.identity(dim), None, (), (), 1, 0, left_out=f"Lens noise left out: {why}.")

    @property
    def size(self) -> int:
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        """By level, modes and contrasts."""
        return [size for contrasts in self.contrasts for size in contrasts.shape]

    @property
    def count(self) -> int:
        """Modes."""
        return 0 if self.modes is None else len(self.modes.centers)

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        x = datasets.x.flatten(0, -2)
        rows = max(1, _TOGETHER.get(x.device.type, _TOGETHER["cpu"]) // self.copies)
        values = torch.cat([self._values(part) for part in x.split(rows)])
        return values.view(*datasets.x.shape[:-1], self.size).mean(-2)

    def _values(self, x: Tensor) -> Tensor:
        """(m, k) of (m, d) points: by level, those of modes and of contrasts."""
        pairs = zip(self.by_mode(x), self.contrasts, strict=True)
        parts = [part for values, mix in pairs for part in (values, values @ mix.to(values))]
        return torch.cat([x.new_zeros(len(x), 0), *parts], -1)

    def by_mode(self, x: Tensor) -> list[Tensor]:
        """By level, (m, k) of (m, d) points: Stein values of each mode, in the mean over copies."""
        if self.modes is None:
            return []
        z, by_level = noise_of(x, self.copies, seed=self.seed), []
        for level, model in zip(self.levels, self.noised, strict=True):
            y = (x[:, None] + (level * self.frame.scale).to(x) * z).flatten(0, 1)
            points = self.frame.enter(score_points(model, y, name="points with noise"))
            values = self.modes.stein_values(points, level**2)
            by_level.append(values.view(len(x), self.copies, -1).mean(1))
        return by_level

    def numbers(self, seen: Seen) -> Mapping[str, Tensor]:
        out: dict[str, Tensor] = {}
        for label, modes, contrasts in self._by_level(seen.fair):
            out[f"weight at noise {label}"] = normal_evidence(modes.abs().amax(-1))
            if contrasts.shape[-1]:
                out[f"weights at noise {label}"] = contrasts.square().sum(-1)
        return out

    def by_entry(self, seen: Seen) -> dict[str, Entries]:
        return {
            f"weight at noise {label}": Entries(modes, self.count * ((),), normal_evidence)
            for label, modes, _ in self._by_level(seen.fair)
        }

    def _by_level(self, values: Tensor) -> list[tuple[str, Tensor, Tensor]]:
        if not self.levels:
            return []
        parts, labels = values.split(self._sizes, -1), [f"{level:.2g}" for level in self.levels]
        return list(zip(labels, parts[::2], parts[1::2], strict=True))


@dataclass(frozen=True, eq=False)
class SignedNoise(PreparedNoise):
    """By the model's own noised score: Stein values of mean zero, so random signs will do for null sets."""

    means: ClassVar[bool] = True
    centered: ClassVar[bool] = True
    by_model: ClassVar[bool] = True  # nothing was chosen by the points


def noise_of(x: Tensor, copies: int, *, seed: int) -> Tensor:
    """(n, copies, d) standard normals, a function of each of (n, d) points and the seed alone.

    Sobol points moved by a hash of the point, so that each copy is normal and the copies lie evenly.
    """
    even = SobolEngine(x.shape[-1]).draw(copies, dtype=torch.float64).to(x.device)  # up to 21,201 columns
    moved = (even + hashed_uniforms(x, seed=seed)[:, None]) % 1.0
    z: Tensor = torch.special.ndtri(moved.clamp(1e-12, 1 - 1e-12))
    return z.to(x)
