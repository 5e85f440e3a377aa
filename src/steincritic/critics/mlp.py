r"""Multi-layer perceptrons with one or two hidden layers, stacked along a member axis.

$f = W_3\, a(W_2\, a(W_1 x + b_1) + b_2) + b_3$ with Swish $a(z) = z / (1 + e^{-z})$, rows as points, so layer
l is `z @ w{l} + b{l}`.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from steincritic.critics.network import Buffers, Parameters, Pullback
from steincritic.critics.pullback import exact_pullback, probed_pullback, swish
from steincritic.engine import cores
from steincritic.errors import InputError, check_choice, check_count, without
from steincritic.rng import generator
from steincritic.shapes import BankPerPoint, BankPoints


@without(
    activation="leave it out, the units are Swish; pass any other network as an nn.Module",
    learnable_slope="leave it out, slopes are 1; pass a network with learned slopes as an nn.Module",
)
@dataclass(frozen=True, kw_only=True)
class MLP:
    """A perceptron critic of Swish units.

    Args:
        hidden: widths of the hidden layers, one or two of them (the divergence has a closed form there).
        start: "random" takes PyTorch's weights and zero biases, as the paper does; "zero" also clears
            the last layer, so that training starts at f = 0.
        fixed: so many first coordinates are seen and never moved: f is zero there, as the critic of a
            conditional model is at its covariates.
    """

    hidden: tuple[int, ...] = (128, 128)
    start: str = "random"
    fixed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, Sequence):
            raise InputError(
                f"hidden must list the widths of the layers, for example (128,): got {self.hidden!r}"
            )
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if len(self.hidden) not in (1, 2):
            raise InputError(
                f"an MLP critic has one or two hidden layers, got {len(self.hidden)}; pass any deeper "
                "network as an nn.Module"
            )
        for width in self.hidden:
            check_count(width, name="hidden width")
        check_choice(self.start, name="start", choices=("random", "zero"))
        check_count(self.fixed, name="fixed", least=0)

    @classmethod
    def of_file(cls, settings: dict[str, Any]) -> "MLP":
        """From a saved critic's description; older ones have two settings more."""
        gone = {"activation": "silu", "learnable_slope": False}
        return cls(**{name: value for name, value in settings.items() if gone.get(name, ...) != value})

    def init(self, dim: int, seeds: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Parameters:
        shapes = self.shapes(dim)
        sizes = [math.prod(shape) if name.startswith("w") else 0 for name, shape in shapes.items()]
        uniform = torch.empty(len(seeds), sum(sizes), dtype=torch.float64)

        def draw(k: int) -> None:
            torch.rand(sum(sizes), generator=generator(seeds[k], "init"), dtype=torch.float64, out=uniform[k])

        # Where a GPU trains them, drawing the first weights on one core would take longer than that.
        with ThreadPoolExecutor(cores() if device.type == "cuda" else 1) as pool:
            list(pool.map(draw, range(len(seeds))))
        bank = {}
        for (name, shape), part in zip(shapes.items(), uniform.split(sizes, dim=1), strict=True):
            value = torch.zeros(len(seeds), *shape, dtype=torch.float64)
            if name.startswith("w"):
                value = (2 * part.reshape(value.shape) - 1) / math.sqrt(shape[0])
            bank[name] = value.to(dtype=dtype, device=device)
        last = bank[f"w{len(self.hidden) + 1}"]
        last[..., : last.shape[-1] if self.start == "zero" else self.fixed] = 0
        return bank

    def shapes(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Of the parameters of one member."""
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (rows, columns) in enumerate(pairwise((dim, *self.hidden, dim)), start=1):
            shapes |= {f"w{layer}": (rows, columns), f"b{layer}": (1, columns)}
        return shapes

    def widest(self, parameters: Parameters) -> int:
        return max(*self.hidden, parameters["w1"].shape[1])

    def field(self, parameters: Parameters, x: BankPoints) -> BankPoints:
        z, last = x, len(self.hidden) + 1
        for layer in range(1, last):
            z = silu(torch.baddbmm(parameters[f"b{layer}"], z, parameters[f"w{layer}"]))
        return torch.baddbmm(parameters[f"b{last}"], z, parameters[f"w{last}"])

    def field_and_divergence(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None = None
    ) -> tuple[BankPoints, BankPerPoint]:
        if self.fixed:  # what is differentiated must not depend on weights that stay zero
            moves, last = torch.arange(x.shape[-1], device=x.device) >= self.fixed, len(self.hidden) + 1
            parameters = parameters | {name: parameters[name] * moves for name in (f"w{last}", f"b{last}")}
            probe = None if probe is None else probe * moves
        f, slopes = self._forward(parameters, x)
        if probe is None:
            return f, _closed_form_trace(parameters, slopes)
        tangent = probe
        for layer, slope in enumerate(slopes, start=1):
            tangent = torch.bmm(tangent, parameters[f"w{layer}"]) * slope
        tangent = torch.bmm(tangent, parameters[f"w{len(slopes) + 1}"])
        return f, (tangent * probe).sum(-1)

    def field_and_parts(
        self, parameters: Parameters, x: BankPoints, blocks: Sequence[slice]
    ) -> tuple[BankPoints, BankPoints]:
        f, slopes = self._forward(parameters, x)
        last = f"w{len(self.hidden) + 1}"
        parts = []
        for block in blocks:  # a critic that sees and moves the coordinates of the block alone
            within = parameters | {"w1": parameters["w1"][:, block], last: parameters[last][:, :, block]}
            parts.append(_closed_form_trace(within, slopes))
        return f, torch.stack(parts, dim=-1)

    def _forward(self, parameters: Parameters, x: BankPoints) -> tuple[BankPoints, list[Tensor]]:
        """f, and a'(pre-activation) layer by layer."""
        z, slopes, last = x, [], len(self.hidden) + 1
        for layer in range(1, last):
            z, slope = swish(torch.baddbmm(parameters[f"b{layer}"], z, parameters[f"w{layer}"]))
            slopes.append(slope)
        return torch.baddbmm(parameters[f"b{last}"], z, parameters[f"w{last}"]), slopes

    def pullback(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None, buffers: Buffers
    ) -> tuple[BankPoints, BankPerPoint, Pullback]:
        """By hand, for the exact divergence as for a probe."""
        depth = len(self.hidden)
        if probe is None:
            f, div_f, write = exact_pullback(self.hidden, parameters, x, buffers)
        else:
            f, div_f, write = probed_pullback(self.hidden, parameters, x, probe, self.fixed, buffers)

        def pull(f_cotangent: BankPoints, div_cotangent: BankPerPoint, into: Parameters) -> None:
            write(f_cotangent, div_cotangent, into)
            if self.fixed:  # take out what would move these coordinates
                into[f"w{depth + 1}"][..., : self.fixed] = 0
                into[f"b{depth + 1}"][..., : self.fixed] = 0

        return f, div_f, pull


def _closed_form_trace(parameters: Parameters, slopes: list[Tensor]) -> BankPerPoint:
    r"""$\nabla \cdot f$ without a Jacobian.

    One hidden layer: $\sum_j d_j (W_1 W_2)_{jj}$. Two: $d_1^\top M d_2$ with
    $M = W_2 \odot (W_3 W_1)^\top$, built once for all points.
    """
    if len(slopes) == 1:
        (d1,) = slopes
        loops = (parameters["w1"].mT * parameters["w2"]).sum(-1)  # (e, h)
        return torch.bmm(d1, loops[..., None])[..., 0]
    d1, d2 = slopes
    loops = parameters["w2"] * torch.bmm(parameters["w3"], parameters["w1"]).mT  # (e, h1, h2)
    return (torch.bmm(d1, loops) * d2).sum(-1)
