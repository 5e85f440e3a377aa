"""watch_guide: how far a variational guide is from its posterior, while it is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from steincritic.data.arrays import as_points
from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, scored
from steincritic.diagnosis.by_scores import Gaps
from steincritic.diagnosis.check import column_names
from steincritic.display import GRAY, RED, axes, panel
from steincritic.errors import InputError, check_count
from steincritic.lenses.lens import pair_columns, pairs_of, point_values, single_columns
from steincritic.lenses.moments import PreparedMoments
from steincritic.models.base import ConstrainedModel, Model, ModelLike, as_model, coordinate_names, dimension

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWEST = 20  # draws of a guide
_SHOWN = 10  # readings in a notebook, the last ones
_FAR = 100.0  # posterior standard deviations, beyond which their number means nothing


@dataclass(frozen=True, kw_only=True)
class GuideReading:
    """A guide beside its posterior, at one step: what is most off by the moments lens, and by how much."""

    step: int
    z: float  # mean Stein value over its standard error, the largest of all moments
    moment: str  # which: "shift", "spread", "pair", "skewness" or "tails"
    name: str  # coordinate that is most off among those of this moment
    shift: float  # of its mean, in standard deviations of the posterior
    ratio: float  # of its spread to the posterior's

    def __str__(self) -> str:
        far = abs(self.shift) > _FAR
        where = "is far off" if far else f"is off by {self.shift:+.2f} posterior standard deviations"
        return (
            f"step {self.step}: largest z {self.z:.1f} ({self.moment}); {self.name} has {self.ratio:.2f} of "
            f"the posterior's spread and {where}"
        )

    def _repr_html_(self) -> str:
        return panel([f"{str(self).capitalize()}."])


class GuideWatch:
    """What `watch_guide` returns: call it each step with draws of the guide. `history` has the readings."""

    def __init__(
        self, model: Model, *, every: int = 100, names: Sequence[str] | None = None, verbose: bool = False
    ) -> None:
        check_count(every, name="every")
        self.model, self.every, self.verbose = model, every, verbose
        self.names = names if names is not None else coordinate_names(model)
        self.history: list[GuideReading] = []

    def __call__(self, step: int, draws: Any) -> GuideReading | None:
        """The reading of this step; None where none is due.

        Args:
            step: of the training.
            draws: (n, d) of the guide in the model's coordinates, named draws where the model has
                `unconstrain`, or a function that makes them, called only where a reading is due.
        """
        if step % self.every:
            return None
        points = scored(self.model, self._points(draws() if callable(draws) else draws), name="draws")
        reading = _read(step, points, column_names(self.names, points.dim))
        self.history.append(reading)
        if self.verbose:
            print(reading, flush=True)
        return reading

    def _points(self, draws: Any) -> Tensor:
        if isinstance(draws, Mapping) or hasattr(draws, "posterior"):
            if not isinstance(self.model, ConstrainedModel):
                raise InputError("named draws need a model with unconstrain(draws); pass an array (n, d)")
            draws = self.model.unconstrain(draws)
        points = as_points(draws, name="draws", dim=dimension(self.model))
        if len(points) < _FEWEST:
            raise InputError(f"a reading needs at least {_FEWEST} draws of the guide, got {len(points)}")
        return points

    def summary(self) -> str:
        """The first and the last reading."""
        if not self.history:
            return "No reading yet."
        ends = [self.history[0], self.history[-1]][-min(2, len(self.history)) :]
        return "\n".join([f"{str(reading).capitalize()}." for reading in ends])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The largest z by step; below the line, draws as many as these see nothing."""
        ax = axes(ax)
        ax.plot([r.step for r in self.history], [r.z for r in self.history], color=RED, marker=".")
        ax.axhline(3.0, color=GRAY, linestyle="--")
        ax.set(yscale="log", xlabel="step", ylabel="largest z of the moments")
        if self.history:
            last = self.history[-1]
            ax.set_title(f"{last.name}: {last.ratio:.2f} of the spread, shift {last.shift:+.2f}")
        return ax

    def _repr_html_(self) -> str:
        rows = [
            (str(r.step), f"{r.z:.1f}", r.moment, r.name, f"{r.shift:+.2f}", f"{r.ratio:.2f}")
            for r in self.history[-_SHOWN:]
        ]
        return panel([repr(self)], rows=rows, head=("step", "z", "moment", "coordinate", "shift", "spread"))

    def __repr__(self) -> str:
        last = f", last z {self.history[-1].z:.1f}" if self.history else ""
        return f"GuideWatch(every {self.every} steps, {len(self.history)} readings{last})"


def watch_guide(
    model: ModelLike, *, every: int = 100, names: Sequence[str] | None = None, verbose: bool = False
) -> GuideWatch:
    """Watch a variational guide approach its posterior: a callback for the training loop.

    Every so many steps, draws of the guide go through the moments lens: Stein values of the posterior, which
    have mean zero if the guide is right. A reading costs one score per draw and no training. It is a gauge,
    not a test: when training is done, use `check_draws` on fresh draws.

    Args:
        model: the posterior, anything `as_model` takes, in unconstrained coordinates.
        every: steps between readings.
        names: of the coordinates; the model's own where it has some.
        verbose: print a line per reading.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> watch = sc.watch_guide(q, names=["mu", "log tau"])
    >>> watch(100, lambda: 0.5 * q.sample(500, seed=1)).moment
    'spread'
    """
    return GuideWatch(as_model(model), every=every, names=names, verbose=verbose)


def _read(step: int, points: ScoredPoints, names: Sequence[str]) -> GuideReading:
    """By the moments lens, whose pairs see what is wrong across coordinates, and by what its first and second
    moments say of each coordinate together, which sees small shifts along narrow valleys."""
    points, gaps = points.to("cpu", torch.float64), Gaps.of(points)
    prepared = PreparedMoments(points.dim)
    values = point_values(prepared, Frame.of(points.x).enter(points))
    error = values.std(0) / len(values) ** 0.5
    parts = prepared.parts(values.mean(0) / torch.where(error > 0, error, torch.inf))
    second, single = parts.pop("second"), single_columns(points.dim)
    looked = [("shift", gaps.shift_z, single), ("spread", gaps.spread_z, single)]
    looked += [(kind, parts[kind], single) for kind in ("shift", "skewness", "tails")]
    looked += [("spread", prepared.spreads(second), single)]
    if prepared.paired and points.dim > 1:
        pairs = pairs_of(second.unflatten(-1, (points.dim, points.dim)))
        looked += [("pair", pairs, pair_columns(points.dim))]
    moment, z, columns = max(looked, key=lambda one: float(one[1].abs().max()))
    at = int(z.abs().argmax())
    off = torch.maximum(gaps.shift.abs(), gaps.log_ratio.abs())
    worst = max(columns[at], key=lambda j: float(off[j]))
    return GuideReading(
        step=step,
        z=float(z[at].abs()),
        moment=moment,
        name=names[worst],
        shift=float(gaps.shift[worst]),
        ratio=float(gaps.log_ratio[worst].exp()),
    )
