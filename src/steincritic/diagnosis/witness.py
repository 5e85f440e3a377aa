"""The witness of new rows under a saved critic, chunk by chunk, so that tables may have any size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.data.layout import Rows, Table
from steincritic.data.points import sample_points, score_points
from steincritic.data.tables import bad_rows
from steincritic.diagnosis.coordinates import block_name
from steincritic.errors import InputError
from steincritic.gof.null import rank_pvalues
from steincritic.models.base import Model, SamplingModel, dimension
from steincritic.models.bounded import coordinates_of, unbounded
from steincritic.models.coordinates import entered
from steincritic.stein.operator import coordinate_blocks
from steincritic.training.critic import Critic

_PIECE = 8192  # rows whose layers stay in a processor's cache
_LARGEST = 10
_NAMED = 3  # columns that are named, at most
_PART = 0.1  # of a row's positive shares, for a column to be named


@dataclass(frozen=True, eq=False)
class Judge:
    """What a critic says of a chunk; score and change of variables in the precision of the data."""

    critic: Critic
    model: Model
    reference: Tensor | None  # witness of the model's own draws, where it has any

    @classmethod
    def of(cls, critic: Critic, model: Model, draws: int) -> "Judge":
        if not isinstance(free := unbounded(model), SamplingModel):
            return cls(critic, model, None)
        points = sample_points(free, draws, seed=0, like=critic.frame.location.cpu()[None])
        pieces = (points[start : start + _PIECE] for start in range(0, draws, _PIECE))
        return cls(critic, model, torch.cat([critic.witness(piece).cpu().double() for piece in pieces]))

    def __call__(self, chunk: Table) -> tuple[np.ndarray, dict[str, list[Any]]]:
        """The witness of each row, and columns for a file: rows, witness, p-value, what contributes most."""
        dim, width = dimension(self.model), chunk.x.shape[1]
        if dim is not None and width != dim:
            raise InputError(f"the data have {width} columns but the model has {dim} dimensions")
        blocks = coordinate_blocks(len(self.critic.frame.scale) if coordinates_of(self.model) else width)
        names = [block_name(chunk.columns, block) for block in blocks]
        values, contributing = [np.empty(0)], []
        for start in range(0, len(chunk), _PIECE):
            shares = self._shares(chunk, slice(start, start + _PIECE), blocks)
            values.append(shares.sum(1))
            contributing += _largest_shares(shares, names)
        witness = np.concatenate(values)
        cells = chunk.rows.cells() | {"witness": [float(f"{value:.9g}") for value in witness]}
        if self.reference is not None:
            pvalues = rank_pvalues(torch.from_numpy(witness), self.reference).tolist()
            cells["pvalue"] = [float(f"{pvalue:.6g}") for pvalue in pvalues]
        return witness, cells | {"columns": contributing}

    def _shares(self, chunk: Table, piece: slice, blocks: Sequence[slice]) -> np.ndarray:
        """Of the witness, by block of coordinates."""
        x, rows = torch.from_numpy(chunk.x[piece]), chunk.rows[piece]
        within = coordinates_of(self.model)
        if within is not None:
            x = entered(within, x, chunk.columns, rows.name)
        points = score_points(unbounded(self.model), x, name=f"rows from {rows.name(0)}")
        _check_finite(points.score.cpu().numpy(), rows, "the model's score")
        shares: np.ndarray = self.critic.shares(points, blocks).cpu().double().numpy()
        _check_finite(shares, rows, "the witness")
        return shares


class Summary:
    """A summary of many witness values, merged chunk by chunk as in Chan, Golub and LeVeque (1983)."""

    def __init__(self) -> None:
        self.rows = 0
        self.dropped = 0
        self.mean = 0.0
        self.largest: list[dict[str, Any]] = []  # row, witness and what else is known, the largest first
        self._squares = 0.0  # sum of squared distances from the mean

    def add(self, values: np.ndarray, cells: dict[str, list[Any]], dropped: int = 0) -> None:
        self.dropped += dropped
        if not len(values):
            return
        count, mean = len(values), float(values.mean())
        total, away = self.rows + count, mean - self.mean
        self._squares += float(((values - mean) ** 2).sum()) + away**2 * self.rows * count / total
        self.mean += away * count / total
        self.rows = total
        order = np.argsort(-values, kind="stable")[:_LARGEST]
        top = [{name: column[k] for name, column in cells.items()} for k in order]
        self.largest = sorted([*self.largest, *top], key=lambda row: -row["witness"])[:_LARGEST]

    @property
    def standard_error(self) -> float | None:
        """Of the mean, for independent rows; a single row has none."""
        return math.sqrt(self._squares / (self.rows - 1) / self.rows) if self.rows > 1 else None

    def to_dict(self) -> dict[str, Any]:
        names = ("rows", "dropped", "mean", "standard_error", "largest")
        return {name: getattr(self, name) for name in names}


def _largest_shares(shares: np.ndarray, names: Sequence[str]) -> list[str]:
    """The columns with the largest shares of each row's witness, the largest first."""
    order = np.argsort(-shares, axis=1)[:, :_NAMED]
    large = np.take_along_axis(shares, order, 1) > _PART * np.clip(shares, 0, None).sum(1, keepdims=True)
    return [
        "; ".join(names[j] for j, is_large in zip(*row, strict=True) if is_large)
        for row in zip(order.tolist(), large.tolist(), strict=True)
    ]


def _check_finite(values: np.ndarray, rows: Rows, name: str) -> None:
    bad = bad_rows(values)
    if bad.any():
        raise InputError(
            f"{name} is not finite in row {rows.name(int(bad.argmax()))}; is that point far outside, or the "
            "critic damaged?"
        )
