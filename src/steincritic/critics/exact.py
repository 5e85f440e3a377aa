r"""The gradient through the exact divergence of a perceptron, by hand.

With slopes $d_l = a'(z_l)$ the divergence is $\sum_j d_{1j} \ell_j$ for one hidden layer, and
$d_1^\top M d_2$ with $M = W_2 \odot P$, $P = (W_3 W_1)^\top$, for two. No Jacobian, no graph.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.critics.activation import Activation
from steincritic.critics.network import Buffers, Parameters, Pullback
from steincritic.shapes import BankPerPoint, BankPoints


@dataclass(frozen=True, eq=False)
class _Layer:
    """One hidden layer at the points: h = a(βz)/β, its slope a'(βz), and how that bends with z."""

    z: Tensor
    value: Tensor
    first: Tensor
    second: Tensor  # the derivative of `first` in z
    slope: Tensor | None  # β, where it is learned


def exact_pullback(
    activation: Activation, depth: int, parameters: Parameters, x: BankPoints, buffers: Buffers
) -> tuple[BankPoints, BankPerPoint, Pullback]:
    """Values, exact divergence, and the map that writes the gradient of their cotangents."""
    rows: list[Tensor] = [x]  # into each layer
    layers: list[_Layer] = []
    for number in range(1, depth + 1):
        layers.append(_forward(activation, number, parameters, rows[-1], buffers))
        rows.append(layers[-1].value)
    last = depth + 1
    f = torch.baddbmm(parameters[f"b{last}"], rows[-1], parameters[f"w{last}"])
    trace = _OneLayer(parameters, layers) if depth == 1 else _TwoLayers(parameters, layers, buffers)

    def pull(f_cotangent: BankPoints, div_cotangent: BankPerPoint, into: Parameters) -> None:
        of_slopes, of_weights = trace.pull(div_cotangent[..., None])
        cotangent = f_cotangent
        for number in range(last, 0, -1):
            if number < last:
                layer = layers[number - 1]
                above = buffers.take(f"above {number}", tuple(layer.z.shape), layer.z)
                torch.bmm(cotangent, parameters[f"w{number + 1}"].mT, out=above)
                bend = of_slopes[number - 1] * layer.second
                if layer.slope is not None:  # dh/dβ = (z a' - h)/β and da'(βz)/dβ = z a''
                    through = above * (layer.z * layer.first - layer.value) + bend * layer.z
                    into[f"slope{number}"].copy_((through / layer.slope).sum(1, keepdim=True))
                cotangent = above.mul_(layer.first).add_(bend)
            torch.bmm(rows[number - 1].mT, cotangent, out=into[f"w{number}"])
            torch.sum(cotangent, 1, keepdim=True, out=into[f"b{number}"])
        for name, gradient in of_weights.items():
            into[name].add_(gradient)

    return f, trace.value, pull


def _forward(
    activation: Activation, number: int, parameters: Parameters, rows: Tensor, buffers: Buffers
) -> _Layer:
    weight = parameters[f"w{number}"]
    shape = (*rows.shape[:2], weight.shape[2])
    z, value, first, second, scratch = (
        buffers.take(f"exact {name} {number}", shape, weight)
        for name in ("z", "value", "first", "second", "scratch")
    )
    torch.baddbmm(parameters[f"b{number}"], rows, weight, out=z)
    slope = parameters.get(f"slope{number}")
    activation.into(z if slope is None else slope * z, value, first, second, scratch)
    if slope is not None:
        value.div_(slope)
        second.mul_(slope)
    return _Layer(z, value, first, second, slope)


class _OneLayer:
    def __init__(self, parameters: Parameters, layers: list[_Layer]) -> None:
        self._w1, self._w2 = parameters["w1"], parameters["w2"]
        self._first = layers[0].first
        self._loops = (self._w1.mT * self._w2).sum(-1)[:, None]  # (e, 1, h)
        self.value = (self._first * self._loops).sum(-1)

    def pull(self, cotangent: Tensor) -> tuple[list[Tensor], Parameters]:
        """Of the slopes, layer by layer, and of the weights, from an (e, n, 1) cotangent of the trace."""
        of_loops = (self._first * cotangent).sum(1)[..., None]  # (e, h, 1)
        weights = {"w1": (of_loops * self._w2).mT, "w2": of_loops * self._w1.mT}
        return [cotangent * self._loops], weights


class _TwoLayers:
    def __init__(self, parameters: Parameters, layers: list[_Layer], buffers: Buffers) -> None:
        self._w1, self._w2, self._w3 = (parameters[f"w{k}"] for k in (1, 2, 3))
        self._d1, self._d2 = (layer.first for layer in layers)
        self._buffers = buffers
        self._round = torch.bmm(self._w1.mT, self._w3.mT, out=self._take("round", self._w2))  # P
        self._loops = torch.mul(self._w2, self._round, out=self._take("loops", self._w2))
        self._across = torch.bmm(self._d1, self._loops, out=self._take("across", self._d2))
        self.value = (self._across * self._d2).sum(-1)

    def pull(self, cotangent: Tensor) -> tuple[list[Tensor], Parameters]:
        weighted = torch.mul(self._d2, cotangent, out=self._take("weighted", self._d2))
        of_d1 = torch.bmm(weighted, self._loops.mT, out=self._take("of d1", self._d1))
        of_loops = torch.bmm(self._d1.mT, weighted, out=self._take("of loops", self._w2))
        of_round = torch.mul(of_loops, self._w2, out=self._take("of round", self._w2))
        weights = {
            "w1": torch.bmm(of_round, self._w3).mT,
            "w2": of_loops.mul_(self._round),
            "w3": torch.bmm(of_round.mT, self._w1.mT),
        }
        return [of_d1, self._across * cotangent], weights

    def _take(self, name: str, like: Tensor) -> Tensor:
        return self._buffers.take(f"exact {name}", tuple(like.shape), like)
