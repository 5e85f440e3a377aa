r"""A Gaussian-Bernoulli machine that a Stein critic teaches [grathwohl2020].

By turns the critic f sees some batches and the machine $\theta$ one:

$$\min_\theta \max_f\; E_p[s_\theta \cdot f + \nabla \cdot f] - \tfrac{\lambda}{2} E_p|f|^2$$

The best critic is $(s_\theta - s_p)/\lambda$; the inner maximum is the Fisher divergence over $2\lambda$. For
the machine only $s_\theta \cdot f$ counts: no derivative of f is taken in its step.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from steincritic import MLP, DivergedError
from steincritic.critics import Bank
from steincritic.models import GaussianBernoulliRBM
from steincritic.rng import Source, derive, generator
from steincritic.shapes import Points
from steincritic.stein import stein_values
from studies.digits.data import Digits
from studies.study import Context

_FIRST_WEIGHTS = 0.01  # standard deviation, before the machine learns
_MEASURED = 4096  # rows not learned from, for the Fisher divergence
_ABSURD = 1e10  # a divergence that no data of sensible scale has

Learned = tuple[dict[str, Tensor], dict[str, Any]]  # weights and the like; facts for the record


@dataclass(frozen=True, kw_only=True)
class MachineFit:
    """The machine and its learning. What is not set is as in the paper's released code (`fit_rbm.py`).

    There 100 epochs of 234 batches, every sixth of them the machine's, are 3,900 steps of it. The released
    critic also has learned slopes, dropout at 0.5 and first biases; ours does without.
    """

    hidden: int = 100
    sweeps: int = 2000
    steps: int = 3900  # of the machine; before each the critic takes some
    critic_steps: int = 5
    batch_size: int = 256
    learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    weight_decay: float = 5e-4  # Adam's, of the machine and of the critic
    betas: tuple[float, float] = (0.5, 0.9)
    lam: float = 20.0  # λ; the released penalty is 10 |f|²
    critic: MLP = field(default_factory=lambda: MLP(hidden=(100, 100)))
    balanced: bool = False  # hidden units at first undecided at the mean of the data, or with normal biases
    cooldown: float = 0.0  # share of the steps, at the end, in which both rates fall by half a cosine
    averaging: float = 0.0  # of the parameters, kept each step; the average is the result
    log_every: int = 50


SHORT_FIT = MachineFit(  # tried by hand on seed 7; the record image-models has it
    steps=500,
    critic_steps=2,
    batch_size=100,
    learning_rate=1e-2,
    weight_decay=0.0,
    betas=(0.9, 0.999),
    lam=1.0,
    critic=MLP(hidden=(256, 256)),
    balanced=True,
    cooldown=0.5,
    averaging=0.99,
    log_every=25,
)


def machine_of(fit: MachineFit, parameters: Mapping[str, Tensor]) -> GaussianBernoulliRBM:
    return GaussianBernoulliRBM(**parameters, sweeps=fit.sweeps)


def fit_machine(fit: MachineFit, train: Digits, held_out: Digits, context: Context, seed: int) -> Learned:
    """Parameters of the machine; steps and the Fisher divergence that the critic showed on held-out rows."""
    device = context.device
    x = train.logits(seed=derive(seed, "train noise")).to(device)
    measured = held_out[:_MEASURED].logits(seed=derive(seed, "held-out noise")).to(device)
    weights = {name: value.requires_grad_() for name, value in _start(fit, x, seed).items()}
    averaged = {name: value.detach().clone() for name, value in weights.items()}
    network = fit.critic.init(x.shape[1], [derive(seed, "critic")], dtype=x.dtype, device=device)
    critic = Bank(fit.critic, {name: value.requires_grad_() for name, value in network.items()})
    adam: dict[str, Any] = {"betas": fit.betas, "weight_decay": fit.weight_decay, "fused": True}
    of_machine = torch.optim.Adam(weights.values(), lr=fit.learning_rate, **adam)
    of_critic = torch.optim.Adam(critic.parameters.values(), lr=fit.critic_learning_rate, **adam)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _cooled(step, fit))
        for optimizer in (of_machine, of_critic)
    ]
    probes, batches = Source(seed, "probes", device=device), _batches(x, fit.batch_size, seed)
    history: dict[str, list[float]] = {"step": [], "fisher_held_out": []}
    for step in range(fit.steps):
        for _ in range(fit.critic_steps):
            y = next(batches)
            of_critic.zero_grad()
            _regret(critic, _score(weights, y).detach(), y, fit.lam, probes.normals(1, *y.shape)).backward()
            of_critic.step()
        y = next(batches)
        of_machine.zero_grad()
        (_score(weights, y) * critic.field(y)[0].detach()).sum(-1).mean().backward()
        of_machine.step()
        for schedule in schedules:
            schedule.step()
        share = max(1 - fit.averaging, 1 / (step + 2))  # an even average until it is long enough
        for name, value in averaged.items():
            value.lerp_(weights[name].detach(), share)
        if (step + 1) % fit.log_every and step + 1 < fit.steps:
            continue
        with torch.no_grad():
            fisher = -2 * fit.lam * float(_regret(critic, _score(weights, measured), measured, fit.lam))
        if not abs(fisher) < _ABSURD:
            raise DivergedError(f"learning diverged by step {step + 1}: lower the learning rates")
        history["step"].append(step + 1.0)
        history["fisher_held_out"].append(fisher)
        for call in context.callbacks:
            call(step, fit.steps, {"fisher_held_out": torch.tensor(fisher)})
    return averaged, history


def _start(fit: MachineFit, x: Points, seed: int) -> dict[str, Tensor]:
    """A Gaussian at the mean of the data, almost."""
    location, source = x.mean(0), generator(seed, "first weights")
    first = (_FIRST_WEIGHTS * torch.randn(x.shape[1], fit.hidden, generator=source)).to(x)
    hidden = -0.5 * location @ first if fit.balanced else torch.randn(fit.hidden, generator=source).to(x)
    return {"weights": first, "visible_bias": location, "hidden_bias": hidden}


def _cooled(step: int, fit: MachineFit) -> float:
    """What is left of a learning rate."""
    left = min(1.0, (fit.steps - step) / max(1.0, fit.cooldown * fit.steps))
    return 0.5 * (1 - math.cos(math.pi * left))


def _batches(rows: Points, size: int, seed: int) -> Iterator[Points]:
    """Drawn without replacement, pass by pass; a pass leaves out what fills no batch."""
    source = generator(seed, "order")
    while True:
        order = torch.randperm(len(rows), generator=source).to(rows.device)
        yield from (rows[order[k * size : (k + 1) * size]] for k in range(len(rows) // size))


def _score(weights: Mapping[str, Tensor], y: Points) -> Points:
    r"""$b - y + \tfrac12 B \tanh(\tfrac12 B^\top y + c)$, differentiable in the weights."""
    hidden = torch.tanh(torch.addmm(weights["hidden_bias"], y, weights["weights"], alpha=0.5))
    return torch.addmm(weights["visible_bias"], hidden, weights["weights"].mT, alpha=0.5) - y


def _regret(critic: Bank, score: Points, y: Points, lam: float, probe: Tensor | None = None) -> Tensor:
    r"""What the critic descends on: $E[\tfrac{\lambda}{2}|f|^2 - T_q f]$."""
    f, div_f = critic.field_and_divergence(y, probe)
    return (0.5 * lam * (f * f).sum(-1) - stein_values(score, f, div_f)).mean()
