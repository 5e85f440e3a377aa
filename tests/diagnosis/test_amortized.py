"""Amortized posteriors, over many observations."""

import json

import pytest
import scipy.stats
import torch

import steincritic as sc
from steincritic.diagnosis.amortized import fisher
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.rng import generator

OBSERVATIONS = torch.linspace(-1, 1, 6, dtype=torch.float64)[:, None] * torch.ones(3, dtype=torch.float64)
NAMES = ["a", "b", "c"]


def posterior_of(x):
    return lambda theta: -(theta - 0.5 * x).square().sum(-1)  # standard deviation sqrt(1/2), mean x / 2


def draws(n=150, seed=0, wide=(), factor=1.6):
    """Exact ones, but for some observations, where b is too wide."""
    source, found = generator(seed), []
    for k, x in enumerate(OBSERVATIONS):
        noise = torch.randn(n, 3, generator=source, dtype=torch.float64)
        noise[:, 1] *= factor if k in wide else 1.0
        found.append(0.5 * x + noise / 2**0.5)
    return found


def test_the_observations_that_fail_and_what_is_wrong_there():
    found = sc.check_amortized(posterior_of, draws(wide=(1, 4)), OBSERVATIONS, names=NAMES)
    assert found.rejected and sorted(found.failing) == [1, 4]
    assert len(found.findings) == 1
    assert found.findings[0].startswith("b is too wide (1.") and "in 2 of 6 observations" in found.findings[0]
    assert "It fails for 2 of 6: observations" in found.summary()
    assert repr(found).startswith("AmortizedResult(rejected, p=") and "\n" not in repr(found)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["names"] == NAMES and len(plain["pvalues"]) == 6 and plain["rejected"]


def test_right_draws_have_nothing_wrong():
    source = iter(draws(seed=1))
    found = sc.check_amortized(posterior_of, lambda x: next(source), OBSERVATIONS)
    assert not found.rejected and not found.failing and not found.findings
    assert found.summary().startswith("No evidence against the amortized posterior (6 observations")


def test_small_errors_of_all_observations_add_up():
    found = sc.check_amortized(
        posterior_of, draws(wide=range(6), factor=1.25, seed=5), OBSERVATIONS, fdr=1e-6, names=NAMES
    )
    assert found.rejected and not found.failing  # no p-value is so small
    assert found.findings[0].startswith("b is too wide (1.")
    assert "over all observations together" in found.findings[0]
    assert "No single observation stands out." in found.summary()


def test_fishers_combination():
    pvalues = torch.tensor([0.03, 0.4, 0.7, 1.0], dtype=torch.float64)
    assert fisher(pvalues) == pytest.approx(scipy.stats.combine_pvalues(pvalues.numpy()).pvalue)
    assert fisher(torch.ones(5, dtype=torch.float64)) == 1.0


def test_draws_with_shared_random_numbers_are_doubted():
    with pytest.warns(DoubtfulWarning, match="go together row by row"):
        sc.check_amortized(posterior_of, lambda x: x / 2 + draws()[0] - OBSERVATIONS[0] / 2, OBSERVATIONS[:2])


def test_what_cannot_be_used_is_refused():
    with pytest.raises(InputError, match="draws for each of 6 observations, got 2"):
        sc.check_amortized(posterior_of, draws()[:2], OBSERVATIONS)
    with pytest.raises(InputError, match="at least one"):
        sc.check_amortized(posterior_of, draws(), OBSERVATIONS[:0])
    with pytest.raises(InputError, match="draws of observation 0"):
        sc.check_amortized(posterior_of, lambda x: torch.zeros(3), OBSERVATIONS)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "checks"), [(1.0, 400), (1.5, 40)])
def test_level_of_the_pvalue_for_all_and_of_the_list(factor, checks):
    """Of 400 under the null, 3 to 44 are rejected at 5 %, and at most 72 have a list at 10 %, but once in a
    million; fewer where tests are cautious."""
    found = [
        sc.check_amortized(
            posterior_of,
            draws(n=60, seed=100 + k, wide=range(3), factor=factor)[:3],
            OBSERVATIONS[:3],
            seed=k,
        )
        for k in range(checks)
    ]
    rejected, listed = sum(each.rejected for each in found), sum(bool(each.failing) for each in found)
    print(f"{rejected} of {checks} rejected, {listed} with a failing observation")
    if factor == 1.0:
        assert rejected <= 44 and listed <= 72
    else:
        assert rejected >= 30 and listed >= 30
