"""Draws by a grid: exact, so moments, tails and cell counts are those of the density."""

import math

import pytest
import torch

from steincritic.errors import InputError, ModelError
from steincritic.models import GaussianMixture, LogDensity
from steincritic.models.grid import GridModel

TRUTH = GaussianMixture(
    [[0.0, 0.0], [3.0, 1.0]], [[[0.04, 0.0], [0.0, 1.0]], [[1.0, 0.6], [0.6, 0.5]]], [0.3, 0.7]
)
SHIFTED = LogDensity(lambda x: TRUTH.log_prob(x) + 7.0, dim=2)  # no longer normalized
BOX = {"low": [-30.0, -30.0], "high": [30.0, 40.0]}
Z_MAX = 5.0  # standard errors


@pytest.fixture(scope="module")
def grid():
    return GridModel(SHIFTED, **BOX)


def features(x):
    """First and second moments, and the share of the left component."""
    a, b = x.T
    return torch.stack([a, b, a * a, b * b, a * b, (a < 1.2).double()], dim=-1)


def z_between(x, y):
    difference = features(x).mean(0) - features(y).mean(0)
    return difference / ((features(x).var(0) / len(x)) + (features(y).var(0) / len(y))).sqrt()


def test_moments_and_shares_are_right(grid):
    z = z_between(grid.sample(40_000, seed=0), TRUTH.sample(40_000, seed=1))
    assert bool((z.abs() < Z_MAX).all())


def test_a_wrong_sampler_would_be_noticed(grid):
    """The twin: draws off by 0.15, a tenth of a standard deviation."""
    z = z_between(grid.sample(40_000, seed=0) + 0.15, TRUTH.sample(40_000, seed=1))
    assert bool((z.abs() > Z_MAX).any())


def test_within_cells_the_density_is_followed():
    """A coarse grid is as exact as a fine one: rejection mends what the cells blur."""
    n = 10_000
    coarse = GridModel(SHIFTED, **BOX, cells=24)
    x, wanted = coarse.sample(n, seed=0), TRUTH.sample(n, seed=1)
    ours, theirs = TRUTH.log_prob(x), TRUTH.log_prob(wanted)
    z = (ours.mean() - theirs.mean()) / (2 * theirs.var() / n).sqrt()
    assert abs(z) < Z_MAX


@pytest.mark.parametrize("peak", [0.0, 0.13, 0.25, 0.4])
def test_the_envelope_is_above_the_density_wherever_the_peak_lies(peak):
    """In units of a cell; between lattice points a quadratic rises above the largest of them."""
    size = 20.0 / 32
    model = LogDensity(lambda x: -0.5 * ((x - peak * size) ** 2).sum(-1))
    grid = GridModel(model, low=[-10.0], high=[10.0], cells=32)._grid
    x = torch.linspace(-3, 3, 4001, dtype=torch.float64)[:, None]
    cell = ((x - grid.low) / grid.size).long()[:, 0]
    assert bool((model.log_prob(x) <= grid.envelope[cell]).all())


def test_a_density_too_sharp_for_its_cells_is_an_error_not_a_wrong_draw():
    ridge = LogDensity(lambda x: torch.where((x[:, 0] - 0.01).abs() < 0.003, 5.0, -0.5 * x[:, 0] ** 2))
    with pytest.raises(ModelError, match="give more"):
        GridModel(ridge, low=[-8.0], high=[8.0], cells=16).sample(20_000, seed=0)


def test_the_density_is_normalized(grid):
    x = TRUTH.sample(100, seed=2)
    torch.testing.assert_close(grid.log_prob(x), TRUTH.log_prob(x), rtol=0, atol=1e-6)  # midpoint rule
    assert torch.equal(grid.score(x), SHIFTED.score(x))


def test_what_is_no_box_or_no_density_is_refused():
    for low, high in (([0.0] * 3, [1.0] * 3), ([0.0, 0.0], [1.0]), ([0.0, 1.0], [1.0, 1.0])):
        with pytest.raises(InputError):
            GridModel(SHIFTED, low=low, high=high)
    with pytest.raises(InputError):
        GridModel(SHIFTED, **BOX, cells=2)
    for value in (torch.nan, -torch.inf):
        nothing = LogDensity(lambda x, value=value: torch.full((len(x),), value), dim=2)
        with pytest.raises(ModelError):
            GridModel(nothing, **BOX).sample(1)


def test_modes_far_sharper_than_the_cells_are_an_error():
    """They were lost, or the draws never came."""
    for sd in (0.001, 0.007):
        grid = GridModel(GaussianMixture([[-5.01], [5.02]], sd**2), low=[-10.0], high=[10.0])
        with pytest.raises(ModelError, match="256 cells per side are too few"):
            grid.sample(200, seed=0)
        with pytest.raises(ModelError, match="256 cells per side are too few"):
            grid.log_prob(torch.zeros(1, 1).double())
    sharp = GridModel(GaussianMixture([[-5.01], [5.02]], 0.001**2), low=[-10.0], high=[10.0])._coarse
    low, high = sharp.support()
    assert float(low) < -5.01 and float(high) > 5.02


def test_a_box_that_cuts_the_density_is_refused():
    standard = torch.distributions.Normal(0.0, 1.0)
    for low, high in ((-1.0, 0.5), (2.0, 5.0), (-8.0, 3.0)):
        with pytest.raises(ModelError, match="the box cuts the density"):
            GridModel(standard, low=[low], high=[high]).sample(5)
    assert GridModel(standard, low=[-5.0], high=[5.0]).sample(5).shape == (5, 1)


def test_a_model_is_whatever_has_a_log_density():
    grid = GridModel(lambda x: -x.square().sum(-1), low=[-6.0, -6.0], high=[6.0, 6.0])
    at_zero = grid.log_prob(torch.zeros(1, 2, dtype=torch.float64))
    assert float(at_zero) == pytest.approx(-math.log(math.pi), abs=1e-9)
    with pytest.raises(InputError, match="score alone"):
        GridModel((lambda x: -x, None), low=[-6.0], high=[6.0])
