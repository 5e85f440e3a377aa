"""One seed to named random streams.

Two kinds. `generator` gives an ordinary `torch.Generator` for one named purpose. `Streams` gives a
bank of critics its randomness by counter: number i of member m at step t is a hash of (key of m, t,
i), so it does not depend on the other members, on the device, or on what was drawn before. That is
why a critic is the same alone and in a bank of ninety, and why training resumes without any
generator state.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from steincritic.errors import InputError


def derive(seed: int, *names: str | int) -> int:
    """A 62-bit seed that depends on the seed and on every name, and on nothing else."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise InputError(f"seed must be a whole number, got {seed!r}")
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


def generator(seed: int, *names: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A torch generator for one named purpose."""
    return torch.Generator(device=device).manual_seed(derive(seed, *names))


class Purpose(IntEnum):
    """What a counter stream is drawn for; part of the hash, so purposes never share numbers."""

    ORDER = 0
    PROBE = 1


@dataclass(frozen=True)
class Streams:
    """Counter-based random numbers, one independent stream per bank member."""

    keys: Tensor  # (e,) int64

    @classmethod
    def from_seeds(cls, seeds: Sequence[int], *, device: torch.device | str = "cpu") -> "Streams":
        return cls(torch.tensor([derive(s, "streams") for s in seeds], device=device))

    def bits(self, purpose: Purpose, step: int | Tensor, count: int) -> Tensor:
        """(e, count) uniform 64-bit patterns, as int64; a step may be a 0-d int64 tensor."""
        offset = _GOLDEN * (2 * step + int(purpose))
        state = _mix(self.keys + (offset if isinstance(offset, Tensor) else _signed(offset)))  # (e,)
        index = torch.arange(1, count + 1, device=self.keys.device)
        return _mix(state[:, None] + _GOLDEN * index)

    def permutations(self, step: int | Tensor, n: int) -> Tensor:
        """(e, n) one random order of n things per member."""
        return self.bits(Purpose.ORDER, step, n).argsort(dim=-1)

    def signs(self, step: int | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """(e, *shape) of -1 and 1."""
        sign = 1 - 2 * (self.bits(Purpose.PROBE, step, math.prod(shape)) & 1)
        return sign.to(dtype).view(-1, *shape)

    def normals(self, step: int | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """(e, *shape) standard normals by Box and Muller, one hash each."""
        bits = self.bits(Purpose.PROBE, step, math.prod(shape))
        radius = ((_shift_right(bits, 32) + 1).to(dtype) / 2**32).log_().mul_(-2).sqrt_()
        angle = (bits & 0xFFFFFFFF).to(dtype) * (2 * math.pi / 2**32)
        return radius.mul_(angle.cos_()).view(-1, *shape)


def _signed(value: int) -> int:
    """The int64 with the same lowest 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _shift_right(z: Tensor, by: int) -> Tensor:
    """Logical shift; torch's own shift of int64 keeps the sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _mix(z: Tensor) -> Tensor:
    """The finalizer of splitmix64 [steele2014]; int64 products wrap as wanted."""
    z = (z ^ _shift_right(z, 30)) * _MIX_1
    z = (z ^ _shift_right(z, 27)) * _MIX_2
    return z ^ _shift_right(z, 31)
