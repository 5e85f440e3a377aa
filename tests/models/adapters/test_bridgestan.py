"""Posteriors of BridgeStan, by a stand-in with its interface: compiling needs Stan's own sources."""

import math

import numpy as np
import pytest

import steincritic as sc
from model_contract import Case, ModelContract, cases
from steincritic.errors import InputError
from steincritic.models import BridgeStanPosterior, as_model


class StanModel:
    """mu ~ normal(0, 2), tau ~ exponential(1), z ~ normal(0, 1) of shape (2, 1): BridgeStan's interface."""

    __module__ = "bridgestan.model"

    def param_unc_num(self):
        return 4

    def param_names(self):
        return ["mu", "tau", "z.1.1", "z.2.1"]

    param_unc_names = param_names

    def param_constrain(self, x):
        return np.array([x[0], math.exp(x[1]), *x[2:]])

    def param_unconstrain(self, theta):
        if theta[1] <= 0:
            raise RuntimeError("lb_free: Lower bounded variable is negative")
        return np.array([theta[0], math.log(theta[1]), *theta[2:]])

    def log_density(self, x):
        return -(x[0] ** 2) / 8 - math.exp(x[1]) + x[1] - 0.5 * (x[2:] ** 2).sum()

    def log_density_gradient(self, x):
        return self.log_density(x), np.array([-x[0] / 4, 1 - math.exp(x[1]), *-x[2:]])


def named_draws(n):
    source = np.random.default_rng(0)
    return {
        "z": source.normal(size=(n, 2, 1)),
        "tau": source.exponential(size=n),
        "mu": 2 * source.normal(size=n),
    }


def posterior():
    model = as_model(StanModel())
    return Case(model, model.unconstrain(named_draws(2000)))


given, case = cases({"posterior": posterior})


class TestContract(ModelContract):
    pass


def test_a_compiled_program_is_a_model_in_its_unconstrained_space():
    model = as_model(StanModel())
    assert isinstance(model, BridgeStanPosterior)
    assert model.dim == 4 and model.names == ["mu", "log tau", "z[0, 0]", "z[1, 0]"]


def test_named_draws_are_put_in_its_order_and_bad_ones_refused():
    model, draws = as_model(StanModel()), named_draws(300)
    x = model.unconstrain(draws)
    np.testing.assert_allclose(x[:, 1].exp(), draws["tau"])
    np.testing.assert_array_equal(x[:, 3], draws["z"][:, 1, 0])
    assert not sc.check_draws(model, draws, level=1e-3).rejected
    with pytest.raises(InputError, match="draws lack tau"):
        model.unconstrain({"mu": draws["mu"], "z": draws["z"]})
    with pytest.raises(InputError, match="BridgeStan cannot read these draws"):
        model.unconstrain(draws | {"tau": -draws["tau"]})
