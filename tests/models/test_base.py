"""What counts as a model."""

import pytest
import torch
from torch import nn

from model_contract import TWO
from steincritic.errors import InputError
from steincritic.models import SamplingModel, as_model, dimension
from steincritic.models.base import Model


def test_as_model_passes_models_and_wraps_the_rest():
    q = TWO
    assert as_model(q) is q
    pair = as_model((q.score, lambda n, seed: q.sample(n, seed=seed)))
    assert isinstance(pair, SamplingModel)
    assert torch.equal(pair.sample(3, seed=5), q.sample(3, seed=5))
    score_only = as_model((q.score, None))
    assert isinstance(score_only, Model) and not isinstance(score_only, SamplingModel)
    x = q.sample(3, seed=0)
    torch.testing.assert_close(as_model(q.log_prob).score(x), q.score(x))


@pytest.mark.parametrize("thing", [None, 3, "gm", (1, 2), [], object()])
def test_as_model_refuses_what_describes_no_model(thing):
    with pytest.raises(InputError, match="a model must have score"):
        as_model(thing)


def test_dimension_is_stated_or_none():
    assert dimension(TWO) == 2
    assert dimension(as_model(nn.Identity())) is None
