"""Log-densities written for JAX."""

import pytest
import torch

from model_contract import MEAN, QUICK, ModelContract, cases, own
from steincritic.errors import ModelError
from steincritic.models import JaxDensity, LangevinModel, as_model

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)


def jax_density():
    mean = jax.numpy.asarray(MEAN)
    return JaxDensity(lambda v: -jax.numpy.sum((v - mean) ** 2 + 0.5 * jax.numpy.cos(v) ** 2), dim=3)


def jax_normal():
    log_prob = jax.jit(lambda v: -0.5 * jax.numpy.sum(v**2))
    assert isinstance(as_model(log_prob), JaxDensity)
    return own(JaxDensity(log_prob, dim=2, draw=lambda key, n: jax.random.normal(key, (n, 2))))


CASES = {
    "with draws": jax_normal,
    "by langevin": lambda: own(LangevinModel(jax_density(), settings=QUICK), 3_000),
}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_jax_in_single_precision_refuses_double_points():
    model = JaxDensity(lambda v: -jax.numpy.sum(v**2), dim=2)
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ModelError, match=r"jax_enable_x64.*or pass float32 points"):
            model.score(torch.ones(2, 2, dtype=torch.float64))
        assert model.score(torch.ones(2, 2)).tolist() == [[-2.0, -2.0]] * 2
    finally:
        jax.config.update("jax_enable_x64", True)


def test_a_jax_density_of_batches_is_refused():
    with pytest.raises(ModelError, match=r"takes one point \(2,\) and returns a number"):
        JaxDensity(lambda v: -(v**2)).score(torch.ones(3, 2))
    assert not as_model(jax.jit(lambda v: -(v**2).sum())).score(torch.ones(3, 2)[:, ::2]).isnan().any()
