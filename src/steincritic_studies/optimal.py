"""The best critic there is, where p is known."""

import torch

from steincritic.data.points import ScoredPoints
from steincritic.data.problems import Problem
from steincritic.shapes import PerPoint, Points
from steincritic.stein.divergence import exact
from steincritic.stein.operator import stein_values


class OptimalCritic:
    """f* = s_q - s_p, the scaleless optimum, [repasky2023] eq. (7); its power is a ceiling for critics."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def field(self, x: Points) -> Points:
        return self._problem.gap(x)

    @torch.no_grad()
    def witness(self, points: ScoredPoints) -> PerPoint:
        f, div_f = exact(self.field, points.x)
        return stein_values(points.score, f, div_f)
