"""Gaussian mixtures against scipy, and their doors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steincritic.errors import InputError
from steincritic.models import GaussianMixture

MEANS = [[0.0, 1.0], [2.0, -1.0]]
COVARIANCES = [[[1.0, 0.4], [0.4, 2.0]], [[0.5, -0.1], [-0.1, 0.3]]]


def test_log_density_agrees_with_scipy():
    q = GaussianMixture(MEANS, COVARIANCES, [1.0, 3.0])
    x = q.sample(50, seed=0)
    density = sum(
        weight * stats.multivariate_normal(mean, covariance).pdf(x.numpy())
        for weight, mean, covariance in zip([0.25, 0.75], MEANS, COVARIANCES, strict=True)
    )
    np.testing.assert_allclose(q.log_prob(x), np.log(density), rtol=1e-12, atol=1e-12)  # rounding


@given(shift=st.floats(-5, 5), scale=st.floats(0.1, 10))
def test_score_follows_a_change_of_location_and_scale(shift, scale):
    q = GaussianMixture(MEANS, COVARIANCES)
    moved = GaussianMixture(scale * q.means + shift, scale**2 * q.covariances)
    x = q.sample(10, seed=1)
    score = moved.score(scale * x + shift)
    torch.testing.assert_close(score * scale, q.score(x), rtol=1e-9, atol=1e-9)  # rounding, times 10²


@pytest.mark.parametrize(
    ("short", "full"),
    [
        (2.0, [[[2.0, 0.0], [0.0, 2.0]]] * 2),
        ([2.0, 3.0], [[[2.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, 3.0]]]),
        ([[1.0, 2.0], [3.0, 4.0]], [[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, 4.0]]]),
    ],
)
def test_short_covariances_mean_the_full_ones(short, full):
    assert torch.equal(GaussianMixture(MEANS, short).covariances, GaussianMixture(MEANS, full).covariances)


@pytest.mark.parametrize("covariances", [1.0, [1.0, 2.0], COVARIANCES])
def test_a_mixture_draws_in_the_precision_of_its_means(covariances):
    q = GaussianMixture(torch.tensor(MEANS, dtype=torch.float32), covariances, [1, 2])
    assert q.sample(3, seed=0).dtype == torch.float32
    assert q.to(torch.float64).sample(3, seed=0).dtype == torch.float64
    assert GaussianMixture([[0, 1]]).sample(1).dtype == torch.float64  # Python's numbers are doubles


def test_component_frequencies_are_the_weights():
    q = GaussianMixture([[-100.0], [100.0]], 1.0, [1.0, 4.0])
    right = int((q.sample(10_000, seed=0) > 0).sum())
    # binomial(10 000, 0.8): standard deviation 40, so five of them either way
    assert abs(right - 8_000) < 200


def test_far_points_have_a_finite_score():
    q = GaussianMixture(MEANS, COVARIANCES)
    score = q.score(torch.tensor([[1e6, -1e6], [1e150, 0.0]], dtype=torch.float64))
    assert bool(score.isfinite().all())


@pytest.mark.parametrize(
    "x", [torch.zeros(2), torch.zeros(3, 3), torch.zeros(3, 2, dtype=torch.int64), torch.tensor(1.0)]
)
def test_other_points_and_covariances_are_refused(x):
    with pytest.raises(InputError, match="x must"):
        GaussianMixture(MEANS).score(x)
    with pytest.raises(InputError, match="symmetric"):
        GaussianMixture([[0.0, 0.0]], [[[1.0, 0.5], [0.0, 1.0]]])
