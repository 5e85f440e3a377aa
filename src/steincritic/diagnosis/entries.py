"""Which entries of quick lenses stand out, by the null sets of the test.

The evidence of an entry is what its number would say if the entry were the largest. It is ranked among the
largest evidences of null sets over all numbers that sentences come from (single-step max-T), so that under
the model the chance that any entry stands out is at most the level.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.gof.bench import Examined, label_of
from steincritic.gof.null import rank_pvalues
from steincritic.lenses.cells import Partition, PreparedCells
from steincritic.lenses.lens import PreparedLens, Seen, TellingLens, normal_evidence
from steincritic.lenses.modes import PreparedModes
from steincritic.lenses.noise import PreparedNoise

_LOOKED_AT = 60  # entries, the loudest, that are kept
_MODES = 0.8  # of the variance across, from which on halves are modes; 0.64 for a normal law


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry that stands out."""

    lens: str
    prepared: PreparedLens
    seen: Seen  # (k,) all that the lens saw
    number: str
    index: int  # among the entries of the number
    columns: tuple[int, ...]
    many: int  # entries of the number
    loudness: float
    pvalue: float
    raw: float  # the entry itself
    mean: float  # what it is under the model
    sd: float

    @property
    def kind(self) -> str:
        kinds = {PreparedCells: "cell", PreparedNoise: "mode"}
        return next((kind for lens, kind in kinds.items() if isinstance(self.prepared, lens)), self.number)

    @property
    def errors(self) -> float:
        """Standard errors of an estimate that count as a difference, given that it is one of many."""
        return NormalDist().inv_cdf(1 - 0.025 / self.many)


def standing_out(examined: Examined, level: float) -> list[Entry]:
    bench, scale = examined.bench, examined.bench.scale
    entries = examined.entries.cpu()
    rows = torch.stack([entries, scale.mean.cpu(), scale.sd.cpu()])  # themselves, and under the model
    if examined.plain is not None:
        rows = examined.plain.cpu()
    seen, plain = bench.seen(entries), bench.bench.parts(Seen(rows, rows))
    place = {(column.lens, column.number): k for k, column in enumerate(bench.columns)}
    telling = [
        (j, label_of(lens), prepared)
        for j, (lens, prepared) in enumerate(zip(bench.bench.lenses, bench.bench.prepared, strict=True))
        if isinstance(prepared, TellingLens) and not lens.whitened and _has_modes(prepared, examined)
    ]
    by_lens = {(j, label): prepared.by_entry(seen[j]) for j, label, prepared in telling}
    used = [place[label, number] for (_, label), numbers in by_lens.items() for number in numbers]
    if not used:
        return []
    largest = examined.null[:, used].amax(-1).to(torch.float64)  # of each null set
    notable = []
    for j, label, prepared in telling:
        values = [prepared.by_entry(Seen(row, row)) for row in plain[j].plain]
        for number, group in by_lens[j, label].items():
            evidence = bench.tails[j][number].evidence(group.size(group.values)).cpu()
            pvalues = rank_pvalues(evidence, largest)
            alone = normal_evidence(group.values) - math.log(len(group.values))
            loudness = evidence if len(group.values) == 1 else alone
            notable += [
                Entry(
                    label,
                    prepared,
                    seen[j],
                    number,
                    k,
                    group.columns[k],
                    len(group.values),
                    float(loudness[k]),
                    float(pvalues[k]),
                    *(float(part[number].values[k]) for part in values),
                )
                for k in (pvalues <= level).nonzero()[:, 0].tolist()
            ]
    return sorted(notable, key=lambda entry: -entry.loudness)[:_LOOKED_AT]


def _has_modes(prepared: PreparedLens, examined: Examined) -> bool:
    """Not so for the lens of modes where the model has one mode: it sees what moments see."""
    draws: ScoredPoints | None = examined.draws
    if not isinstance(prepared, PreparedModes):
        return True
    if draws is None:
        return False
    x = standard(draws.x.cpu().double(), examined)
    along, first = x @ prepared.v.to(x), prepared.in_half(x, 0)
    within = torch.where(first, along - along[first].mean(), along - along[~first].mean())
    return float(within.var() / along.var()) < 1 - _MODES


def standard(x: Tensor, examined: Examined) -> Tensor:
    frame = examined.bench.bench.setting.frame
    return (x - frame.location.cpu()) / frame.scale.cpu()


def part_of(entry: Entry) -> Partition:
    """The partition that a cell is of."""
    assert isinstance(entry.prepared, PreparedCells)
    return next(part for part in entry.prepared.parts if part.number == entry.number)
