r"""Critics whose Jacobian is penalized, and λ lowered by the monitor's slope.

The loss is $E_p[-T_q f + \tfrac{\lambda}{2}(|f|^2 + c |\nabla f|^2) + \tfrac{g}{2} |\nabla f|^2]$ with the
Frobenius norm of the Jacobian: c > 0 is a Sobolev penalty (H1), g > 0 a gradient penalty that does not fall
with λ. Both come from the probe of the divergence at no cost: for E v v' = 1, |J v|² has the mean |∇f|². In
one and two dimensions the unit vectors stand for the probe, which makes both exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steincritic import MLP, ScoredPoints, Training
from steincritic.critics import Bank, Parameters
from steincritic.critics.pullback import swish
from steincritic.rng import Streams
from steincritic.shapes import BankPoints, PerMember
from steincritic.stein import stein_values
from steincritic.training import Stage, Staging
from steincritic.training.objective import loss_of, monitor
from steincritic.training.staging import Observe, Quantity


@dataclass(frozen=True, kw_only=True)
class BySlope:
    """Lower λ once the monitor falls, from one look to the next, by less than a share of its size.

    λf shrinks with λ, so the first look after that only shows where the new stage begins.
    """

    initial: float
    floor: float
    decay: float
    share: float
    every: int | None = None

    def begin(self) -> Stage:
        return Stage(self.initial)

    def advance(self, stage: Stage, observe: Observe) -> Stage:
        value = observe("monitor")
        if stage.last - value >= self.share * abs(value):
            return replace(stage, last=value)
        return Stage(max(self.floor, stage.lam * self.decay), stage.index + 1)


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """How critics are regularized.

    Args:
        sobolev: c, the weight of |∇f|² beside |f|² in what λ multiplies.
        gradient: g, the weight of |∇f|²/2 besides.
    """

    staging: Staging
    sobolev: float = 0.0
    gradient: float = 0.0


def trained(
    points: ScoredPoints,
    validation: ScoredPoints,
    scheme: Scheme,
    network: MLP,
    training: Training,
    *,
    seed: int,
) -> Iterator[Bank]:
    """A critic after each epoch; without a penalty of the Jacobian, the critic of `fit_bank`."""
    x, staging, streams = points.x, scheme.staging, Streams.from_seeds([seed])
    leaves = network.init(points.dim, [seed], dtype=x.dtype, device=x.device)
    bank = Bank(network, {name: value.detach() for name, value in leaves.items()})  # the same memory
    weights = [value.requires_grad_() for value in leaves.values()]
    adam = torch.optim.Adam(weights, lr=training.learning_rate, fused=True)
    stage = staging.begin()

    def observe(quantity: Quantity) -> float:
        return float(monitor(bank, validation, x.new_tensor([stage.lam])))

    batch, per_epoch = training.batch_size, -(-len(points) // training.batch_size)
    for epoch in range(training.epochs):
        order = streams.permutations(epoch, len(points))[0]
        for step, rows in enumerate(order.split(batch), start=epoch * per_epoch):
            if step and step % (staging.every or per_epoch) == 0:
                stage = staging.advance(stage, observe)
            if points.dim <= 2:
                probes = torch.eye(points.dim, dtype=x.dtype)[None, :, None].expand(1, -1, len(rows), -1)
            else:
                probes = streams.normals(step, (batch, points.dim), x.dtype)[:, None, : len(rows)]
            adam.zero_grad()
            lam = x.new_tensor([stage.lam])
            penalized_loss(leaves, points[rows].alone(), probes, lam, scheme).sum().backward()
            adam.step()
        yield bank


def penalized_loss(
    parameters: Parameters, points: ScoredPoints, probes: Tensor, lam: PerMember, scheme: Scheme
) -> PerMember:
    f, tangents = field_and_tangents(parameters, points.x, probes)
    plain = loss_of(points.score, f, (tangents * probes).sum((1, -1)), lam)
    roughness = tangents.square().sum((1, -1)).mean(-1)  # E|∇f|²
    return plain.total + (lam * scheme.sobolev + scheme.gradient) / 2 * roughness


def field_and_tangents(parameters: Parameters, x: BankPoints, probes: Tensor) -> tuple[BankPoints, Tensor]:
    """f of a perceptron, and J v for the probes v of each point; probes are (e, k, n, d)."""
    last, k = len(parameters) // 2, probes.shape[1]
    z, tangents = x, probes.flatten(1, 2)
    for layer in range(1, last):
        weight = parameters[f"w{layer}"]
        z, slope = swish(torch.baddbmm(parameters[f"b{layer}"], z, weight))
        tangents = torch.bmm(tangents, weight) * slope.repeat(1, k, 1)
    tangents = torch.bmm(tangents, parameters[f"w{last}"]).unflatten(1, (k, -1))
    return torch.baddbmm(parameters[f"b{last}"], z, parameters[f"w{last}"]), tangents


def fitted_scale(bank: Bank, points: ScoredPoints) -> tuple[PerMember, PerMember]:
    """The a >= 0 of the lowest E[a²|f|² - 2 a T_q f], and that value: MSE_p of a f up to a constant."""
    f, div_f = bank.field_and_divergence(points.x)
    stein = stein_values(points.score, f, div_f).mean(-1).clamp(min=0)
    size = f.square().sum(-1).mean(-1)
    return stein / size, -stein.square() / size
