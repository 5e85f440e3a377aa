"""Densities in the plane."""

import math

import pytest
import torch

from steincritic.errors import InputError
from steincritic_studies.learning.toys import TOY_NAMES, rings, toy


@pytest.mark.parametrize("name", TOY_NAMES)
def test_draws_lie_where_the_density_is(name):
    law = toy(name)
    x = law.sample(2000, seed=0)
    score = law.score(x)  # of mean zero under the law itself
    assert bool(((score.mean(0) / (score.std(0) / 2000**0.5)).abs() < 5).all())


def test_a_ring_has_the_same_density_all_around():
    angles = torch.linspace(0, 2 * math.pi, 1001, dtype=torch.float64)
    x = torch.stack([angles.cos(), angles.sin()], dim=-1)
    for radius in (1.0, 1.5, 2.0):
        values = rings().log_prob(radius * x)
        assert values.max() - values.min() < 1e-9  # rounding: the chain's ripple is smaller


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="mixture, rings, moons"):
        toy("spirals")
