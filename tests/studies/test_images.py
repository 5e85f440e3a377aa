"""Models of digits: the pieces that the tests of all experiments do not reach."""

import math
from dataclasses import replace

import pytest
import torch

from steincritic.errors import InputError
from steincritic.models import GaussianMixture
from steincritic.rng import generator
from steincritic_studies.digits.data import small_digits
from steincritic_studies.digits.models import FlowFit, RescaledModel, _bits, learn, model_of


def test_a_rescaled_model_is_the_model_in_other_units():
    location, scale = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0]).double()
    inside = GaussianMixture([[0.0, 0.0]])
    whole = GaussianMixture([[1.0, -2.0]], [[[0.25, 0.0], [0.0, 9.0]]])
    model = RescaledModel(inside, location, scale)
    x = whole.sample(12, seed=0)
    torch.testing.assert_close(model.score(x), whole.score(x))
    draws = model.sample(20_000, seed=1)
    # five standard errors of a mean
    assert bool(((draws.mean(0) - location).abs() < 5 * scale / 20_000**0.5).all())
    assert torch.equal(draws, model.sample(20_000, seed=1))


class Logistic:
    """Independent logistic pixels, which the logit makes uniform: log2(levels) bits each."""

    def log_prob(self, x):
        return (torch.nn.functional.logsigmoid(x) + torch.nn.functional.logsigmoid(-x)).sum(1)


def test_uniform_images_cost_all_their_bits():
    digits = small_digits()[:50]
    unit = torch.zeros(64).double(), torch.ones(64).double()
    bits = _bits(Logistic, digits, *unit, seed=0)
    assert bits == pytest.approx(math.log2(17), abs=1e-4)  # the edge of 1e-6 that keeps logits finite


def test_a_flow_learns_digits_is_kept_and_sampled(tmp_path):
    pytest.importorskip("zuko")
    digits = small_digits()
    fit = FlowFit(transforms=2, hidden=(32,), steps=60, batch_size=64, copies=1)
    common = {"device": torch.device("cpu"), "seed": 0, "callbacks": ()}
    learned, facts = learn(fit, digits[:900], digits[900:], tmp_path / "flow.safetensors", **common)
    assert facts["bits_per_pixel"] < math.log2(17)  # better than uniform
    model = model_of(fit, learned)
    x = model.sample(7, seed=3)
    assert x.shape == (7, 64) and model.score(x).shape == (7, 64)
    noise = 0.01 * torch.randn(7, 64, generator=generator(0))
    assert bool(model.score(x + noise).isfinite().all())
    again, same = learn(fit, digits[:900], digits[900:], tmp_path / "flow.safetensors", **common)
    assert same == facts and torch.equal(model_of(fit, again).score(x), model.score(x))
    with pytest.raises(InputError, match="other data or settings"):
        learn(replace(fit, steps=61), digits[:900], digits[900:], tmp_path / "flow.safetensors", **common)
