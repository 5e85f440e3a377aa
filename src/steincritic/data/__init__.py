"""Samples from p, scored by q; the paper's problems."""

from typing import TYPE_CHECKING, Any

from steincritic.data.arrays import as_points
from steincritic.data.frame import Frame
from steincritic.data.layout import Columns, Rows, Table
from steincritic.data.points import ScoredPoints, sample_points, score_points, scored
from steincritic.data.problems import Problem, mixture, mixture_1d, problem
from steincritic.data.tables import read_chunks, read_table

__all__ = [
    "Columns",
    "Frame",
    "Problem",
    "Rows",
    "ScoredPoints",
    "Table",
    "as_points",
    "mixture",
    "mixture_1d",
    "problem",
    "read_chunks",
    "read_table",
    "sample_points",
    "score_points",
    "scored",
]

GONE = {  # and what to use instead; for one release
    "Posterior": "studies.posteriordb.database in a clone of the repository",
    "posteriordb": "studies.posteriordb.database in a clone of the repository",
    "read_points": "read_table(path).x",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        hint = f"steincritic.data.{name} is gone: {GONE[name]}" if name in GONE else f"no name {name!r}"
        raise AttributeError(hint)
