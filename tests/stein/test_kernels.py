from itertools import combinations

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from steincritic.data import ScoredPoints
from steincritic.errors import InputError
from steincritic.rng import generator
from steincritic.stein.kernels import IMQ, RBF, median_distance, squared_scales, stein_witness


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "test"), dtype=torch.float64)


KERNELS = [RBF(bandwidth=1.3), RBF(bandwidth=1.3, factor=0.25), IMQ(), IMQ(scale=0.7, exponent=-0.3)]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_profile_holds_the_derivatives_of_phi(kernel):
    r = torch.linspace(0, 9, 50, dtype=torch.float64, requires_grad=True)
    (scale,) = squared_scales([kernel], r[:, None])
    phi, first, second = kernel.profile(r, scale)
    (slope,) = torch.autograd.grad(phi.sum(), r, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), r)
    torch.testing.assert_close(first, slope, rtol=1e-12, atol=1e-14)  # float64 rounding
    torch.testing.assert_close(second, curvature, rtol=1e-12, atol=1e-14)


def test_kernels_follow_their_formulas():
    r, one = torch.tensor([4.0], dtype=torch.float64), torch.ones(1, 1)
    for kernel, expected in [
        (RBF(bandwidth=3.0), np.exp(-4 / 18)),
        (RBF(bandwidth=3.0, factor=0.5), np.exp(-4 / 9)),  # the factor multiplies the squared bandwidth
        (IMQ(scale=3.0), 13**-0.5),
        (IMQ(scale=3.0, exponent=-0.25, factor=2.0), 22**-0.25),
    ]:
        (scale,) = squared_scales([kernel], one)
        assert float(kernel.profile(r, scale)[0]) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 40])
def test_median_is_that_of_all_pairs(n):
    x = normals(n, 3) + 100
    expected = np.median([float((a - b).norm()) for a, b in combinations(x, 2)])
    assert float(median_distance(x)) == pytest.approx(expected, rel=1e-11)  # products lose 1e4 · 1e-16


def test_median_of_ties_and_of_a_stack():
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert float(median_distance(corners)) == pytest.approx(1.0, rel=1e-12)
    stack = normals(3, 8, 2)
    alone = torch.stack([median_distance(x) for x in stack])
    torch.testing.assert_close(median_distance(stack), alone, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [RBF(), IMQ(scale="median")], ids=repr)
def test_zero_median_is_refused(kernel, dtype):
    constant = torch.full((20, 3), 0.1, dtype=dtype)
    duplicated = torch.cat([normals(1, 3).expand(17, 3), normals(3, 3, seed=1)]).to(dtype)
    for x in (constant, duplicated):
        with pytest.raises(InputError, match="median distance between points is zero"):
            squared_scales([kernel], x)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (RBF, {"bandwidth": 0.0}),
        (RBF, {"bandwidth": "mean"}),
        (IMQ, {"exponent": 0.5}),
        (IMQ, {"factor": -1.0}),
    ],
)
def test_bad_kernels_are_refused(kind, settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        kind(**settings)


@pytest.mark.parametrize(
    ("kernel", "k"),
    [
        (RBF(bandwidth=1.3), lambda x, v: torch.exp(-(x - v).square().sum() / (2 * 1.3**2))),
        (IMQ(scale=0.7), lambda x, v: (0.49 + (x - v).square().sum()) ** -0.5),
    ],
)
def test_the_witness_equals_differentiation_of_the_kernel(kernel, k):
    x, v = normals(11, 3), normals(4, 3, seed=2)
    points = ScoredPoints(x, torch.sin(x) - x)

    def feature(x, s, v):
        return k(x, v) * s + grad(k)(x, v)

    over_places = vmap(feature, in_dims=(None, None, 0))
    expected = vmap(over_places, in_dims=(0, 0, None))(points.x, points.score, v).mean(0)  # (J, d)
    torch.testing.assert_close(stein_witness(points, kernel, v), expected, rtol=1e-10, atol=1e-10)
