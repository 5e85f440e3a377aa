"""Samples from p, scored by q; the paper's problems."""

from steincritic.data.arrays import as_points, read_points
from steincritic.data.frame import Frame
from steincritic.data.layout import Columns, Rows, Table
from steincritic.data.points import ScoredPoints, sample_points, score_points, scored
from steincritic.data.posteriordb import Posterior, posteriordb
from steincritic.data.problems import Problem, mixture, mixture_1d, problem
from steincritic.data.tables import read_chunks, read_table

__all__ = [
    "Columns",
    "Frame",
    "Posterior",
    "Problem",
    "Rows",
    "ScoredPoints",
    "Table",
    "as_points",
    "mixture",
    "mixture_1d",
    "posteriordb",
    "problem",
    "read_chunks",
    "read_points",
    "read_table",
    "sample_points",
    "score_points",
    "scored",
]
