"""Energy models as learning sees them: named parameters, and a score that is a function of them."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from steincritic.errors import InputError, check_count, check_positive
from steincritic.models.base import SamplingModel
from steincritic.models.density import EnergyModel
from steincritic.models.langevin import LangevinModel
from steincritic.models.perceptron_energy import PerceptronEnergy, first_weights, standard_score
from steincritic.models.rbm import PARAMETERS, GaussianBernoulliRBM
from steincritic.rng import generator
from steincritic.shapes import Points

Weights = Mapping[str, Tensor]


class Learnable(Protocol):
    """A family of energy models. Learning happens in coordinates y = (x - location)/scale."""

    location: Tensor  # (d,)
    scale: Tensor  # (d,)
    recordable: bool  # may the score be recorded as a CUDA graph?
    settings: str  # what, beside the weights, makes the model

    @property
    def start(self) -> Weights:
        """First values of the parameters."""
        ...

    def score(self, weights: Weights, y: Points) -> Points:
        """∇ log q in the coordinates y, differentiable in the weights."""
        ...

    def model(self, weights: Weights) -> SamplingModel:
        """The model in the coordinates x that these weights make; it shares no memory with them."""
        ...


@dataclass(frozen=True, kw_only=True)
class EnergyMLP:
    """A Gaussian energy plus a perceptron of SiLU units, to be learned from the beginning.

    Args:
        hidden: widths of the hidden layers, as many as wanted.
        spread: standard deviation of the Gaussian base over that of the data, column by column.
        resolution: standard deviation of the data in the coordinates that energy and critic see; larger
            values make finer detail quick to learn.
    """

    hidden: tuple[int, ...] = (128, 128)
    spread: float = 1.0
    resolution: float = 5.0

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, list | tuple) or not self.hidden:
            raise InputError(
                f"hidden must list the widths of the layers, such as (128, 128): {self.hidden!r}"
            )
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for width in self.hidden:
            check_count(width, name="hidden width")
        check_positive(self.spread, name="spread")
        check_positive(self.resolution, name="resolution")

    def begin(self, x: Points, seed: int) -> PerceptronEnergy:
        """Start as the Gaussian with the data's means and standard deviations (times the spread)."""
        scale = x.std(0)
        if not bool((scale > 0).all()):
            raise InputError(f"column {int((scale <= 0).nonzero()[0, 0])} of x is constant: leave it out")
        weights = first_weights(x.shape[1], self.hidden, generator(seed, "energy"))
        return PerceptronEnergy(
            {name: value.to(x) for name, value in weights.items()},
            location=x.mean(0),
            scale=scale / self.resolution,
            spread=self.spread * self.resolution,
        )


def first_machine(x: Points, hidden: int, *, seed: int) -> GaussianBernoulliRBM:
    """A machine to begin with: the data's mean, and small random weights."""
    check_count(hidden, name="hidden units")
    source = generator(seed, "machine")
    weights = 0.1 * torch.randn(x.shape[1], hidden, generator=source, dtype=torch.float64)
    return GaussianBernoulliRBM(weights.to(x), x.mean(0), torch.zeros(hidden).to(x))


class PerceptronFamily:
    """`PerceptronEnergy`, learned in its own standardized coordinates."""

    recordable = True

    def __init__(self, model: PerceptronEnergy) -> None:
        self.location, self.scale, self.start = model.location, model.scale, model.weights
        self._spread = model.spread
        self.settings = f"perceptron, spread {self._spread}"

    def score(self, weights: Weights, y: Points) -> Points:
        return standard_score(weights, y, self._spread)

    def model(self, weights: Weights) -> PerceptronEnergy:
        return PerceptronEnergy(
            _copied(weights), location=self.location, scale=self.scale, spread=self._spread
        )


class MachineFamily:
    """`GaussianBernoulliRBM`, learned in the coordinates of the data: its units have variance one there."""

    recordable = True

    def __init__(self, model: GaussianBernoulliRBM) -> None:
        self.location, self.scale = torch.zeros(model.dim), torch.ones(model.dim)
        self.start = {name: getattr(model, name) for name in PARAMETERS}
        self._sweeps = model.sweeps
        self.settings = f"machine, {self._sweeps} sweeps"

    def score(self, weights: Weights, y: Points) -> Points:
        r"""$b - x + \tfrac12 B \tanh(\tfrac12 B^\top x + c)$."""
        hidden = torch.tanh(torch.addmm(weights["hidden_bias"], y, weights["weights"], alpha=0.5))
        return torch.addmm(weights["visible_bias"], hidden, weights["weights"].mT, alpha=0.5) - y

    def model(self, weights: Weights) -> GaussianBernoulliRBM:
        return GaussianBernoulliRBM(**_copied(weights), sweeps=self._sweeps)


class ModuleFamily:
    """Any `nn.Module` energy E(x) of shape (n,) or (n, 1); its score takes a second backward pass.

    It learns in evaluation mode: a score that dropout changes from call to call is no gradient of anything.
    """

    recordable = False

    def __init__(self, energy: nn.Module, x: Points) -> None:
        dim = x.shape[1]
        self.location, self.scale = torch.zeros(dim), torch.ones(dim)
        self.start = {
            name: value.detach() for name, value in energy.named_parameters() if value.requires_grad
        }
        if not self.start:
            raise InputError("the energy module has no parameters to learn")
        self._energy, self._dim = copy.deepcopy(energy).to(x).eval(), dim
        self.settings = f"module {energy!r}"
        try:
            with torch.no_grad():
                shape = tuple(self._energy(x[:2]).shape)
        except RuntimeError as error:
            raise InputError(f"the energy module cannot take x with {dim} columns: {error}") from None
        if shape not in ((2,), (2, 1)):
            raise InputError(f"an energy must return (n,) or (n, 1), got {shape} for 2 points")

    def score(self, weights: Weights, y: Points) -> Points:
        create = torch.is_grad_enabled()
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            energy = functional_call(self._energy, dict(weights), (y,))
            (gradient,) = torch.autograd.grad(energy.sum(), y, create_graph=create)
        return -gradient

    def model(self, weights: Weights) -> LangevinModel:
        energy = copy.deepcopy(self._energy)
        energy.load_state_dict(_copied(weights), strict=False)
        return LangevinModel(EnergyModel(energy.requires_grad_(False)), dim=self._dim)


def as_learnable(model: object, x: Points, seed: int) -> Learnable:
    """What learning needs of a start: a machine, an energy, settings of one, or an energy module."""
    if isinstance(model, EnergyMLP):
        model = model.begin(x, seed)
    if isinstance(model, nn.Module):
        return ModuleFamily(model, x)
    if not isinstance(model, GaussianBernoulliRBM | PerceptronEnergy):
        raise InputError(
            "learning starts from a GaussianBernoulliRBM, an EnergyMLP(hidden=...), a PerceptronEnergy or an "
            f"energy nn.Module; got {type(model).__name__}"
        )
    if model.dim != x.shape[1]:
        raise InputError(f"x has {x.shape[1]} columns but the model has {model.dim} dimensions")
    return MachineFamily(model) if isinstance(model, GaussianBernoulliRBM) else PerceptronFamily(model)


def _copied(weights: Weights) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in weights.items()}
