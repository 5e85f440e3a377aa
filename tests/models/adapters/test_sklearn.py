"""Mixtures and kernel densities of scikit-learn."""

import numpy as np
import pytest
import torch

from model_contract import TWO, ModelContract, cases, own
from steincritic.errors import InputError
from steincritic.models import as_model

pytest.importorskip("sklearn")
from sklearn import mixture, neighbors
from sklearn.linear_model import LinearRegression

DATA = TWO.sample(400, seed=0).numpy()
KINDS = ("full", "tied", "diag", "spherical")


def fitted_mixture(kind, name="GaussianMixture"):
    return getattr(mixture, name)(n_components=3, covariance_type=kind, random_state=0).fit(DATA)


def fitted_kernels():
    return neighbors.KernelDensity(bandwidth=0.4).fit(DATA, sample_weight=np.linspace(0.5, 2.0, 400))


CASES = {
    **{f"mixture, {kind}": lambda kind=kind: own(fitted_mixture(kind)) for kind in KINDS},
    "bayesian mixture": lambda: own(fitted_mixture("full", "BayesianGaussianMixture")),
    "kernel density": lambda: own(fitted_kernels(), 5_000),
}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_of_scikit_learn_keeps_its_log_density(kind):
    fitted = fitted_mixture(kind)
    x = TWO.sample(50, seed=1)
    wanted = torch.as_tensor(fitted.score_samples(x.numpy()))
    torch.testing.assert_close(as_model(fitted).log_prob(x), wanted)


def test_a_kernel_density_of_scikit_learn_keeps_its_log_density():
    fitted = fitted_kernels()
    x = TWO.sample(50, seed=1)
    torch.testing.assert_close(as_model(fitted).log_prob(x), torch.as_tensor(fitted.score_samples(x.numpy())))


def test_scikit_learn_without_a_score_is_refused():
    with pytest.raises(InputError, match=r"is not fitted: call fit\(x\) first"):
        as_model(mixture.GaussianMixture(2))
    with pytest.raises(InputError, match="is not fitted"):
        as_model(neighbors.KernelDensity())
    with pytest.raises(InputError, match="needs kernel='gaussian'"):
        as_model(neighbors.KernelDensity(kernel="tophat").fit(DATA))
    with pytest.raises(InputError, match="Euclidean"):
        as_model(neighbors.KernelDensity(metric="manhattan").fit(DATA))
    with pytest.raises(InputError, match="got LinearRegression"):
        as_model(LinearRegression())
