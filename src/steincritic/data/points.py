"""ScoredPoints: points with the model's score at them, on which the whole library works."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn

from steincritic.data.arrays import ArrayLike, as_float_tensor, as_points, check_finite
from steincritic.data.layout import Table, numbered_names
from steincritic.data.tables import load_table
from steincritic.devices import DeviceLike, resolve_device
from steincritic.errors import InputError, ModelError, first_line, listed
from steincritic.models.base import (
    Model,
    ModelLike,
    SamplingModel,
    as_model,
    coordinate_names,
    dimension,
    fitted_columns,
)
from steincritic.models.bounded import BoundedModel, coordinates_of, unbounded
from steincritic.models.coordinates import Bounds, as_box, columns_of, entered
from steincritic.models.density import weights_like
from steincritic.rng import generator
from steincritic.shapes import counted


@dataclass(frozen=True, eq=False)
class ScoredPoints:
    """Points and the model's score at them, both (..., n, d).

    The score at the points is all that a critic, a test or a diagnosis ever asks of a model, so a
    pair of arrays from any source will do.
    """

    x: Tensor
    score: Tensor

    def __post_init__(self) -> None:
        for name in ("x", "score"):
            value = getattr(self, name)
            if not isinstance(value, Tensor):
                object.__setattr__(self, name, as_points(value, name=name))
        if self.x.shape != self.score.shape:
            raise InputError(
                f"x and score must have one shape, got {tuple(self.x.shape)} and {tuple(self.score.shape)}"
            )
        if self.x.ndim < 2:
            raise InputError(f"x must have shape (n, d), got {tuple(self.x.shape)}")

    def __len__(self) -> int:
        return self.x.shape[-2]

    @property
    def dim(self) -> int:
        return self.x.shape[-1]

    def __getitem__(self, rows: slice | Tensor | Sequence[int]) -> "ScoredPoints":
        """Rows of every set: a slice, a mask or an index tensor over the point axis."""
        return ScoredPoints(self.x[..., rows, :], self.score[..., rows, :])

    def __repr__(self) -> str:
        sets = f"{len(self.x)} sets of " if self.x.ndim == 3 else ""
        return f"ScoredPoints({sets}{len(self)} points in {self.dim} dimensions)"

    def to(self, *args: Any, **kwargs: Any) -> "ScoredPoints":
        return self.map(lambda t: t.to(*args, **kwargs))

    @staticmethod
    def stack(sets: Sequence["ScoredPoints"]) -> "ScoredPoints":
        """Datasets of one size, (n, d) each, as one stack (r, n, d)."""
        return ScoredPoints(torch.stack([s.x for s in sets]), torch.stack([s.score for s in sets]))

    @staticmethod
    def cat(parts: Sequence["ScoredPoints"]) -> "ScoredPoints":
        """The points of all parts, one after another."""
        return ScoredPoints(torch.cat([p.x for p in parts], -2), torch.cat([p.score for p in parts], -2))

    def alone(self) -> "ScoredPoints":
        """One dataset as a stack of one, (1, n, d)."""
        return self.map(lambda t: t[None])

    def cut(self, n: int) -> "ScoredPoints":
        """(r n, d) as a stack of r datasets of n points each."""
        return self.map(lambda t: t.view(-1, n, t.shape[-1]))

    def sets(self, index: slice | Tensor) -> "ScoredPoints":
        """Some datasets of a stack, as a stack."""
        return self.map(lambda t: t[index])

    def each(self) -> Iterator["ScoredPoints"]:
        """The datasets of a stack, one by one."""
        return (ScoredPoints(x, score) for x, score in zip(self.x, self.score, strict=True))

    def expand(self, count: int) -> "ScoredPoints":
        """A stack of `count` datasets: those of a stack, or one dataset shared by all, without a copy."""
        return self.map(lambda t: t.expand(count, *t.shape[-2:]))

    def repeat(self, times: int) -> "ScoredPoints":
        """A stack over and over: all its datasets, then all of them again."""
        return self.map(lambda t: t.repeat(times, 1, 1))

    def map(self, change: Callable[[Tensor], Tensor]) -> "ScoredPoints":
        """The same change of both arrays."""
        return ScoredPoints(change(self.x), change(self.score))

    def shuffled(self, *, seed: int) -> "ScoredPoints":
        order = torch.randperm(len(self), generator=generator(seed, "shuffle"))
        return self[order.to(self.x.device)]

    def split(self, sizes: Sequence[int], *, seed: int) -> list["ScoredPoints"]:
        """Disjoint random parts of the given sizes."""
        if min(sizes, default=0) < 1 or sum(sizes) > len(self):
            raise InputError(
                f"cannot cut {len(self)} points into parts of {' + '.join(map(str, sizes))}; every part "
                "needs at least one point"
            )
        points, ends = self.shuffled(seed=seed), list(accumulate(sizes, initial=0))
        return [points[start:end] for start, end in pairwise(ends)]


PointsLike: TypeAlias = ScoredPoints | ArrayLike  # what a user may pass as data
D = TypeVar("D")  # some such data
_SHOWN = 8  # columns that a message names


def model_and_points(
    model: ModelLike | None,
    x: PointsLike,
    *,
    device: DeviceLike = None,
    bounds: Bounds | None = None,
    names: Sequence[str] | None = None,
) -> tuple[Model | None, ScoredPoints]:
    """Adapt the model and score the data, once and on one device; every public function starts here.

    The model may be None where x is scored already. Where it has bounds, model and points come back in
    coordinates without: see `models.bounded`.

    Args:
        bounds, names: of the columns.
    """
    adapted = None if model is None and isinstance(x, ScoredPoints) else as_model(model)
    x = load_table(x) if isinstance(x, str | Path) else x
    if bounds is not None:
        adapted = within_bounds(adapted, bounds, arranged(x, adapted), names)
    points = scored(adapted, x, names=names)
    if points.x.ndim != 2:
        raise InputError(f"x must have shape (n, d), got {tuple(points.x.shape)}")
    return unbounded(adapted), points.to(device=resolve_device(device, points.x))


def within_bounds(
    model: Model | None, bounds: Bounds, x: PointsLike | None, names: Sequence[str] | None = None
) -> Model:
    """The model with the bounds that a user gives for the columns of x."""
    if model is None:
        raise InputError("bounds= needs the model: pass it, or its score as a pair (score, None)")
    dim = dimension(model)
    if x is not None:
        dim = x.dim if isinstance(x, ScoredPoints) else as_points(x).shape[1]
    elif dim is None:
        dim = len(bounds) if isinstance(bounds, list | tuple) else sample_points(model, 1, seed=0).dim
    columns = list(numbered_names(dim) if names is None else names)
    if names is None and x is not None and len(stated := getattr(x, "columns", ())) == dim:
        columns = list(map(str, stated))
    return BoundedModel(model, as_box(bounds, columns))


def scored(
    model: ModelLike | None, x: PointsLike, *, name: str = "x", names: Sequence[str] | None = None
) -> ScoredPoints:
    """Data as scored points: already scored ones pass, others are scored by the model, once.

    Points of a model with bounds come in its columns and leave in coordinates without bounds. Scored points
    of a model that is in such coordinates already pass.
    """
    adapted = as_model(model) if model is not None or not isinstance(x, ScoredPoints) else None
    within = coordinates_of(adapted)
    if isinstance(x, ScoredPoints):
        points = x
        if within is not None and isinstance(adapted, BoundedModel):
            z = entered(within, x.x, names)
            points = ScoredPoints(z, within.pulled(z.double(), x.score.double()).to(z))
    else:
        assert adapted is not None
        x = arranged(load_table(x) if isinstance(x, str | Path) else x, adapted)
        free = dimension(unbounded(adapted))
        dim = free if within is None or free is None else columns_of(within, free)
        rows = as_points(x, name=name, dim=dim)
        if within is not None:
            rows = entered(within, rows, names or getattr(x, "columns", None), row_names(x))
        points = score_points(unbounded(adapted), rows, name=name)
    if 0 in points.x.shape:
        raise InputError(f"{name} must hold at least one point, got shape {tuple(points.x.shape)}")
    check_finite(points.x, name=name)
    check_finite(points.score, name=f"the score at {name}")
    return points


def row_names(x: object) -> Callable[[int], str]:
    return x.rows.name if isinstance(x, Table) else str


def arranged(x: D, *models: Model | None) -> D:
    """Data with named columns in the order of the models' own; other names are refused.

    Names of coordinates, as a posterior has them, count where the data have some of them.
    """
    orders = {columns for model in models if (columns := fitted_columns(model)) is not None}
    known = orders or {names for model in models if (names := coordinate_names(model)) is not None}
    if not known:
        return x
    table: Any = load_table(x) if isinstance(x, str | Path) else x
    names = tuple(getattr(table, "columns", ()))
    if not names or names == numbered_names(len(names)) or not isinstance(names[0], str):
        return x
    orders = orders or {columns for columns in known if set(columns) & set(names)}
    if not orders:
        return x
    if len(orders) > 1:
        shown = " and ".join(f"({listed(columns, _SHOWN)})" for columns in sorted(orders))
        raise InputError(f"the models have other columns, or in another order: {shown}")
    (order,) = orders
    if names == order:
        return x
    if sorted(names) != sorted(order):
        raise InputError(
            f"the model has the columns {listed(order, _SHOWN)}, the data have "
            f"{listed(names, _SHOWN)}; give it those (--columns {','.join(order[:_SHOWN])})"
        )
    ordered: Any = table.take(order) if isinstance(table, Table) else table[list(order)]
    return cast(D, ordered)


def column_names(names: Iterable[object] | None, dim: int) -> tuple[str, ...]:
    """The names that were given, one per column; x1, x2, ... where none were."""
    if names is None:
        return numbered_names(dim)
    labels = tuple(map(str, names))
    if len(labels) != dim:
        raise InputError(f"names must name the {dim} columns of x, got {len(labels)} names")
    return labels


def reading_notes(raw: object, used: object) -> tuple[str, ...]:
    """What a reader should know of how data were read: rows left out, columns put in the model's order."""
    dropped = getattr(raw, "dropped", 0)
    notes = [f"{counted(dropped, 'row')} with NaN or infinite values left out."] if dropped else []
    before, after = (tuple(getattr(data, "columns", ())) for data in (raw, used))
    if before != after:
        notes.append(f"Columns were put in the model's order: {listed(after, _SHOWN)}.")
    return tuple(notes)


def score_points(model: Model, x: Tensor, *, name: str = "x") -> ScoredPoints:
    return ScoredPoints(x.detach(), checked_score(model, x, name=name).to(x))


def fold_sets(datasets: ScoredPoints, count: int) -> tuple[ScoredPoints, ScoredPoints]:
    """Training and tested points of every dataset and fold, (r * folds, ., d) each.

    Folds have one size, so that all critics are one bank; where n is no multiple of it a few points
    are tested twice.
    """
    n = len(datasets)
    size = -(-n // count)
    tested = torch.stack([(k * n // count + torch.arange(size)) % n for k in range(count)])
    mask = torch.ones(count, n, dtype=torch.bool).scatter_(1, tested, False)
    trained = mask.nonzero()[:, 1].view(count, n - size)

    def gathered(index: Tensor) -> ScoredPoints:
        index = index.to(datasets.x.device)
        return datasets.map(lambda t: t[:, index].flatten(0, 1))

    return gathered(trained), gathered(tested)


def sample_points(model: Model | None, n: int, *, seed: int, like: Tensor | None = None) -> ScoredPoints:
    """n scored draws of the model, on the device and in the dtype of `like` where it is given."""
    if not isinstance(model, SamplingModel):
        raise ModelError(
            "this needs draws from the model, which has no sample(n, seed=0); pass a (score, sample) pair "
            "or use a method that works without draws"
        )
    x = checked_draws(model, n, seed, dim=dimension(model) if like is None else like.shape[-1])
    check_finite(x, name="model.sample(n)")
    points = score_points(model, x if like is None else x.to(like), name="the model's own draws")
    bad = int((~points.score.isfinite().all(-1)).sum())
    if bad:
        raise ModelError(
            f"the score is not finite at {bad} of {n} draws of the model itself: its formula overflows, or "
            "its sampler leaves the support (steincritic doctor looks closer)"
        )
    return points


def sample_sets(model: Model | None, count: int, n: int, *, seed: int, like: Tensor) -> ScoredPoints:
    """(count, n, d): datasets of n scored draws; a model that scores each set by itself has `null_sets`."""
    null_sets: Callable[..., ScoredPoints] | None = getattr(model, "null_sets", None)
    if null_sets is not None:
        return null_sets(count, n, seed=seed, like=like)
    return sample_points(model, count * n, seed=seed, like=like).cut(n)


def checked_score(model: Model, x: Tensor, *, name: str = "x") -> Tensor:
    """The score as the model gives it, in whatever dtype, if it has the shape of the points."""
    copy = x.detach().clone()  # a score that writes into its argument must not change the data
    if isinstance(model, nn.Module):
        copy = copy.to(weights_like(model))
    score = answer(lambda: model.score(copy), f"model.score({name} of shape {tuple(x.shape)})")
    if score.shape != x.shape:
        raise ModelError(
            f"model.score must return the shape of its argument, {tuple(x.shape)}; got {tuple(score.shape)}"
        )
    return score.to(x.device)


def checked_draws(model: SamplingModel, n: int, seed: int, *, dim: int | None) -> Tensor:
    """Draws as the model gives them, if they have the shape that was asked for."""
    x = answer(lambda: model.sample(n, seed=seed), f"model.sample({n})")
    if x.ndim != 2 or len(x) != n or (dim is not None and x.shape[1] != dim):
        raise ModelError(f"model.sample({n}) must return shape ({n}, {dim or 'd'}), got {tuple(x.shape)}")
    return x


def answer(question: Callable[[], ArrayLike], name: str) -> Tensor:
    """What a model answers, as a detached tensor; whatever goes wrong inside it is a ModelError."""
    try:
        answered = question()
    except (ModelError, KeyboardInterrupt):
        raise
    except BaseException as error:  # an exit in there would pass for a verdict
        why = first_line(error)
        hint = "; give model and data one precision, float64 say" if "same dtype" in why else ""
        raise ModelError(f"{name} raised {type(error).__name__}: {why}{hint}") from error
    try:
        return as_float_tensor(answered, name=name).detach()
    except InputError as error:
        raise ModelError(str(error)) from None
