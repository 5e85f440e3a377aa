"""Where a conditional model q(y | x) fails: critics of both halves in residuals, draws of y at the same x."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steincritic.data.frame import RowFrame
from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.findings import Finding
from steincritic.diagnosis.halves import Half, Halves, split_in_halves
from steincritic.diagnosis.points import PointFindings, benjamini_hochberg, sorted_rows
from steincritic.diagnosis.residuals import ResidualData, find_conditional
from steincritic.gof.conditional import draws_at_rows
from steincritic.gof.result import GofResult
from steincritic.models.conditional import AtRows
from steincritic.rng import derive
from steincritic.shapes import Points

_FIRST, _TIMES = 199, 4  # draws of y at each row, and how many times as many rows left open get next
_ENOUGH = 20  # draws per row of the data, that a short list of many rows needs
_CLEAR = 6.0  # draws, of those made so far, above a row that is settled
_MOST = 2**20  # draws at a time
_TOGETHER = 2**22  # numbers of draws at a time


class Residuals:
    """A conditional model in its own location and spread at each row; points are row after row.

    A model of (standardized x, residual of y): what the critics of both halves see.
    """

    def __init__(self, model: AtRows, frame: RowFrame) -> None:
        self.model, self.frame, self.dim = model, frame, model.dim

    def score(self, x: Points) -> Points:
        location, scale = self._at(x)
        return self.model.score(x * scale + location) * scale

    def sample(self, n: int, *, seed: int = 0) -> Points:
        x = self.model.sample(n, seed=seed)
        location, scale = self._at(x)
        return (x - location) / scale

    def _at(self, x: Points) -> tuple[Tensor, Tensor]:
        rows = torch.arange(len(x)) % len(self.model)
        return self.frame.location.cpu()[rows].to(x), self.frame.scale.cpu()[rows].to(x)


@dataclass(frozen=True, eq=False)
class Rows:
    """A dataset in residuals, with the critics of both halves."""

    model: AtRows
    points: ScoredPoints
    draws: ScoredPoints  # (k n, d) of the model at the rows, in the units of the data
    residuals: Residuals
    halves: Halves  # in residuals, their draws in the units of the data

    @classmethod
    def of(cls, model: AtRows, points: ScoredPoints, *, seed: int) -> "Rows":
        draws = draws_at_rows(model, seed=derive(seed, "rows"), like=points.x)
        frame = RowFrame.of(draws.cut(len(model)).x, model.covariates)
        residuals = Residuals(model, frame)
        halves = split_in_halves(residuals, frame.enter(points), seed=seed, fixed=model.covariates)
        return cls(model, points, draws, residuals, replace(halves, draws=draws))

    def findings(self, test: GofResult, names: Sequence[str], level: float) -> tuple[Finding, ...]:
        if test.examined is None:
            return ()
        draws = self.draws.cut(len(self.model)).x
        data = ResidualData.of(self.points, draws, self.model.covariates, names)
        return find_conditional(test.examined, data, test.readings, level=level)

    def find_points(self, *, fdr: float, listed: bool, seed: int) -> PointFindings:
        """Rows whose y is not explained, by draws at the same x: the rank of their witness, or of their
        distance from the model's mean in its spread, whichever is smaller, times two.

        Rows that are extreme among their draws get more of them, again and again. A row that is settled by
        few draws keeps its p-value: at each stage those at or above a bound that only falls.
        """
        witness = self.halves.gathered([half.held_out.witness for half in self.halves])
        pvalues = self.halves.gathered(
            [self._ranked(half, derive(seed, "points", k)) for k, half in enumerate(self.halves)]
        )
        chosen = benjamini_hochberg(pvalues, fdr) if listed else torch.zeros_like(pvalues, dtype=torch.bool)
        return PointFindings(witness, pvalues, sorted_rows(chosen, pvalues, -witness), fdr)

    def _ranked(self, half: Half, seed: int) -> Tensor:
        measures = torch.stack([half.held_out.witness, self._distance(half.points)])  # (2, rows)
        pvalues = torch.ones(len(half), dtype=torch.float64)
        unsettled, drawn = torch.arange(len(half)), torch.zeros(2, len(half))  # and draws at least as extreme
        total, count = 0, _FIRST
        while len(unsettled):
            simulated = self._measured(half, half.rows[unsettled], count, derive(seed, "draws", total))
            drawn = drawn + (simulated >= measures[:, None, unsettled]).sum(1)
            total += count
            pvalues[unsettled] = (2 * (1 + drawn.amin(0)) / (1 + total)).clamp(max=1).double()
            count = _TIMES * total
            keep = pvalues[unsettled] < 2 * _CLEAR / (1 + total)
            if total >= _ENOUGH * len(self.model) or count * int(keep.sum()) > _MOST:
                break
            unsettled, drawn = unsettled[keep], drawn[:, keep]
        return pvalues

    def _distance(self, inside: ScoredPoints) -> Tensor:
        distance: Tensor = inside.x[:, self.model.covariates :].to("cpu", torch.float64).norm(dim=1)
        return distance

    def _measured(self, half: Half, rows: Tensor, times: int, seed: int) -> Tensor:
        """(2, times, rows): witness and distance of draws of y at some rows."""
        size = max(1, _TOGETHER // (len(rows) * self.model.dim))
        model = self.model.at(rows)
        frame = RowFrame(self.residuals.frame.location[rows], self.residuals.frame.scale[rows])
        pieces = []
        for part, start in enumerate(range(0, times, size)):
            count = min(size, times - start) * len(rows)
            x = model.sample(count, seed=derive(seed, part)).to(self.points.x)
            inside = frame.enter(ScoredPoints(x, model.score(x)))
            both = half.critic.witness(inside).to("cpu", torch.float64), self._distance(inside)
            pieces.append(torch.stack(both).view(2, -1, len(rows)))
        return torch.cat(pieces, 1)
