r"""Multi-layer perceptrons with one or two hidden layers, stacked along a member axis.

$f = W_3\, a(W_2\, a(W_1 x + b_1) + b_2) + b_3$, rows as points, so layer l is `z @ w{l} + b{l}`.
With a slope β a unit computes a(βz)/β; the slope is 1, or learned for each unit.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from steincritic.critics.activation import ACTIVATIONS, Activation
from steincritic.critics.exact import exact_pullback
from steincritic.critics.network import Buffers, Parameters, Pullback, Stacked
from steincritic.engine import cores
from steincritic.errors import InputError, check_choice, check_count
from steincritic.rng import generator
from steincritic.shapes import BankPerPoint, BankPoints


@dataclass(frozen=True, kw_only=True)
class MLP:
    """A perceptron critic.

    Args:
        hidden: widths of the hidden layers, one or two of them (the divergence has a closed form there).
        activation: "silu" (Swish), "softplus" or "tanh".
        learnable_slope: one trained slope per hidden unit, as in the paper's released code.
        start: "random" takes PyTorch's weights and zero biases, as the paper does; "zero" also clears
            the last layer, so that training starts at f = 0.
        fixed: so many first coordinates are seen and never moved: f is zero there, as the critic of a
            conditional model is at its covariates.
    """

    hidden: tuple[int, ...] = (128, 128)
    activation: str = "silu"
    learnable_slope: bool = False
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
        check_choice(self.activation, name="activation", choices=tuple(ACTIVATIONS))
        check_choice(self.start, name="start", choices=("random", "zero"))
        check_count(self.fixed, name="fixed", least=0)

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
            value = torch.full((len(seeds), *shape), float(name.startswith("slope")), dtype=torch.float64)
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
            if self.learnable_slope and layer <= len(self.hidden):
                shapes[f"slope{layer}"] = (1, columns)
        return shapes

    @property
    def _activation(self) -> Activation:
        return ACTIVATIONS[self.activation]

    @property
    def _layers(self) -> range:
        return range(1, len(self.hidden) + 1)

    def shared(self, parameters: Parameters) -> Sequence[str]:
        return ()

    def widest(self, parameters: Parameters) -> int:
        return max(*self.hidden, parameters["w1"].shape[1])

    def field(self, parameters: Parameters, x: BankPoints) -> BankPoints:
        z = x
        for layer in self._layers:
            pre = torch.baddbmm(parameters[f"b{layer}"], z, parameters[f"w{layer}"])
            slope = parameters.get(f"slope{layer}")
            value = self._activation.value
            z = value(pre) if slope is None else value(slope * pre) / slope
        last = len(self.hidden) + 1
        return torch.baddbmm(parameters[f"b{last}"], z, parameters[f"w{last}"])

    def field_and_divergence(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None = None
    ) -> tuple[BankPoints, BankPerPoint]:
        f, slopes = self._forward(parameters, x)
        if probe is not None:
            return f, _probed_trace(parameters, slopes, probe)
        return f, _closed_form_trace(parameters, slopes)

    def field_and_parts(
        self, parameters: Parameters, x: BankPoints, blocks: Sequence[slice]
    ) -> tuple[BankPoints, BankPoints]:
        f, slopes = self._forward(parameters, x)
        last = f"w{len(self.hidden) + 1}"
        parts = []
        for block in blocks:  # a critic that sees and moves the coordinates of the block alone
            own = parameters | {"w1": parameters["w1"][:, block], last: parameters[last][:, :, block]}
            parts.append(_closed_form_trace(own, slopes))
        return f, torch.stack(parts, dim=-1)

    def _forward(self, parameters: Parameters, x: BankPoints) -> tuple[BankPoints, list[Tensor]]:
        """f, and a'(pre-activation) layer by layer."""
        z, slopes = x, []
        for layer in self._layers:
            pre = torch.baddbmm(parameters[f"b{layer}"], z, parameters[f"w{layer}"])
            slope = parameters.get(f"slope{layer}")
            z, first = self._activation.with_first(pre if slope is None else slope * pre)
            z = z if slope is None else z / slope
            slopes.append(first)
        last = len(self.hidden) + 1
        return torch.baddbmm(parameters[f"b{last}"], z, parameters[f"w{last}"]), slopes

    def pullback(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None, buffers: Buffers
    ) -> tuple[BankPoints, BankPerPoint, Pullback]:
        """By hand, for the exact divergence as for a probe.

        The probe travels as a tangent: its rows are stacked under the points' rows, so each layer is one
        product for both, forwards and backwards.
        """
        if probe is None:
            f, div_f, exact = exact_pullback(self._activation, len(self.hidden), parameters, x, buffers)

            def pull_exact(f_cotangent: BankPoints, div_cotangent: BankPerPoint, into: Parameters) -> None:
                exact(f_cotangent, div_cotangent, into)
                self._keep(into)

            return f, div_f, pull_exact
        size = len(x), x.shape[1], x.shape[2]
        rows, out, cotangent = (buffers.stack(name, size, x) for name in ("rows", "out", "of out"))
        rows.points.copy_(x)
        rows.tangents.copy_(probe)
        back = self.probed(parameters, rows, out, buffers)

        def pull(f_cotangent: BankPoints, div_cotangent: BankPerPoint, into: Parameters) -> None:
            cotangent.points.copy_(f_cotangent)
            torch.mul(probe, div_cotangent[..., None], out=cotangent.tangents)
            back(cotangent, into)

        return out.points, (out.tangents * probe).sum(-1), pull

    def probed(
        self, parameters: Parameters, rows: Stacked, out: Stacked, buffers: Buffers
    ) -> Callable[[Stacked, Parameters], None]:
        """Write f at points, and how it moves along a probe at each; gives the way back from both."""
        if self.fixed:
            rows.tangents[..., : self.fixed] = 0
        last, into_layers = len(self.hidden) + 1, [rows]
        tapes = [_Tape(self._activation, layer, parameters, buffers) for layer in self._layers]
        for tape in tapes:
            into_layers.append(tape.forward(into_layers[-1]))
        torch.bmm(into_layers[-1].both, parameters[f"w{last}"], out=out.both)
        out.points.add_(parameters[f"b{last}"])

        def back(cotangent: Stacked, into: Parameters) -> None:
            for layer in range(last, 0, -1):
                torch.bmm(into_layers[layer - 1].both.mT, cotangent.both, out=into[f"w{layer}"])
                torch.sum(cotangent.points, 1, keepdim=True, out=into[f"b{layer}"])
                if layer > 1:
                    cotangent = tapes[layer - 2].backward(cotangent, parameters[f"w{layer}"], into)
            self._keep(into)

        return back

    def _keep(self, gradient: Parameters) -> None:
        """Take out what would move fixed coordinates."""
        if self.fixed:
            last = len(self.hidden) + 1
            gradient[f"w{last}"][..., : self.fixed] = 0
            gradient[f"b{last}"][..., : self.fixed] = 0


class _Tape:
    """One hidden layer at stacked rows (points, then tangents), kept for the way back.

    Points: h = ψ(βz)/β. Tangents: t_h = ψ'(βz) t. The slope β is one unless it is learned.
    """

    def __init__(self, activation: Activation, layer: int, parameters: Parameters, buffers: Buffers) -> None:
        self._activation, self._layer, self._buffers = activation, layer, buffers
        self._weight, self._bias = parameters[f"w{layer}"], parameters[f"b{layer}"]
        self._slope = parameters.get(f"slope{layer}")

    def _take(self, name: str) -> Tensor:
        return self._buffers.take(f"{name} {self._layer}", self._size, self._weight)

    def _stack(self, name: str) -> Stacked:
        return self._buffers.stack(f"{name} {self._layer}", self._size, self._weight)

    def forward(self, rows: Stacked) -> Stacked:
        self._size = (*rows.points.shape[:2], self._weight.shape[2])
        self._pre, self._out = self._stack("pre"), self._stack("out")
        self._first, self._second = self._take("first"), self._take("second")
        torch.bmm(rows.both, self._weight, out=self._pre.both)
        z = self._pre.points.add_(self._bias)
        z = z if self._slope is None else self._slope * z
        self._activation.into(z, self._out.points, self._first, self._second, self._take("scratch"))
        if self._slope is not None:
            self._out.points.div_(self._slope)
            self._second.mul_(self._slope)  # the derivative of ψ'(βz) in z
        torch.mul(self._pre.tangents, self._first, out=self._out.tangents)
        return self._out

    def backward(self, above: Stacked, weight: Tensor, into: Parameters) -> Stacked:
        """Cotangent of the next layer's rows to that of (z, t); writes the slope's gradient."""
        cotangent, z, t = self._stack("cotangent"), self._pre.points, self._pre.tangents
        torch.bmm(above.both, weight.mT, out=cotangent.both)
        bend = torch.mul(cotangent.tangents, t, out=self._take("scratch"))  # of ψ'
        if self._slope is not None:  # dh/dβ = (zψ' - h)/β and dψ'(βz)/dβ = zψ''
            through_value = cotangent.points * (z * self._first - self._out.points)
            through_tangent = bend * self._second * z
            slope_gradient = ((through_value + through_tangent) / self._slope).sum(1, keepdim=True)
            into[f"slope{self._layer}"].copy_(slope_gradient)
        cotangent.halves.mul_(self._first[:, None])
        cotangent.points.addcmul_(bend, self._second)
        return cotangent


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


def _probed_trace(parameters: Parameters, slopes: list[Tensor], probe: BankPoints) -> BankPerPoint:
    tangent = probe
    for layer, first in enumerate(slopes, start=1):
        tangent = torch.bmm(tangent, parameters[f"w{layer}"]) * first
    tangent = torch.bmm(tangent, parameters[f"w{len(slopes) + 1}"])
    return (tangent * probe).sum(-1)
