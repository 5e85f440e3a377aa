"""Conditional models made of functions and modules that return torch distributions."""

import pytest
import torch
from torch import distributions, nn

from reference import Z_MAX, seeded, z_of_mean
from steincritic.errors import InputError
from steincritic.models.adapters.conditional import DistributionGiven, adapt_conditional

X = torch.linspace(-1, 1, 300, dtype=torch.float64)[:, None] * torch.ones(2, dtype=torch.float64)


class MixtureNet(nn.Module):
    """A mixture density network of two normals, in single precision."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 4)

    def forward(self, x):
        out = self.layer(x)
        parts = distributions.Normal(out[:, :2], 1 + out[:, 2:].abs())
        return distributions.MixtureSameFamily(distributions.Categorical(logits=out[:, :2]), parts)


def correlated(x):
    covariance = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=x.dtype)
    return distributions.MultivariateNormal(x, covariance)


def flow():
    zuko = pytest.importorskip("zuko")
    return seeded(lambda: zuko.flows.MAF(2, 2, transforms=1, hidden_features=(8,)), seed=1)


def function_with_a_network():
    layer = seeded(lambda: nn.Linear(2, 1), seed=2)
    return lambda x: distributions.StudentT(5.0, layer(x)[:, 0])


MAKERS = {
    "numbers": lambda: lambda x: distributions.Normal(x.sum(1), 1.0),
    "batch of coordinates": lambda: lambda x: distributions.Normal(x, 0.5),
    "vectors": lambda: correlated,
    "module": lambda: seeded(MixtureNet, seed=0),
    "network inside of a function": function_with_a_network,
    "vanishes at its edge": lambda: lambda x: distributions.LogNormal(x[:, 0], 0.5),
    "flow": flow,
}
ROUNDING = 1e-5  # of single precision


@pytest.mark.parametrize("name", MAKERS)
def test_score_and_draws_belong_to_one_distribution(name):
    make = MAKERS[name]()
    model = adapt_conditional(make)
    y = model.sample(X, seed=3)
    assert y.dtype == torch.float64 and len(y) == len(X) and y.ndim == 2
    assert torch.equal(y, model.sample(X, seed=3)) and not torch.equal(y, model.sample(X, seed=4))
    step = 1e-3 * torch.ones_like(y[:, :1])
    for j in range(y.shape[1]):
        aside = torch.zeros_like(y)
        aside[:, j : j + 1] = step
        slope = (model.log_prob(X, y + aside) - model.log_prob(X, y - aside)) / 2e-3
        torch.testing.assert_close(model.score(X, y)[:, j], slope, rtol=0.02, atol=0.02)  # by differences
    many = X.repeat(50, 1)
    y = model.sample(many, seed=5)
    values = (model.score(many, y) * torch.tanh(y) + 1 - torch.tanh(y) ** 2).sum(1)
    assert abs(z_of_mean(values)) < Z_MAX
    one = model.score(X[:1], y[:1])
    torch.testing.assert_close(one, model.score(X, y[: len(X)])[:1], rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: distributions.Normal(0.0, 1.0), r"must have batch shape \(300,\).* got batch \(\)"),
        (lambda x: distributions.Poisson(x[:, 0].exp()), "must be continuous .*Poisson lives on"),
        (lambda x: x, "must turn x into a torch distribution of y, .* got Tensor"),
    ],
)
def test_what_is_no_conditional_distribution_is_said_in_a_line(make, said):
    with pytest.raises(InputError, match=said):
        DistributionGiven(make).sample(X)


def test_a_regressor_needs_its_noise():
    linear = pytest.importorskip("sklearn.linear_model")
    with pytest.raises(InputError, match="noise around its predictions: pass"):
        adapt_conditional(linear.LinearRegression())
    assert adapt_conditional("normal") is None
