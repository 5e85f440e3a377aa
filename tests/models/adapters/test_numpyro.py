"""Distributions and posteriors of NumPyro."""

import numpy as np
import pytest
import torch

from model_contract import COVARIANCE, MEAN, SCHOOLS, Case, ModelContract, cases, own
from steincritic.errors import InputError
from steincritic.models import BoundedModel, NumPyroPosterior, as_model

jax = pytest.importorskip("jax")
numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")
infer = pytest.importorskip("numpyro.infer")
jax.config.update("jax_enable_x64", True)


def numpyro_distribution():
    return own(dist.MultivariateStudentT(5.0, MEAN, np.linalg.cholesky(COVARIANCE)))


def numpyro_schools(effects, errors):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("schools", len(effects)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    theta = numpyro.deterministic("theta", mu + tau * z)
    numpyro.sample("y", dist.Normal(theta, errors), obs=effects)


def numpyro_posterior():
    model = NumPyroPosterior(numpyro_schools, *SCHOOLS)
    mcmc = infer.MCMC(
        infer.NUTS(numpyro_schools), num_warmup=500, num_samples=8_000, thinning=4, progress_bar=False
    )
    mcmc.run(jax.random.key(1), *SCHOOLS)
    return Case(model, model.unconstrain(mcmc.get_samples()), thinned=1.5)


CASES = {"distribution": numpyro_distribution, "posterior": numpyro_posterior}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_numpyro_draws_go_both_ways():
    model = case("posterior").model
    x = case("posterior").draws[:10]
    assert model.names == ["mu", "log tau", "z[0]", "z[1]", "z[2]", "z[3]"]
    draws = model.constrain(x)
    assert (draws["tau"] > 0).all() and draws["theta"].shape == (10, 4)
    torch.testing.assert_close(model.unconstrain(draws), x)
    with pytest.raises(InputError, match="draws lack tau"):
        model.unconstrain({k: v for k, v in draws.items() if k != "tau"})
    with pytest.raises(InputError, match="as many draws"):
        model.unconstrain(draws | {"tau": draws["tau"][:3]})


@pytest.mark.parametrize(
    "bounded",
    [
        dist.HalfNormal(1.0),
        dist.Uniform(-1.0, 2.0),
        dist.Gamma(0.5).expand([2]).to_event(1),
        dist.TruncatedNormal(0.5, 1.0, low=0.0),
        dist.Dirichlet(np.array([1.0, 2.0, 3.0])),
    ],
    ids=lambda d: type(d).__name__,
)
def test_a_bounded_numpyro_distribution_has_coordinates_without_bounds(bounded):
    model = as_model(bounded)
    assert isinstance(model, BoundedModel)
    score = model.unbounded.score(model.unbounded.sample(2000, seed=0))
    assert bool((score.mean(0).abs() < 5 * score.std(0) / 2000**0.5).all())
    assert as_model(dist.Normal(0.0, 1.0)).sample(3, seed=0).shape == (3, 1)


def test_numpyro_refuses_what_has_no_score_or_another_shape():
    def discrete():
        numpyro.sample("a", dist.Normal(numpyro.sample("k", dist.Bernoulli(0.5)), 1.0))

    def model(y):
        scale = numpyro.sample("s", dist.HalfNormal(1.0))
        numpyro.sample("L", dist.LKJCholesky(3, 1.0))
        numpyro.sample("y", dist.Normal(0.0, scale), obs=y)

    with pytest.raises(InputError, match="VonMises lives on a circle"):
        as_model(dist.VonMises(0.0, 1.0))
    with pytest.raises(InputError, match="have no score: k"):
        NumPyroPosterior(discrete)
    with pytest.raises(InputError, match="cannot be called with the given arguments"):
        NumPyroPosterior(model)
    q = NumPyroPosterior(model, np.ones(3))
    assert q.score(torch.zeros(4, q.dim)).dtype == torch.float32  # among arrays of double precision
    draws = {"s": np.ones(6), "L": np.tile(np.eye(3), (6, 1, 1))}
    assert q.unconstrain(draws).shape == (6, q.dim)
    with pytest.raises(
        InputError, match=r"draws of s must have shape \(n\), got \(2, 3\); flatten its chains"
    ):
        q.unconstrain({k: v.reshape(2, 3, *v.shape[1:]) for k, v in draws.items()})
    with pytest.raises(InputError, match="no finite log s, the first in row 0"):
        q.unconstrain(draws | {"s": -draws["s"]})
    for without_density in (dist.Delta(0.0), dist.ImproperUniform(dist.constraints.real, (), ())):
        with pytest.raises(InputError, match="no density"):
            as_model(without_density)
