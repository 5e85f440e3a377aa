"""Posteriors of sbi, trained for a few epochs: what the nets say matters here, not whether it is right."""

import contextlib
import functools
import tempfile
import warnings

import pytest
import torch

from model_contract import Case, ModelContract, cases
from steincritic.errors import InputError
from steincritic.models import SbiPosterior, SbiVectorField, as_model

inference = pytest.importorskip("sbi.inference")
BoxUniform = pytest.importorskip("sbi.utils").BoxUniform
OBSERVED = torch.tensor([0.8, 0.1])
PRIORS = {
    "box": lambda: BoxUniform(-torch.ones(2), torch.ones(2)),
    "normal": lambda: torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)),
}


@contextlib.contextmanager
def _elsewhere():
    """sbi writes logs into the working directory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


@functools.cache
def posterior(kind, prior, epochs=5):
    known = PRIORS[prior]()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), _elsewhere():
        warnings.simplefilter("ignore")  # that it has not converged
        torch.manual_seed(1)
        theta = known.sample((500,))
        method = getattr(inference, kind)(prior=known, show_progress_bars=False)
        method.append_simulations(theta, theta + 0.5 * torch.randn_like(theta))
        method.train(max_num_epochs=epochs)
        return method.build_posterior()


def direct(prior):
    model = SbiPosterior(posterior("NPE", prior), OBSERVED)
    return Case(model, model.sample(5_000, seed=4), rounding=1e-3, single=1e-2)  # nets in single precision


given, case = cases({"box": lambda: direct("box"), "normal": lambda: direct("normal")})


class TestContract(ModelContract):
    def test_score_is_the_gradient_of_the_log_density(self, given):
        """In single precision, so over large steps: their square, and rounding over a step."""
        x, step = given.draws[:8].double(), 0.01
        for j, to in enumerate(step * torch.eye(2, dtype=torch.float64)):
            slope = (given.model.log_prob(x + to) - given.model.log_prob(x - to)) / (2 * step)
            torch.testing.assert_close(given.model.score(x)[:, j], slope, rtol=0.02, atol=0.02)


def test_parameters_go_both_ways_and_stay_within_the_prior():
    model = case("box").model
    theta = model.constrain(case("box").draws[:10])
    assert bool((theta.abs() < 1).all())
    torch.testing.assert_close(model.unconstrain(theta), case("box").draws[:10], rtol=1e-3, atol=1e-3)
    with pytest.raises(InputError, match="1 of 3 draws lie outside of the parameters' bounds"):
        model.unconstrain(torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.0, -1.0]]))


def test_an_observation_is_needed():
    with pytest.raises(InputError, match="set_default_x"):
        as_model(posterior("NPE", "normal"))


def test_chains_have_a_density_and_no_draws():
    model = SbiPosterior(posterior("NLE", "box"), OBSERVED)
    assert not hasattr(model, "sample") and "MCMCPosterior" in repr(model)
    assert model.score(torch.zeros(3, 2)).shape == (3, 2)


@pytest.mark.parametrize("kind", ["NPSE", "FMPE"])
def test_a_vector_field_speaks_of_parameters_with_noise(kind):
    """Its score is near that of the true posterior with noise; near time 0 it would be hundreds off."""
    model = SbiVectorField(posterior(kind, "normal", epochs=60), OBSERVED, noise=0.5)
    variance = model.alpha**2 * 0.2 + model.sigma**2  # of the posterior, known here, with noise
    x = model.alpha * 0.8 * OBSERVED + variance**0.5 * torch.randn(
        200, 2, generator=torch.Generator().manual_seed(0)
    )
    wanted = -(x - model.alpha * 0.8 * OBSERVED) / variance
    assert float((model.score(x) - wanted).square().mean() / wanted.square().mean()) < 0.5
    assert model.score(x.double()).dtype == torch.float64 and model.noised(x).shape == x.shape


def test_draws_of_a_vector_field_are_decided_by_the_seed():
    model = as_model(posterior("NPSE", "normal", epochs=60).set_default_x(OBSERVED))
    draws = model.sample(4, seed=1)
    assert torch.equal(draws, model.sample(4, seed=1)) and draws.shape == (4, 2)
