"""Densities of bounded parameters, in coordinates without bounds."""

import pytest
import torch
from torch.distributions import Beta, Gamma, Independent, MultivariateNormal, Poisson, constraints

from model_contract import Case, ModelContract, cases
from steincritic.errors import InputError
from steincritic.models import BoundedDensity
from steincritic.models.density import seeded_draws


def bounded(law, support=None):
    model = BoundedDensity(law.log_prob, support or law, dim=law.event_shape[0])
    return Case(model, model.unconstrain(seeded_draws(lambda: law.sample((20_000,)), seed=1)))


def whole(*values):
    return torch.tensor(values, dtype=torch.float64)


CASES = {
    "box": lambda: bounded(Independent(Beta(whole(0.7, 2.0), whole(3.0, 1.0)), 1)),
    "half-line": lambda: bounded(
        Independent(Gamma(whole(1.0, 4.0), whole(1.0, 2.0)), 1), constraints.positive
    ),
    "no bounds": lambda: bounded(MultivariateNormal(whole(1.0, 2.0), torch.eye(2, dtype=torch.float64))),
}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_parameters_go_both_ways():
    for name in CASES:
        model, x = case(name).model, case(name).draws[:10]
        torch.testing.assert_close(model.unconstrain(model.constrain(x)), x)
    assert torch.equal(case("no bounds").model.constrain(x), x)


def test_what_lies_outside_or_is_discrete_is_refused():
    with pytest.raises(
        InputError, match="1 of 2 draws lie outside of the parameters' bounds, the first is row 1"
    ):
        case("half-line").model.unconstrain([[1.0, 1.0], [1.0, -1.0]])
    with pytest.raises(InputError, match="no score"):
        BoundedDensity(lambda theta: theta.sum(-1), Poisson(whole(1.0, 2.0)))
