"""The library's own models keep the contract; what else they have in common."""

import inspect
from dataclasses import replace

import pytest
import torch
from torch import distributions as td
from torch import nn

from model_contract import QUICK, TWO, Case, ModelContract, cases, own
from reference import seeded
from steincritic import models
from steincritic.models import (
    BoundedDensity,
    EnergyModel,
    GaussianBernoulliRBM,
    GaussianMixture,
    LangevinModel,
    LogDensity,
    NumericDensity,
    PairModel,
    as_model,
)
from steincritic.models.density import seeded_draws
from steincritic.rng import generator


def double(values):
    return torch.tensor(values, dtype=torch.float64)


MEANS = double([[-1.0, 0.5, 0.0], [2.0, 0.0, 1.0]])
FULL = double(
    [
        [[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 2.0]],
        [[0.5, 0.0, -0.2], [0.0, 1.5, 0.0], [-0.2, 0.0, 1.0]],
    ]
)
MIXED = 0.3 * MEANS[0] + 0.7 * MEANS[1]
SPREAD = 0.3 * (FULL[0].diag() + MEANS[0] ** 2) + 0.7 * (FULL[1].diag() + MEANS[1] ** 2) - MIXED**2


class Quartic(nn.Module):
    """An energy network with outputs of shape (n, 1)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, 1)

    def forward(self, x):
        return (x**4).sum(-1, keepdim=True) + self.layer(x)


class Normal(nn.Module):
    """A module with a log-density."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.ones(2))

    def log_prob(self, x):
        return -0.5 * (x - self.mean).square().sum(-1)


def by_grid(model, n=20_000):
    """Draws for a log-density in the plane that has none of its own: uniform in cells of 1/64 a side."""
    line = (torch.arange(-6 * 64, 6 * 64, dtype=torch.float64) + 0.5) / 64
    centers, source = torch.cartesian_prod(line, line), generator(4, "grid")
    density = model.log_prob(centers).detach().double()
    cells = torch.multinomial((density - density.max()).exp(), n, replacement=True, generator=source)
    return Case(model, centers[cells] + (torch.rand(n, 2, generator=source, dtype=torch.float64) - 0.5) / 64)


def quartic(x):
    return -(x**4).sum(-1) - (x[:, 0] * x[:, 1]) ** 2


def machine(visible, hidden):
    source = generator(0, "machine")
    numbers = [
        torch.randn(*s, generator=source, dtype=torch.float64)
        for s in ((visible, hidden), (visible,), (hidden,))
    ]
    # weights of this size let a chain forget its start within some ten sweeps
    return GaussianBernoulliRBM(0.7 * numbers[0], 0.5 * numbers[1], 0.5 * numbers[2], sweeps=100)


def two_sampler(n, seed):
    return TWO.sample(n, seed=seed)


def bounded(law):
    model = BoundedDensity(law.log_prob, law, dim=law.event_shape[0])
    return Case(model, model.unconstrain(seeded_draws(lambda: law.sample((20_000,)), seed=1)))


CASES = {
    "mixture, full": lambda: own(GaussianMixture(MEANS, FULL, [0.3, 0.7]), mean=MIXED, variance=SPREAD),
    "mixture, diagonal": lambda: own(GaussianMixture(MEANS, [[1.0, 2.0, 0.5], [0.3, 1.0, 1.0]])),
    "mixture, one width each": lambda: own(GaussianMixture(MEANS, [0.5, 2.0], [1.0, 3.0])),
    "mixture, one component": lambda: own(
        GaussianMixture([[1.0, 2.0]], 0.25), mean=[1.0, 2.0], variance=[0.25, 0.25]
    ),
    "mixture, 1-D": lambda: own(
        GaussianMixture([[-0.8], [1.0]], [1.0, 0.25]),
        mean=[0.1],
        variance=[0.5 * (1 + 0.64) + 0.5 * (0.25 + 1) - 0.01],
    ),
    "multivariate normal": lambda: own(
        td.MultivariateNormal(MEANS[0], FULL[0]), mean=MEANS[0], variance=FULL[0].diag()
    ),
    "normal numbers": lambda: own(td.Normal(double(1.0), double(2.0)), mean=[1.0], variance=[4.0]),
    "normal batch": lambda: own(
        td.Normal(double([1.0, -1.0]), double([2.0, 0.5])), mean=[1.0, -1.0], variance=[4.0, 0.25]
    ),
    "independent laplace": lambda: own(
        td.Independent(td.Laplace(double([0.0, 1.0]), double([1.0, 3.0])), 1),
        mean=[0.0, 1.0],
        variance=[2.0, 18.0],
    ),
    "torch mixture": lambda: own(
        td.MixtureSameFamily(td.Categorical(double([0.4, 0.6])), td.MultivariateNormal(MEANS, FULL))
    ),
    "unnormalized log-density": lambda: by_grid(LogDensity(quartic, dim=2)),
    "numeric density": lambda: by_grid(NumericDensity(lambda rows: -(rows**4).sum(-1), 2), 2_000),
    "pair": lambda: own((TWO.score, two_sampler)),
    "score alone": lambda: Case(PairModel(TWO.score), TWO.sample(20_000, seed=4)),
    "energy network": lambda: by_grid(EnergyModel(seeded(lambda: Quartic(2), seed=3))),
    "module with a log-density": lambda: by_grid(as_model(seeded(Normal, seed=0))),
    "in a box": lambda: bounded(td.Independent(td.Beta(double([0.7, 2.0]), double([3.0, 1.0])), 1)),
    "half-lines": lambda: bounded(td.Independent(td.Gamma(double([1.0, 4.0]), double([1.0, 2.0])), 1)),
    "no bounds after all": lambda: bounded(td.MultivariateNormal(MEANS[0], FULL[0])),
    "langevin": lambda: own(
        LangevinModel(EnergyModel(seeded(lambda: Quartic(3), seed=3)), dim=3, settings=QUICK), 2_000
    ),
    "langevin of a score alone": lambda: own(
        LangevinModel(PairModel(TWO.score, dim=2), settings=replace(QUICK, steps=60)), 2_000
    ),
    "machine": lambda: own(machine(3, 4)),
    "machine, more visible than hidden": lambda: own(machine(9, 3)),
}
# rounding of double precision, and of single
CASES = {name: lambda make=make: replace(make(), rounding=1e-12, single=1e-4) for name, make in CASES.items()}
OUTSIDE = {  # models of other libraries, and nets: adapters/
    "BridgeStanPosterior",
    "DiffusionModel",
    "JaxDensity",
    "NumPyroPosterior",
    "OpenMMModel",
    "PyMCPosterior",
    "SbiPosterior",
    "SbiVectorField",
}

given, case = cases(CASES)


class TestContract(ModelContract):
    def test_score_is_the_gradient_by_automatic_differentiation(self, given):
        x = given.draws[:20].clone().requires_grad_()
        if not (hasattr(given.model, "log_prob") and (log_prob := given.model.log_prob(x)).requires_grad):
            pytest.skip("torch does not know how the log-density came about")
        (gradient,) = torch.autograd.grad(log_prob.sum(), x)
        torch.testing.assert_close(
            given.model.score(x.detach()), gradient, rtol=1e-10, atol=1e-10
        )  # rounding


def test_every_model_is_under_the_contract():
    named = {
        name
        for name in models.__all__
        if inspect.isclass(kind := getattr(models, name))
        and hasattr(kind, "score")
        and not getattr(kind, "_is_protocol", False)
    }
    given = {"ConditionalModel", "Regression"}  # of y given x: test_conditional.py
    assert named - OUTSIDE - given == {type(case(name).model).__name__ for name in CASES} & named
