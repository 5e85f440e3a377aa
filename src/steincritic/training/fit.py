"""fit_bank: train a bank of critics in one batched program."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from steincritic.critics.bank import Bank, tile_budget
from steincritic.critics.mlp import MLP
from steincritic.critics.network import Buffers, Network
from steincritic.data.points import ScoredPoints
from steincritic.engine import one_thread, threads_that_help
from steincritic.errors import InputError, check_choice, check_count, check_positive
from steincritic.files import rebuilding
from steincritic.rng import Streams
from steincritic.shapes import BankPoints, PerMember
from steincritic.stein.operator import stein_values
from steincritic.training import checkpoint as checkpoints
from steincritic.training.fitted import FittedBank, History
from steincritic.training.fused import FusedSteps, fits
from steincritic.training.lanes import Draw, Group, Lanes
from steincritic.training.objective import Gap, monitor
from steincritic.training.progress import Callback
from steincritic.training.replay import Replayed
from steincritic.training.selection import Epoch, Keeper, keeper
from steincritic.training.staging import Quantity, Stage, Staged, Staging

T = TypeVar("T")
_SMALL = 2**17  # numbers in the widest array of a step, up to which torch's threads gain less than a half
_LANE = 5 * 2**15  # the same, of the members that one thread trains at a time
_LOOK = 20  # epochs on a GPU between two looks at its losses
Observer = Callable[[int, Bank, PerMember], None]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How critics are trained.

    Args:
        epochs, batch_size, learning_rate: Adam on mini-batches drawn without replacement.
        divergence: the trace in the loss: "exact", or one "gaussian" or "rademacher" probe per point;
            "auto" is exact up to two dimensions and a Gaussian probe beyond, as in the paper. Outside
            the loss the divergence is always exact.
        selection: which epochs make the result: "last", "monitor" or "trajectory".
        dtype: "float32" or "float64".
        tensor_cores: let a GPU round products in training to TF32; everything else stays full precision.
    """

    epochs: int = 60
    batch_size: int = 40
    learning_rate: float = 2e-3
    divergence: str = "auto"
    selection: str = "last"
    dtype: str = "float32"
    tensor_cores: bool = True

    def __post_init__(self) -> None:
        check_count(self.epochs, name="epochs")
        check_count(self.batch_size, name="batch_size")
        check_positive(self.learning_rate, name="learning_rate")
        check_choice(self.divergence, name="divergence", choices=("auto", "exact", "gaussian", "rademacher"))
        check_choice(self.selection, name="selection", choices=("last", "monitor", "trajectory"))
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
    """Train one critic per seed, all at once; none depends on others unless the network shares weights.

    Args:
        points: shared (n, d) or own (e, n, d) training points, scored by the model.
        staging: λ through training, one for all members or one each.
        seeds: decide each member's initial weights, batches and probes.
        yardsticks: validation points and, where p is known, the optimum, for the history.
        observers: called with (epoch, bank, λ) after every epoch, to look at the critics as they are.
        checkpoint: a file to resume from if it is there and to keep after every epoch; it must stem
            from the same data and settings.
    """
    stagings = list(staging) if isinstance(staging, Sequence) else [staging] * len(seeds)
    if not seeds or len(stagings) != len(seeds):
        raise InputError(f"need one staging per seed, got {len(stagings)} for {len(seeds)} seeds")
    for one in stagings:
        if not hasattr(one, "advance"):
            raise InputError(f"staging must be Staged, Adaptive or fixed(lambda), got {one!r}")
    if points.x.ndim == 3 and len(points.x) != len(seeds):
        raise InputError(f"got points for {len(points.x)} members but {len(seeds)} seeds")
    training, yardsticks = training or Training(), yardsticks or Yardsticks()
    if training.selection == "trajectory" and len(points) < 2:
        raise InputError(f'selection "trajectory" needs the spread of at least 2 points, x has {len(points)}')
    _check_yardsticks(stagings, training, yardsticks)
    points = points.to(device=points.x.device if device is None else device)
    file = checkpoints.Checkpoint.at(checkpoint)
    run = _Run(points, stagings, seeds, network or MLP(), training, yardsticks, file)
    return run.fit(callbacks, observers)


def _check_yardsticks(stagings: Sequence[Staging], training: Training, yardsticks: Yardsticks) -> None:
    """Refuse at once what would lack its yardstick after the first epoch."""
    watched = {getattr(staging, "on", None) for staging in stagings}
    if yardsticks.validation is None and (training.selection == "monitor" or "monitor" in watched):
        why = "selection" if training.selection == "monitor" else "adaptive staging"
        raise InputError(f"{why} by the monitor needs validation points: pass validation=")
    if yardsticks.gap_p is None and "mse_p" in watched:
        raise InputError('adaptive staging on "mse_p" needs a known p: pass gap_p=')


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
        self.training, self.stagings, self.yardsticks = training, stagings, yardsticks
        self.seeds, self.checkpoint = tuple(seeds), checkpoint
        self.dtype = getattr(torch, training.dtype)
        points, device = points.to(dtype=self.dtype), points.x.device
        self.points = points.expand(len(seeds))
        parameters = network.init(points.dim, seeds, dtype=self.dtype, device=device)
        self.bank = Bank(network, parameters)
        for value in parameters.values():
            value.grad = torch.zeros_like(value)
        self.shared = [parameters[name] for name in network.shared(parameters)]
        self.optimizer = torch.optim.Adam(
            list(parameters.values()), lr=training.learning_rate, fused=True, capturable=device.type == "cuda"
        )
        self.streams = Streams.from_seeds(seeds, device=device)
        self.update = Replayed(self._update, recording=device.type == "cuda")
        self.fused = self._fused_steps()
        self.counter = torch.zeros((), dtype=torch.int64, device=device)  # the step, for the streams
        self.buffers, self.threads = Buffers(), 1
        self.groups: dict[int, list[Group]] = {}
        self.stages: list[Stage] = [staging.begin() for staging in stagings]
        self.known_lam: tuple[tuple[float, ...], PerMember] | None = None
        self.keeper: Keeper = keeper(training.selection)
        self.history, self.rows = History(), list[dict[str, Tensor]]()
        self.unseen: list[tuple[int, Tensor, Tensor]] = []  # epoch, losses and λ that nobody looked at yet
        self.failures: list[str | None] = [None] * len(seeds)
        self.seconds = {"training": 0.0, "evaluation": 0.0}

    def fit(self, callbacks: Sequence[Callback], observers: Sequence[Observer]) -> FittedBank:
        measured = observers or self.yardsticks != Yardsticks() or self.training.selection != "last"
        self.waits = bool(measured)  # for a GPU, to time training apart from what is measured in between
        try:
            for epoch in range(self._resume(), self.training.epochs):
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
            self.update.release()
            if self.fused is not None:
                self.fused.release()
        return FittedBank(
            self.keeper.result(), self.history, self.seeds, tuple(self.failures), dict(self.seconds)
        )

    @cached_property
    def steps_per_epoch(self) -> int:
        return -(-len(self.points) // self.training.batch_size)

    @property
    def lam(self) -> PerMember:
        values = tuple(stage.lam for stage in self.stages)
        if self.known_lam is None or self.known_lam[0] != values:  # a GPU waits for each copy
            there = torch.tensor(values, dtype=self.dtype).to(self.bank.device, non_blocking=True)
            self.known_lam = values, there
        return self.known_lam[1]

    def _train_epoch(self, epoch: int) -> dict[str, Tensor]:
        ahead = self.fused is not None or self.lanes is not None
        losses, lams = (self._epoch_ahead if ahead else self._plain_epoch)(epoch)
        stein, penalty = losses.unbind(1)  # (steps, e) each
        self.unseen.append((epoch, penalty - stein, lams))
        row = {"loss": penalty - stein, "stein": stein, "penalty": penalty}
        return {name: value.mean(0) for name, value in row.items()} | {"lam": lams[-1]}

    def _plain_epoch(self, epoch: int) -> tuple[Tensor, Tensor]:
        """The two terms of the loss, (steps, 2, e), and λ, (steps, e)."""
        order = self.streams.permutations(epoch, len(self.points))  # (e, n)
        shuffled = [t.gather(1, order[..., None].expand(t.shape)) for t in (self.points.x, self.points.score)]
        batches = zip(*(t.split(self.training.batch_size, dim=1) for t in shuffled), strict=True)
        lam, losses, lams = self.lam, [], []
        for step, (x, score) in enumerate(batches, start=epoch * self.steps_per_epoch):
            if self._advance_stages(step):
                lam = self.lam
            self.counter.fill_(step)
            losses.append(self.update(x, score, lam))
            lams.append(lam)
        return torch.stack(losses), torch.stack(lams)

    def _epoch_ahead(self, epoch: int) -> tuple[Tensor, Tensor]:
        """The same, where λ is known for the whole epoch."""
        first = epoch * self.steps_per_epoch
        for step in range(first, first + self.steps_per_epoch):
            self._advance_stages(step)
        lam = self.schedule[first : first + self.steps_per_epoch]
        self.known_lam = tuple(stage.lam for stage in self.stages), lam[-1]
        if self.lanes is not None:
            return self.lanes.epoch(epoch, lam, threads=self.threads), lam
        assert self.fused is not None
        self.fused.begin(epoch, self.points, normal=self._probe_kind == "gaussian")
        self.fused.run(lam)
        return self.fused.losses(), lam

    @cached_property
    def schedule(self) -> Tensor:
        """λ at every step, (steps, e), for stagings that look at nothing."""
        columns, steps = (
            torch.empty(len(self.seeds), dtype=torch.int64),
            range(self.training.epochs * self.steps_per_epoch),
        )
        lams = []
        for k, (staging, members) in enumerate(self._alike):
            columns[members] = k
            stage, lam = staging.begin(), []
            for step in steps:
                if step and step % (staging.every or self.steps_per_epoch) == 0:
                    stage = staging.advance(stage, partial(self._observe, step, members[0]))
                lam.append(stage.lam)
            lams.append(lam)
        table = torch.tensor(lams, dtype=self.dtype).T.to(self.bank.device)
        return table[:, columns.to(table.device)]

    def _fused_steps(self) -> FusedSteps | None:
        exact, training = self._probe_kind == "exact", self.training
        if not (self._independent and fits(self.bank, exact=exact, tensor_cores=training.tensor_cores)):
            return None
        return FusedSteps(
            self.bank,
            self.optimizer,
            self.streams.keys,
            n=len(self.points),
            batch=training.batch_size,
            epochs=training.epochs,
        )

    @cached_property
    def _independent(self) -> bool:
        """Does nothing look at a critic between two steps, nor join several?"""
        return not self.shared and all(isinstance(staging, Staged) for staging in self.stagings)

    @cached_property
    def lanes(self) -> Lanes | None:
        """For perceptrons on a CPU; a module is not safe to call from two threads."""
        if self.bank.device.type != "cpu" or not isinstance(self.bank.network, MLP) or not self._independent:
            return None
        batch = min(self.training.batch_size, len(self.points))
        most = max(1, _LANE // self._numbers_each(batch))
        pairs = -(-len(self.bank) // (2 * most))  # two threads, or more, have as much to do each
        return Lanes(
            self.bank,
            self.optimizer,
            self.streams,
            self.points,
            batch=batch,
            draw=self._draw,
            count=min(2 * pairs, len(self.bank)),
        )

    def _update(self, x: BankPoints, score: BankPoints, lam: PerMember) -> Tensor:
        """One step of every member; the two terms of the loss before it, (2, e)."""
        probe = self._probe(x)
        losses = []
        for group in self._groups(x.shape[1]):
            k = group.members
            own = None if probe is None else probe[k]
            losses.append(group.gradient(x[k], score[k], lam[k], own, self.buffers))
        for value in self.shared:  # every copy moves along the gradient of the members' losses together
            assert value.grad is not None
            value.grad.copy_(value.grad.sum(0, keepdim=True))
        self.optimizer.step()
        for value in self.shared:  # the same step rounds differently at the end of an array
            value[1:].copy_(value[:1])
        return torch.cat([torch.stack([loss.stein, loss.penalty]) for loss in losses], dim=1)

    def _groups(self, batch: int) -> list[Group]:
        """Members that go through a step together: all on a GPU, as many as a CPU's cache holds."""
        size = max(1, tile_budget(self.bank.device) // self._numbers_each(batch))
        if size not in self.groups:
            slices = [slice(k, k + size) for k in range(0, len(self.bank), size)]
            self.groups[size] = [Group.of(self.bank, members) for members in slices]
        return self.groups[size]

    def _numbers_each(self, batch: int) -> int:
        """Numbers in the widest array of one member's step: points and tangents."""
        return 2 * batch * self.bank.network.widest(self.bank.parameters)

    def _probe(self, x: BankPoints) -> BankPoints | None:
        return self._draw and self._draw(self.streams, self.counter, tuple(x.shape[1:]))

    @property
    def _draw(self) -> Draw | None:
        """How probes are drawn; None where the divergence is exact."""
        if self._probe_kind == "exact":
            return None
        kind = Streams.normals if self._probe_kind == "gaussian" else Streams.signs
        return partial(kind, dtype=self.dtype)

    @property
    def _probe_kind(self) -> str:
        kind = self.training.divergence
        return kind if kind != "auto" else "exact" if self.points.dim <= 2 else "gaussian"

    def _advance_stages(self, step: int) -> bool:
        """Move every member whose interval ends here; says whether any did."""
        moved = False
        for staging, members in self._alike:
            if step and step % (staging.every or self.steps_per_epoch) == 0:
                first = members[0]
                stage = staging.advance(self.stages[first], partial(self._observe, step, first))
                for k in members:
                    self.stages[k] = stage
                moved = True
        return moved

    @cached_property
    def _alike(self) -> list[tuple[Staging, list[int]]]:
        """Members that go through the same stages; one that looks at its critic goes alone."""
        groups: dict[object, list[int]] = {}
        for k, staging in enumerate(self.stagings):
            groups.setdefault(staging if isinstance(staging, Staged) else k, []).append(k)
        return [(self.stagings[members[0]], members) for members in groups.values()]

    def _observe(self, step: int, k: int, quantity: Quantity) -> float:
        """What an adaptive staging looks at: one member's error, on points of this step."""
        member, lam = self.bank[k : k + 1], self.lam[k : k + 1]
        if quantity == "monitor" and self.yardsticks.validation is not None:
            points = self.yardsticks.validation(step)  # shared (n, d) or own (e, n, d)
            own = points if points.x.ndim == 2 else points.sets(slice(k, k + 1))
            return float(monitor(member, own, lam))
        if quantity == "mse_p" and self.yardsticks.gap_p is not None:
            return float(self.yardsticks.gap_p(step).error(member, lam))
        raise InputError(f"a staging asked for {quantity!r}, and nothing to measure it with was passed")

    def _measure_epoch(self, epoch: int) -> dict[str, Tensor]:
        row: dict[str, Tensor] = {}
        yard, lam = self.yardsticks, self.lam
        if yard.validation is not None:
            row["monitor"] = monitor(self.bank, yard.validation(0), lam)
        if yard.gap_q is not None:
            row["mse_q"] = yard.gap_q.error(self.bank, lam)
        if yard.gap_p is not None:
            row["mse_p"] = yard.gap_p(0).error(self.bank, lam)
        self.keeper.see(Epoch(epoch, self.training.epochs, self.bank, lam, row.get("monitor"), self._spread))
        return row

    def _spread(self) -> PerMember:
        f, div_f = self.bank.field_and_divergence(self.points.x)
        return (self.lam[:, None] * stein_values(self.points.score, f, div_f)).std(-1)

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
            saved.into_optimizer(self.bank, self.optimizer)
            self.keeper.restore(dict(saved.parts.get("keeper", {})), self.bank)
            self.history = History({k: v.cpu() for k, v in saved.parts["history"].items()})
        self.stages, self.failures = saved.stages, saved.failures
        return saved.epoch + 1

    def _save(self, epoch: int) -> None:
        if self.checkpoint is not None:
            if self.fused is not None:
                self.fused.count((epoch + 1) * self.steps_per_epoch)
            self.checkpoint.save(
                self.identity,
                epoch=epoch,
                bank=self.bank,
                optimizer=self.optimizer,
                stages=self.stages,
                parts={"keeper": self.keeper.state(), "history": dict(self.history)},
                failures=self.failures,
            )

    def _cores(self) -> AbstractContextManager[None]:
        """Who shares the work of an epoch: threads by lanes, torch's threads in each operation, or nobody."""
        if self.bank.device.type != "cpu":
            return nullcontext()
        each = self._numbers_each(min(self.training.batch_size, len(self.points)))
        lanes, threads = 1 if self.lanes is None else len(self.lanes), torch.get_num_threads()
        self.threads = 1 if lanes < threads and each > _SMALL else min(lanes, threads)
        if self.threads > 1:
            return nullcontext()  # each lane computes on its thread alone
        small = len(self.bank) * each <= _SMALL
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
