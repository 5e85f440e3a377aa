"""fit_bank: train a bank of critics in one batched program."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from steincritic.critics.bank import Bank, tile_budget
from steincritic.critics.mlp import MLP
from steincritic.critics.network import Network, Parameters
from steincritic.data.points import ScoredPoints
from steincritic.engine import one_thread, threads_that_help
from steincritic.errors import InputError, check_choice, check_count, check_positive
from steincritic.files import rebuilding, taken
from steincritic.rng import Streams, derive
from steincritic.shapes import BankPoints, PerMember
from steincritic.training import checkpoint as checkpoints
from steincritic.training.fitted import FittedBank, History
from steincritic.training.objective import Gap, monitor
from steincritic.training.progress import Callback
from steincritic.training.staging import Quantity, Staged, Staging
from steincritic.training.steps import Draw, Lane, Lanes, Moments

T = TypeVar("T")
_SMALL = 2**17  # numbers in the widest array of a step, up to which torch's threads gain less than a half
_LANE = 5 * 2**15  # the same, of the members that one thread trains at a time
_LOOK = 20  # epochs on a GPU between two looks at its losses
Observer = Callable[[int, Bank, PerMember], None]
_DIVERGENCES: dict[str, Callable[..., Tensor] | None] = {  # what draws the probes
    "exact": None,
    "gaussian": Streams.normals,
    "rademacher": Streams.signs,
}


@dataclass(frozen=True, kw_only=True)
class Training:
    """How critics are trained.

    Args:
        epochs, batch_size, learning_rate: Adam on mini-batches drawn without replacement.
        divergence: the trace in the loss: "exact", or one "gaussian" or "rademacher" probe per point;
            "auto" is exact up to two dimensions and a Gaussian probe beyond, as in the paper.
        selection: which epoch makes the result: "last", or "monitor", that of the lowest monitor.
        monitor: the trace in the monitor, "exact" or one probe per point, as in the paper's code. Tests
            and witnesses always have the exact one.
        dtype: "float32" or "float64".
        tensor_cores: let a GPU round products in training to TF32; everything else stays full precision.
    """

    epochs: int = 60
    batch_size: int = 40
    learning_rate: float = 2e-3
    divergence: str = "auto"
    selection: str = "last"
    monitor: str = "exact"
    dtype: str = "float32"
    tensor_cores: bool = True

    def __post_init__(self) -> None:
        check_count(self.epochs, name="epochs")
        check_count(self.batch_size, name="batch_size")
        check_positive(self.learning_rate, name="learning_rate")
        check_choice(self.divergence, name="divergence", choices=("auto", *_DIVERGENCES))
        check_choice(self.selection, name="selection", choices=("last", "monitor"))
        check_choice(self.monitor, name="monitor", choices=tuple(_DIVERGENCES))
        check_choice(self.dtype, name="dtype", choices=("float32", "float64"))


@dataclass(frozen=True, kw_only=True)
class Yardsticks:
    """What training is measured with; none of it reaches a gradient.

    The first two are functions of the step (0 for the history), so that points can be drawn afresh;
    `always` makes one of points that stay the same.
    """

    validation: Callable[[int], ScoredPoints] | None = None
    gap_p: Callable[[int], Gap] | None = None
    gap_q: Gap | None = None


def always(value: T) -> Callable[[int], T]:
    return lambda step: value


def fit_bank(
    points: ScoredPoints,
    *,
    staging: Staging | Sequence[Staging],
    seeds: Sequence[int],
    network: Network | None = None,
    training: Training | None = None,
    yardsticks: Yardsticks | None = None,
    callbacks: Sequence[Callback] = (),
    observers: Sequence[Observer] = (),
    device: torch.device | str | None = None,
    checkpoint: str | Path | checkpoints.Checkpoint | None = None,
) -> FittedBank:
    """Train one critic per seed, all at once; none depends on others.

    Args:
        points: shared (n, d) or own (e, n, d) training points, scored by the model.
        staging: λ through training, one for all members or one each.
        seeds: decide each member's initial weights, batches and probes.
        yardsticks: validation points and, where p is known, the optimum, for the history.
        observers: called with (epoch, bank, λ) after every epoch, to look at the critics as they are.
        checkpoint: a file to resume from if it is there and to keep after every epoch; it must stem
            from the same data and settings.
    """
    if isinstance(staging, str) or not isinstance(staging, Sequence):
        staging = [staging] * len(seeds)
    stagings = list(staging)
    if not seeds or len(stagings) != len(seeds):
        raise InputError(f"need one staging per seed, got {len(stagings)} for {len(seeds)} seeds")
    for value in stagings:
        if not hasattr(value, "advance"):
            raise InputError(f"staging must be Staged, Adaptive or fixed(lambda), got {value!r}")
    if points.x.ndim == 3 and len(points.x) != len(seeds):
        raise InputError(f"got points for {len(points.x)} members but {len(seeds)} seeds")
    training, yardsticks = training or Training(), yardsticks or Yardsticks()
    _check_yardsticks(stagings, training, yardsticks)
    points = points.to(device=points.x.device if device is None else device)
    file = checkpoints.Checkpoint.at(checkpoint)
    run = _Run(points, stagings, seeds, network or MLP(), training, yardsticks, file)
    return run.fit(callbacks, observers)


def _check_yardsticks(stagings: Sequence[Staging], training: Training, yardsticks: Yardsticks) -> None:
    """Refuse at once what would lack its yardstick after the first epoch."""
    if yardsticks.validation is None and any(watches(training, staging) for staging in stagings):
        why = "selection" if training.selection == "monitor" else "adaptive staging"
        raise InputError(f"{why} by the monitor needs validation points: pass validation=")
    if yardsticks.gap_p is None and any(getattr(staging, "on", None) == "mse_p" for staging in stagings):
        raise InputError('adaptive staging on "mse_p" needs a known p: pass gap_p=')


def monitor_probe(
    kind: str, step: int, points: ScoredPoints, seeds: Sequence[int], like: Bank
) -> BankPoints | None:
    """Counted as those of the loss, so that a monitor can be had again from a critic of that step."""
    draw = _DIVERGENCES[kind]
    if draw is None:
        return None
    streams = Streams.from_seeds([derive(seed, "monitor") for seed in seeds], device=like.device)
    return draw(streams, step, tuple(points.x.shape[-2:]), like.dtype)


def watches(training: Training, staging: Staging) -> bool:
    """Does such a training look at the monitor, and so need points that it is not trained on?"""
    return training.selection == "monitor" or getattr(staging, "on", None) == "monitor"


class _Run:
    """The state of one training: everything that changes lives here."""

    def __init__(
        self,
        points: ScoredPoints,
        stagings: list[Staging],
        seeds: Sequence[int],
        network: Network,
        training: Training,
        yardsticks: Yardsticks,
        checkpoint: checkpoints.Checkpoint | None,
    ) -> None:
        self.training, self.yardsticks, self.seeds = training, yardsticks, tuple(seeds)
        self.checkpoint, self.dtype = checkpoint, getattr(torch, training.dtype)
        points, device = points.to(dtype=self.dtype), points.x.device
        self.points = points.expand(len(seeds))
        self.batch = min(training.batch_size, len(points))
        self.steps_per_epoch = -(-len(points) // self.batch)
        self.bank = Bank(network, network.init(points.dim, seeds, dtype=self.dtype, device=device))
        self.moments = Moments.of(self.bank)
        self.numbers_each = 2 * self.batch * network.widest(self.bank.parameters)  # points and tangents
        self.stagings, self.stages = stagings, [staging.begin() for staging in stagings]
        alike: dict[object, list[int]] = {}  # one that looks at its critic goes through its stages alone
        for k, staging in enumerate(stagings):
            alike.setdefault(staging if isinstance(staging, Staged) else k, []).append(k)
        self.alike = [(stagings[members[0]], members) for members in alike.values()]
        self.best = self.bank.clone() if training.selection == "monitor" else self.bank
        self.lam = torch.zeros(len(seeds), dtype=self.dtype, device=device)
        self.best_numbers = {"lam": self.lam.clone(), "monitor": self.lam.clone()}  # of the best
        self.history, self.rows = History(), list[dict[str, Tensor]]()
        self.unseen: list[tuple[int, Tensor, Tensor]] = []  # epoch, losses and λ that nobody looked at yet
        self.failures: list[str | None] = [None] * len(seeds)
        self.seconds = {"training": 0.0, "evaluation": 0.0}

    def fit(self, callbacks: Sequence[Callback], observers: Sequence[Observer]) -> FittedBank:
        measured = observers or self.yardsticks != Yardsticks() or self.training.selection != "last"
        self.waits = bool(measured)  # for a GPU, to time training apart from what is measured in between
        start = self._resume()
        self.lanes = self._lanes(start * self.steps_per_epoch)
        try:
            for epoch in range(start, self.training.epochs):
                with self._clock("training"), self._precision(), self._cores():
                    row = self._train_epoch(epoch)
                with self._clock("evaluation"):
                    row |= self._measure_epoch(epoch)
                    for observer in observers:
                        observer(epoch, self.bank, self.lam)
                self.rows.append(row)
                if callbacks or self._is_due(epoch):
                    with self._clock("training"):
                        self._look()
                if all(self.failures):
                    break
                self._save(epoch)
                for callback in callbacks:
                    callback(epoch, self.training.epochs, row)
        finally:
            self.lanes.release()
        lam = self.lam if self.best is self.bank else self.best_numbers["lam"]
        failures = tuple(self.failures)
        return FittedBank(self.best.clone(), lam, self.history, self.seeds, failures, self.seconds)

    def _lanes(self, done: int) -> Lanes:
        """Perceptrons on a CPU: two lanes, or more, for threads. Else as many members as memory likes."""
        count, device = len(self.bank), self.bank.device
        # Modules are not safe to call from two threads; threads pay only where no staging looks in between.
        looks = not all(isinstance(staging, Staged) for staging in self.stagings)
        self.parallel = device.type == "cpu" and isinstance(self.bank.network, MLP) and not looks
        if self.parallel:
            pairs = -(-count // (2 * max(1, _LANE // self.numbers_each)))  # each thread has as much to do
            lanes = min(2 * pairs, count)
            edges = [k * count // lanes for k in range(lanes + 1)]
        else:
            edges = [*range(0, count, max(1, tile_budget(device) // self.numbers_each)), count]
        kind = self.training.divergence
        if kind == "auto":
            kind = "exact" if self.points.dim <= 2 else "gaussian"
        probes = _DIVERGENCES[kind]
        draw: Draw | None = None if probes is None else partial(probes, dtype=self.dtype)
        streams = Streams.from_seeds(self.seeds, device=device)
        return Lanes(
            [
                Lane(
                    slice(a, b),
                    self.bank,
                    self.moments,
                    self.points,
                    streams,
                    self.training,
                    draw=draw,
                    done=done,
                )
                for a, b in pairwise(edges)
            ]
        )

    def _train_epoch(self, epoch: int) -> dict[str, Tensor]:
        losses, lams, on_gpu = [], [], self.bank.device.type == "cuda"
        for first, values in self._segments(epoch):
            lam = torch.tensor(values, dtype=self.dtype, pin_memory=on_gpu)
            lams.append(lam.to(self.bank.device, non_blocking=True))  # a GPU is not waited for
            losses.append(self.lanes.train(first, lams[-1], threads=self.threads))
        lam, (stein, penalty) = torch.cat(lams), torch.cat(losses).unbind(1)  # (steps, e) each
        self.lam = lam[-1]
        self.unseen.append((epoch, penalty - stein, lam))
        row = {"loss": penalty - stein, "stein": stein, "penalty": penalty}
        return {name: value.mean(0) for name, value in row.items()} | {"lam": self.lam}

    def _segments(self, epoch: int) -> Iterator[tuple[int, list[list[float]]]]:
        """Parts of an epoch: the first step and λ of each step; between two of them a staging looks."""
        first, lams = epoch * self.steps_per_epoch, list[list[float]]()
        for step in range(first, first + self.steps_per_epoch):
            due = [(s, k) for s, k in self.alike if step and step % (s.every or self.steps_per_epoch) == 0]
            if lams and not all(isinstance(staging, Staged) for staging, _ in due):
                yield first, lams
                first, lams = step, []
            for staging, members in due:
                stage = staging.advance(self.stages[members[0]], partial(self._observe, step, members[0]))
                for k in members:
                    self.stages[k] = stage
            lams.append([stage.lam for stage in self.stages])
        yield first, lams

    def _observe(self, step: int, k: int, quantity: Quantity) -> float:
        """What an adaptive staging looks at: one member's error, on points of this step."""
        member = self.bank[k : k + 1]
        lam = torch.tensor([self.stages[k].lam], dtype=self.dtype, device=self.bank.device)
        if quantity == "monitor" and self.yardsticks.validation is not None:
            points = self.yardsticks.validation(step)  # shared (n, d) or one set a member (e, n, d)
            points = points if points.x.ndim == 2 else points.sets(slice(k, k + 1))
            return float(monitor(member, points, lam, self._probe(step, points, slice(k, k + 1))))
        if quantity == "mse_p" and self.yardsticks.gap_p is not None:
            return float(self.yardsticks.gap_p(step).error(member, lam))
        raise InputError(f"a staging asked for {quantity!r}, and nothing to measure it with was passed")

    def _measure_epoch(self, epoch: int) -> dict[str, Tensor]:
        row: dict[str, Tensor] = {}
        if self.yardsticks.validation is not None:
            points, step = self.yardsticks.validation(0), (epoch + 1) * self.steps_per_epoch
            row["monitor"] = monitor(self.bank, points, self.lam, self._probe(step, points, slice(None)))
        if self.yardsticks.gap_q is not None:
            row["mse_q"] = self.yardsticks.gap_q.error(self.bank, self.lam)
        if self.yardsticks.gap_p is not None:
            row["mse_p"] = self.yardsticks.gap_p(0).error(self.bank, self.lam)
        if self.training.selection == "monitor":  # for each member the epoch where it was lowest
            better = (row["monitor"] < self.best_numbers["monitor"]) | (epoch == 0)
            current = {**self.bank.parameters, "lam": self.lam, "monitor": row["monitor"]}
            for name, value in {**self.best.parameters, **self.best_numbers}.items():
                value[better] = current[name][better]
        return row

    def _probe(self, step: int, points: ScoredPoints, members: slice) -> BankPoints | None:
        """Of some members' monitor after so many steps."""
        return monitor_probe(self.training.monitor, step, points, self.seeds[members], self.bank)

    def _is_due(self, epoch: int) -> bool:
        """Is it time to look at the numbers? On a GPU it would wait for each look."""
        often = self.bank.device.type == "cpu" or self.checkpoint is not None
        return often or epoch % _LOOK == _LOOK - 1 or epoch == self.training.epochs - 1

    def _look(self) -> None:
        if self.unseen and not torch.cat([losses for _, losses, _ in self.unseen]).isfinite().all():
            for epoch, losses, lams in self.unseen:
                self._note_failures(epoch, losses, lams)
        self.history = self.history.with_rows(self.rows)
        self.unseen, self.rows = [], []

    def _note_failures(self, epoch: int, losses: Tensor, lams: Tensor) -> None:
        """Mark members whose loss was not finite, with the step where it happened; (steps, e) arrays."""
        bad = (~losses.isfinite()).cpu()
        for k in bad.any(0).nonzero()[:, 0].tolist():
            if self.failures[k] is None:
                step = int(bad[:, k].nonzero()[0, 0])
                self.failures[k] = (
                    f"non-finite loss at step {epoch * self.steps_per_epoch + step} (epoch {epoch + 1}, "
                    f"lambda {float(lams[step, k]):.3g}, seed {self.seeds[k]}); lower the learning rate "
                    f"({self.training.learning_rate:g}) or standardize the data"
                )

    def _resume(self) -> int:
        """The epoch to go on with; everything that changes is put back to where it was."""
        if self.checkpoint is None:
            return 0
        validation = self.yardsticks.validation
        data = [self.points] if validation is None else [self.points, validation(0)]
        self.identity = checkpoints.identity_of(data, self.training, self.stagings, self.seeds, self.bank)
        saved = self.checkpoint.load(self.identity, device=self.bank.device)
        if saved is None:
            return 0
        with rebuilding(self.checkpoint.path):
            check_count(saved.epoch, name="epoch", least=0, most=self.training.epochs - 1)
            assert len(saved.stages) == len(saved.failures) == len(self.seeds)
            for part, tensors in self._parts().items():
                for name, value in tensors.items():
                    value.copy_(taken(saved.parts[part], name, value))
            self.history = History({k: v.cpu() for k, v in saved.parts["history"].items()})
        self.stages, self.failures = saved.stages, saved.failures
        self.lam.copy_(torch.tensor([stage.lam for stage in self.stages], dtype=self.dtype))
        return saved.epoch + 1

    def _parts(self) -> dict[str, Parameters]:
        """What training changes in place."""
        parts = {"weights": self.bank.parameters, "mean": self.moments.mean, "square": self.moments.square}
        if self.training.selection == "monitor":
            parts |= {"best": self.best.parameters, "kept": self.best_numbers}
        return parts

    def _save(self, epoch: int) -> None:
        if self.checkpoint is not None:
            parts = {**self._parts(), "history": dict(self.history)}
            self.checkpoint.save(
                self.identity, epoch=epoch, stages=self.stages, parts=parts, failures=self.failures
            )

    def _cores(self) -> AbstractContextManager[None]:
        """Who shares the work of an epoch: threads by lanes, torch's threads in each operation, or nobody."""
        self.threads = 1
        if self.bank.device.type != "cpu":
            return nullcontext()
        lanes, threads = len(self.lanes) if self.parallel else 1, torch.get_num_threads()
        if lanes >= threads or self.numbers_each <= _SMALL:
            self.threads = min(lanes, threads)
        if self.threads > 1:
            return nullcontext()  # each lane computes on its thread alone
        small = len(self.bank) * self.numbers_each <= _SMALL
        return one_thread() if small or threads_that_help() == 1 else nullcontext()

    @contextmanager
    def _precision(self) -> Iterator[None]:
        """Of products on a GPU. The setting is the whole process's: threads on a CPU leave it alone."""
        if self.bank.device.type != "cuda":
            yield
            return
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.training.tensor_cores else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    @contextmanager
    def _clock(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self.bank.device.type == "cuda" and self.waits:
            torch.cuda.synchronize(self.bank.device)
        self.seconds[what] += time.perf_counter() - start
