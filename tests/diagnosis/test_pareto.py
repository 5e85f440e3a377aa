"""Pareto k-hat."""

import math

import pytest
import torch

from steincritic.diagnosis.pareto import about_pareto_k, pareto_k
from steincritic.errors import InputError
from steincritic.rng import generator


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_the_shape_of_a_pareto_law_is_found(shape):
    u = torch.rand(40_000, generator=generator(1), dtype=torch.float64)
    # 600 excesses: the standard error is (1 + k) / sqrt(600), 0.08 at most
    assert abs(pareto_k(-shape * u.log()) - shape) < 0.35


def test_weights_of_a_normal_for_a_wider_one_have_the_known_shape():
    """q N(0, s^2), p N(0, 1): weights exp(x^2 (1/s^2 - 1) / 2) have tail index k = 1 - s^2."""
    s = math.sqrt(0.4)
    x = s * torch.randn(100_000, generator=generator(2), dtype=torch.float64)
    assert 0.4 < pareto_k(x.square() * (1 / s**2 - 1) / 2) < 0.8
    wide = 1.5 * torch.randn(10_000, generator=generator(3), dtype=torch.float64)
    assert pareto_k(-wide.square() * (1 - 1 / 1.5**2) / 2) < 0.2  # bounded weights


def test_equal_weights_and_few_draws():
    assert pareto_k(torch.zeros(100)) == -math.inf
    with pytest.raises(InputError, match="at least 25"):
        pareto_k(torch.zeros(10))
    assert "can repair" in about_pareto_k(0.2) and "cannot repair" in about_pareto_k(0.9)
