"""Training steps of a bank in a handful of programs on a GPU, for the critics that most tests train.

Plain torch moves every array through memory dozens of times per step; here each product comes with what is
before and after it (`fused_kernels.py`), and a step is eight launches, recorded once. It needs Triton, which
comes with torch's CUDA builds. Numbers agree with the plain path's up to the rounding of TF32 products, which
both use.
`STEINCRITIC_FUSED=0` in the environment switches it off.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.training.replay import Replayed

_BETAS = 0.9, 0.999  # Adam's, as the programs have them
_WIDE = 256  # from here on a library's product, by itself, gains more than one program for all
_CHUNK = 4  # steps that are launched together
_BLOCK = 1024  # numbers of a program without a product
# Tiles, fastest on an H200: rows, columns and inner length of a product.
_LAYER = {"M": 16, "C": 128, "L": 32, "num_warps": 4, "num_stages": 2}
_DESCEND = {"M": 32, "C": 128, "L": 16, "num_warps": 4, "num_stages": 3}


def fits(bank: Bank, *, exact: bool, tensor_cores: bool) -> bool:
    """Are there programs for such critics?"""
    network = bank.network
    return (
        isinstance(network, MLP)
        and (network.activation, network.learnable_slope) == ("silu", False)
        and not exact
        and tensor_cores
        and bank.device.type == "cuda"
        and bank.dtype == torch.float32
        and os.environ.get("STEINCRITIC_FUSED") != "0"
        and _triton_works(bank.device)
    )


@cache
def _triton_works(device: torch.device) -> bool:
    """Triton is there, and so is what it makes its programs with."""
    if find_spec("triton") is None:
        return False
    one = torch.zeros(4, device=device)
    try:
        _programs().bend[(1, 1)](one, one, one, 1, BATCH=2, BLOCK=16)
    except Exception:  # no C compiler for its launcher, an old driver: the plain path needs neither
        return False
    return True


def _programs() -> ModuleType:
    from steincritic.training import fused_kernels

    return fused_kernels


class FusedSteps:
    """Steps of Adam of all members on the batches of an epoch; its moments are the optimizer's."""

    def __init__(
        self, bank: Bank, optimizer: torch.optim.Adam, keys: Tensor, *, n: int, batch: int, epochs: int
    ) -> None:
        assert isinstance(bank.network, MLP)
        self._network, self._optimizer, self._keys = bank.network, optimizer, keys
        self._n, self._batch, self._steps = n, min(n, batch), -(-n // batch)
        layers = range(1, len(bank.network.hidden) + 2)
        held = [_Held.of(bank.parameters[f"{kind}{k}"]) for k in layers for kind in "wb"]
        self._weights = list(zip(held[::2], held[1::2], strict=True))
        like, members = held[0].value, len(bank)
        d, self._members, self._fresh = like.shape[1], members, True

        def array(*shape: int) -> Tensor:
            return like.new_zeros(shape)  # which padded coordinates stay

        self._clock = torch.zeros(2, dtype=torch.int64, device=like.device)  # steps of the epoch, and of all
        self._lam, self._pace = array(self._steps, members), self._pace_of(epochs * self._steps, like)
        dealt = array(self._steps, members, 2 * self._batch, d)
        self._score = array(self._steps, members, self._batch, d)
        widths = [w.value.shape[2] for w, _ in self._weights]
        # Rows into each layer: the epoch's, then what is before each activation; and derivatives after each.
        self._rows = [dealt, *(array(members, 2 * self._batch, width) for width in widths[:-1])]
        self._of = [array(members, 2 * self._batch, width) for width in widths]
        self._active = {
            k: array(members, 2 * self._batch, self._weights[k][0].value.shape[1]) for k in self._wide()
        }
        self._losses = array(
            self._steps, _tiles(self._batch, _LAYER["M"]) * _tiles(d, _LAYER["C"]), 2, members
        )
        self._lots = torch.empty(members, n, dtype=torch.int64, device=like.device)
        recording = like.device.type == "cuda"
        self._chunks = {
            count: Replayed(partial(self._launch, count), recording=recording, eager=0)
            for count in {min(_CHUNK, self._steps), self._steps % _CHUNK} - {0}
        }
        self._launch(1)  # on nothing but zeros, which changes nothing and makes the programs

    def begin(self, epoch: int, points: ScoredPoints, *, normal: bool) -> None:
        """Deal the epoch's points in a random order and draw its probes."""
        if self._fresh:  # after a checkpoint was read
            for weight in self._all():
                weight.take(self._optimizer)
            self._fresh = False
        _programs().lots[(self._members, _tiles(self._n, _BLOCK))](
            self._keys, epoch, self._lots, self._n, BLOCK=_BLOCK
        )
        order = self._lots.argsort(dim=-1)
        self._clock[0].fill_(0)
        self._clock[1].fill_(epoch * self._steps)
        d, x, score = points.dim, _plain_rows(points.x), _plain_rows(points.score)
        _programs().deal[(self._members, self._steps, _tiles(self._batch * d, _BLOCK))](
            self._clock, order, self._keys, x, score, self._rows[0], self._score,
            x.stride(0), score.stride(0), self._n, d, self._rows[0].shape[-1], self._network.fixed,
            NORMAL=normal, BATCH=self._batch, BLOCK=_BLOCK,
        )  # fmt: skip

    def run(self, lam: Tensor) -> None:
        """All steps of the epoch, with λ of each, (steps, e)."""
        self._lam.copy_(lam)
        for first in range(0, self._steps, _CHUNK):
            self._chunks[min(_CHUNK, self._steps - first)]()
        for weight in self._all():
            weight.give()

    def losses(self) -> Tensor:
        """The two terms of the loss before each step, (steps, 2, e)."""
        return self._losses.sum(1)

    def count(self, done: int) -> None:
        """Give the optimizer the moments after so many steps, for a checkpoint."""
        for weight in self._all():
            weight.give_moments(self._optimizer, done)

    def release(self) -> None:
        for chunk in self._chunks.values():
            chunk.release()

    def _launch(self, count: int) -> Tensor:
        """So many steps."""
        last = len(self._weights) - 1
        for ahead in range(count):
            for k in range(last):
                self._forward(k, ahead)
            self._forward_last(last, ahead)
            for k in range(last, 0, -1):
                self._backward(k)
                self._descend(k, ahead)
            self._descend(0, ahead)
        self._clock += count
        return self._clock

    def _forward(self, k: int, ahead: int) -> None:
        (w, b), programs = (held.value for held in self._weights[k]), _programs()
        out, (K, N) = self._rows[k + 1], w.shape[1:]
        if k in self._active:
            programs.activate[(self._members, _tiles(self._batch * K, _BLOCK))](
                self._clock,
                ahead,
                self._rows[k],
                self._active[k],
                K,
                RAW=k == 0,
                BATCH=self._batch,
                BLOCK=_BLOCK,
            )
            torch.bmm(self._active[k], w, out=out)
            out[:, : self._batch].add_(b)
            return
        programs.layer[self._grid(N)](
            self._clock,
            ahead,
            self._rows[k],
            w,
            b,
            out,
            K,
            N,
            RAW=k == 0,
            BATCH=self._batch,
            **_tile(_LAYER, N, K),
        )

    def _forward_last(self, k: int, ahead: int) -> None:
        (w, b), dealt = (held.value for held in self._weights[k]), self._rows[0]
        K, N = w.shape[1:]
        _programs().last_layer[self._grid(N)](
            self._clock, ahead, self._rows[k], w, b, dealt, self._score, self._lam, self._of[k], self._losses,
            self._n, K, N, self._network.fixed, BATCH=self._batch, **_tile(_LAYER, N, K),
        )  # fmt: skip

    def _backward(self, k: int) -> None:
        w, out = self._weights[k][0].value, self._of[k - 1]
        K, N = w.shape[1:]
        if k in self._active:
            torch.bmm(self._of[k], w.mT, out=out)
            _programs().bend[(self._members, _tiles(self._batch * K, _BLOCK))](
                out, self._rows[k], out, K, BATCH=self._batch, BLOCK=_BLOCK
            )
            return
        _programs().layer_back[self._grid(K)](
            self._of[k], w, self._rows[k], out, K, N, BATCH=self._batch, **_tile(_LAYER, K, N)
        )

    def _descend(self, k: int, ahead: int) -> None:
        (w, b), programs = self._weights[k], _programs()
        K, N = w.value.shape[1:]
        if k in self._active:
            of_w = torch.bmm(self._active[k].mT, self._of[k])
            of_b = self._of[k][:, : self._batch].sum(1)
            for weight, gradient in ((w, of_w), (b, of_b)):
                size = gradient.numel()
                programs.adam[(_tiles(size, _BLOCK),)](
                    self._clock, ahead, self._pace, gradient, *weight.moved, size, BLOCK=_BLOCK
                )
            return
        tile = _tile(_DESCEND, N, self._batch)
        tile["M"] = min(tile["M"], _power(K))
        programs.descend[(self._members, _tiles(K, tile["M"]), _tiles(N, tile["C"]))](
            self._clock, ahead, self._pace, self._rows[k], self._of[k], *w.moved, *b.moved, K, N,
            RAW=k == 0, BATCH=self._batch, **tile,
        )  # fmt: skip

    def _wide(self) -> list[int]:
        """Hidden layers whose products are better left to a library."""
        return [k for k, (w, _) in enumerate(self._weights[:-1]) if min(w.value.shape[1:]) >= _WIDE]

    def _all(self) -> Iterator["_Held"]:
        for pair in self._weights:
            yield from pair

    def _grid(self, columns: int) -> tuple[int, int, int]:
        return (
            self._members,
            _tiles(self._batch, _LAYER["M"]),
            _tiles(columns, _tile(_LAYER, columns, 1)["C"]),
        )

    def _pace_of(self, steps: int, like: Tensor) -> Tensor:
        """Adam's step size and the factor of its root, corrected for the start, (steps, 2)."""
        t = torch.arange(1, steps + 1, dtype=torch.float64)
        size = self._optimizer.param_groups[0]["lr"] / (1 - _BETAS[0] ** t)
        return torch.stack([size, (1 - _BETAS[1] ** t).rsqrt()], dim=1).to(like)


@dataclass(frozen=True, eq=False)
class _Held:
    """A parameter as the programs have it, with Adam's moments: padded by zeros, which stay zero."""

    outside: Tensor
    value: Tensor
    mean: Tensor
    square: Tensor

    @classmethod
    def of(cls, outside: Tensor) -> "_Held":
        members, rows, columns = outside.shape
        shape = members, 1 if rows == 1 else _padded(rows), _padded(columns)
        value, mean, square = (outside.new_zeros(shape) for _ in range(3))
        return cls(outside, outside if outside.shape == shape else value, mean, square)

    @property
    def moved(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.value, self.mean, self.square

    def take(self, optimizer: torch.optim.Optimizer) -> None:
        state = optimizer.state[self.outside]
        for padded, name in ((self.mean, "exp_avg"), (self.square, "exp_avg_sq")):
            if name in state:
                self._within(padded).copy_(state[name])
        if self.value is not self.outside:
            self._within(self.value).copy_(self.outside)

    def give(self) -> None:
        if self.value is not self.outside:
            self.outside.copy_(self._within(self.value))

    def give_moments(self, optimizer: torch.optim.Optimizer, done: int) -> None:
        optimizer.state[self.outside] = {
            "step": torch.full((), float(done), device=self.outside.device),
            "exp_avg": self._within(self.mean).contiguous(),
            "exp_avg_sq": self._within(self.square).contiguous(),
        }

    def _within(self, padded: Tensor) -> Tensor:
        _, rows, columns = self.outside.shape
        return padded[:, :rows, :columns]


def _padded(width: int) -> int:
    """To whole vectors, which memory likes."""
    return -(-width // 16) * 16


def _plain_rows(x: Tensor) -> Tensor:
    """With the rows of each member one after the other."""
    return x if x[0].is_contiguous() else x.contiguous()


def _tiles(count: int, size: int) -> int:
    return -(-count // size)


def _power(width: int) -> int:
    """The next power of two that tensor cores take."""
    return max(16, 1 << (width - 1).bit_length())


def _tile(size: dict[str, int], columns: int, inner: int) -> dict[str, int]:
    """A tile no larger than what it covers."""
    return size | {"C": min(size["C"], _power(columns)), "L": min(size["L"], _power(inner))}
