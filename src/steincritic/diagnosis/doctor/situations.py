"""What is asked for here is a question of its own: which way to take, in a sentence or two.

Nothing is wrong with the model in any of these: a column that the model predicts, rows that it was fitted
to, columns with edges, separated modes, or so many rows that harmless faults are found.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import torch
from torch import Tensor

from steincritic.data.binary import numbered_names
from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.doctor.patient import Patient
from steincritic.errors import ModelError, listed
from steincritic.gof.assumptions import FITTED, discrete_columns, find_caveats
from steincritic.lenses.cells import modes_in
from steincritic.rng import derive

MANY = 10_000  # rows from which on faults are found that nobody minds
_LOOKED_AT = 5_000  # rows
_EXPECTED = 10  # rows of a normal column below 0, at least, for none of them to mean an edge
_EDGE_ROWS = 400  # fewest for an edge anywhere
_NEAR, _HARD = 0.05, 0.35  # share of rows nearest to it; their distance, of that of four times as many
_LEAST_MODE = 0.02  # of the draws
_NAMED = 4

Advice = tuple[str, str]  # name and what to do


def situations(patient: Patient, names: Sequence[str] | None = None) -> Iterator[Advice]:
    """What is recognized in the model's draws and in the data."""
    for look in _LOOKS:
        try:
            yield from look(patient, names)
        except ModelError:  # the checks report it
            continue


def target_columns(columns: int, dim: int | None, names: Sequence[str] | None) -> Advice | None:
    """Data with more columns than the model has dimensions."""
    if dim is None or columns <= dim:
        return None
    last = names[-1] if names else "NAME"
    return "target column", (
        f"The data have {columns} columns, the model {dim} dimensions. If it predicts some columns from the "
        f"others, name those: target={last!r} (--target {last}); else leave columns out (--exclude)."
    )


CONDITIONAL: Advice = (
    "target column",
    "The score takes two arguments, x and y: a conditional model. Wrap it in sc.ConditionalModel and name "
    "the columns that it predicts, target= (--target NAME).",
)


def _fitted(patient: Patient, names: Sequence[str] | None) -> Iterator[Advice]:
    if patient.data is None:
        return
    x = patient.data[:_LOOKED_AT]
    score = patient.score(x)
    if not bool(score.isfinite().all()):
        return
    if any(caveat.kind == FITTED for caveat in find_caveats(patient.model, ScoredPoints(x, score.to(x)))):
        yield (
            "fitted to these rows",
            "The model was fitted to these rows, so a test of it on them is too kind. Test it on rows held "
            "out, or let every null run fit again: sc.Fitted(fit, x) (--fitted).",
        )


def _bounded(patient: Patient, names: Sequence[str] | None) -> Iterator[Advice]:
    if patient.data is None:
        return
    x = patient.data[:_LOOKED_AT].double().cpu()
    labels = names or numbered_names(x.shape[1])
    total = x.sum(1)
    if x.shape[1] > 1 and bool((x >= 0).all()) and float(total.std()) <= 1e-6 * abs(float(total.mean())):
        yield (
            "bounded columns",
            f'Each row sums to {float(total.mean()):.4g}: shares on a simplex. Pass bounds="simplex" '
            "(--bounds simplex), or leave one column out.",
        )
        return
    whole, rounded = discrete_columns(x)
    ends = [
        (labels[j], *edges)
        for j in range(x.shape[1])
        if j not in {*whole, *rounded} and (edges := _edges(x[:, j])) != (-math.inf, math.inf)
    ]
    if ends:
        told = listed([f"{name} {low:g} {high:g}" for name, low, high in ends], _NAMED)
        name, low, high = ends[0]
        yield (
            "bounded columns",
            f"Columns end at an edge: {told}. Scores know nothing of an edge: pass bounds= "
            f'(--bounds "{name} {low:g} {high:g}"), and tests and sentences heed it.',
        )


def _edges(column: Tensor) -> tuple[float, float]:
    """Where a column ends: at 0 or 1 where a normal one goes on, or where many rows lie at its very end."""
    low = _floor(column)
    if low == 0 and float(column.max()) <= 1 and _floor(1 - column) == 0:
        return 0.0, 1.0
    high = _floor(-column)
    return low, -high


def _floor(column: Tensor) -> float:
    n, smallest = len(column), float(column.min())
    spread = float(column.std())
    if not spread > 0:
        return -math.inf
    if smallest >= 0 and n * NormalDist().cdf(-float(column.mean()) / spread) >= _EXPECTED:
        return 0.0
    if n < _EDGE_ROWS:
        return -math.inf
    away = column.sort().values - smallest
    few = round(_NEAR * n)
    near, further, furthest = (float(away[k]) for k in (few // 4, few, 4 * few))
    hard = further <= _HARD * furthest and near <= _HARD * further
    return float(f"{smallest:.3g}") if hard else -math.inf


def _modes(patient: Patient, names: Sequence[str] | None) -> Iterator[Advice]:
    if patient.draws is None:
        return
    x = patient.draws[:_LOOKED_AT].double()
    x = ((x - x.mean(0)) / Frame.of(x).scale.to(x)).to(torch.float32)
    shares = modes_in(x, x, seed=derive(patient.seed, "modes")).shares
    count = int((shares >= _LEAST_MODE).sum())
    if count > 1:
        told = listed([f"{share:.0%}" for share in shares.sort(descending=True).values.tolist()], _NAMED)
        yield (
            "separated modes",
            f"The model has {count} separated modes ({told} of its draws). Between them scores say nothing, "
            "so tests by scores alone do not see wrong weights: take the default test, which draws from the "
            "model and counts rows in them, or give the model its score with noise added (with_noise).",
        )


def _many_rows(patient: Patient, names: Sequence[str] | None) -> Iterator[Advice]:
    if patient.data is not None and (n := len(patient.data)) >= MANY:
        yield (
            "many rows",
            f"With {n:,} rows a mean that is off by {4 / math.sqrt(n):.2g} standard deviations is rejected. "
            "To ask whether the model is wrong by more than you mind: tolerance=0.05 (--tolerance 0.05).",
        )


_LOOKS: tuple[Callable[[Patient, Sequence[str] | None], Iterator[Advice]], ...] = (
    _fitted,
    _bounded,
    _modes,
    _many_rows,
)
