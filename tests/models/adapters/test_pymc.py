"""Posteriors of PyMC."""

import math

import numpy as np
import pytest
import torch

from model_contract import SCHOOLS, Case, ModelContract, cases
from steincritic.errors import InputError
from steincritic.models import PyMCPosterior, as_model

pm = pytest.importorskip("pymc")


def pymc_model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        tau = pm.HalfNormal("tau", 1.0)
        rate = pm.Uniform("rate", 0.0, tau)  # bounds that are parameters
        z = pm.Normal("z", 0.0, 1.0, shape=4)
        pm.Normal("y", mu + rate * z, SCHOOLS[1], observed=SCHOOLS[0])
    return model


def pymc_posterior():
    model = pymc_model()
    quiet = {"progressbar": False, "compute_convergence_checks": False}
    with model:
        draws = pm.sample(4_000, tune=500, chains=1, cores=1, random_seed=1, **quiet)
    posterior = as_model(model)
    assert isinstance(posterior, PyMCPosterior)
    return Case(posterior, posterior.unconstrain(draws)[::4], thinned=1.5)


CASES = {"posterior": pymc_posterior}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_pymc_names_its_coordinates_and_refuses_discrete_ones():
    model = case("posterior").model
    assert model.names[:3] == ["mu", "tau_log__", "rate_interval__"] and model.dim == 7
    point = {"mu": [0.5], "tau": [2.0], "rate": [0.5], "z": [[0.1, 0.2, 0.3, 0.4]]}
    wanted = [0.5, math.log(2.0), math.log(0.5 / 1.5), 0.1, 0.2, 0.3, 0.4]
    torch.testing.assert_close(model.unconstrain(point)[0], torch.tensor(wanted, dtype=torch.float64))
    with pm.Model() as discrete:
        pm.Poisson("count", 3.0)
    with pytest.raises(InputError, match="discrete parameters have no score: count"):
        as_model(discrete)


def test_pymc_draws_of_another_shape_or_outside_are_refused():
    model = case("posterior").model
    draws = {"mu": np.zeros(2), "tau": np.ones(2), "rate": np.full(2, 0.5), "z": np.zeros((2, 4))}
    assert model.unconstrain(draws).shape == (2, 7)
    with pytest.raises(InputError, match=r"draws of z must have shape \(n, 4\), got \(2, 1\)"):
        model.unconstrain(draws | {"z": np.zeros((2, 1))})
    with pytest.raises(InputError, match="no finite tau_log__"):
        model.unconstrain(draws | {"tau": -np.ones(2)})
