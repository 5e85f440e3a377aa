"""Null distributions, and the true level of the tests built on them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import Z_MAX, z_of_mean
from steincritic.critics import MLP
from steincritic.data import ScoredPoints, sample_points
from steincritic.errors import InputError
from steincritic.gof import null
from steincritic.gof.null import check_draws, fresh_monte_carlo, pooled_bootstrap, smallest_draws
from steincritic.gof.result import GofResult
from steincritic.models import GaussianMixture
from steincritic.rng import Source
from steincritic.training import Training, fit_bank, fixed

Q = GaussianMixture([[0.0]])
REPETITIONS, TRAINED, TESTED, DRAWS = 400, 30, 30, 99
# 400 repetitions at 5 % give 3 to 44 rejections except once in a million (binomial)
FEWEST, MOST = 3, 44


def model_points(members, n, *, seed, shift=0.0):
    """(members, n, 1) draws of the model, moved by `shift` and scored."""
    draws = sample_points(Q, members * n, seed=seed).x + shift
    return ScoredPoints(draws.view(members, n, 1), Q.score(draws).view(members, n, 1))


def train(*, shift, seed):
    """One critic a repetition, all in one bank."""
    return fit_bank(
        model_points(REPETITIONS, TRAINED, seed=seed, shift=shift),
        staging=fixed(1.0),
        seeds=range(REPETITIONS),
        network=MLP(hidden=(4,)),
        training=Training(epochs=4, batch_size=15, learning_rate=2e-2, dtype="float64"),
    )


@pytest.fixture(scope="module")
def critics():
    return train(shift=0.0, seed=0)


def rejections(observed, nulls):
    """Tests rejected at 5 %, one a row."""
    return sum(
        GofResult(
            statistic=float(statistic),
            null_distribution=draws,
            level=0.05,
            test="split",
            threshold="test",
            exact=True,
            n=TESTED,
            seed=0,
        ).rejected
        for statistic, draws in zip(observed, nulls, strict=True)
    )


def observed_means(critics, *, seed, shift=0.0):
    return critics.witness(model_points(len(critics), TESTED, seed=seed, shift=shift)).mean(-1)


def fresh_nulls(critics, *, seed):
    values = critics.witness(model_points(len(critics), TESTED * DRAWS, seed=seed))
    return [
        fresh_monte_carlo(lambda count, part, row=row: row[:count], TESTED, draws=DRAWS) for row in values
    ]


def pooled_nulls(critics, *, seed, size, centered):
    values = critics.witness(model_points(len(critics), TESTED * size, seed=seed))
    source = Source(seed, "bootstrap")
    return [pooled_bootstrap(row, TESTED, draws=DRAWS, source=source, centered=centered) for row in values]


def test_fresh_draws_keep_the_level(critics):
    count = rejections(observed_means(critics, seed=1), fresh_nulls(critics, seed=2))
    assert FEWEST <= count <= MOST


def test_a_centered_pool_keeps_the_level(critics):
    nulls = pooled_nulls(critics, seed=4, size=50, centered=True)
    assert FEWEST <= rejections(observed_means(critics, seed=3), nulls) <= MOST


def test_a_small_pool_that_is_not_centered_does_not_keep_the_level(critics):
    """The negative control: a pool of n draws adds its own error, so the true level is 12 %."""
    counts = [
        rejections(
            observed_means(critics, seed=10 + k), pooled_nulls(critics, seed=20 + k, size=1, centered=False)
        )
        for k in range(5)
    ]
    # 2000 tests: 5 % would be 100 with standard deviation 9.7, so beyond five of these
    assert sum(counts) > 100 + Z_MAX * 9.7


def test_a_clear_alternative_is_rejected():
    critics = train(shift=1.0, seed=5)
    observed = observed_means(critics, seed=6, shift=1.0)
    assert rejections(observed, fresh_nulls(critics, seed=7)) > 0.9 * REPETITIONS
    assert rejections(observed, pooled_nulls(critics, seed=8, size=50, centered=True)) > 0.9 * REPETITIONS


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


def test_too_few_draws_for_the_level_are_refused():
    check_draws(19, 0.05)
    with pytest.raises(InputError, match="use at least 19"):
        check_draws(18, 0.05)
