"""A fitted critic: its field, its witness, its file; and fit_critic, which makes one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.critics.module import ModuleNetwork
from steincritic.critics.network import Network
from steincritic.data.arrays import as_points
from steincritic.data.frame import Frame, model_frame
from steincritic.data.points import PointsLike, ScoredPoints, model_and_points, score_points, scored
from steincritic.devices import DeviceLike
from steincritic.display import panel
from steincritic.errors import InputError
from steincritic.files import read_tensors, rebuilding, taken, write_tensors
from steincritic.models.base import Model, ModelLike, as_model
from steincritic.models.bounded import coordinates_of, unbounded
from steincritic.models.coordinates import entered
from steincritic.rng import derive, generator
from steincritic.shapes import PerPoint, Points
from steincritic.training.checkpoint import in_parts
from steincritic.training.fit import Training, Yardsticks, always, fit_bank, watches
from steincritic.training.fitted import FittedBank, History
from steincritic.training.pacing import DEFAULT_STAGING
from steincritic.training.progress import Callback, ProgressBar
from steincritic.training.staging import Staging

if TYPE_CHECKING:
    from steincritic.display import Axes

_KIND = "critic"
_KNOWN_BY = 16  # points
_ROUNDING = 1e-3  # between devices and precisions; another model differs by far more
_HELD_OUT = 0.2  # of the points, for the monitor, as in [repasky2023] section 6.2


@dataclass(frozen=True, eq=False, repr=False)
class Critic:
    """One trained critic with the model it tests.

    The witness is what tests and findings use: one number per point, mean zero on draws of the model.
    Points are a tensor, an array, a frame or a file; `ScoredPoints` where the model is not at hand. Of a
    model with bounds, field and score gap are in its coordinates without bounds.
    """

    fitted: FittedBank
    frame: Frame
    model: Model | None = None

    def witness(self, x: PointsLike) -> PerPoint:
        """(T_q f)(x), exact, for the scaleless critic."""
        return self.fitted.witness(self.frame.enter(self._scored(x)))[0]

    def shares(self, x: PointsLike, blocks: Sequence[slice]) -> Tensor:
        """(n, k): the witness split over blocks of coordinates."""
        return self.fitted.shares(self.frame.enter(self._scored(x)), blocks)[0]

    def field(self, x: PointsLike) -> Points:
        """The vector field, in the data's own units, whose Stein value is the witness."""
        f = self._standard_field(x)
        return f * self.frame.scale.to(f)

    def score_gap(self, x: PointsLike) -> Points:
        """The estimate of s_q - s_p: arrows from where the model has too little mass to too much."""
        f = self._standard_field(x)
        return f / self.frame.scale.to(f)

    @property
    def history(self) -> History:
        """By epoch: loss, stein, penalty, lam, and what was measured besides."""
        return self.fitted.history.member(0)

    def plot(self, ax: "Axes | None" = None, *, x: PointsLike | None = None) -> "Axes":
        """The witness in one or two dimensions, there with arrows to where data are denser than the model.

        Args:
            x: data to be shown with it.
        """
        from steincritic.report.critics import plot_witness  # results draw themselves

        return plot_witness(self, ax, x)

    def _repr_html_(self) -> str:
        return panel([repr(self)]) + self.history._repr_html_()

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the model, which can be anything; a flow, say, cannot be pickled."""
        return self.__dict__ | {"model": None}

    def __repr__(self) -> str:
        about = "without its model" if self.model is None else f"of {self.model!r}"
        epochs = len(self.fitted.history["loss"]) if "loss" in self.fitted.history else 0
        return f"Critic({len(self.frame.scale)} dimensions, {epochs} epochs, {about})"

    def to(self, device: torch.device) -> "Critic":
        """The same critic with its weights on another device."""
        parameters = {name: value.to(device) for name, value in self.fitted.bank.parameters.items()}
        bank = Bank(self.fitted.bank.network, parameters)
        fitted = replace(self.fitted, bank=bank, lam=self.fitted.lam.to(device))
        frame = Frame(self.frame.location.to(device), self.frame.scale.to(device))
        return Critic(fitted, frame, self.model)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the critic is, as tensors and plain values; `from_state` makes it again."""
        bank = self.fitted.bank  # files have room for several, and one λ each
        tensors = {f"snapshot/0/{name}": value for name, value in bank.parameters.items()}
        tensors |= {f"history/{name}": value for name, value in self.fitted.history.items()}
        tensors |= {
            "coefficients": self.fitted.lam[None],
            "frame/location": self.frame.location,
            "frame/scale": self.frame.scale,
        }
        settings = asdict(bank.network) if isinstance(bank.network, MLP) else None
        return tensors, {"network": settings, "seed": self.fitted.seeds[0]}

    @classmethod
    def from_state(
        cls,
        tensors: dict[str, Tensor],
        about: dict[str, Any],
        *,
        model: Model | None = None,
        network: nn.Module | None = None,
    ) -> "Critic":
        """A critic from its state, within `rebuilding` the file that it is in."""
        rebuilt: Network = MLP.of_file(about["network"]) if network is None else ModuleNetwork(network)
        parts = in_parts(tensors)
        bank = Bank(rebuilt, dict(in_parts(parts["snapshot"])["0"]))
        fitted = FittedBank(
            bank,
            taken(tensors, "coefficients", torch.empty(1, 1, dtype=bank.dtype))[0],
            History(dict(parts.get("history", {}))),
            (int(about["seed"]),),
            (None,),
        )
        frame = Frame(tensors["frame/location"], tensors["frame/scale"])
        _check_fit(fitted, frame)
        return cls(fitted, frame, model)

    def save(self, path: str | Path) -> None:
        """Write the critic to one safetensors file: numbers and JSON, no code."""
        tensors, about = self.state()
        if self.model is not None:
            tensors |= _fingerprint(self.model, self.frame)
        write_tensors(Path(path), tensors, about, kind=_KIND)

    def _standard_field(self, x: PointsLike) -> Points:
        within = None if isinstance(x, ScoredPoints) else coordinates_of(self.model)
        at = x.x if isinstance(x, ScoredPoints) else as_points(x)
        at = at if within is None else entered(within, at)
        self._check_dim(at.shape[-1])
        return self.fitted.field((at - self.frame.location.to(at)) / self.frame.scale.to(at))[0]

    def _scored(self, x: PointsLike) -> ScoredPoints:
        if not isinstance(x, ScoredPoints) and self.model is None:
            raise InputError(
                "this critic was loaded without its model: pass ScoredPoints(x, score), or "
                "load_critic(path, model=q)"
            )
        points = scored(self.model, x)
        self._check_dim(points.dim)
        return points

    def _check_dim(self, dim: int) -> None:
        if dim != len(self.frame.scale):
            raise InputError(f"the critic has {len(self.frame.scale)} dimensions, x has {dim}")


def fit_critic(
    model: ModelLike | None,
    x: PointsLike,
    *,
    staging: Staging = DEFAULT_STAGING,
    network: Network | nn.Module | None = None,
    training: Training | None = None,
    validation: PointsLike | None = None,
    standardize: bool = True,
    seed: int = 0,
    device: DeviceLike = None,
    callbacks: Sequence[Callback] | None = None,
    checkpoint: str | Path | None = None,
) -> Critic:
    """Train one critic of a model on data.

    Args:
        model: q: anything `as_model` takes; None where x is ScoredPoints.
        x: data: tensor, array, frame, file path or ScoredPoints.
        staging: the weight λ of the penalty through training.
        network: an MLP value or an nn.Module that maps (n, d) to (n, d); two layers of 128 by default.
        validation: points not trained on, for the monitor. Without them a fifth of x is held out where
            selection or staging goes by the monitor.
        standardize: train in the model's own location and scale, a change of variables that leaves
            every identity true. Taken from draws of the model where it can be sampled, else from x.
        device: a GPU where there is one, unless another device is named.
        callbacks: called after every epoch; a progress bar on a terminal by default.

    >>> import steincritic as sc
    >>> p, q = sc.models.GaussianMixture([[0.5, 0.0]]), sc.models.GaussianMixture([[0.0, 0.0]])
    >>> critic = sc.fit_critic(q, p.sample(200, seed=1), training=sc.Training(epochs=5), seed=0)
    >>> bool(critic.witness(p.sample(1000, seed=2)).mean() > 0)
    True
    """
    training = training or Training()
    adapted, points = model_and_points(model, x, device=device)
    if validation is not None:
        held_out = scored(adapted, validation, name="validation").to(device=points.x.device)
        if held_out.dim != points.dim:
            raise InputError(f"validation has {held_out.dim} dimensions, x has {points.dim}")
    elif watches(training, staging):
        points, held_out = hold_out(points, seed=seed)
    else:
        held_out = None
    (critic,) = fit_critics(
        adapted,
        points.alone(),
        seeds=[seed],
        staging=staging,
        network=ModuleNetwork(network) if isinstance(network, nn.Module) else network,
        training=training,
        validation=None if held_out is None else held_out.alone(),
        standardize=standardize,
        callbacks=callbacks,
        checkpoint=checkpoint,
    )
    return critic


def fit_critics(
    model: Model | None,
    datasets: ScoredPoints,
    *,
    seeds: Sequence[int],
    staging: Staging = DEFAULT_STAGING,
    network: Network | None = None,
    training: Training | None = None,
    validation: ScoredPoints | None = None,
    standardize: bool = True,
    callbacks: Sequence[Callback] | None = None,
    checkpoint: str | Path | None = None,
) -> list[Critic]:
    """One critic per dataset of a stack (r, n, d), trained in one bank, each in a frame of its own.

    Args:
        validation: points not trained on, (r, m, d), for the monitor.
    """
    training = training or Training()
    frames = [
        model_frame(model, points, seed=seed) if standardize else Frame.identity(points.dim)
        for points, seed in zip(datasets.each(), seeds, strict=True)
    ]

    def inside(sets: ScoredPoints) -> ScoredPoints:
        pairs = zip(frames, sets.each(), strict=True)
        return ScoredPoints.stack([frame.enter(points) for frame, points in pairs])

    fitted = fit_bank(
        inside(datasets),
        staging=staging,
        seeds=seeds,
        network=network,
        training=training,
        yardsticks=Yardsticks(validation=None if validation is None else always(inside(validation))),
        callbacks=[ProgressBar("training critics")] if callbacks is None else callbacks,
        checkpoint=checkpoint,
    )
    fitted.require_success()
    return [Critic(fitted[t : t + 1], frame, model) for t, frame in enumerate(frames)]


def hold_out(points: ScoredPoints, *, seed: int, in_order: bool = False) -> tuple[ScoredPoints, ScoredPoints]:
    """Points to train on, and a fifth for the monitor: of rows in time order the last."""
    held = max(1, round(_HELD_OUT * len(points)))
    if held >= len(points):
        raise InputError(f"{len(points)} point is too few to hold any out for the monitor: pass validation=")
    if in_order:
        return points[:-held], points[-held:]
    train, held_out = points.split([len(points) - held, held], seed=derive(seed, "validation"))
    return train, held_out


def load_critic(
    path: str | Path, model: ModelLike | None = None, *, network: nn.Module | None = None
) -> Critic:
    """Read a saved critic. A critic that was an nn.Module needs the module again; no code is in the file.

    A model that is not the one the critic was fitted against is refused.
    """
    tensors, about = read_tensors(Path(path), kind=_KIND)
    if about.get("network") is None and network is None:
        raise InputError(f"{path} holds a critic that was an nn.Module; pass network=<that module>")
    adapted = None if model is None else unbounded(as_model(model))
    with rebuilding(path):
        critic = Critic.from_state(tensors, about, model=adapted, network=network)
        known = None
        if "model/x" in tensors:
            known = ScoredPoints(tensors["model/x"], taken(tensors, "model/score", tensors["model/x"]))
    if adapted is not None and known is not None:
        _check_same(adapted, known, path)
    return critic


def _fingerprint(model: Model, frame: Frame) -> dict[str, Tensor]:
    """Scores of the model at a few points about its middle, by which it is known again."""
    z = torch.randn(_KNOWN_BY, len(frame.scale), generator=generator(0, "fingerprint"), dtype=torch.float64)
    x = frame.location.cpu() + frame.scale.cpu() * z
    try:
        return {"model/x": x, "model/score": score_points(model, x).score}
    except InputError:  # a model that has no score there; the critic is worth keeping all the same
        return {}


def _check_same(model: Model, known: ScoredPoints, path: str | Path) -> None:
    """Refuse another model than the critic's, whose witness would mean nothing."""
    score = known.score
    try:
        again = score_points(model, known.x).score.cpu()
    except InputError:
        again = torch.full_like(score, torch.inf)
    slack = _ROUNDING * float(score.nan_to_num(0.0).abs().mean())
    differ = ~torch.isclose(again, score, rtol=_ROUNDING, atol=slack, equal_nan=True).all(-1)
    if bool(differ.any()):
        raise InputError(
            f"{path} is a critic of another model than {model!r}: their scores differ at {int(differ.sum())} "
            f"of {len(known)} points; pass the model that it was fitted against"
        )


def _check_fit(fitted: FittedBank, frame: Frame) -> None:
    """Do the loaded arrays have the names and shapes of such a critic?"""
    bank, dim = fitted.bank, len(frame.scale)
    if frame.location.ndim != 1 or not frame.scale.is_floating_point():
        raise ValueError(f"frame of shape {tuple(frame.location.shape)}, of {frame.scale.dtype}")
    taken({"frame": frame.location}, "frame", frame.scale)
    if isinstance(bank.network, MLP):  # compared before anything of the claimed widths is made
        shapes = {name: (1, *shape) for name, shape in bank.network.shapes(dim).items()}
    else:
        shapes = _shapes(bank.network.init(dim, [0], dtype=bank.dtype, device=bank.device))
    if not bank.dtype.is_floating_point or {v.dtype for v in bank.parameters.values()} != {bank.dtype}:
        raise ValueError("weights of several kinds of numbers")
    if _shapes(bank.parameters) != shapes:
        raise ValueError(f"weights {_shapes(bank.parameters)} do not fit the network")


def _shapes(tensors: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in tensors.items()}
