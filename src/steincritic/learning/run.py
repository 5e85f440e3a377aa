"""The loop of learning: the critic ascends, the model descends."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.network import Buffers
from steincritic.errors import DivergedError, InputError, check_count
from steincritic.files import rebuilding, taken
from steincritic.learning.learnable import Learnable, Weights
from steincritic.learning.settings import Learning
from steincritic.learning.state import LearningCheckpoint, State
from steincritic.models.base import SamplingModel
from steincritic.rng import Streams, derive, generator
from steincritic.shapes import BankPoints, Points
from steincritic.training.checkpoint import digest_of, moments, restore_moments
from steincritic.training.fitted import History
from steincritic.training.objective import Loss, loss_cotangents, loss_of
from steincritic.training.progress import Callback
from steincritic.training.replay import Replayed
from steincritic.training.staging import Quantity, Stage

_ABSURD = 1e10  # a loss that no data of sensible scale has
_MEASURED = 4096  # held-out rows looked at, at most


class Run:
    """The state of one learning: everything that changes lives here."""

    def __init__(
        self, family: Learnable, x: Points, config: Learning, seed: int, checkpoint: LearningCheckpoint | None
    ) -> None:
        self.family, self.config, self.seed, self.checkpoint = family, config, seed, checkpoint
        y = (x - family.location.to(x)) / family.scale.to(x)
        self.held_out, self.rows = _parted(y, config.held_out, seed)
        if len(self.rows) < config.batch_size:
            raise InputError(
                f"{len(self.rows)} rows are left to train on, fewer than one batch of {config.batch_size}: "
                "lower batch_size or held_out"
            )
        if not len(self.held_out) and getattr(config.staging, "on", None):
            raise InputError("adaptive staging is observed on held-out rows: it needs held_out > 0")
        self.weights = {name: _trained(value.to(x)) for name, value in family.start.items()}
        self.averaged = {name: value.clone() for name, value in self.weights.items()}
        first = config.critic.init(x.shape[1], [derive(seed, "critic")], dtype=x.dtype, device=x.device)
        self.critic = Bank(config.critic, {name: _trained(value) for name, value in first.items()})
        self.model_optimizer = _adam(self.weights, config.learning_rate, config.weight_decay, config.betas)
        self.critic_optimizer = _adam(
            self.critic.parameters, config.critic_learning_rate, config.critic_weight_decay, config.betas
        )
        self.ascend = Replayed(self._ascend, recording=x.is_cuda and family.recordable)
        self.buffers, self.streams = Buffers(), Streams.from_seeds([seed], device=x.device)
        self.counter = torch.zeros((), dtype=torch.int64, device=x.device)  # critic steps, for the probes
        self.stage, self.history = config.staging.begin(), History()
        self.lam = x.new_tensor([self.stage.lam])
        self.terms: list[Tensor] = []  # of the steps since the last row of the history, (3,) each
        self.order: tuple[int, Tensor] | None = None  # of the rows, in one pass over them

    def learn(
        self, callbacks: Sequence[Callback], observers: Sequence[Callable[[int, SamplingModel], None]]
    ) -> None:
        steps = self.config.steps
        try:
            for step in range(self._resume(), steps):
                self._step(step)
                last = step + 1 == steps
                if not last and (step + 1) % self.config.log_every:
                    continue
                row = self._row(step)
                self.history = self.history.with_rows([row])
                self._save(step + 1, last=last)
                for callback in callbacks:
                    callback(step, steps, row)
                for observer in observers:
                    observer(step, self.result)
        finally:
            self.ascend.release()

    @property
    def result(self) -> SamplingModel:
        return self.family.model(self.averaged)

    @cached_property
    def batches_per_pass(self) -> int:
        return len(self.rows) // self.config.batch_size

    def _step(self, step: int) -> None:
        """Some steps of the critic, one of the model."""
        critic_steps = self.config.critic_steps
        self._advance_stage(step)
        self._set_rates(step)
        batches = [self._batch(step * (critic_steps + 1) + k) for k in range(critic_steps + 1)]
        self.counter.fill_(step * critic_steps)
        self.ascend(torch.stack(batches[:-1]), self.lam)
        loss = self._descend(batches[-1], self.lam)
        self.terms.append(torch.cat([loss.stein, loss.penalty, -2 * self.lam * loss.total]))
        share = max(1 - self.config.averaging, 1 / (step + 2))  # an even average until it is long enough
        for name, value in self.averaged.items():
            value.lerp_(self.weights[name], share)

    def _ascend(self, batches: Tensor, lam: Tensor) -> Tensor:
        """One critic step on each of (k, n, d) batches, towards the largest E[T_q f] - λ/2 E|f|²."""
        gradients = {name: _gradient(value) for name, value in self.critic.parameters.items()}
        with torch.no_grad():
            for k, y in enumerate(batches):
                score = self.family.score(self.weights, y)[None]
                f, _, pull = self.critic.network.pullback(
                    self.critic.parameters, y[None], self._probe(k, y), self.buffers
                )
                pull(*loss_cotangents(score, f, lam), gradients)
                self.critic_optimizer.step()
        return lam

    def _descend(self, y: Points, lam: Tensor) -> Loss:
        """One model step along the gradient of E[s·f] with f as it is."""
        f, div_f = self.critic.field_and_divergence(y)
        leaves = {name: value.detach().requires_grad_() for name, value in self.weights.items()}
        score, gradients = model_gradient(self.family, leaves, y, f[0])
        for value, gradient in zip(self.weights.values(), gradients, strict=True):
            _gradient(value).copy_(gradient)
        with torch.no_grad():
            self.model_optimizer.step()
        return loss_of(score[None], f, div_f, lam)

    def _probe(self, k: int, y: Points) -> BankPoints | None:
        if self.config.divergence == "exact":
            return None
        draw = self.streams.normals if self.config.divergence == "gaussian" else self.streams.signs
        return draw(self.counter + k, tuple(y.shape), y.dtype)

    def _batch(self, number: int) -> Points:
        """Batches are drawn without replacement, pass by pass; a pass leaves out what fills no batch."""
        at, within = divmod(number, self.batches_per_pass)
        if self.order is None or self.order[0] != at:
            self.order = (at, self.streams.permutations(at, len(self.rows))[0])
        size = self.config.batch_size
        return self.rows[self.order[1][within * size : (within + 1) * size]]

    def _set_rates(self, step: int) -> None:
        cooling = self.config.cooldown * self.config.steps
        left = min(1.0, (self.config.steps - step) / cooling) if cooling else 1.0
        factor = 0.5 * (1 - math.cos(math.pi * left))
        for optimizer, rate in (
            (self.model_optimizer, self.config.learning_rate),
            (self.critic_optimizer, self.config.critic_learning_rate),
        ):
            optimizer.param_groups[0]["lr"].fill_(factor * rate)

    def _advance_stage(self, step: int) -> None:
        every = self.config.staging.every
        if every is None:
            every = max(1, self.batches_per_pass // (self.config.critic_steps + 1))
        if step and step % every == 0:
            self._enter(self.config.staging.advance(self.stage, self._observe))

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        self.lam.fill_(stage.lam)

    def _observe(self, quantity: Quantity) -> float:
        """What an adaptive staging looks at."""
        if quantity == "monitor" and len(self.held_out):
            return -float(self._fisher_held_out())
        raise InputError(f"a staging asked for {quantity!r}: adaptive staging here needs held_out > 0")

    def _fisher_held_out(self) -> Tensor:
        y, lam = self.held_out, self.lam
        with torch.no_grad():
            score = self.family.score(self.weights, y)[None]
        f, div_f = self.critic.field_and_divergence(y)
        return -2 * lam[0] * loss_of(score, f, div_f, lam).total[0]

    def _row(self, step: int) -> dict[str, Tensor]:
        terms = torch.stack(self.terms)  # (steps, 3)
        self._check_finite(step, terms)
        self.terms = []
        stein, penalty, fisher = terms.double().mean(0).cpu()
        row = {
            "step": torch.tensor(step + 1.0),
            "lam": torch.tensor(self.stage.lam, dtype=torch.float64),
            "stein": stein,
            "penalty": penalty,
            "fisher": fisher,
        }
        return row | ({"fisher_held_out": self._fisher_held_out()} if len(self.held_out) else {})

    def _check_finite(self, step: int, terms: Tensor) -> None:
        bad = ~(terms.abs() < _ABSURD).all(1)
        weights_bad = torch.stack([~value.isfinite().all() for value in self.weights.values()]).any()
        if not bool(bad.any() | weights_bad):
            return
        first = int(bad.nonzero()[0, 0]) if bool(bad.any()) else len(terms) - 1
        at = step + 2 - len(terms) + first
        raise DivergedError(
            f"learning diverged: a loss or weight is beyond {_ABSURD:.0e} or not finite at step {at} of "
            f"{self.config.steps} (lambda {self.stage.lam:.3g}); lower the learning rates "
            f"({self.config.learning_rate:g}, critic {self.config.critic_learning_rate:g}), raise lambda, or "
            "scale the data"
        )

    @cached_property
    def _identity(self) -> str:
        first = (*self.family.start.values(), *self._first_critic)
        settings = (self.config, self.seed, list(self.weights), self.family.settings)
        return digest_of((self.rows, self.held_out, *first), settings)

    def _resume(self) -> int:
        """The step to go on with; everything that changes is put back to where it was."""
        if self.checkpoint is None:
            return 0
        self._first_critic = [value.clone() for value in self.critic.parameters.values()]
        saved = self.checkpoint.load(self._identity, device=self.rows.device)
        if saved is None:
            return 0
        with rebuilding(self.checkpoint.path):
            check_count(saved.step, name="step", least=0, most=self.config.steps)
            for part, held in self._held().items():
                for name, value in held.items():
                    value.copy_(taken(saved.parts[part], name, value))
            restore_moments(self.model_optimizer, self.weights, saved.parts["model adam"])
            restore_moments(self.critic_optimizer, self.critic.parameters, saved.parts["critic adam"])
            self.history = History({name: value.cpu() for name, value in saved.parts["history"].items()})
            self._enter(saved.stage)
        return saved.step

    def _held(self) -> dict[str, Mapping[str, Tensor]]:
        return {"model": self.weights, "average": self.averaged, "critic": self.critic.parameters}

    def _save(self, done: int, *, last: bool) -> None:
        if self.checkpoint is None:
            return
        parts: dict[str, Mapping[str, Tensor]] = self._held() | {
            "model adam": moments(self.model_optimizer, self.weights),
            "critic adam": moments(self.critic_optimizer, self.critic.parameters),
            "history": dict(self.history),
        }
        self.checkpoint.save(self._identity, State(done, self.stage, parts), last=last)


def model_gradient(
    family: Learnable, leaves: Weights, y: Points, f: Points
) -> tuple[Points, tuple[Tensor, ...]]:
    r"""The score, and the gradient in the weights of $E[s_\theta \cdot f]$ with f held fixed."""
    with torch.enable_grad():
        score = family.score(leaves, y)
        stein = (score * f).sum(-1).mean()
        gradients = torch.autograd.grad(
            stein, list(leaves.values()), allow_unused=True, materialize_grads=True
        )
    return score.detach(), gradients


def _parted(y: Points, share: float, seed: int) -> tuple[Points, Points]:
    """Rows to measure on, and rows to train on."""
    count = min(round(share * len(y)), _MEASURED)
    order = torch.randperm(len(y), generator=generator(seed, "held out")).to(y.device)
    return y[order[:count]], y[order[count:]]


def _trained(value: Tensor) -> Tensor:
    """A copy with room for its gradient."""
    value = value.detach().clone()
    value.grad = torch.zeros_like(value)
    return value


def _gradient(value: Tensor) -> Tensor:
    assert value.grad is not None
    return value.grad


def _adam(parameters: Weights, rate: float, decay: float, betas: tuple[float, float]) -> torch.optim.AdamW:
    tensors = list(parameters.values())
    on_gpu = tensors[0].is_cuda
    lr = torch.tensor(rate, device=tensors[0].device)  # a tensor: it changes within a recorded program
    return torch.optim.AdamW(tensors, lr=lr, betas=betas, weight_decay=decay, fused=True, capturable=on_gpu)
