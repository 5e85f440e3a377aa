"""Null distributions; the levels of tests built on them are in test_thresholds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import Z_MAX, z_of_mean
from steincritic.errors import InputError
from steincritic.gof import null
from steincritic.gof.null import fresh_monte_carlo, pooled_bootstrap, smallest_draws
from steincritic.models import GaussianMixture
from steincritic.rng import Source

Q = GaussianMixture([[0.0]])


def test_fresh_draws_are_means_of_whole_sets(monkeypatch):
    monkeypatch.setattr(null, "_GATHERED", 64 * 4 * 3)  # parts of three sets of four points
    asked = []

    def draw(count, part):
        asked.append((count, part))
        return torch.arange(count, dtype=torch.float64) + 100 * part

    means = fresh_monte_carlo(draw, 4, draws=7)
    assert asked == [(12, 0), (12, 1), (4, 2)]
    assert means.tolist() == [1.5, 5.5, 9.5, 101.5, 105.5, 109.5, 201.5]


def test_a_bootstrap_has_the_pools_mean_or_zero_and_its_variance():
    pool = Q.sample(400, seed=0)[:, 0] + 3.0
    for centered, mean in ((False, float(pool.mean())), (True, 0.0)):
        means = pooled_bootstrap(pool, 25, draws=20_000, source=Source(0), centered=centered)
        assert abs(z_of_mean(means, mean)) < Z_MAX
        assert abs(z_of_mean((means - mean) ** 2, float(pool.var(correction=0)) / 25)) < Z_MAX


def test_a_bootstrap_in_parts_has_as_many_draws(monkeypatch):
    monkeypatch.setattr(null, "_GATHERED", 10)
    means = pooled_bootstrap(torch.ones(5), 5, draws=7, source=Source(0), centered=False)
    assert torch.equal(means, torch.ones(7))


def test_a_pool_smaller_than_the_test_is_refused():
    with pytest.raises(InputError, match="pool must hold at least n = 6"):
        pooled_bootstrap(torch.ones(5), 6, draws=7, source=Source(0))


@given(level=st.one_of(st.floats(1e-4, 0.999), st.integers(2, 5000).map(lambda k: 1 / k)))
def test_the_smallest_number_of_draws_can_just_reject(level):
    draws = smallest_draws(level)
    assert 1 / (draws + 1) <= level
    assert draws == 0 or 1 / draws > level
