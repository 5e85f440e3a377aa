"""A bench of lenses: what they see of datasets, how far from the model that is, and its rank.

Each number of each lens becomes evidence, -log p by reference sets, and evidences are combined into one value
per dataset, each as loud as it is heard. Data and null sets go through the same functions, which were fixed
on other sets, so the rank of the data's value among those of null sets is an exact p-value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from steincritic.data.frame import Frame, RowFrame, Whitening
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.gof.null import rank_pvalues
from steincritic.gof.result import Reading
from steincritic.lenses import conditional
from steincritic.lenses.lens import (
    Lens,
    Merging,
    PreparedLens,
    Scale,
    Seen,
    Tail,
    combined,
    leave_one_out,
    merging,
    prepare_lens,
)
from steincritic.models.base import Model
from steincritic.rng import derive

if TYPE_CHECKING:
    from steincritic.gof.one_pass import Passed, Total

NARROW = 3.0  # widest over narrowest direction of the model from which on whitening changes something
_PIECE = (256, 2**18)  # rows summed up at a time, at least, and their coordinates

# How loud each number is heard; 1 where not named. Numbers that others cover are heard softly: they count
# where they are extreme. Found on the fault zoo with its tuning seed, one number at a time, and rounded.
_SOFT = (
    *("shift, many", "skewness", "skewness, many", "tails", "radial tails"),
    *("shift within a mode", "spreads within modes", "bends, many", "extremes, many"),
    *("cell of 8", "kernel at 1", "kernel at 0.5"),
)
_LOUD = (
    *("shift", "shift, all alike", "scale", "tails, many", "tails, all alike"),
    *("pair within a mode", "extreme together"),
)
_LOUDNESS = {
    **dict.fromkeys(_SOFT, 0.05),
    **dict.fromkeys(("spread within a mode", "cell of 2"), 0.3),
    **dict.fromkeys(_LOUD, 2.0),
    **dict.fromkeys(("spread", "wide direction"), 4.0),
    **{"kernel at 0.25": 8.0, "early": 3.0, "late": 5.0},
    **dict.fromkeys(("weight of a mode", "weights of modes"), 30.0),  # far modes: nothing else sees these
}
_WHITENED = 0.3  # times as loud
_DENSE = {"second, many": 32.0, "kernel at 0.5": 16.0}  # instead, where columns go together in the model


@dataclass(frozen=True, eq=False)
class Setting:
    """The coordinates in which lenses look: of one scale, or uncorrelated as well."""

    frame: Frame | RowFrame
    whitening: Whitening | None  # None where it would change next to nothing

    @classmethod
    def of(cls, draws: ScoredPoints) -> "Setting":
        frame = Frame.of(draws.x)
        whitening = Whitening.of(frame.enter(draws).x)
        return cls(frame, whitening if whitening.condition >= NARROW else None)

    def enter(self, points: ScoredPoints, lens: Lens) -> ScoredPoints:
        if getattr(lens, "own_units", False):
            return points
        standard = self.standard(points)
        if lens.whitened and self.whitening is not None:
            standard = self.whitening.enter(standard)
        return standard.to(torch.float32)

    def standard(self, points: ScoredPoints) -> ScoredPoints:
        """Of one scale."""
        return self.frame.enter(points)

    def settled(self, entries: Tensor, prepared: PreparedLens) -> Tensor:
        """Entries of a lens, as they count."""
        return entries


@dataclass(frozen=True, eq=False)
class Bench:
    """Lenses side by side, ready to look."""

    setting: Setting
    lenses: tuple[Lens, ...]
    prepared: tuple[PreparedLens, ...]

    @classmethod
    def of(
        cls,
        lenses: Sequence[Lens],
        draws: ScoredPoints,
        setting: Setting,
        *,
        n: int,
        seed: int,
        model: Model | None = None,
    ) -> "Bench":
        """Lenses for datasets of n points; those in whitened coordinates only where these are different."""
        used = tuple(lens for lens in lenses if setting.whitening is not None or not lens.whitened)
        prepared = (
            prepare_lens(lens, model, setting.enter(draws, lens), n=n, seed=derive(seed, "lens", k))
            for k, lens in enumerate(used)
        )
        return cls(setting, used, tuple(prepared))

    def entries(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        """(r, k): what all lenses measure of (r, n, d) datasets."""
        parts = []
        for lens, prepared in zip(self.lenses, self.prepared, strict=True):
            entries = prepared.entries(self.setting.enter(datasets, lens), seeds)
            entries = checked_entries(entries, lens, (len(datasets.x), prepared.size)).to(torch.float64)
            parts.append(self.setting.settled(entries, prepared))
        return torch.cat(parts, -1)

    def sums(self, datasets: ScoredPoints, seeds: Sequence[int] = ()) -> Tensor:
        """(r, p) in double precision: sums over points that all lenses need of (r, n, d) datasets.

        Some rows at a time, whose products stay in a processor's cache.
        """
        total = None
        for start in range(0, len(datasets), rows := piece_rows(datasets.dim)):
            piece = datasets[start : start + rows]
            pairs = zip(self.lenses, self.merging, strict=True)
            parts = [merged.sums(self.setting.enter(piece, lens)) for lens, merged in pairs]
            sums = torch.cat([part.to(torch.float64) for part in parts], -1)
            total = sums if total is None else total + sums
        assert total is not None
        return total

    def of_sums(self, sums: Tensor, n: int) -> Tensor:
        """(r, k): entries of datasets of n points with these (r, p) sums."""
        parts = sums.split([merged.width for merged in self.merging], -1)
        lenses = zip(self.lenses, self.prepared, self.merging, parts, strict=True)
        entries = [
            checked_entries(merged.of_sums(part, n), lens, (len(sums), prepared.size))
            for lens, prepared, merged, part in lenses
        ]
        return torch.cat(entries, -1)

    @cached_property
    def merging(self) -> list[Merging]:
        """The lenses by way of sums over points."""
        mergings = []
        for lens, prepared in zip(self.lenses, self.prepared, strict=True):
            if (merged := merging(prepared)) is None:
                raise InputError(
                    f"lens {lens.name!r} needs all rows of a dataset at once: leave it out or take fewer rows"
                )
            mergings.append(merged)
        return mergings

    def parts(self, seen: Seen) -> list[Seen]:
        """By lens."""
        sizes = [prepared.size for prepared in self.prepared]
        return [
            Seen(*pair) for pair in zip(seen.plain.split(sizes, -1), seen.fair.split(sizes, -1), strict=True)
        ]


def piece_rows(dim: int) -> int:
    """Rows that are summed up in single precision; what is larger is added in double precision."""
    return max(_PIECE[0], _PIECE[1] // dim)


def checked_entries(entries: object, lens: Lens, shape: tuple[int, int]) -> Tensor:
    """What a lens answered; if it is nonsense, the lens is named."""
    if not isinstance(entries, Tensor) or tuple(entries.shape) != shape:
        got = tuple(entries.shape) if isinstance(entries, Tensor) else type(entries).__name__
        raise InputError(f"lens {lens.name!r} must return {shape} entries for {shape[0]} datasets, got {got}")
    if not bool(entries.isfinite().all()):
        raise InputError(
            f"lens {lens.name!r} returned a number that is not finite: look for extreme values of the data, "
            "of the score there, and of the model's own draws"
        )
    return entries


@dataclass(frozen=True)
class Column:
    """Whose evidence stands in a column."""

    lens: str
    number: str
    whitened: bool


@dataclass(frozen=True, eq=False)
class CalibratedBench:
    """A bench that has seen reference sets: from entries to evidence."""

    bench: Bench
    scale: Scale
    tails: tuple[dict[str, Tail], ...]  # per lens, by number

    @classmethod
    def by(cls, bench: Bench, reference: Tensor) -> "CalibratedBench":
        """From the (r, k) entries of reference sets."""
        seen = leave_one_out(reference)
        tails = tuple(
            {name: Tail.of(values) for name, values in prepared.numbers(part).items()}
            for prepared, part in zip(bench.prepared, bench.parts(seen), strict=True)
        )
        return cls(bench, Scale.of(reference), tails)

    def seen(self, entries: Tensor) -> list[Seen]:
        """Standardized entries by lens."""
        return self.bench.parts(self.scale.see(entries))

    def evidence(self, entries: Tensor) -> Tensor:
        """(r, m) of (r, k): a column per number."""
        columns = [
            tails[name].evidence(values)
            for prepared, tails, seen in zip(self.bench.prepared, self.tails, self.seen(entries), strict=True)
            for name, values in prepared.numbers(seen).items()
        ]
        return torch.stack([entries.new_zeros(len(entries)), *columns], -1)[:, 1:]  # a lens may have none

    def look(self, datasets: ScoredPoints, seeds: Sequence[int]) -> Tensor:
        """(r, m): the evidence of datasets."""
        return self.evidence(self.bench.entries(datasets, seeds))

    @property
    def columns(self) -> tuple[Column, ...]:
        pairs = zip(self.bench.lenses, self.tails, strict=True)
        return tuple(
            Column(label_of(lens), number, lens.whitened) for lens, tails in pairs for number in tails
        )


def among_themselves(bench: Bench, entries: Tensor) -> tuple[tuple[Column, ...], Tensor]:
    """(r, m) evidence of (r, k) entries, each dataset by what the others are: no reference sets are needed.

    All datasets are treated alike, so that ranks among them are exact.
    """
    columns, evidence = [], []
    parts = bench.parts(leave_one_out(entries))
    for lens, prepared, seen in zip(bench.lenses, bench.prepared, parts, strict=True):
        for number, values in prepared.numbers(seen).items():
            columns.append(Column(label_of(lens), number, lens.whitened))
            evidence.append(Tail.of_others(values).evidence(values))
    return tuple(columns), torch.stack(evidence, -1)


def loudness(columns: Sequence[Column]) -> Tensor:
    """(m,) weights that sum to 1."""
    coupled = any(column.whitened for column in columns)
    loud = []
    for column in columns:
        if column.lens.startswith("residual"):
            loud.append(conditional.LOUDNESS.get(column.number, conditional.SOFTLY))
            continue
        usual = _LOUDNESS.get(column.number, 1.0)
        dense = _DENSE.get(column.number, usual) if coupled else usual
        loud.append(_WHITENED * usual if column.whitened else dense)
    return torch.tensor(loud, dtype=torch.float64) / max(sum(loud), 1e-300)


@dataclass(frozen=True, eq=False)
class Ranked:
    """A dataset's evidence beside that of null sets."""

    row: Tensor  # (m,)
    null: Tensor  # (b, m)
    columns: tuple[Column, ...]
    weights: Tensor  # (m,) how loud each column is heard

    @cached_property
    def value(self) -> Tensor:
        return combined(self.row, self.weights)

    @cached_property
    def null_values(self) -> Tensor:
        return combined(self.null, self.weights)

    @property
    def pvalue(self) -> float:
        return float(rank_pvalues(self.value[None], self.null_values))

    def readings(self) -> tuple[Reading, ...]:
        """Of each lens alone, the loudest first."""
        readings = []
        for lens in dict.fromkeys(column.lens for column in self.columns):
            places = [k for k, column in enumerate(self.columns) if column.lens == lens]
            value, null = (combined(t[..., places], self.weights[places]) for t in (self.row, self.null))
            loudest = self.columns[places[int(self.row[places].argmax())]].number
            readings.append((float(value), Reading(lens, loudest, float(rank_pvalues(value[None], null)))))
        return tuple(reading for _, reading in sorted(readings, key=lambda pair: -pair[0]))


@dataclass(frozen=True, eq=False)
class Examined:
    """What quick lenses saw of one dataset, and what they saw of null sets: what sentences are made of."""

    bench: CalibratedBench
    entries: Tensor  # (k,) of the dataset
    null: Tensor  # (b, m) evidence of null sets
    draws: ScoredPoints | None  # of the model, in the coordinates of the data, where it has any
    plain: Tensor | None = None  # (3, k): entries, under the model, their errors, where `entries` are scaled
    passed: "Passed | None" = None  # what is known of all rows, where they went by in one pass
    totals: "tuple[Total, Total] | None" = None  # of these rows, and of those of all null sets


def label_of(lens: Lens) -> str:
    return f"{lens.name}, whitened" if lens.whitened else lens.name
