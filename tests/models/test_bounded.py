"""Bounded supports in coordinates without bounds; the contract of models is in test_laws.py."""

import math

import numpy as np
import pytest
import torch
import torch.distributions as td
from torch.distributions import Beta, Independent, Poisson, constraints

from steincritic.data.layout import Rows, Table
from steincritic.data.points import model_and_points, sample_points, scored
from steincritic.errors import InputError, ModelError
from steincritic.models import BoundedDensity, BoundedModel, GaussianMixture, PairModel, as_model
from steincritic.models.coordinates import Box, Simplex, as_box
from steincritic.rng import generator

Z_MAX = 5.0  # two-sided normal tail beyond 5 standard errors: 6e-7


def flat(theta):
    return 0 * theta.sum(-1)


def whole(*values):
    return torch.tensor(values, dtype=torch.float64)


COORDINATES = {
    "half-line": Box([0.0, -2.0], [math.inf, math.inf]),
    "mirrored": Box([-math.inf, -math.inf], [0.0, 3.0]),
    "box": Box([0.0, -1.0], [1.0, 5.0]),
    "mixed": Box([-math.inf, 1.0, 0.0, -math.inf], [math.inf, math.inf, 2.0, 1.0]),
    "simplex": Simplex(4),
}
DISTRIBUTIONS = {
    "exponential": td.Exponential(whole(1.0, 3.0)),
    "uniform": td.Uniform(whole(-1.0, 2.0), whole(1.0, 5.0)),
    "independent uniform": Independent(td.Uniform(whole(0.0, 0.0), whole(1.0, 2.0)), 1),
    "beta": Beta(whole(0.5, 2.0), whole(0.5, 1.0)),
    "gamma": td.Gamma(whole(0.5, 3.0), whole(1.0, 2.0)),
    "half-normal": td.HalfNormal(whole(2.0)),
    "half-Cauchy": td.HalfCauchy(whole(1.0, 2.0)),
    "log-normal": td.LogNormal(whole(0.0, 1.0), whole(1.0, 0.5)),
    "Pareto": td.Pareto(whole(2.0), whole(3.0)),
    "Weibull": td.Weibull(whole(2.0), whole(1.5)),
    "Dirichlet": td.Dirichlet(whole(0.7, 2.0, 3.0, 1.0)),
    "moved exponential": td.TransformedDistribution(
        td.Exponential(whole(1.0, 2.0)), [td.AffineTransform(whole(2.0, -1.0), whole(3.0, -1.0))]
    ),
    "sigmoid of a normal": td.TransformedDistribution(
        td.Normal(whole(0.0, 1.0), 1.0), [td.SigmoidTransform()]
    ),
    "mixture": td.MixtureSameFamily(td.Categorical(whole(0.3, 0.7)), td.Exponential(whole(0.5, 4.0))),
}


@pytest.mark.parametrize("name", COORDINATES)
def test_coordinates_go_both_ways_and_know_their_jacobian(name):
    within = COORDINATES[name]
    free = within.dim - (name == "simplex")
    z = 3 * torch.randn(20, free, generator=generator(1), dtype=torch.float64)
    x, log_jacobian = within.constrain(z)
    assert not any(bool(mask.any()) for mask in within.lost(x))
    torch.testing.assert_close(within.unconstrain(x), z)
    for k in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda t: within.constrain(t[None])[0][0, :free], z[k])
        torch.testing.assert_close(torch.linalg.slogdet(jacobian).logabsdet, log_jacobian[k])
    rising = torch.autograd.functional.jacobian(lambda t: within.constrain(t)[0].sum(0), z).sum(1)
    assert name == "simplex" or bool((rising.diagonal() > 0).all())  # up in z is up in x


@pytest.mark.parametrize("name", COORDINATES)
def test_rounding_far_out_never_reaches_an_edge(name):
    within = COORDINATES[name]
    z = torch.tensor([-600.0, -60.0, 60.0, 600.0])[:, None].expand(4, within.dim - (name == "simplex"))
    for dtype in (torch.float32, torch.float64):
        x = within.inward(within.constrain(z.double())[0].to(dtype))
        assert not bool(torch.stack(within.lost(x)).any())
    assert bool(within.pulled(z.double(), torch.zeros_like(x)).isfinite().all())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_states_its_support_and_keeps_steins_identity(name):
    distribution = DISTRIBUTIONS[name]
    model = as_model(distribution)
    assert isinstance(model, BoundedModel)
    points = sample_points(model.unbounded, 20_000, seed=1)
    z = points.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.unbounded.log_prob(z).sum(), z)
    torch.testing.assert_close(points.score, gradient, rtol=1e-6, atol=1e-6)  # log-densities with 1 - x
    for values in (points.score, points.x.tanh() * points.score + 1 - points.x.tanh().square()):
        error = values.std(0) / len(values) ** 0.5
        assert bool((values.mean(0).abs() < Z_MAX * error).all())


def test_the_same_score_in_raw_columns_breaks_steins_identity():
    model = as_model(DISTRIBUTIONS["exponential"])
    score = model.score(model.sample(1000, seed=1))
    assert bool((score.mean(0) < -0.9).all())  # it is -1 and -3 everywhere


def test_draws_come_in_columns_and_go_through_the_door():
    model = as_model(DISTRIBUTIONS["Dirichlet"])
    x = model.sample(50, seed=3)
    torch.testing.assert_close(x.sum(1), torch.ones(50).double())
    inner, points = model_and_points(model, x)
    assert inner is model.unbounded and points.dim == 3 and inner.dim == 3 and model.dim == 4
    torch.testing.assert_close(scored(inner, x).x, points.x)  # arrays are columns
    assert scored(inner, points) is points  # scored points are what tests see
    given = scored(model, type(points)(x, model.score(x)))  # unless the model is in its columns
    torch.testing.assert_close(given.score, points.score)


def test_a_model_that_goes_on_beyond_the_bounds_is_cut_off():
    normal = GaussianMixture([[0.0]])
    model = BoundedModel(normal, [(-1.0, None)])
    x = model.sample(4000, seed=1)
    assert bool((x > -1).all()) and len(x) == 4000
    assert model.cut == pytest.approx(0.159, abs=5 * (0.159 * 0.841 / 4000) ** 0.5)
    mean = math.exp(-0.5) / math.sqrt(2 * math.pi) / 0.8413  # of a normal above -1
    assert float(x.mean()) == pytest.approx(mean, abs=5 * 0.79 / 4000**0.5)
    assert torch.equal(x, model.sample(4000, seed=1))
    with pytest.raises(ModelError, match="0 of 100 draws of the model lie within its bounds"):
        BoundedModel(normal, [(50.0, None)]).sample(100)


def test_bounds_by_name_by_number_and_in_order_are_the_same():
    names = ["age", "share", "z"]
    boxes = [
        as_box({"age": (0, None), "share": (0, 1)}, names),
        as_box({0: (0, math.inf), 1: (0, 1)}, names),
        as_box([(0, None), (0, 1), None], names),
    ]
    for box in boxes:
        assert box.low.tolist() == [0, 0, -math.inf] and box.high.tolist() == [math.inf, 1, math.inf]
        assert box.names(names) == ("log age", "logit share", "z")
    assert Box(18, math.inf).names(["age"]) == ("log(age - 18)",)
    assert Box(-math.inf, 3).names(["t"]) == ("-log(3 - t)",)
    assert Simplex().names(["a", "b", "c"]) == ("logit of a among a, b, c", "logit of b among b, c")


@pytest.mark.parametrize(
    ("bounds", "word"),
    [
        ({"agee": (0, 1)}, "did you mean age"),
        ({7: (0, 1)}, "the columns are age, b"),
        ({"age": (1, 0)}, "low < high, got 1 and 0"),
        ({"age": (math.nan, 1)}, "low < high"),
        ({"age": 3}, r"a pair \(low, high\), got 3"),
        ({"age": ("x", 3)}, r"a pair \(low, high\)"),
        ([(0, 1)], "got 1 for 2"),
        ("triangle", '"simplex"; got'),
    ],
)
def test_wrong_bounds_are_refused(bounds, word):
    with pytest.raises(InputError, match=word):
        as_box(bounds, ["age", "b"])


def test_rows_outside_and_on_the_edge_are_named_as_in_the_file():
    model = BoundedModel(PairModel(lambda x: -x), [(0, None), None])
    x = np.ones((9, 2))
    x[[2, 5], 0] = -3.0
    table = Table(x, ("age", "b"), Rows(np.arange(9) + 10, lines=np.arange(9) + 12))
    words = r"age must lie above 0, and does not in 2 of 9 rows \(rows 12 \(line 14\), 15 \(line 17\); .* -3"
    with pytest.raises(InputError, match=words):
        scored(model, table)
    x[:, 0] = np.abs(x[:, 0])
    x[:8, 0] = 0.0
    with pytest.raises(InputError, match=r"exactly on the edge in 8 of 9 rows \(rows .* and 3 more\)"):
        scored(model, Table(x, ("age", "b"), Rows(np.arange(9))))
    with pytest.raises(InputError, match="must sum to 1"):
        scored(as_model(td.Dirichlet(whole(1.0, 1.0))), whole(50.0, 50.0)[None])
    with pytest.raises(InputError, match="x has 3 columns but the model has 2 dimensions"):
        scored(as_model(td.Dirichlet(whole(1.0, 1.0))), whole(0.2, 0.3, 0.5)[None])
    with pytest.raises(InputError, match="between 0 and 1, and does not in 1 of 1 rows"):
        scored(as_model(td.Uniform(0.0, 1.0)), whole(1.5)[None])
    with pytest.raises(InputError, match="needs the model"):
        model_and_points(None, scored(PairModel(lambda x: -x), x), bounds=[(0, 1)])


@pytest.mark.parametrize(
    "support",
    [constraints.interval(whole(-1.0, 0.0), whole(1.0, 5.0)), constraints.positive, constraints.real],
)
def test_parameters_go_both_ways(support):
    model = BoundedDensity(flat, support)
    x = torch.randn(10, 2, generator=generator(1), dtype=torch.float64)
    theta = model.constrain(x)
    assert bool(support.check(theta).all())
    torch.testing.assert_close(model.unconstrain(theta), x)
    assert (support is constraints.real) == torch.equal(theta, x)


def test_parameters_side_by_side_and_a_prior_in_place_of_its_support():
    support = constraints.cat([constraints.positive, constraints.real], dim=-1, lengths=[1, 2])
    model = BoundedDensity(flat, support)
    x = torch.randn(10, 3, generator=generator(1), dtype=torch.float64)
    torch.testing.assert_close(model.constrain(x), torch.cat([x[:, :1].exp(), x[:, 1:]], 1))
    prior = Independent(Beta(whole(1.0, 2.0), whole(1.0, 1.0)), 1)
    by_prior, by_support = (BoundedDensity(prior.log_prob, of) for of in (prior, constraints.unit_interval))
    torch.testing.assert_close(by_prior.log_prob(x[:, :2]), by_support.log_prob(x[:, :2]))


def test_what_lies_outside_or_is_discrete_is_refused():
    model = BoundedDensity(flat, constraints.positive)
    with pytest.raises(
        InputError, match="1 of 2 draws lie outside of the parameters' bounds, the first is row 1"
    ):
        model.unconstrain([[1.0, 1.0], [1.0, -1.0]])
    with pytest.raises(InputError, match="no score"):
        BoundedDensity(flat, Poisson(whole(1.0, 2.0)))
