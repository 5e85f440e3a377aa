"""Samples from p, scored by q; the paper's problems."""

from steincritic.data.arrays import as_points, read_points
from steincritic.data.digits import Digits, fetch_mnist, from_logits, mnist, small_digits
from steincritic.data.points import Frame, ScoredPoints, sample_points, score_points, scored
from steincritic.data.problems import Problem, mixture, mixture_1d, problem
from steincritic.data.stream import Chunk, read_chunks
from steincritic.data.tables import Table, read_table

__all__ = [
    "Chunk",
    "Digits",
    "Frame",
    "Problem",
    "ScoredPoints",
    "Table",
    "as_points",
    "fetch_mnist",
    "from_logits",
    "mixture",
    "mixture_1d",
    "mnist",
    "problem",
    "read_chunks",
    "read_points",
    "read_table",
    "sample_points",
    "score_points",
    "scored",
    "small_digits",
]
