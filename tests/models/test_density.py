"""What as_model takes, and what is special to densities, distributions and pairs."""

from typing import ClassVar

import pytest
import torch
from torch import distributions as td

from model_contract import TWO
from steincritic.errors import InputError, ModelError
from steincritic.models import DistributionModel, LogDensity, SamplingModel, as_model
from steincritic.models.base import Model

X = torch.linspace(-1, 1, 6, dtype=torch.float64).view(3, 2)


def test_a_score_is_had_inside_no_grad_and_leaves_no_graph():
    with torch.no_grad():
        score = LogDensity(lambda x: -(x**2).sum(-1)).score(X)
    assert not score.requires_grad
    torch.testing.assert_close(score, -2 * X)


def test_log_density_of_the_wrong_shape_or_without_a_gradient_is_refused():
    with pytest.raises(ModelError, match=r"one number per row, shape \(3,\)"):
        LogDensity(lambda x: -(x**2)).score(X)
    with pytest.raises(ModelError, match="has no gradient"):
        LogDensity(lambda x: torch.zeros(len(x))).score(X)


def test_scalar_and_batch_distributions_have_one_axis_of_coordinates():
    assert DistributionModel(td.Normal(0.0, 1.0)).dim == 1
    assert DistributionModel(td.Normal(torch.zeros(4), 1.0)).dim == 4
    assert DistributionModel(td.MultivariateNormal(torch.zeros(3), torch.eye(3))).dim == 3
    with pytest.raises(InputError, match="Independent"):
        DistributionModel(td.Normal(torch.zeros(2, 3), 1.0))


@pytest.mark.parametrize(
    "bounded",
    [
        td.VonMises(0.0, 1.0),
        td.Bernoulli(torch.full((2,), 0.5)),
        td.Poisson(3.0),
        td.MixtureSameFamily(
            td.Categorical(torch.ones(2)), td.Uniform(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 2.0]))
        ),
    ],
    ids=lambda d: type(d).__name__,
)
def test_what_has_no_score_or_no_coordinates_is_refused(bounded):
    with pytest.raises(InputError, match=r"circle|no score|jumps inside"):
        as_model(bounded)


@pytest.mark.parametrize(
    "everywhere",
    [
        td.StudentT(3.0, torch.zeros(2)),
        td.Gumbel(torch.zeros(2), 1.0),
        td.MixtureSameFamily(td.Categorical(torch.ones(2)), td.Normal(torch.zeros(2), 1.0)),
        td.TransformedDistribution(td.Normal(torch.zeros(2), 1.0), [td.AffineTransform(0.0, 2.0)]),
        td.LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)),
    ],
    ids=lambda d: type(d).__name__,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_distribution_on_all_of_space_is_asked_in_its_own_precision(everywhere, dtype):
    model = DistributionModel(everywhere)
    score = model.score(torch.linspace(-1, 1, 2 * model.dim).view(2, -1).to(dtype))
    assert score.dtype == dtype and bool(score.isfinite().all())
    with pytest.raises(InputError, match="n must be"):
        model.sample(0)


def test_a_distribution_that_cannot_be_sampled_has_a_score():
    class Quartic(td.Distribution):
        arg_constraints: ClassVar = {}
        support = td.constraints.real_vector

        def log_prob(self, value):
            return -(value**4).sum(-1)

    model = as_model(Quartic(event_shape=torch.Size([2])))
    torch.testing.assert_close(model.score(X), -4 * X**3)


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
