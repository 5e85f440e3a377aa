"""One seed to named random streams, the same on every device.

Three kinds. `generator` gives an ordinary `torch.Generator` of the CPU for one named purpose. `Source` and
`Streams` count: number i is a hash of (key, i), so a GPU draws what a CPU draws, up to the rounding of
logarithms and cosines. `Source` serves one purpose, drawn in order. `Streams` gives a bank of critics its
randomness: number i of member m at step t is a hash of (key of m, t, i), so it does not depend on the other
members or on what was drawn before. That is why a critic is the same alone and in a bank of ninety, and why
training resumes without any generator state.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
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


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A torch generator for one named purpose; its numbers are drawn on the CPU and moved."""
    return torch.Generator().manual_seed(derive(seed, *names))


class Source:
    """Counter-based random numbers for one named purpose, in the order in which they are asked for."""

    def __init__(self, seed: int, *names: str | int, device: torch.device | str = "cpu") -> None:
        self.key, self.device = derive(seed, *names), torch.device(device)
        self.hashes = 0  # so far

    def uniforms(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """In [0, 1), with as many bits as the dtype holds."""
        out, digits = torch.empty(shape, dtype=dtype, device=self.device), _DIGITS[dtype]
        for part, bits in self._parts(out.view(-1)):
            part.copy_(_shift_right(bits, 64 - digits)).mul_(2.0**-digits)
        return out

    def normals(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normals by Box and Muller, two of one hash."""
        pairs = torch.empty((math.prod(shape) + 1) // 2, 2, dtype=dtype, device=self.device)
        for part, bits in self._parts(pairs):
            radius, angle = _polar(bits, dtype)
            torch.mul(radius, angle.cos(), out=part[:, 0])
            torch.mul(radius, angle.sin_(), out=part[:, 1])
        return pairs.view(-1)[: math.prod(shape)].view(shape)

    def integers(self, below: int, *shape: int) -> Tensor:
        """Of 0 to below - 1."""
        out = torch.empty(shape, dtype=torch.int64, device=self.device)
        for part, bits in self._parts(out.view(-1)):
            torch.remainder(_shift_right(bits, 1), below, out=part)
        return out

    def choices(self, weights: Tensor, n: int) -> Tensor:
        """(n,) indices, each as likely as its weight says."""
        cumulative = weights.to(torch.float64).cumsum(0)
        at = self.uniforms(n, dtype=torch.float64) * cumulative[-1]
        return torch.searchsorted(cumulative, at, right=True).clamp_(max=len(weights) - 1)

    def _parts(self, out: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows to fill, and a hash for each; some at a time, which on a CPU stay in its cache."""
        for part in out.split(_CACHED if self.device.type == "cpu" else _HELD):
            index = torch.arange(self.hashes + 1, self.hashes + 1 + len(part), device=self.device)
            self.hashes += len(part)
            yield part, _mix(index.mul_(_GOLDEN).add_(self.key))


def hashed_uniforms(x: Tensor, *, seed: int) -> Tensor:
    """(n, d) numbers in [0, 1) in double precision, each row a hash of a row of x and the seed alone."""
    bits = x.to(torch.float64).contiguous().view(torch.int64)
    key = derive(seed, "rows")
    index = torch.arange(1, x.shape[-1] + 1, device=x.device) * _GOLDEN
    row = _mix(_mix(bits + index).sum(-1, keepdim=True).add_(key))
    return _shift_right(_mix(row + index), 64 - 53).to(torch.float64).mul_(2.0**-53)


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
        """(e, count) uniform 64-bit patterns, as int64; a step may be a 0-d int64 tensor.

        Of several steps at once, an int64 tensor (k, 1): (k, e, count).
        """
        offset = _GOLDEN * (2 * step + int(purpose))
        state = _mix(self.keys + (offset if isinstance(offset, Tensor) else _signed(offset)))  # (e,)
        index = torch.arange(1, count + 1, device=self.keys.device)
        return _mix(state[..., None] + _GOLDEN * index)

    def permutations(self, step: int | Tensor, n: int) -> Tensor:
        """(e, n) one random order of n things per member."""
        return self.bits(Purpose.ORDER, step, n).argsort(dim=-1)

    def signs(self, step: int | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """(e, *shape) of -1 and 1."""
        sign = 1 - 2 * (self.bits(Purpose.PROBE, step, math.prod(shape)) & 1)
        return sign.to(dtype).view(*sign.shape[:-1], *shape)

    def normals(self, step: int | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """(e, *shape) standard normals by Box and Muller, one hash each."""
        bits = self.bits(Purpose.PROBE, step, math.prod(shape))
        radius, angle = _polar(bits, dtype)
        return radius.mul_(angle.cos_()).view(*bits.shape[:-1], *shape)


_DIGITS = {torch.float32: 24, torch.float64: 53}  # bits of a number's fraction
_CACHED, _HELD = 2**14, 2**25  # hashes at a time


def _polar(bits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Radius and angle of a standard normal pair: 32 bits of a hash for each."""
    radius = (_shift_right(bits, 32) + 1).to(dtype).div_(2**32).log_().mul_(-2).sqrt_()
    return radius, (bits & 0xFFFFFFFF).to(dtype).mul_(2 * math.pi / 2**32)


def _signed(value: int) -> int:
    """The int64 with the same lowest 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)


def _shift_right(z: Tensor, by: int) -> Tensor:
    """Logical shift; torch's own shift of int64 keeps the sign."""
    return (z >> by).bitwise_and_((1 << (64 - by)) - 1)


def _mix(z: Tensor) -> Tensor:
    """The finalizer of splitmix64 [steele2014], in place; int64 products wrap as wanted."""
    z.bitwise_xor_(_shift_right(z, 30)).mul_(_MIX_1)
    z.bitwise_xor_(_shift_right(z, 27)).mul_(_MIX_2)
    return z.bitwise_xor_(_shift_right(z, 31))
