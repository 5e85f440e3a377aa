"""Models of digits to be tested: a coupling flow of zuko, and a machine learned by its Stein discrepancy.

What was learned is kept in a file, so that an interrupted study goes on with the same model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.learning import FittedEnergy, Learning, fit_energy
from steincritic.models.adapters.outside import require
from steincritic.models.base import SamplingModel, as_model
from steincritic.models.rbm import PARAMETERS, GaussianBernoulliRBM
from steincritic.rng import Source, derive, generator
from steincritic.shapes import Points
from steincritic.training.checkpoint import StateFile, digest_of
from steincritic.training.progress import Callback
from steincritic_studies.digits.data import Digits

_ROWS = 4000  # points that a model is asked about at a time
FOR_DIGITS = Learning(
    steps=500,  # longer learning finds a lower Fisher divergence, but draws that are less like digits
    critic_steps=2,
    batch_size=100,
    learning_rate=1e-2,
    critic=MLP(hidden=(256, 256)),
    divergence="gaussian",
    log_every=25,
)
_FIRST_WEIGHTS = 0.01  # standard deviation, before the machine learns
_FLOW = "flow/"  # before the names of its weights
Learned = tuple[dict[str, Tensor], dict[str, Any]]  # weights and the like; facts for the record


@dataclass(frozen=True, kw_only=True)
class FlowFit:
    """Rational-quadratic splines coupling every other pixel to those between, by maximum likelihood."""

    transforms: int = 6
    hidden: tuple[int, ...] = (512, 512)
    bins: int = 8
    steps: int = 3000
    batch_size: int = 512
    learning_rate: float = 1e-3
    copies: int = 4  # of the images, each with its own noise between gray levels


@dataclass(frozen=True, kw_only=True)
class MachineFit:
    """A Gaussian-Bernoulli RBM learned by its Stein discrepancy, as in the study of planted digits."""

    hidden: int = 100
    sweeps: int = 2000
    learning: Learning = FOR_DIGITS


class RescaledModel:
    """A model of y = (x - location)/scale as one of x, asked for some thousand rows at a time."""

    def __init__(self, model: SamplingModel, location: Tensor, scale: Tensor) -> None:
        self._model, self._location, self._scale = model, location, scale
        self.dim = len(location)

    def score(self, x: Points) -> Points:
        y = (x - self._location.to(x)) / self._scale.to(x)
        scores = torch.cat([self._model.score(part) for part in y.split(_ROWS)])
        return scores / self._scale.to(scores)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        parts = []
        for k, start in enumerate(range(0, n, 10 * _ROWS)):
            parts.append(self._model.sample(min(10 * _ROWS, n - start), seed=derive(seed, "part", k)))
        return self._location + self._scale * torch.cat(parts)


class LearnedFile(StateFile):
    """What was learned of digits."""

    kind = "image model"


def learn(
    fit: FlowFit | MachineFit,
    train: Digits,
    held_out: Digits,
    path: Path,
    *,
    device: torch.device,
    seed: int,
    callbacks: Sequence[Any],
) -> Learned:
    """What the file holds; where there is none, what is learned now and written to it."""
    file, identity = LearnedFile(path), digest_of((train.pixels,), (fit, seed))
    kept = file.read(identity, device=device)
    if kept is not None:
        return kept[0], kept[1]["facts"]
    if isinstance(fit, FlowFit):
        tensors, facts = fit_flow(fit, train, held_out, device=device, seed=seed, callbacks=callbacks)
    else:
        tensors, facts = fit_machine(fit, train, device=device, seed=seed, callbacks=callbacks)
    file.write(identity, tensors, {"facts": facts})
    return tensors, facts


def model_of(fit: FlowFit | MachineFit, learned: Mapping[str, Tensor]) -> RescaledModel:
    """The model with these weights, on their device."""
    if isinstance(fit, MachineFit):
        machine = GaussianBernoulliRBM(*(learned[name] for name in PARAMETERS), sweeps=fit.sweeps)
        bias = machine.visible_bias
        return RescaledModel(machine, torch.zeros_like(bias), torch.ones_like(bias))
    location, scale = learned["location"], learned["scale"]
    flow = _new_flow(fit, len(location), seed=0).to(location.device)
    own = {name.removeprefix(_FLOW): value for name, value in learned.items() if name.startswith(_FLOW)}
    flow.load_state_dict(own)
    model = as_model(flow.eval().requires_grad_(False))
    assert isinstance(model, SamplingModel)
    return RescaledModel(model, location, scale)


def fit_flow(
    fit: FlowFit,
    train: Digits,
    held_out: Digits,
    *,
    device: torch.device,
    seed: int,
    callbacks: Sequence[Any],
) -> Learned:
    x = torch.cat([train.logits(seed=derive(seed, "noise", k)) for k in range(fit.copies)]).to(device)
    location, scale = x.mean(0), x.std(0)
    flow = _new_flow(fit, x.shape[1], seed=seed).to(device)
    optimizer = torch.optim.Adam(flow.parameters(), lr=fit.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, fit.steps)
    source = Source(seed, "batches", device=device)
    for step in range(1, fit.steps + 1):
        rows = source.integers(len(x), fit.batch_size)
        loss = -flow().log_prob((x[rows] - location) / scale).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            for call in callbacks:
                call(step, fit.steps, {"loss": float(loss.detach())})
    bits = [_bits(flow, digits, location, scale, seed) for digits in (train[: len(held_out)], held_out)]
    weights = {f"{_FLOW}{name}": value for name, value in flow.state_dict().items()}
    facts = {"bits_per_pixel": bits[1], "bits_per_pixel_trained_on": bits[0]}
    return weights | {"location": location, "scale": scale}, facts


def fit_machine(
    fit: MachineFit, train: Digits, *, device: torch.device, seed: int, callbacks: Sequence[Any]
) -> Learned:
    learned = learn_machine(
        train,
        hidden=fit.hidden,
        sweeps=fit.sweeps,
        learning=fit.learning,
        seed=seed,
        device=device,
        callbacks=callbacks,
    )
    fisher = learned.history["fisher_held_out"]
    weights = {name: getattr(learned.model, name) for name in PARAMETERS}
    return weights, {"fisher_held_out": [float(fisher[0]), float(fisher[-1])]}


def learn_machine(
    train: Digits,
    *,
    hidden: int,
    sweeps: int,
    learning: Learning,
    seed: int,
    device: torch.device,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
) -> FittedEnergy:
    """A machine that learns digits in logit space from a Stein critic.

    The start is a Gaussian at the mean of the data, its hidden units balanced there.
    """
    x = train.logits(seed=derive(seed, "train noise"))
    location = x.mean(0)
    source = generator(seed, "first weights")
    weights = _FIRST_WEIGHTS * torch.randn(x.shape[1], hidden, generator=source)
    start = GaussianBernoulliRBM(weights, location, -0.5 * location @ weights, sweeps=sweeps)
    return fit_energy(
        start.to(device),
        x,
        learning=learning,
        seed=derive(seed, "learning"),
        callbacks=callbacks,
        checkpoint=checkpoint,
        device=device,
    )


def _new_flow(fit: FlowFit, dim: int, *, seed: int) -> Any:
    zuko = require("zuko", extra="zuko")
    shapes = [(fit.bins,), (fit.bins,), (fit.bins - 1,)]
    with torch.random.fork_rng():
        torch.random.manual_seed(derive(seed, "flow"))  # modules know the global generator alone
        return zuko.flows.NICE(
            dim,
            transforms=fit.transforms,
            univariate=zuko.transforms.MonotonicRQSTransform,
            shapes=shapes,
            hidden_features=fit.hidden,
        )


def _bits(flow: Any, digits: Digits, location: Tensor, scale: Tensor, seed: int) -> float:
    """Bits per pixel: what the flow takes for an image of whole gray levels, at most."""
    x = digits.logits(seed=derive(seed, "bits")).to(location)
    with torch.no_grad():
        parts = [flow().log_prob((part - location) / scale) for part in x.split(_ROWS)]
    log_prob = torch.cat(parts).double() - scale.double().log().sum()
    slope = torch.nn.functional.logsigmoid(x.double()) + torch.nn.functional.logsigmoid(-x.double())
    log_prob = log_prob - slope.sum(1)  # of the unit interval
    return float(-log_prob.mean() / (x.shape[1] * math.log(2)) + math.log2(digits.levels))
