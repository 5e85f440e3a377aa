"""Regressions as conditional models."""

import numpy as np
import pytest
import torch

from reference import Z_MAX, seeded, z_of_mean
from steincritic.errors import InputError
from steincritic.models import Regression

X = torch.linspace(-1, 1, 200, dtype=torch.float64)[:, None]
MAKERS = {
    "scale 1": lambda: Regression(lambda x: 1 + x[:, 0]),
    "scale of x": lambda: Regression(lambda x: x**2, lambda x: 1 + x[:, 0].abs()),
    "two targets": lambda: Regression(lambda x: torch.cat((x, -x), 1), (0.5, 2.0)),
    "module": lambda: Regression(seeded(lambda: torch.nn.Linear(1, 2), seed=0)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_score_is_the_gradient_of_the_density_and_vanishes_in_the_mean_over_draws(name):
    model = MAKERS[name]()
    y = model.sample(X, seed=3).requires_grad_()
    (gradient,) = torch.autograd.grad(model.log_prob(X, y).sum(), y)
    torch.testing.assert_close(model.score(X, y), gradient, rtol=1e-9, atol=1e-9)  # float64 rounding
    many = X.repeat(100, 1)
    y = model.sample(many, seed=4)
    values = (model.score(many, y) * torch.tanh(y + many) + 1 - torch.tanh(y + many) ** 2).sum(1)
    assert abs(z_of_mean(values)) < Z_MAX
    assert abs(z_of_mean(values + 0.1)) > Z_MAX  # a mean of 0.1 would be seen
    assert torch.equal(model.sample(X, seed=3), model.sample(X, seed=3))


def test_an_estimator_of_scikit_learn_is_asked_with_arrays():
    linear = pytest.importorskip("sklearn.linear_model")
    age, dose = X[:, 0].numpy(), np.sin(9 * X[:, 0].numpy())
    fitted = linear.LinearRegression().fit(np.stack((age, dose), 1), 3 + 2 * age - dose)
    fitted.feature_names_in_ = np.array(["age", "dose"])  # as if fitted on a frame
    model = Regression(fitted, 0.5)
    x = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    torch.testing.assert_close(model.moments(x)[0], torch.tensor([[3.0], [3.0]]))
    assert model.columns == ("age", "dose")


@pytest.mark.parametrize(
    ("mean", "scale", "said"),
    [
        (lambda x: x.sum(), 1.0, r"mean .* one row per row of x, \(200,\) or \(200, dy\); got \(\)"),
        (lambda x: x, lambda x: x[:3], r"scale .* got \(3, 1\)"),
        (lambda x: x, -1.0, "must be positive, got -1"),
    ],
)
def test_what_is_no_regression_is_said_in_a_line(mean, scale, said):
    with pytest.raises(InputError, match=said):
        Regression(mean, scale).sample(X)
