"""Scores by differences."""

import pytest
import torch
from scipy import stats

from steincritic.errors import InputError, ModelError
from steincritic.models import NumericDensity, as_model


def test_differences_are_as_good_as_a_formula():
    model = as_model(stats.norm(5.0, 1e-3))
    x = model.sample(100, seed=0)
    torch.testing.assert_close(model.score(x), (5.0 - x) / 1e-6, rtol=1e-7, atol=1e-5)  # of up to 3,000
    with pytest.raises(ModelError, match=r"must return shape \(100,\)"):
        NumericDensity(lambda rows: rows, 1).log_prob(x)
    with pytest.raises(InputError, match="scale must be positive"):
        NumericDensity(lambda rows: rows, 1, scale=0.0)
