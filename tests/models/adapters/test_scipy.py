"""Frozen distributions and kernel densities of scipy.stats."""

import numpy as np
import pytest
import torch
from scipy import stats

from model_contract import COVARIANCE, MEAN, TWO, ModelContract, cases, own
from steincritic.errors import InputError
from steincritic.models import as_model

DATA = TWO.sample(400, seed=0).numpy()


def kernels():
    return stats.gaussian_kde(DATA.T, weights=np.linspace(1, 2, 400))


def skewed():
    frozen = stats.skewnorm(3.0, loc=100.0, scale=0.01)
    return own(frozen, mean=[frozen.mean()], variance=[frozen.var()])


CASES = {
    "normal": lambda: own(
        stats.multivariate_normal(MEAN, COVARIANCE), mean=MEAN, variance=np.diag(COVARIANCE)
    ),
    "normal, a number": lambda: own(stats.multivariate_normal(1.0, 4.0), mean=[1.0], variance=[4.0]),
    "t": lambda: own(stats.multivariate_t(MEAN, COVARIANCE, df=5), mean=MEAN),
    "t, no limit": lambda: own(
        stats.multivariate_t(MEAN, COVARIANCE, df=np.inf), mean=MEAN, variance=np.diag(COVARIANCE)
    ),
    "kernel density": lambda: own(kernels(), 5_000),
    "skewed numbers": skewed,
}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


@pytest.mark.parametrize(
    "frozen",
    [stats.multivariate_normal(MEAN, COVARIANCE), stats.multivariate_t(MEAN, COVARIANCE, df=5)],
)
def test_scipy_keeps_its_log_density(frozen):
    x = torch.as_tensor(frozen.rvs(size=20, random_state=0))
    torch.testing.assert_close(as_model(frozen).log_prob(x), torch.as_tensor(frozen.logpdf(x.numpy())))


def test_a_kernel_density_of_scipy_keeps_its_log_density():
    x = TWO.sample(20, seed=1)
    torch.testing.assert_close(
        as_model(kernels()).log_prob(x), torch.as_tensor(kernels().logpdf(x.numpy().T))
    )


@pytest.mark.parametrize(
    ("thing", "word"),
    [
        (stats.multivariate_normal, "has no parameters yet"),
        (stats.norm, "has no parameters yet"),
        (stats.wishart(3, np.eye(2)), "got wishart_frozen"),
        (stats.vonmises(1.0), "vonmises lives on"),
        (stats.poisson(3.0), "poisson is discrete"),
        (stats.norm([0.0, 1.0]), "freeze one at a time"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_scipy_without_a_score_is_refused(thing, word):
    with pytest.raises(InputError, match=word):
        as_model(thing)


@pytest.mark.parametrize(
    ("frozen", "slope"),
    [
        (stats.expon(1.0, 2.0), lambda x: -0.5 + 0 * x),
        (stats.uniform(), lambda x: 0 * x),
        (stats.beta(0.5, 2.0), lambda x: -0.5 / x - 1 / (1 - x)),
        (stats.gamma(0.5), lambda x: -0.5 / x - 1),
        (stats.halfnorm(), lambda x: -x),
        (stats.truncnorm(-1, 2), lambda x: -x),
    ],
    ids=lambda value: value.dist.name if hasattr(value, "dist") else "",
)
def test_a_distribution_with_ends_has_its_score_up_to_them(frozen, slope):
    model = as_model(frozen)
    low, high = frozen.support()
    x = torch.tensor([*frozen.ppf([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6])]).double()[:, None]
    assert bool(((x > low) & (x < high)).all())
    # finite differences: 1e-9 of the score, and what rounding of x leaves of the distance to the upper end
    torch.testing.assert_close(model.score(x), slope(x), rtol=1e-5, atol=1e-7)


def test_a_dirichlet_of_scipy_is_that_of_torch():
    model = as_model(stats.dirichlet([1.0, 2.0, 3.0]))
    x = model.sample(3, seed=0)
    torch.testing.assert_close(model.score(x), torch.tensor([0.0, 1.0, 2.0]).double() / x)
