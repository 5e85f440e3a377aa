"""Draws beside a normal law fitted to the posterior's score."""

import pytest
import torch

import steincritic as sc
from steincritic.data.points import score_points
from steincritic.diagnosis.by_scores import Gaps
from steincritic.rng import generator

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
