"""Sizes by scores alone: exact for normal models, nothing where nothing is wrong."""

import math

import pytest
import torch

import steincritic as sc
from steincritic.data.points import ScoredPoints, score_points
from steincritic.diagnosis.by_scores import Gaps, differences
from steincritic.rng import generator
from studies.laws import Student
from studies.posteriors.models import EightSchools

DIM, N = 4, 600


def draws(seed, n=N):
    return torch.randn(n, DIM, generator=generator(seed), dtype=torch.float64)


def narrow(condition):
    """Axes of a covariance as columns, in no coordinate's direction."""
    basis = torch.linalg.qr(draws(7, DIM)).Q
    return basis * torch.logspace(-math.log10(condition) / 2, 0, DIM, dtype=torch.float64)


def of_normal(x, axes):
    return ScoredPoints(x, -x @ torch.linalg.inv(axes @ axes.T))


@pytest.mark.parametrize("condition", [1.0, 1e4])
def test_a_shift_and_a_spread_of_a_normal_model_are_found_at_their_size(condition):
    axes = narrow(condition)
    sd = (axes @ axes.T).diagonal().sqrt()
    x = draws(1) @ axes.T
    moved = x.clone()
    moved[:, 2] += 0.5 * sd[2]
    first = differences(of_normal(moved, axes), level=0.05)[0]
    assert (first.kind, first.columns, first.rough) == ("shift", (2,), False)
    assert abs(first.estimate.value - 0.5) < 0.2  # 5 standard errors of a mean of 600
    thin = x.clone()
    thin[:, 1] *= 0.3
    found = differences(of_normal(thin, axes), level=0.05)
    spread = next(one for one in found if one.kind == "spread")
    assert spread.columns == (1,) and abs(spread.estimate.value / 0.3 - 1) < 0.2
    assert spread.estimate.low < spread.estimate.value < spread.estimate.high < 1


def test_the_correlation_of_the_model_is_told():
    axes = narrow(50.0)
    covariance = axes @ axes.T
    own = draws(2) * covariance.diagonal().sqrt()  # as mean-field inference has it
    found = [one for one in differences(of_normal(own, axes), level=0.05) if one.kind == "pair"]
    assert found
    for one in found:
        j, k = one.columns
        wanted = covariance[j, k] / (covariance[j, j] * covariance[k, k]).sqrt()
        assert abs(one.estimate.expected - float(wanted)) < 0.1 and abs(one.estimate.value) < 0.2


def test_what_is_wrong_everywhere_is_said_once():
    found = differences(of_normal(1.5 * draws(3), torch.eye(DIM, dtype=torch.float64)), level=0.05)
    assert [one.kind for one in found] == ["scale"] and abs(found[0].estimate.value - 1.5) < 0.15


@pytest.mark.parametrize("model", [Student(4, 5), EightSchools()])
def test_nothing_is_found_in_a_models_own_draws(model):
    """Of 40 sets 2 are expected at most; 10 once in 30,000."""
    found = 0
    for seed in range(40):
        x = model.sample(400, seed=seed).double()
        found += bool(differences(ScoredPoints(x, model.score(x)), level=0.05))
    assert found < 10


def test_blocks_widen_the_errors_of_dependent_rows():
    noise = draws(4, 2000)
    x = noise.clone()
    for t in range(1, len(x)):
        x[t] = 0.9 * x[t - 1] + math.sqrt(0.19) * noise[t]
    points = ScoredPoints(x + 0.4, -(x + 0.4))
    plain = differences(points.shuffled(seed=0), level=1.0)
    blocks = differences(points, torch.full((20,), 100), level=1.0)
    widths = [
        sum(one.estimate.high - one.estimate.low for one in found if one.kind == "shift")
        for found in (plain, blocks)
    ]
    assert widths[1] > 2.5 * widths[0]  # sqrt(19) for endless blocks


def test_few_points_and_scores_of_no_normal_model_have_no_sizes():
    x = draws(5, 12)
    assert differences(ScoredPoints(x, -x), level=0.05) is None
    x = draws(6)
    assert differences(ScoredPoints(x, x), level=0.05) is None


# Draws beside a normal law fitted to the posterior's score.

COVARIANCE = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 4.0]], dtype=torch.float64)
NORMAL = sc.as_model(
    torch.distributions.MultivariateNormal(torch.ones(3, dtype=torch.float64), covariance_matrix=COVARIANCE)
)


def test_a_normal_posterior_is_known_wherever_the_draws_lie():
    x = 0.2 * torch.randn(200, 3, generator=generator(1), dtype=torch.float64) - 3
    found, sd = Gaps.of(score_points(NORMAL, x)), COVARIANCE.diagonal().sqrt()
    torch.testing.assert_close(found.shift, (x.mean(0) - 1) / sd)  # no noise but rounding
    torch.testing.assert_close(found.log_ratio.exp(), x.std(0, correction=0) / sd)


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_right_draws_are_not_off_and_wide_ones_are(factor):
    heavy = sc.as_model(
        torch.distributions.Independent(
            torch.distributions.StudentT(torch.full((3,), 8.0, dtype=torch.float64)), 1
        )
    )
    beyond = 0
    for seed in range(40):
        x = heavy.sample(300, seed=seed) * torch.tensor([1.0, factor, 1.0])
        found = Gaps.of(score_points(heavy, x))
        beyond += bool((torch.cat([found.shift_z, found.spread_z]).abs() > found.bound).any())
    # at 5 %, 12 or more of 40 is rarer than one in a million
    assert (beyond < 12) == (factor == 1.0)


def test_constant_columns_and_few_draws_do_no_harm():
    x = torch.randn(6, 3, generator=generator(2), dtype=torch.float64)
    x[:, 2] = 1.0
    found = Gaps.of(score_points(NORMAL, x))
    assert bool(torch.stack([found.shift, found.log_ratio, found.shift_z, found.spread_z]).isfinite().all())
