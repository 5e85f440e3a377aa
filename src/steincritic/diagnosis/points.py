"""Points that the model does not explain, and model draws where data are missing; with error control."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.halves import Halves
from steincritic.gof.null import rank_pvalues
from steincritic.shapes import PerPoint

_DRAWS = 2000  # of the model, looked at for missing data


@dataclass(frozen=True, eq=False)
class PointFindings:
    """Every point's witness and p-value, and the list of those that are not explained.

    A large witness says that data are here and the model hardly is. The p-value of a point is its rank
    among the model's own draws [bates2023]; the list has a false discovery rate of at most `fdr`
    [benjamini1995]. Where the test does not reject the model the list is empty.
    """

    witness: PerPoint  # of the critic that has not seen the point
    pvalues: PerPoint | None  # None for a model that cannot be sampled
    flagged: Tensor  # rows, the most telling first
    fdr: float

    def __len__(self) -> int:
        return len(self.flagged)

    def worst(self, count: int) -> Tensor:
        """Rows with the largest witness, whether flagged or not."""
        return self.witness.topk(min(count, len(self.witness))).indices

    def best(self, count: int) -> Tensor:
        """Rows whose witness is nearest to its mean under the model, zero."""
        return self.witness.abs().topk(min(count, len(self.witness)), largest=False).indices


@dataclass(frozen=True, eq=False)
class MissingFindings:
    """Draws of the model where data are missing: those with the lowest witness."""

    points: ScoredPoints  # the draws looked at
    witness: PerPoint
    pvalues: PerPoint
    flagged: Tensor  # rows of `points`, the most telling first
    fdr: float

    def __len__(self) -> int:
        return len(self.flagged)


def find_points(halves: Halves, *, fdr: float, listed: bool) -> PointFindings:
    witness = halves.gathered([half.held_out.witness for half in halves])
    if halves.draws is None:
        return PointFindings(witness, None, torch.zeros(0, dtype=torch.int64), fdr)
    pvalues = halves.gathered([rank_pvalues(half.held_out.witness, half.of_draws.witness) for half in halves])
    chosen = benjamini_hochberg(pvalues, fdr) if listed else torch.zeros_like(pvalues, dtype=torch.bool)
    return PointFindings(witness, pvalues, sorted_rows(chosen, pvalues, -witness), fdr)


def find_missing(halves: Halves, *, fdr: float, listed: bool) -> MissingFindings | None:
    """Half of the draws looked at are ranked among the points of each half, by the critic that has not
    seen those."""
    if halves.draws is None:
        return None
    count = min(_DRAWS, len(halves.draws))
    turn = torch.arange(count) % 2
    witness = torch.empty(count, dtype=torch.float64)
    pvalues = torch.empty_like(witness)
    for k, half in enumerate(halves):
        half_witness = half.of_draws.witness[:count][turn == k]
        witness[turn == k] = half_witness
        pvalues[turn == k] = rank_pvalues(-half_witness, -half.held_out.witness)
    chosen = benjamini_hochberg(pvalues, fdr) if listed else torch.zeros_like(pvalues, dtype=torch.bool)
    return MissingFindings(halves.draws[:count], witness, pvalues, sorted_rows(chosen, pvalues, witness), fdr)


def benjamini_hochberg(pvalues: PerPoint, level: float) -> Tensor:
    """A mask of the rejected hypotheses; false discovery rate at most `level` [benjamini1995]."""
    ordered = pvalues.sort().values
    allowed = level * torch.arange(1, len(ordered) + 1, dtype=torch.float64) / len(ordered)
    below = (ordered <= allowed).nonzero()
    if not len(below):
        return torch.zeros_like(pvalues, dtype=torch.bool)
    return pvalues <= ordered[int(below[-1])]


def sorted_rows(chosen: Tensor, pvalues: PerPoint, then_by: PerPoint) -> Tensor:
    rows = chosen.nonzero()[:, 0]
    order = sorted(rows.tolist(), key=lambda i: (float(pvalues[i]), float(then_by[i])))
    return torch.tensor(order, dtype=torch.int64)
