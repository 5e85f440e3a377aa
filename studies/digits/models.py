"""Models of digits to be tested: a coupling flow of zuko, and the machine; what was learned is kept."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic import as_model
from steincritic.models import SamplingModel
from steincritic.models.adapters.outside import require
from steincritic.rng import Source, derive
from steincritic.shapes import Points
from steincritic.training.checkpoint import StateFile, digest_of
from studies.digits.data import Digits
from studies.digits.machine import Learned, MachineFit, fit_machine, machine_of
from studies.study import Context

_ROWS = 4000  # points that a model is asked about at a time


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
    start = time.perf_counter()
    if isinstance(fit, FlowFit):
        tensors, facts = fit_flow(fit, train, held_out, context, seed)
    else:
        tensors, facts = fit_machine(fit, train, held_out, context, seed)
    facts["seconds"] = time.perf_counter() - start
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
