"""Training steps of a bank on a CPU: its members in lanes, each trained for a whole epoch by one thread.

Members are independent, so a lane waits for no other, and its weights and Adam's moments stay in the cache of
one core from step to step. How members are cut into lanes depends on their size alone, never on threads, so
any number of threads gives the same numbers to the last bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.critics.network import Buffers, Parameters, Stacked
from steincritic.data.points import ScoredPoints
from steincritic.engine import EngineName, spread
from steincritic.rng import Streams
from steincritic.shapes import BankPoints, PerMember
from steincritic.training.objective import Loss, loss_cotangents, loss_of

Draw = Callable[[Streams, int | Tensor, tuple[int, ...]], Tensor]  # probes of some steps, (k, e, n, d)
_DRAWN = 2**16  # numbers of probes at a time


@dataclass(frozen=True, eq=False)
class Group:
    """Some members of the bank in training: views of their weights and of their gradients."""

    members: slice
    bank: Bank
    gradients: Parameters

    @classmethod
    def of(cls, bank: Bank, members: slice) -> "Group":
        gradients = {
            name: value.grad[members] for name, value in bank.parameters.items() if value.grad is not None
        }
        return cls(members, bank[members], gradients)

    def gradient(
        self, x: BankPoints, score: BankPoints, lam: PerMember, probe: BankPoints | None, buffers: Buffers
    ) -> Loss:
        """Write the gradient of the members' losses where the optimizer finds it."""
        f, div_f, pull = self.bank.network.pullback(self.bank.parameters, x, probe, buffers)
        pull(*loss_cotangents(score, f, lam), self.gradients)
        return loss_of(score, f, div_f, lam)


def _exact_steps(
    lane: Group, adam: "_Adam", x: Tensor, score: Tensor, lam: Tensor, buffers: Buffers
) -> Iterator[Tensor]:
    """The two terms of the loss before each step, (1, 2, e); x and score are (k, e, n, d), λ (k, e)."""
    for some in zip(x, score, lam, strict=True):
        loss = lane.gradient(*some, None, buffers)
        adam.step()
        yield torch.stack([loss.stein, loss.penalty])[None]


def _probed_steps(
    lane: Group, adam: "_Adam", x: Tensor, score: Tensor, probe: Tensor, lam: Tensor, buffers: Buffers
) -> Tensor:
    """The same of all steps, (k, 2, e), each in few operations: between them threads wait for each other.

    What needs no critic is done for all steps at once: `loss_cotangents` but for λf, and the loss.
    """
    network = lane.bank.network
    assert isinstance(network, MLP)
    share = 1 / x.shape[2]
    shape = (*x.shape[:2], 2, *x.shape[2:])
    rows, out, cotangents = (buffers.take(name, shape, x) for name in ("rows", "values", "cotangents"))
    torch.stack([x, probe], 2, out=rows)
    torch.stack([score, probe], 2, out=cotangents).mul_(-share)
    stacked, weights = map(Stacked.several, (rows, out, cotangents)), (lam * share)[..., None, None]
    for rows_now, out_now, cotangent, weight in zip(*stacked, weights, strict=True):
        back = network.probed(lane.bank.parameters, rows_now, out_now, buffers)
        cotangent.points.addcmul_(out_now.points, weight)
        back(cotangent, lane.gradients)
        adam.step()
    f, moved = out.unbind(2)
    loss = loss_of(score, f, (moved * probe).sum(-1), lam)
    return torch.stack([loss.stein, loss.penalty], 1)


class Lanes:
    """Epochs of Adam of all members; weights and moments stay where bank and optimizer have them."""

    def __init__(
        self,
        bank: Bank,
        optimizer: torch.optim.Adam,
        streams: Streams,
        points: ScoredPoints,
        *,
        batch: int,
        draw: Draw | None,
        count: int,
    ) -> None:
        edges = [k * len(bank) // count for k in range(count + 1)]
        self._points, self._batch, self._draw = points, min(batch, len(points)), draw
        self._buffers: list[Buffers] = []  # of lanes that are not at work
        self._moments = [_moments(optimizer, value) for value in bank.parameters.values()]
        self._lanes = list[tuple[Group, _Adam, Streams]]()
        for members in (slice(a, b) for a, b in pairwise(edges)):
            group = Group.of(bank, members)
            adam = _Adam(group, self._moments, optimizer.param_groups[0])
            self._lanes.append((group, adam, Streams(streams.keys[members])))

    def __len__(self) -> int:
        return len(self._lanes)

    def epoch(self, epoch: int, lam: Tensor, *, threads: int) -> Tensor:
        """The two terms of the loss before each step, (steps, 2, e); λ is (steps, e)."""
        engine: EngineName = "threads" if threads > 1 else "serial"
        done = dict(spread(lambda lane: self._train(*lane, epoch, lam), self._lanes, engine, workers=threads))
        for state in self._moments:
            state["step"].add_(len(lam))
        return torch.cat([done[k] for k in range(len(done))], dim=-1)

    def _train(self, lane: Group, adam: "_Adam", streams: Streams, epoch: int, lam: Tensor) -> Tensor:
        order, batch = streams.permutations(epoch, len(self._points)), self._batch
        x, score = (_dealt(t[lane.members], order) for t in (self._points.x, self._points.score))
        buffers, losses, steps = self._free_buffers(), list[Tensor](), len(lam)
        at_once = max(1, _DRAWN // (len(order) * batch * x.shape[2]))
        full = x.shape[1] // batch
        edges = [*range(0, full, at_once), full, *([steps] if full < steps else [])]  # the last may be short
        for first, end in pairwise(edges):
            count, rows = end - first, slice(first * batch, end * batch)
            now, score_now = (t[:, rows].unflatten(1, (count, -1)).transpose(0, 1) for t in (x, score))
            lam_now = lam[first:end, lane.members]
            if self._draw is None:
                losses += _exact_steps(lane, adam, now, score_now, lam_now, buffers)
                continue
            at = torch.arange(epoch * steps + first, epoch * steps + end)[:, None]
            probe = self._draw(streams, at, (batch, x.shape[2]))[:, :, : now.shape[2]]
            losses.append(_probed_steps(lane, adam, now, score_now, probe, lam_now, buffers))
        self._buffers.append(buffers)
        return torch.cat(losses)

    def _free_buffers(self) -> Buffers:
        try:
            return self._buffers.pop()
        except IndexError:  # all are in use
            return Buffers()


class _Adam:
    """Adam for the members of one lane, in one pass over their weights and moments."""

    def __init__(
        self, lane: Group, moments: Sequence[Mapping[str, Tensor]], settings: Mapping[str, Any]
    ) -> None:
        mean, square = ([one[name][lane.members] for one in moments] for name in ("exp_avg", "exp_avg_sq"))
        self._done = moments[0]["step"].clone()
        weights, gradients = list(lane.bank.parameters.values()), list(lane.gradients.values())
        counts, unused = [self._done] * len(weights), list[Tensor]()
        self._arrays = weights, gradients, mean, square, unused, counts
        self._settings = {
            "lr": settings["lr"],
            "beta1": settings["betas"][0],
            "beta2": settings["betas"][1],
            "weight_decay": 0.0,
            "eps": settings["eps"],
            "amsgrad": False,
            "maximize": False,
        }

    def step(self) -> None:
        self._done += 1
        torch._fused_adam_(*self._arrays, **self._settings)


def _moments(optimizer: torch.optim.Adam, value: Tensor) -> dict[str, Tensor]:
    """Adam's state of a parameter, made where there is none yet."""
    state: dict[str, Tensor] = optimizer.state[value]
    if not state:
        state |= {"step": torch.zeros(()), "exp_avg": torch.zeros_like(value)}
        state["exp_avg_sq"] = torch.zeros_like(value)
    return state


def _dealt(t: Tensor, order: Tensor) -> Tensor:
    """(e, n, d) rows in each member's order."""
    members, n, d = t.shape
    shared = t.stride(0) == 0  # by members
    first = 0 if shared else n * torch.arange(members)[:, None]  # of each member, among the rows of all
    rows = t[0] if shared else t.reshape(members * n, d)
    return rows.index_select(0, (order + first).flatten()).view(t.shape)
