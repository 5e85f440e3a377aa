"""The paper's pairs (p, q)."""

import numpy as np
import pytest
import torch

from reference import Z_MAX, jacobian_trace, z_of_mean
from steincritic.data import Frame, Rows, Table, mixture, problem
from steincritic.errors import InputError

NAMES = {"gm-1d": 1, "gm-2d": 2, "gm-10d": 10, "gm-25d": 25, "gm-50d": 50, "gm-50d-easy": 50}


@pytest.mark.parametrize("name", ["gm-1d", "gm-2d", "gm-10d"])
def test_the_gap_is_minus_the_gradient_of_the_log_likelihood_ratio(name):
    pair = problem(name)
    x = pair.data.sample(10, seed=0).requires_grad_()
    (gradient,) = torch.autograd.grad(pair.log_likelihood_ratio(x).sum(), x)
    torch.testing.assert_close(pair.gap(x.detach()), -gradient, rtol=1e-10, atol=1e-10)  # rounding


@pytest.mark.parametrize(("name", "dim"), NAMES.items())
def test_the_mean_log_likelihood_ratio_tells_p_from_q(name, dim):
    pair = problem(name)  # its means are KL(p|q) > 0 and -KL(q|p) < 0
    assert pair.dim == pair.data.dim == dim
    assert z_of_mean(pair.log_likelihood_ratio(pair.data.sample(4_000, seed=0))) > Z_MAX
    assert z_of_mean(pair.log_likelihood_ratio(pair.model.sample(4_000, seed=0))) < -Z_MAX


def test_the_first_two_coordinates_of_p_are_those_of_the_paper():
    pair = mixture(5, rho=0.5, omega=0.8)
    wanted = torch.tensor([[[1.0, 0.5], [0.5, 1.0]], [[0.64, -0.4], [-0.4, 1.0]]], dtype=torch.float64)
    torch.testing.assert_close(pair.data.covariances[:, :2, :2], wanted)
    assert torch.equal(pair.data.covariances[:, 2:, 2:], torch.eye(3).double().expand(2, 3, 3))
    assert torch.equal(pair.model.covariances, torch.eye(5).double().expand(2, 5, 5))


def test_mean_stein_value_of_the_gap_is_the_fisher_divergence():
    pair = problem("gm-2d")
    x = pair.data.sample(20_000, seed=1)
    gap = pair.gap(x)
    witness = (pair.model.score(x) * gap).sum(-1) + jacobian_trace(pair.gap, x)
    assert abs(z_of_mean(witness - (gap * gap).sum(-1))) < Z_MAX


@pytest.mark.parametrize("bad", [{"dim": 1}, {"dim": 2, "rho": 1.0}, {"dim": 2, "omega": 0.0}])
def test_mixtures_without_a_density_are_refused(bad):
    with pytest.raises(InputError, match="need dim"):
        mixture(**bad)


def test_data_print_in_one_short_line():
    pair = problem("gm-2d")
    assert repr(pair) == "Problem('gm-2d', 2 dimensions)"
    assert repr(pair.model) == "GaussianMixture(2 components in 2 dimensions)"
    assert repr(Frame.identity(1)) == "Frame(1 dimension)"
    assert repr(Table(np.ones((3, 2)), ("a", "b"), Rows(np.arange(3)))) == "Table(3 rows of 2 columns)"
