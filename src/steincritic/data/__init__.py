"""Samples from p, scored by q; the paper's problems."""

from steincritic.data.arrays import as_points, read_points
from steincritic.data.points import Frame, ScoredPoints, sample_points, score_points, scored
from steincritic.data.problems import Problem, mixture, mixture_1d, problem

__all__ = [
    "Frame",
    "Problem",
    "ScoredPoints",
    "as_points",
    "mixture",
    "mixture_1d",
    "problem",
    "read_points",
    "sample_points",
    "score_points",
    "scored",
]
