"""Stein's identity, and the operator's algebra."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import Z_MAX, twisted_field, z_of_mean
from steincritic.data import ScoredPoints, scored
from steincritic.models import GaussianMixture
from steincritic.stein import witness_of

STANDARD_NORMAL = GaussianMixture([[0.0, 0.0, 0.0]])
BIMODAL = GaussianMixture([[-1.0, 0.0], [1.5, 0.5]], [[[1.0, 0.4], [0.4, 0.5]], [[0.3, 0.0], [0.0, 1.0]]])


@pytest.mark.parametrize("model", [STANDARD_NORMAL, BIMODAL], ids=["normal", "mixture"])
@pytest.mark.parametrize(("shift", "is_model"), [(0.0, True), (0.5, False)])
def test_mean_stein_value_vanishes_only_under_the_model(model, shift, is_model):
    x = model.sample(20_000, seed=0) + shift
    z = z_of_mean(witness_of(twisted_field, scored(model, x)))
    assert (abs(z) < Z_MAX) == is_model  # |z| is above 20 at shift 0.5


def test_a_wrong_score_is_noticed_on_the_models_own_draws():
    x = STANDARD_NORMAL.sample(20_000, seed=1)
    assert abs(z_of_mean(witness_of(twisted_field, ScoredPoints(x, -1.2 * x)))) > Z_MAX


@given(a=st.floats(-10, 10), b=st.floats(-10, 10))
def test_stein_operator_is_linear_in_the_critic(a, b):
    points = scored(BIMODAL, BIMODAL.sample(16, seed=1))
    joined = witness_of(lambda y: a * twisted_field(y) + b * torch.sin(y), points)
    parts = a * witness_of(twisted_field, points) + b * witness_of(torch.sin, points)
    torch.testing.assert_close(joined, parts, rtol=1e-10, atol=1e-10)  # float64 rounding, |a|, |b| <= 10
