"""Mixtures by EM are fitted as they should be, and faults are faults."""

import pytest
import torch

from studies.fitted.experiment import truth_of
from studies.fitted.mixture import FitMixture


@pytest.mark.parametrize("k", [2, 5])
def test_mixtures_fitted_together_are_those_of_each_alone_and_near_the_best(k):
    truth, fit = truth_of(f"{k} components", "null", 2), FitMixture(k)
    x = torch.stack([truth.sample(400, seed=seed) for seed in range(3)])
    scores = fit.scores(x)
    for each, score in zip(x, scores, strict=True):
        model = fit(each)
        torch.testing.assert_close(model.score(each), score, rtol=1e-9, atol=1e-9)  # float64 rounding
        assert float(model.log_prob(each).mean()) > float(truth.log_prob(each).mean())  # as a best fit is


def test_em_goes_up():
    x = truth_of("5 components", "null", 2).sample(300, seed=1)
    likelihood = [float(FitMixture(5, rounds)(x).log_prob(x).mean()) for rounds in (1, 3, 10, 50)]
    assert likelihood == sorted(likelihood)


def test_a_fit_does_not_depend_on_units():
    x = truth_of("2 components", "null", 2).sample(200, seed=1)
    unit = torch.tensor([100.0, 0.01], dtype=x.dtype)
    moved = FitMixture(2)(x * unit + 3)
    torch.testing.assert_close(moved.means, FitMixture(2)(x).means * unit + 3)


@pytest.mark.parametrize("truth", ["skewed", "missing"])
def test_faults_are_faults(truth):
    """The skewed one has the spread of the mixture, the other has not."""
    wrong, right = (truth_of("2 components", name, 2).sample(40_000, seed=1) for name in (truth, "null"))
    same = bool(((wrong.std(0) / right.std(0) - 1).abs() < 0.02).all())
    assert same == (truth == "skewed")
    gap = ((wrong - wrong.mean(0)).pow(3).mean(0) - (right - right.mean(0)).pow(3).mean(0)).abs().max()
    assert float(gap) > 0.1
