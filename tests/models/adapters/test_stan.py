"""Posteriors of PyStan."""

import math
import shutil

import numpy as np
import pytest

from model_contract import SCHOOLS, Case, ModelContract, cases
from steincritic.errors import InputError
from steincritic.models import StanPosterior, as_model

stan = pytest.importorskip("stan", exc_type=ImportError)
pytestmark = [
    pytest.mark.filterwarnings("ignore:It is recommended to use web.AppKey"),  # of PyStan's server
    pytest.mark.skipif(not shutil.which("c++"), reason="Stan models need a C++ compiler"),
]

STAN = """
data { int n; vector[n] y; vector[n] errors; }
parameters { real mu; real<lower=0> tau; vector[n] z; }
transformed parameters { vector[n] theta = mu + tau * z; }
model { mu ~ normal(0, 2); tau ~ normal(0, 1); z ~ normal(0, 1); y ~ normal(theta, errors); }
"""


def stan_posterior():
    data = {"n": 4, "y": SCHOOLS[0].tolist(), "errors": SCHOOLS[1].tolist()}
    built = stan.build(STAN, data=data, random_seed=1)
    model = as_model(built)
    assert isinstance(model, StanPosterior)
    fit = built.sample(num_chains=1, num_samples=2_000, num_thin=4)
    return Case(model, model.unconstrain(fit), thinned=1.5)


CASES = {"posterior": stan_posterior}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_stan_draws_that_lack_a_parameter_are_refused():
    model = case("posterior").model
    with pytest.raises(InputError, match="PyStan cannot read these draws of mu, z"):
        model.unconstrain({"mu": np.zeros(2), "z": np.zeros((2, 4))})
    values = model.unconstrain({"mu": np.zeros(2), "z": np.zeros((2, 4)), "tau": np.full(2, 3.0)})
    assert values.shape == (2, 6) and float(values[0, 1]) == pytest.approx(math.log(3.0))
    assert model.names == ["mu", "log tau", "z[0]", "z[1]", "z[2]", "z[3]"] and model.dim == 6
