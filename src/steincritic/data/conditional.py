"""Data of a conditional model: which columns are y, and the model at the others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from steincritic.data.arrays import as_float_tensor
from steincritic.data.layout import Rows, Table, check_shape, numbered_names
from steincritic.data.points import PointsLike, ScoredPoints
from steincritic.data.tables import load_table
from steincritic.errors import InputError, did_you_mean, listed
from steincritic.models.conditional import AtRows, ConditionalModel, as_conditional

Target: TypeAlias = str | int | Sequence[str | int]
_SHOWN = 8  # columns that a message names


def at_rows(
    model: Any, x: PointsLike, target: Target | None, names: Sequence[str] | None = None
) -> tuple[AtRows, Table]:
    """The conditional model at the covariates of the data, and the data with covariates before targets.

    Args:
        target: columns of y, by name or by number from 0; the model's own where it names them.
        names: of the columns of x, where it has none.
    """
    conditional = as_conditional(model)
    table = _table(x, names)
    wanted = conditional.targets if target is None else target
    if wanted is None:
        raise InputError(
            "a conditional model needs to know which column is y: pass target='NAME' (--target NAME); the "
            f"data have {listed(table.columns, _SHOWN)}"
        )
    if not conditional.can_be_sampled:
        raise InputError(
            "a test of q(y | x) draws y anew at the same x, and this model has no sampler: pass "
            "ConditionalModel(score, sample) with sample(x, seed)"
        )
    targets = [_place(key, table.columns) for key in ([wanted] if isinstance(wanted, str | int) else wanted)]
    if not targets or len(set(targets)) < len(targets):
        raise InputError(f"target must name each column of y once, got {wanted!r}")
    rest = _covariates(conditional, [j for j in range(len(table.columns)) if j not in targets], table.columns)
    order = [*rest, *targets]
    data = Table(table.x[:, order], tuple(table.columns[j] for j in order), table.rows, table.dropped)
    for name, y in zip(data.columns[len(rest) :], data.x[:, len(rest) :].T, strict=True):
        if len(y) and np.all(y == y[0]):
            raise InputError(
                f"target {name!r} is constant ({y[0]:.4g} in all rows): there is nothing to test"
            )
    rows = torch.as_tensor(np.ascontiguousarray(data.x[:, : len(rest)]))
    return AtRows(conditional, rows, targets=len(targets)), data


def _table(x: PointsLike, names: Sequence[str] | None) -> Table:
    if isinstance(x, ScoredPoints):
        raise InputError(
            "a conditional model scores the data itself: pass them as they are, not ScoredPoints"
        )
    if isinstance(x, str | Path):
        return load_table(x)
    if isinstance(x, Table):
        return x
    columns = [str(name) for name in getattr(x, "columns", names or ())]
    if hasattr(x, "columns") and not hasattr(x, "to_delayed"):  # column by column: whole numbers are fine
        data: Any = x
        parts = [np.asarray(data[name]) for name in data.columns]
        for name, part in zip(columns, parts, strict=True):
            if part.dtype.kind not in "fiub":
                raise InputError(
                    f"column {name!r} must hold numbers, got {part.dtype}; code it by numbers, or drop it"
                )
        values = np.column_stack([part.astype(np.float64) for part in parts])
    else:
        values = as_float_tensor(x, name="x").detach().cpu().numpy()
    check_shape(values.shape, name="x")
    if columns and len(columns) != values.shape[1]:
        raise InputError(f"x has {values.shape[1]} columns but {len(columns)} names were given")
    return Table(values, tuple(columns) or numbered_names(values.shape[1]), Rows(np.arange(len(values))))


def _place(target: str | int, columns: Sequence[str]) -> int:
    if str(target) in columns:
        return columns.index(str(target))
    if isinstance(target, int) and not isinstance(target, bool):
        if not -len(columns) <= target < len(columns):
            raise InputError(f"target is a column from 0 to {len(columns) - 1}, got {target}")
        return target % len(columns)
    hint = did_you_mean(str(target), columns) or f"; they have {listed(columns, _SHOWN)}"
    raise InputError(f"the data have no target column {target!r}{hint}")


def _covariates(model: ConditionalModel, places: list[int], columns: Sequence[str]) -> list[int]:
    """In the order that the model knows, where it names them."""
    if not places:
        raise InputError("every column is a target: a conditional model needs covariates, the other columns")
    names = [columns[j] for j in places]
    if model.columns is None or tuple(columns) == numbered_names(len(columns)):
        return places
    if sorted(names) != sorted(model.columns):
        raise InputError(
            f"the model knows the covariates {listed(model.columns, _SHOWN)}, the data have "
            f"{listed(names, _SHOWN)}; give it those (--columns)"
        )
    return [places[names.index(name)] for name in model.columns]
