"""The contract that every model keeps, and as_model."""

import pytest
import torch
from torch import distributions as td
from torch import nn

from reference import Z_MAX, seeded, z_of_mean
from steincritic.errors import InputError
from steincritic.models import GaussianMixture, LogDensity, SamplingModel, as_model, dimension
from steincritic.models.base import Model
from steincritic.rng import generator


def double(values):
    return torch.tensor(values, dtype=torch.float64)


MEANS = double([[-1.0, 0.5, 0.0], [2.0, 0.0, 1.0]])
FULL = double(
    [
        [[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 2.0]],
        [[0.5, 0.0, -0.2], [0.0, 1.5, 0.0], [-0.2, 0.0, 1.0]],
    ]
)


class Quartic(nn.Module):
    """An energy network with outputs of shape (n, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x):
        return (x**4).sum(-1, keepdim=True) + self.layer(x)


MODELS = {
    "mixture, full": GaussianMixture(MEANS, FULL, [0.3, 0.7]),
    "mixture, diagonal": GaussianMixture(MEANS, [[1.0, 2.0, 0.5], [0.3, 1.0, 1.0]]),
    "mixture, one width each": GaussianMixture(MEANS, [0.5, 2.0], [1.0, 3.0]),
    "mixture, one component": GaussianMixture([[1.0, 2.0]], 0.25),
    "mixture, 1-D": GaussianMixture([[-0.8], [1.0]], [1.0, 0.25]),
    "multivariate normal": as_model(td.MultivariateNormal(MEANS[0], FULL[0])),
    "normal numbers": as_model(td.Normal(double(1.0), double(2.0))),
    "normal batch": as_model(td.Normal(double([1.0, -1.0]), double([2.0, 0.5]))),
    "independent laplace": as_model(td.Independent(td.Laplace(double([0.0, 1.0]), double([1.0, 3.0])), 1)),
    "torch mixture": as_model(
        td.MixtureSameFamily(td.Categorical(double([0.4, 0.6])), td.MultivariateNormal(MEANS, FULL))
    ),
    "unnormalized log-density": LogDensity(lambda x: -(x**4).sum(-1) - (x[:, 0] * x[:, 1]) ** 2, dim=2),
    "energy network": as_model(seeded(Quartic, seed=3)),
}
MOMENTS = {  # mean and variance of each coordinate, from the definition
    "mixture, full": (
        0.3 * MEANS[0] + 0.7 * MEANS[1],
        0.3 * (FULL[0].diag() + MEANS[0] ** 2)
        + 0.7 * (FULL[1].diag() + MEANS[1] ** 2)
        - (0.3 * MEANS[0] + 0.7 * MEANS[1]) ** 2,
    ),
    "mixture, 1-D": (double([0.1]), double([0.5 * (1 + 0.64) + 0.5 * (0.25 + 1) - 0.01])),
    "mixture, one component": (double([1.0, 2.0]), double([0.25, 0.25])),
    "multivariate normal": (MEANS[0], FULL[0].diag()),
    "normal numbers": (double([1.0]), double([4.0])),
    "normal batch": (double([1.0, -1.0]), double([4.0, 0.25])),
    "independent laplace": (double([0.0, 1.0]), double([2.0, 18.0])),
}
SAMPLING = [name for name, model in MODELS.items() if isinstance(model, SamplingModel)]


def points_for(model, n, *, seed=0, dtype=torch.float64):
    dim = dimension(model) or 3
    return torch.randn(n, dim, generator=generator(seed, "test points"), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("name", MODELS)
def test_score_is_the_gradient_of_the_log_density(name):
    model = MODELS[name]
    x = points_for(model, 20).requires_grad_()
    (gradient,) = torch.autograd.grad(model.log_prob(x).sum(), x)
    torch.testing.assert_close(model.score(x.detach()), gradient, rtol=1e-10, atol=1e-10)  # rounding


@pytest.mark.parametrize("name", MODELS)
def test_score_of_a_row_does_not_depend_on_the_other_rows_and_a_batch_of_one_keeps_its_axis(name):
    model, x = MODELS[name], points_for(MODELS[name], 5)
    alone = model.score(x[2:3])
    assert alone.shape == (1, x.shape[1])
    assert model.log_prob(x[2:3]).shape == (1,)
    torch.testing.assert_close(alone, model.score(x)[2:3], rtol=1e-12, atol=1e-12)  # rounding


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "energy network"])
def test_dtype_of_the_score_follows_the_points(name, dtype):
    model = MODELS[name]
    score = model.score(points_for(model, 4, dtype=dtype))
    assert score.dtype == dtype
    wanted = model.score(points_for(model, 4)).to(dtype)
    torch.testing.assert_close(score, wanted, rtol=1e-4, atol=1e-4)  # float32 rounding of the points


@pytest.mark.parametrize("name", SAMPLING)
def test_the_seed_alone_decides_the_draws(name):
    model = MODELS[name]
    draws = model.sample(6, seed=1)
    assert draws.shape == (6, model.dim)
    assert torch.equal(draws, model.sample(6, seed=1))
    assert not torch.equal(draws, model.sample(6, seed=2))


@pytest.mark.parametrize("name", MOMENTS)
def test_sample_moments_are_those_of_the_model(name):
    mean, variance = MOMENTS[name]
    x = MODELS[name].sample(20_000, seed=0)
    for j in range(len(mean)):
        assert abs(z_of_mean(x[:, j], float(mean[j]))) < Z_MAX
        assert abs(z_of_mean((x[:, j] - mean[j]) ** 2, float(variance[j]))) < Z_MAX


@pytest.mark.parametrize("name", SAMPLING)
def test_draws_and_score_belong_together(name):
    """Stein's identity for constants and for coordinates: E s_i = 0 and E s_i x_j = -1 if i = j, else 0."""
    model = MODELS[name]
    x = model.sample(20_000, seed=4)
    score = model.score(x)
    for i in range(model.dim):
        assert abs(z_of_mean(score[:, i])) < Z_MAX
        for j in range(model.dim):
            assert abs(z_of_mean(score[:, i] * x[:, j], -float(i == j))) < Z_MAX
    # the twin: draws that are too wide by a tenth do not belong to this score
    wide = 1.1 * (x - x.mean(0)) + x.mean(0)
    assert max(abs(z_of_mean(model.score(wide)[:, i] * wide[:, i], -1.0)) for i in range(model.dim)) > Z_MAX


def test_as_model_passes_models_and_wraps_the_rest():
    q = MODELS["mixture, full"]
    assert as_model(q) is q
    pair = as_model((q.score, lambda n, seed: q.sample(n, seed=seed)))
    assert isinstance(pair, SamplingModel)
    assert torch.equal(pair.sample(3, seed=5), q.sample(3, seed=5))
    score_only = as_model((q.score, None))
    assert isinstance(score_only, Model) and not isinstance(score_only, SamplingModel)
    x = points_for(q, 3)
    torch.testing.assert_close(as_model(q.log_prob).score(x), q.score(x))


@pytest.mark.parametrize("thing", [None, 3, "gm", (1, 2), [], object()])
def test_as_model_refuses_what_describes_no_model(thing):
    with pytest.raises(InputError, match="a model must have score"):
        as_model(thing)


def test_dimension_is_stated_or_none():
    assert dimension(MODELS["mixture, full"]) == 3
    assert dimension(MODELS["energy network"]) is None
