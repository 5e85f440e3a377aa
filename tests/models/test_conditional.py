"""Conditional models: what AtRows keeps, and what is refused."""

import numpy as np
import pytest
import torch

from reference import Z_MAX, z_of_mean
from steincritic.errors import InputError, ModelError
from steincritic.models.base import as_model
from steincritic.models.conditional import AtRows, ConditionalModel, as_conditional, is_conditional
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
    ],
)
def test_bad_models_are_refused_in_one_line(make, says):
    with pytest.raises(InputError, match=says) as error:
        make()
    assert isinstance(error.value, ModelError | InputError) and "\n" not in str(error.value)
