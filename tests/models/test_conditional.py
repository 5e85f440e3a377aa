"""Models of y given x: a table of them and laws over it, what AtRows keeps, and what is refused."""

import numpy as np
import pytest
import torch
from torch import distributions, nn

from reference import Z_MAX, seeded, z_of_mean
from steincritic.errors import InputError, ModelError
from steincritic.models.base import as_model
from steincritic.models.conditional import (
    AtRows,
    ConditionalModel,
    DistributionGiven,
    Regression,
    as_conditional,
    is_conditional,
)
from steincritic.rng import Source


def mean(x):
    return torch.cat([x[:, :1] + 1, x[:, 1:2] * x[:, :1]], 1)


def spread(x):
    return (0.3 * x[:, :1]).exp()


def sample(x, seed):
    return mean(x) + spread(x) * Source(seed, "test").normals(len(x), 2, dtype=x.dtype)


MODEL = ConditionalModel(lambda x, y: (mean(x) - y) / spread(x) ** 2, sample)
X = Source(1, "x").normals(30, 2, dtype=torch.float64)
AT = AtRows(MODEL, X, targets=2)


LINE = torch.linspace(-1, 1, 300, dtype=torch.float64)[:, None] * torch.ones(2, dtype=torch.float64)


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


MEMBERS = {
    "regression, scale 1": lambda: Regression(lambda x: 1 + x[:, 0]),
    "regression, scale of x": lambda: Regression(lambda x: x**2, lambda x: 1 + x[:, :1].abs()),
    "regression, two targets": lambda: Regression(lambda x: torch.stack((x[:, 0], -x[:, 0]), 1), (0.5, 2.0)),
    "regression by a module": lambda: Regression(seeded(lambda: nn.Linear(2, 2), seed=0)),
    "numbers": lambda: DistributionGiven(lambda x: distributions.Normal(x.sum(1), 1.0)),
    "batch of coordinates": lambda: DistributionGiven(lambda x: distributions.Normal(x, 0.5)),
    "vectors": lambda: DistributionGiven(correlated),
    "module": lambda: DistributionGiven(seeded(MixtureNet, seed=0)),
    "network inside of a function": lambda: DistributionGiven(function_with_a_network()),
    "vanishes at its edge": lambda: DistributionGiven(lambda x: distributions.LogNormal(x[:, 0], 0.5)),
    "flow": lambda: DistributionGiven(flow()),
}
ROUNDING = 1e-5  # of single precision


@pytest.mark.parametrize("name", MEMBERS)
def test_score_and_draws_belong_to_one_law_of_y(name):
    model = MEMBERS[name]()
    y = model.sample(LINE, seed=3)
    assert y.dtype == torch.float64 and len(y) == len(LINE) and y.ndim == 2
    assert torch.equal(y, model.sample(LINE, seed=3)) and not torch.equal(y, model.sample(LINE, seed=4))
    for j in range(y.shape[1]):
        aside = torch.zeros_like(y)
        aside[:, j] = 1e-3
        slope = (model.log_prob(LINE, y + aside) - model.log_prob(LINE, y - aside)) / 2e-3
        torch.testing.assert_close(model.score(LINE, y)[:, j], slope, rtol=0.02, atol=0.02)  # by differences
    first = model.score(LINE[:1], y[:1])
    torch.testing.assert_close(first, model.score(LINE, y)[:1], rtol=ROUNDING, atol=ROUNDING)
    many = LINE.repeat(50, 1)
    y = model.sample(many, seed=5)
    values = (model.score(many, y) * torch.tanh(y) + 1 - torch.tanh(y) ** 2).sum(1)
    assert abs(z_of_mean(values)) < Z_MAX
    assert abs(z_of_mean(values + 0.1)) > Z_MAX  # a mean of 0.1 would be seen


def test_an_estimator_of_scikit_learn_is_asked_with_arrays_and_needs_its_noise():
    linear = pytest.importorskip("sklearn.linear_model")
    age, dose = LINE[:, 0].numpy(), np.sin(9 * LINE[:, 0].numpy())
    fitted = linear.LinearRegression().fit(np.stack((age, dose), 1), 3 + 2 * age - dose)
    fitted.feature_names_in_ = np.array(["age", "dose"])  # as if fitted on a frame
    model = Regression(fitted, 0.5)
    x = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    torch.testing.assert_close(model.moments(x)[0], torch.tensor([[3.0], [3.0]]))
    assert model.columns == ("age", "dose")
    with pytest.raises(InputError, match="noise around its predictions: pass"):
        as_conditional(fitted)


def test_draws_have_the_rows_over_and_over_with_y_drawn_anew():
    z = AT.sample(75, seed=3)
    assert z.shape == (75, 4)
    assert torch.equal(z[:, :2], X.repeat(3, 1)[:75])
    assert not bool((z[:30, 2:] == z[30:60, 2:]).any())


def test_the_score_is_zero_at_covariates_and_that_of_y_elsewhere():
    z = AT.sample(30, seed=4)
    score = AT.score(z)
    assert bool((score[:, :2] == 0).all())
    torch.testing.assert_close(score[:, 2:], MODEL.score(X, z[:, 2:]), rtol=0, atol=0)


@pytest.mark.parametrize(("row", "is_model"), [(0, True), (1, True), (0, False)])
def test_stein_identity_holds_at_every_single_row(row, is_model):
    one = AtRows(MODEL, X[row : row + 1], targets=2)
    z = one.sample(20_000, seed=5)
    if not is_model:
        z[:, 2:] += 0.3
    values = (one.score(z)[:, 2:] * torch.tanh(z[:, 2:]) + 1 - torch.tanh(z[:, 2:]) ** 2).sum(1)
    assert (abs(z_of_mean(values)) < Z_MAX) == is_model


def test_rows_in_another_order():
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(AT.at(order).sample(30, seed=1)[:, :2], X[order])
    z = AT.sample(30, seed=1)
    assert torch.equal(AT.at(order).score(z[order]), AT.score(z)[order])


def test_one_number_per_row_is_one_column_and_arrays_are_taken():
    q = ConditionalModel(lambda x, y: (x - y)[:, 0], lambda x, seed: np.zeros(len(x)))
    assert q.score(torch.zeros(3, 1), torch.ones(3, 1)).shape == (3, 1)
    assert q.sample(torch.zeros(3, 1)).shape == (3, 1)


def test_what_a_conditional_model_is_made_of():
    class Own:
        def score(self, x, y):
            return x - y

        def sample(self, x, seed=0):
            return x + seed

    assert is_conditional(Own()) and is_conditional(MODEL) and not is_conditional(torch.nn.Identity())
    assert torch.equal(as_conditional(Own()).sample(torch.zeros(2, 1), seed=3), torch.full((2, 1), 3.0))
    assert as_conditional(MODEL) is MODEL
    pair = as_conditional((lambda x, y: x - y, None))
    assert not pair.can_be_sampled
    normal = as_conditional(lambda x: torch.distributions.Normal(2 * x, 1.0))
    assert torch.equal(normal.score(torch.ones(1, 1), torch.ones(1, 1)), torch.ones(1, 1))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: as_conditional(3), "score"),
        (lambda: as_model(MODEL), "pass target='NAME'"),
        (lambda: ConditionalModel(3), "functions"),
        (lambda: as_conditional((lambda x, y: x - y, None)).sample(X), "no sampler"),
        (lambda: ConditionalModel(lambda x, y: y[:3]).score(X, X), r"shape \(30, 2\); got \(3, 2\)"),
        (lambda: ConditionalModel(lambda x, y: y[:, 0]).score(X, X), r"shape \(30, 2\); got \(30,\)"),
        (lambda: ConditionalModel(lambda x, y: y, lambda x, s: x[:5]).sample(X), r"got \(5, 2\)"),
        (lambda: AtRows(MODEL, X, targets=1).sample(30), "1 columns, as many as the data have targets"),
        (
            lambda: Regression(lambda x: x.sum()).sample(X),
            r"mean of a regression .* shape \(30, dy\); got \(\)",
        ),
        (lambda: Regression(lambda x: x, lambda x: x[:3]).sample(X), r"scale .* got \(3, 2\)"),
        (lambda: Regression(lambda x: x, -1.0).sample(X), "must be positive, got -1"),
        (
            lambda: DistributionGiven(lambda x: distributions.Normal(0.0, 1.0)).sample(X),
            r"batch shape \(30,\)",
        ),
        (lambda: DistributionGiven(lambda x: distributions.Poisson(x[:, 0].exp())).sample(X), "continuous"),
        (lambda: DistributionGiven(lambda x: x).sample(X), "must turn x into a torch distribution of y"),
    ],
)
def test_bad_models_are_refused_in_one_line(make, says):
    with pytest.raises(InputError, match=says) as error:
        make()
    assert isinstance(error.value, ModelError | InputError) and "\n" not in str(error.value)
