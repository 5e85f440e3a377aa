"""Families of energy models: the score of the parameters is the score of the model they make."""

import pytest
import torch
from torch import nn

from steincritic.errors import InputError
from steincritic.learning import EnergyMLP, as_learnable, first_machine
from steincritic.learning.run import model_gradient
from steincritic.models import random_rbm
from steincritic.rng import generator

X = (
    torch.randn(40, 3, generator=generator(0, "points"), dtype=torch.float64) * torch.tensor([1.0, 2.0, 0.5])
    + 1
)


class Bowl(nn.Module):
    """An energy with two parameters, and a buffer that is not learned."""

    def __init__(self):
        super().__init__()
        self.center = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.stiffness = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))
        self.register_buffer("power", torch.tensor(2.0, dtype=torch.float64))

    def forward(self, x):
        return (0.5 * self.stiffness * (x - self.center).abs() ** self.power).sum(-1)


def shaken(family):
    """The first parameters with some noise, so that none is zero."""
    source = generator(1, "shaken")
    return {
        name: value.double() + 0.3 * torch.randn(value.shape, generator=source, dtype=torch.float64)
        for name, value in family.start.items()
    }


STARTS = {
    "one layer": lambda: EnergyMLP(hidden=(5,)),
    "two layers": lambda: EnergyMLP(hidden=(6, 4), spread=2.0),
    "three layers": lambda: EnergyMLP(hidden=(4, 4, 4)),
    "machine": lambda: random_rbm(3, 2, seed=0),
    "module": Bowl,
}


@pytest.fixture(params=STARTS)
def family(request):
    return as_learnable(STARTS[request.param](), X, 0)


def test_the_score_of_the_weights_is_the_score_of_their_model(family):
    weights = shaken(family)
    location, scale = family.location.double(), family.scale.double()
    y = (X - location) / scale
    wanted = scale * family.model(weights).score(X)
    with torch.no_grad():
        torch.testing.assert_close(family.score(weights, y), wanted, rtol=1e-9, atol=1e-9)  # rounding


def test_the_gradient_is_that_of_the_mean_of_score_times_field(family):
    """Against autograd of the energy taken twice, with a field that is held fixed."""
    weights = {name: value.requires_grad_() for name, value in shaken(family).items()}
    y = X.clone().requires_grad_()
    f = torch.sin(X)
    score, gradients = model_gradient(family, weights, y.detach(), f)
    torch.testing.assert_close(
        gradients, numeric_gradient(family, weights, y.detach(), f), rtol=1e-5, atol=1e-7
    )
    assert not score.requires_grad


def numeric_gradient(family, weights, y, f):
    """Central differences of step 1e-5 in float64: their error is about 1e-10 over the step."""
    step, gradients = 1e-5, []
    for name, value in weights.items():
        gradient = torch.zeros(value.numel(), dtype=torch.float64)
        for k in range(value.numel()):
            ends = []
            for sign in (1, -1):
                moved = value.detach().clone()
                moved.view(-1)[k] += sign * step
                with torch.no_grad():
                    ends.append((family.score({**weights, name: moved}, y) * f).sum(-1).mean())
            gradient[k] = (ends[0] - ends[1]) / (2 * step)
        gradients.append(gradient.view(value.shape))
    return tuple(gradients)


def test_a_model_shares_no_memory_with_the_weights(family):
    weights = shaken(family)
    model = family.model(weights)
    before = model.score(X)
    for value in weights.values():
        value.add_(1.0)
    assert torch.equal(model.score(X), before) and not before.requires_grad


def test_a_perceptron_energy_starts_as_the_gaussian_of_the_data():
    score = EnergyMLP(hidden=(5,)).begin(X, 0).score(X)
    torch.testing.assert_close(score, (X.mean(0) - X) / X.var(0), rtol=1e-12, atol=1e-12)  # rounding


def test_a_machine_starts_at_the_mean_of_the_data_and_its_seed_decides_it():
    machine = first_machine(X, 4, seed=1)
    assert torch.equal(machine.visible_bias, X.mean(0)) and machine.weights.shape == (3, 4)
    assert torch.equal(machine.weights, first_machine(X, 4, seed=1).weights)
    assert not torch.equal(machine.weights, first_machine(X, 4, seed=2).weights)


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(InputError, match="learning starts from"):
        as_learnable("rbm", X, 0)
    with pytest.raises(InputError, match="3 columns but the model has 5"):
        as_learnable(random_rbm(5, 2, seed=0), X, 0)
    with pytest.raises(InputError, match="no parameters"):
        as_learnable(nn.Identity(), X, 0)
    with pytest.raises(InputError, match="column 1 of x is constant"):
        as_learnable(EnergyMLP(), torch.stack([X[:, 0], torch.ones(40)], -1), 0)
    for wrong in ({"hidden": ()}, {"hidden": (0,)}, {"spread": 0.0}, {"resolution": -1.0}):
        with pytest.raises(InputError):
            EnergyMLP(**wrong)
