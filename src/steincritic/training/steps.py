"""Steps of Adam of a bank: its members in lanes, each trained through many steps in one go.

Members are independent, so a lane waits for no other. On a CPU a lane is what one thread trains: its weights
and moments stay in the cache of a core from step to step. How members are cut into lanes depends on their
size alone, never on threads, so any number of threads gives the same numbers to the last bit. On a GPU a lane
is what its memory holds, and its steps are replayed from CUDA graphs: one launch for many of them.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.adam import adam

from steincritic.critics.bank import Bank
from steincritic.critics.network import Buffers, Network, Parameters
from steincritic.data.points import ScoredPoints
from steincritic.engine import EngineName, spread
from steincritic.rng import Streams
from steincritic.shapes import BankPerPoint, BankPoints
from steincritic.training.objective import loss_of

if TYPE_CHECKING:
    from steincritic.training.fit import Training

Draw = Callable[[Streams, Tensor, tuple[int, ...]], Tensor]  # probes of some steps, (k, e, n, d)
Program = Callable[..., Tensor]
_DEALT, _DEALT_GPU = 2**16, 2**25  # numbers of points that are dealt at a time
_RECORDED = 32  # steps in one CUDA graph
_EAGER_CALLS = 2  # before a graph is recorded: the program makes its buffers first
# Compiling takes 3 to 10 s for a shape and saves 1.2 us of a critic-step, 180 us of a step of few (H200).
_COMPILING, _SAVED, _FEW = 5.0, 1.2e-6, 150


@dataclass(frozen=True, eq=False)
class Moments:
    """Adam's state of a bank: running means of gradients and of their squares."""

    mean: Parameters
    square: Parameters

    @classmethod
    def of(cls, bank: Bank) -> "Moments":
        return cls(*({name: torch.zeros_like(v) for name, v in bank.parameters.items()} for _ in range(2)))


class Lane:
    """Some members in training: views of their weights, of their moments and of their data."""

    def __init__(
        self,
        members: slice,
        bank: Bank,
        moments: Moments,
        points: ScoredPoints,
        streams: Streams,
        training: "Training",
        *,
        draw: Draw | None,
        done: int,
    ) -> None:
        self.members, self._bank, self._points = members, bank[members], points.sets(members)
        self._streams, self._draw = Streams(streams.keys[members]), draw
        self._batch = min(training.batch_size, len(points))
        self._per_epoch = -(-len(points) // self._batch)
        self._order: tuple[int, Tensor] | None = None  # of an epoch
        weights, rate = self._bank.parameters, training.learning_rate
        self._gradients = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._adam = partial(
            adam,
            list(weights.values()),
            list(self._gradients.values()),
            [value[members] for value in moments.mean.values()],
            [value[members] for value in moments.square.values()],
            [],
            [torch.full((), float(done), device=bank.device) for _ in weights],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
        on_gpu, critics = bank.device.type == "cuda", len(self._bank)
        dealt = (_DEALT_GPU if on_gpu else _DEALT) // (critics * self._batch * points.dim)
        self._at_once = max(1, min(dealt, _RECORDED) if on_gpu else dealt)
        self._steps = Replayed(self._take_steps, recording=on_gpu)
        saved = training.epochs * self._per_epoch * max(critics, _FEW) * _SAVED
        self._compiled = torch.compile(written_gradient) if on_gpu and saved > _COMPILING else None

    def train(self, first: int, lam: Tensor, buffers: Buffers) -> Tensor:
        """The two terms of the loss before each step, (k, 2, e), from the first step on; λ is (k, e).

        All steps are of one epoch. What needs no critic is done for several steps at once.
        """
        epoch, start = divmod(first, self._per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, self._streams.permutations(epoch, len(self._points))
        self._buffers, losses, end = buffers, [], start + len(lam)
        full = max(start, min(end, len(self._points) // self._batch))  # the last batch may be short
        for a, b in pairwise([*range(start, full, self._at_once), full, *([end] if full < end else [])]):
            order = self._order[1][:, a * self._batch : b * self._batch].unflatten(1, (b - a, -1))
            x, score = (_dealt(t, order) for t in (self._points.x, self._points.score))
            inputs = [x, score, lam[a - start : b - start]]
            if self._draw is not None:
                at = first - start + torch.arange(a, b, device=x.device)[:, None]
                inputs.append(self._draw(self._streams, at, (self._batch, x.shape[3]))[:, :, : x.shape[2]])
            losses.append(self._steps(*inputs))
        return torch.cat(losses)

    def release(self) -> None:
        self._steps.release()

    def _take_steps(self, x: Tensor, score: Tensor, lam: Tensor, probe: Tensor | None = None) -> Tensor:
        """Steps on points (k, e, n, d) that are dealt.

        The derivative of the loss in f is cotangent + weight f, that in ∇·f is -1/n.
        """
        buffers, share = self._buffers.get(_Kept, x, *x.shape), 1 / x.shape[2]
        torch.mul(score, -share, out=buffers.cotangents)
        buffers.of_divergence.fill_(-share)
        weights = (lam * share)[..., None, None].unbind()
        probes = [None] * len(x) if probe is None else probe.unbind()
        for k, (rows, z, cotangent) in enumerate(
            zip(x.unbind(), probes, buffers.cotangents.unbind(), strict=True)
        ):
            f, div_f = self._gradient(rows, z, cotangent, weights[k], buffers.of_divergence)
            self._adam()
            buffers.f[k].copy_(f)
            buffers.div_f[k].copy_(div_f)
        loss = loss_of(score, buffers.f, buffers.div_f, lam)
        return torch.stack([loss.stein, loss.penalty], 1)

    def _gradient(
        self,
        x: BankPoints,
        probe: BankPoints | None,
        cotangent: BankPoints,
        weight: Tensor,
        of_divergence: BankPerPoint,
    ) -> tuple[BankPoints, BankPerPoint]:
        """Write the gradient of the members' losses; f and ∇·f before the step."""
        network, parameters = self._bank.network, self._bank.parameters
        if self._compiled is not None and x.shape[1] == self._batch:
            try:
                compiled = self._compiled(network, parameters, x, probe, cotangent, weight, self._gradients)
                return compiled[0], compiled[1]
            except Exception:  # no compiler, or an operation that it does not know
                self._compiled = None
        f, div_f, pull = network.pullback(parameters, x, probe, self._buffers)
        pull(cotangent.addcmul_(f, weight), of_divergence, self._gradients)
        return f, div_f


class _Kept:
    """Of some steps: f, ∇·f, and the derivatives of the loss in them but for what depends on f."""

    def __init__(self, like: Tensor, steps: int, members: int, n: int, d: int) -> None:
        self.f, self.cotangents = (like.new_empty(steps, members, n, d) for _ in range(2))
        self.div_f, self.of_divergence = like.new_empty(steps, members, n), like.new_empty(members, n)


def written_gradient(
    network: Network,
    parameters: Parameters,
    x: BankPoints,
    probe: BankPoints | None,
    cotangent: BankPoints,
    weight: Tensor,
    into: Parameters,
) -> tuple[BankPoints, BankPerPoint]:
    """The gradient by automatic differentiation of the loss, for `torch.compile`."""

    def loss(parameters: Parameters) -> tuple[Tensor, tuple[BankPoints, BankPerPoint]]:
        f, div_f = network.field_and_divergence(parameters, x, probe)
        total = (f * cotangent).sum() - div_f.sum() / x.shape[1] + (weight / 2 * f * f).sum()
        return total, (f, div_f)

    gradients, (f, div_f) = torch.func.grad(loss, has_aux=True)(parameters)
    for name, gradient in gradients.items():
        into[name].copy_(gradient)
    return f, div_f


class Lanes:
    """All members of a bank."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._buffers: list[Buffers] = []  # of threads that are not at work

    def __len__(self) -> int:
        return len(self._lanes)

    def train(self, first: int, lam: Tensor, *, threads: int) -> Tensor:
        """As of a lane, for all members."""

        def train_lane(lane: Lane) -> Tensor:
            try:
                buffers = self._buffers.pop()
            except IndexError:  # all are in use
                buffers = Buffers()
            losses = lane.train(first, lam[:, lane.members], buffers)
            self._buffers.append(buffers)
            return losses

        engine: EngineName = "threads" if threads > 1 else "serial"
        done = dict(spread(train_lane, self._lanes, engine, workers=threads))
        return torch.cat([done[k] for k in range(len(done))], dim=-1)

    def release(self) -> None:
        for lane in self._lanes:
            lane.release()


def _dealt(t: Tensor, order: Tensor) -> Tensor:
    """The batches (k, e, b, d) of rows (e, n, d) that each member's order (e, k, b) names."""
    members, n, d = t.shape
    shared = t.stride(0) == 0  # by members
    rows = t[0] if shared else t.reshape(members * n, d)
    order = order if shared else order + n * torch.arange(members, device=t.device)[:, None, None]
    order = order.transpose(0, 1)
    return rows.index_select(0, order.flatten()).view(*order.shape, d)


class Replayed:
    """A program of tensors as a CUDA graph, one for each combination of input shapes.

    The program must do the same work whatever the values are, and keep what it writes in place. With
    recording off it simply runs.
    """

    def __init__(self, program: Program, *, recording: bool) -> None:
        self._program, self._recording = program, recording
        self._calls: dict[tuple[torch.Size, ...], int] = {}
        self._recorded: dict[tuple[torch.Size, ...], _Recording] = {}

    def __call__(self, *inputs: Tensor) -> Tensor:
        if not self._recording:
            return self._program(*inputs)
        key = tuple(t.shape for t in inputs)
        self._calls[key] = self._calls.get(key, 0) + 1
        if self._calls[key] <= _EAGER_CALLS:
            return self._program(*inputs)
        if key not in self._recorded:
            self._recorded[key] = _Recording(self._program, inputs)
        return self._recorded[key](*inputs)

    def release(self) -> None:
        """Let the graphs go now: one that waits for the garbage collector may break another's recording."""
        self._recorded.clear()


class _Recording:
    def __init__(self, program: Program, inputs: tuple[Tensor, ...]) -> None:
        self._inputs = [t.clone() for t in inputs]
        self._graph = torch.cuda.CUDAGraph()
        was_on = gc.isenabled()
        gc.disable()  # while a graph is recorded nothing on the device may be freed, so garbage waits
        torch.cuda.synchronize()  # torch.cuda.graph would also collect garbage and empty caches: 50 ms
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                self._graph.capture_begin()
                try:
                    self._output = program(*self._inputs)
                finally:
                    self._graph.capture_end()
        finally:
            if was_on:
                gc.enable()

    def __call__(self, *inputs: Tensor) -> Tensor:
        for static, fresh in zip(self._inputs, inputs, strict=True):
            static.copy_(fresh)
        self._graph.replay()
        return self._output.clone()
