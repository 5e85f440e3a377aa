r"""Models of digits to be tested: a coupling flow of zuko, and a machine that a Stein critic teaches.

The machine learns by turns with the critic [grathwohl2020]:

$$\min_\theta \max_f\; E_p[s_\theta \cdot f + \nabla \cdot f] - \tfrac12 E_p|f|^2$$

The best critic is $s_\theta - s_p$, where the inner maximum is half the Fisher divergence. For the machine
only $s_\theta \cdot f$ counts: no derivative of f is taken in its step.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic import MLP, DivergedError, as_model
from steincritic.critics import Bank
from steincritic.models import GaussianBernoulliRBM, SamplingModel
from steincritic.models.adapters.outside import require
from steincritic.rng import Source, Streams, derive, generator
from steincritic.shapes import Points
from steincritic.stein import stein_values
from steincritic.training.checkpoint import StateFile, digest_of
from studies.digits.data import Digits
from studies.study import Context

_ROWS = 4000  # points that a model is asked about at a time
_FIRST_WEIGHTS = 0.01  # standard deviation, before the machine learns
_HELD_OUT, _MEASURED = 0.1, 4096  # share of the rows that is only measured on, and its rows at most
_COOLDOWN = 0.5  # share of the steps, at the end, in which both rates fall by half a cosine
_AVERAGING = 0.99  # of the parameters, kept each step; the average is the result
_ABSURD = 1e10  # a divergence that no data of sensible scale has

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
    """The machine and its learning; before each of its steps the critic takes some of its own."""

    hidden: int = 100
    sweeps: int = 2000
    steps: int = 500  # longer learning finds a lower Fisher divergence, but draws that are less like digits
    critic_steps: int = 2
    batch_size: int = 100
    learning_rate: float = 1e-2
    critic_learning_rate: float = 1e-3
    critic: MLP = field(default_factory=lambda: MLP(hidden=(256, 256)))
    log_every: int = 25


class RescaledModel:
    """A model of y = (x - location)/scale as one of x, asked for some thousand rows at a time."""

    def __init__(self, model: SamplingModel, location: Tensor, scale: Tensor) -> None:
        self._model, self._location, self._scale = model, location, scale
        self.dim = len(location)

    def score(self, x: Points) -> Points:
        y = (x - self._location) / self._scale
        return torch.cat([self._model.score(part) for part in y.split(_ROWS)]) / self._scale

    def sample(self, n: int, *, seed: int = 0) -> Points:
        parts = []
        for k, start in enumerate(range(0, n, 10 * _ROWS)):
            parts.append(self._model.sample(min(10 * _ROWS, n - start), seed=derive(seed, "part", k)))
        return self._location + self._scale * torch.cat(parts)


class LearnedFile(StateFile):
    """What was learned of digits, so that an interrupted study goes on with the same model."""

    kind = "image model"


def learn(
    fit: FlowFit | MachineFit, train: Digits, held_out: Digits, path: Path, *, context: Context, seed: int
) -> Learned:
    """What the file holds; where there is none, what is learned now and written to it."""
    file, identity = LearnedFile(path), digest_of((train.pixels,), (fit, seed))
    kept = file.read(identity, device=context.device)
    if kept is not None:
        return kept[0], kept[1]["facts"]
    if isinstance(fit, FlowFit):
        tensors, facts = fit_flow(fit, train, held_out, context, seed)
    else:
        tensors, facts = fit_machine(fit, train, context, seed)
    file.write(identity, tensors, {"facts": facts})
    return tensors, facts


def model_of(fit: FlowFit | MachineFit, learned: Mapping[str, Tensor]) -> RescaledModel:
    """The model with these weights, on their device."""
    if isinstance(fit, MachineFit):
        bias = learned["visible_bias"]
        return RescaledModel(machine_of(fit, learned), torch.zeros_like(bias), torch.ones_like(bias))
    flow = _new_flow(fit, learned["location"], learned["scale"], seed=0)
    flow.load_state_dict(learned)
    model = as_model(flow.eval().requires_grad_(False))
    assert isinstance(model, SamplingModel)
    return RescaledModel(model, flow.location, flow.scale)


def fit_flow(fit: FlowFit, train: Digits, held_out: Digits, context: Context, seed: int) -> Learned:
    x = torch.cat([train.logits(seed=derive(seed, "noise", k)) for k in range(fit.copies)]).to(context.device)
    flow = _new_flow(fit, x.mean(0), x.std(0), seed=seed)
    optimizer = torch.optim.Adam(flow.parameters(), lr=fit.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, fit.steps)
    source = Source(seed, "batches", device=context.device)
    for step in range(1, fit.steps + 1):
        rows = source.integers(len(x), fit.batch_size)
        loss = -flow().log_prob((x[rows] - flow.location) / flow.scale).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            for call in context.callbacks:
                call(step, fit.steps, {"loss": loss.detach()})
    fresh, trained = (_bits(flow, digits, seed) for digits in (held_out, train[: len(held_out)]))
    return flow.state_dict(), {"bits_per_pixel": fresh, "bits_per_pixel_trained_on": trained}


def _new_flow(fit: FlowFit, location: Tensor, scale: Tensor, *, seed: int) -> Any:
    zuko = require("zuko", extra="zuko")
    with torch.random.fork_rng():
        torch.random.manual_seed(derive(seed, "flow"))  # modules know the global generator alone
        flow = zuko.flows.NICE(
            len(location),
            transforms=fit.transforms,
            univariate=zuko.transforms.MonotonicRQSTransform,
            shapes=[(fit.bins,), (fit.bins,), (fit.bins - 1,)],
            hidden_features=fit.hidden,
        )
    flow.register_buffer("location", location)  # kept with the weights
    flow.register_buffer("scale", scale)
    return flow.to(location.device)


def _bits(flow: Any, digits: Digits, seed: int) -> float:
    """Bits per pixel: what the flow takes for an image of whole gray levels, at most."""
    x = digits.logits(seed=derive(seed, "bits")).to(flow.location)
    with torch.no_grad():
        parts = [flow().log_prob((part - flow.location) / flow.scale) for part in x.split(_ROWS)]
    log_prob = torch.cat(parts).double() - flow.scale.double().log().sum()
    slope = torch.nn.functional.logsigmoid(x.double()) + torch.nn.functional.logsigmoid(-x.double())
    log_prob = log_prob - slope.sum(1)  # of the unit interval
    return float(-log_prob.mean() / (x.shape[1] * math.log(2)) + math.log2(digits.levels))


def fit_machine(fit: MachineFit, train: Digits, context: Context, seed: int) -> Learned:
    """Parameters of the machine; steps and the Fisher divergence that the critic showed on held-out rows.

    The start is a Gaussian at the mean of the data, its hidden units balanced there.
    """
    x, device = train.logits(seed=derive(seed, "train noise")), context.device
    location = x.mean(0)
    first = _FIRST_WEIGHTS * torch.randn(x.shape[1], fit.hidden, generator=generator(seed, "first weights"))
    start = {"weights": first, "visible_bias": location, "hidden_bias": -0.5 * location @ first}
    weights = {name: value.to(device).requires_grad_() for name, value in start.items()}
    averaged = {name: value.detach().clone() for name, value in weights.items()}
    seed = derive(seed, "learning")
    count = min(round(_HELD_OUT * len(x)), _MEASURED)
    order = torch.randperm(len(x), generator=generator(seed, "held out"))
    held_out, rows = x[order[:count]].to(device), x[order[count:]].to(device)
    network = fit.critic.init(x.shape[1], [derive(seed, "critic")], dtype=x.dtype, device=device)
    critic = Bank(fit.critic, {name: value.requires_grad_() for name, value in network.items()})
    rates = ((weights, fit.learning_rate), (critic.parameters, fit.critic_learning_rate))
    of_machine, of_critic = (torch.optim.Adam(values.values(), lr=rate, fused=True) for values, rate in rates)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _cooled(step, fit.steps))
        for optimizer in (of_machine, of_critic)
    ]
    streams = Streams.from_seeds([seed], device=device)
    batches = _batches(rows, fit.batch_size, streams)
    history: dict[str, list[float]] = {"step": [], "fisher_held_out": []}
    for step in range(fit.steps):
        for k in range(fit.critic_steps):
            y = next(batches)
            probe = streams.normals(step * fit.critic_steps + k, tuple(y.shape), y.dtype)
            of_critic.zero_grad()
            _regret(critic, _score(weights, y).detach(), y, probe).backward()
            of_critic.step()
        y = next(batches)
        of_machine.zero_grad()
        (_score(weights, y) * critic.field(y)[0].detach()).sum(-1).mean().backward()
        of_machine.step()
        for schedule in schedules:
            schedule.step()
        share = max(1 - _AVERAGING, 1 / (step + 2))  # an even average until it is long enough
        for name, value in averaged.items():
            value.lerp_(weights[name].detach(), share)
        if (step + 1) % fit.log_every and step + 1 < fit.steps:
            continue
        with torch.no_grad():
            fisher = -2 * float(_regret(critic, _score(weights, held_out), held_out))
        if not abs(fisher) < _ABSURD:
            raise DivergedError(f"learning diverged by step {step + 1}: lower the learning rates")
        history["step"].append(step + 1.0)
        history["fisher_held_out"].append(fisher)
        for call in context.callbacks:
            call(step, fit.steps, {"fisher_held_out": torch.tensor(fisher)})
    return averaged, history


def machine_of(fit: MachineFit, parameters: Mapping[str, Tensor]) -> GaussianBernoulliRBM:
    return GaussianBernoulliRBM(**parameters, sweeps=fit.sweeps)


def _cooled(step: int, steps: int) -> float:
    """What is left of a learning rate."""
    left = min(1.0, (steps - step) / (_COOLDOWN * steps))
    return 0.5 * (1 - math.cos(math.pi * left))


def _batches(rows: Points, size: int, streams: Streams) -> Iterator[Points]:
    """Drawn without replacement, pass by pass; a pass leaves out what fills no batch."""
    passes = 0
    while True:
        order = streams.permutations(passes, len(rows))[0]
        yield from (rows[order[k * size : (k + 1) * size]] for k in range(len(rows) // size))
        passes += 1


def _score(weights: dict[str, Tensor], y: Points) -> Points:
    r"""$b - y + \tfrac12 B \tanh(\tfrac12 B^\top y + c)$, differentiable in the weights."""
    hidden = torch.tanh(torch.addmm(weights["hidden_bias"], y, weights["weights"], alpha=0.5))
    return torch.addmm(weights["visible_bias"], hidden, weights["weights"].mT, alpha=0.5) - y


def _regret(critic: Bank, score: Points, y: Points, probe: Tensor | None = None) -> Tensor:
    r"""What the critic descends on: $E[\tfrac12|f|^2 - T_q f]$."""
    f, div_f = critic.field_and_divergence(y, probe)
    return (0.5 * (f * f).sum(-1) - stein_values(score, f, div_f)).mean()
