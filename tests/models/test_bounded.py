"""Densities of bounded parameters, in coordinates without bounds; the contract is in test_laws.py."""

import pytest
import torch
from torch.distributions import Beta, Independent, Poisson, constraints

from steincritic.errors import InputError
from steincritic.models import BoundedDensity
from steincritic.rng import generator


def flat(theta):
    return 0 * theta.sum(-1)


def whole(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    "support",
    [constraints.interval(whole(-1.0, 0.0), whole(1.0, 5.0)), constraints.positive, constraints.real],
)
def test_parameters_go_both_ways(support):
    model = BoundedDensity(flat, support)
    x = torch.randn(10, 2, generator=generator(1), dtype=torch.float64)
    theta = model.constrain(x)
    assert bool(support.check(theta).all())
    torch.testing.assert_close(model.unconstrain(theta), x)
    assert (support is constraints.real) == torch.equal(theta, x)


def test_a_prior_or_its_support_will_do():
    prior = Independent(Beta(whole(1.0, 2.0), whole(1.0, 1.0)), 1)
    x = torch.randn(5, 2, generator=generator(2), dtype=torch.float64)
    by_prior, by_support = (BoundedDensity(prior.log_prob, of) for of in (prior, constraints.unit_interval))
    torch.testing.assert_close(by_prior.log_prob(x), by_support.log_prob(x))


def test_what_lies_outside_or_is_discrete_is_refused():
    model = BoundedDensity(flat, constraints.positive)
    with pytest.raises(
        InputError, match="1 of 2 draws lie outside of the parameters' bounds, the first is row 1"
    ):
        model.unconstrain([[1.0, 1.0], [1.0, -1.0]])
    with pytest.raises(InputError, match="no score"):
        BoundedDensity(flat, Poisson(whole(1.0, 2.0)))
