"""The tangent kernel against Jacobians, and its spectrum against the equation that defines it."""

import pytest
import torch
from torch import nn

from reference import seeded, small_module
from steincritic.critics import MLP, Bank
from steincritic.data import ScoredPoints
from steincritic.data.problems import problem
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.rng import generator
from steincritic_studies.lazy.flow import Objective
from steincritic_studies.lazy.law import empirical, quadrature
from steincritic_studies.lazy.ntk import drift, spectrum, tangent_kernel

ROUNDING = {"rtol": 1e-9, "atol": 1e-11}  # float64 sums of some thousand terms of size one


def bank(dim=2, hidden=(7, 5), seed=0, **options):
    network = MLP(hidden=hidden, **options)
    return Bank(network, network.init(dim, [seed], dtype=torch.float64, device=torch.device("cpu")))


def points(n, dim, seed=0):
    return torch.randn(n, dim, generator=generator(seed), dtype=torch.float64)


CRITICS = {
    "two layers": lambda: tangent_kernel(bank()),
    "one layer": lambda: tangent_kernel(bank(hidden=(6,), activation="tanh")),
    "learned slopes": lambda: tangent_kernel(bank(learnable_slope=True)),
    "module": lambda: tangent_kernel(small_module(2, seed=1), dim=2),
}


@pytest.fixture(params=CRITICS, ids=str)
def kernel(request):
    return CRITICS[request.param]()


def jacobian_by_backward_passes(kernel, x):
    rows = []
    for y in x:
        theta = kernel.theta.clone().requires_grad_()
        f = kernel.field(y[None], theta)[0]
        rows.append(torch.stack([torch.autograd.grad(f_i, theta, retain_graph=True)[0] for f_i in f]))
    return torch.stack(rows)


def test_the_gram_is_the_product_of_jacobians(kernel):
    x, y = points(6, 2), points(4, 2, seed=1)
    ours, theirs = (jacobian_by_backward_passes(kernel, z) for z in (x, y))
    torch.testing.assert_close(kernel.jacobian(x), ours, **ROUNDING)
    torch.testing.assert_close(kernel.gram(x, y), torch.einsum("nim,kjm->nikj", ours, theirs), **ROUNDING)
    torch.testing.assert_close(kernel.gram(x), torch.einsum("nim,kjm->nikj", ours, ours), **ROUNDING)


def test_products_with_the_jacobian_need_no_jacobian(kernel):
    x = points(6, 2)
    jacobian = kernel.jacobian(x)
    direction, values = torch.randn(kernel.size, generator=generator(2)).double(), points(6, 2, seed=3)
    torch.testing.assert_close(kernel.forward(x, direction), jacobian @ direction, **ROUNDING)
    wanted = torch.einsum("nim,ni->m", jacobian, values)
    torch.testing.assert_close(kernel.backward(x, values), wanted, **ROUNDING)


def test_the_divergence_of_the_kernel_is_that_of_its_second_argument(kernel):
    """Against central differences of K(x, y) in y, whose error is of order step squared."""
    x, y, step = points(3, 2), points(4, 2, seed=1), 1e-4
    wanted = torch.zeros(3, 2, 4, dtype=torch.float64)
    for j, shift in enumerate(step * torch.eye(2, dtype=torch.float64)):
        wanted += (kernel.gram(x, y + shift) - kernel.gram(x, y - shift))[..., j] / (2 * step)
    torch.testing.assert_close(kernel.gram_divergence(x, y), wanted, rtol=1e-6, atol=1e-6)


def test_the_drive_is_the_kernel_against_the_score_and_its_divergence(kernel):
    """J(x) g = mean of K(x, x') s_q(x') + ∇·K(x, x'), the finite-sample dynamics at time zero."""
    x = points(9, 2)
    data = ScoredPoints(x, torch.sin(3 * x))
    velocity = kernel.forward(x, Objective.sample(data).drive(kernel))
    gram, div = kernel.gram(x), kernel.gram_divergence(x, x)
    wanted = (torch.einsum("nikj,kj->ni", gram, data.score) + div.sum(2)) / len(x)
    torch.testing.assert_close(velocity, wanted, **ROUNDING)


@pytest.mark.parametrize("n", [5, 60])  # more parameters than outputs, and fewer
def test_eigenfunctions_solve_their_equation_and_are_orthonormal(n):
    kernel = tangent_kernel(bank(hidden=(4, 3)))
    law = empirical(points(n, 2))
    modes = spectrum(kernel, law, count=8)
    applied = torch.einsum("nikj,lkj->lni", kernel.gram(law.x), modes.functions) / n
    torch.testing.assert_close(applied, modes.values[:, None, None] * modes.functions, rtol=1e-6, atol=1e-8)
    products = torch.stack([modes.coefficients(v) for v in modes.functions])
    torch.testing.assert_close(products, torch.eye(8, dtype=torch.float64), rtol=0, atol=1e-7)
    torch.testing.assert_close(modes.extend(law.x), modes.functions, rtol=1e-6, atol=1e-8)
    assert bool((modes.values.diff() <= 0).all()) and float(modes.values[-1]) > 0


def test_both_forms_have_one_spectrum():
    kernel, law = tangent_kernel(bank(hidden=(4, 3))), empirical(points(40, 2))
    small = torch.linalg.eigvalsh(kernel.parameter_gram(law)).flip(0)
    large = torch.linalg.eigvalsh(kernel.gram(law.x).reshape(80, 80) / 40).flip(0)
    torch.testing.assert_close(small[:20], large[:20], **ROUNDING)


def test_alignment_rises_to_the_share_that_the_network_can_express():
    kernel, law = tangent_kernel(bank()), empirical(points(30, 2))
    modes = spectrum(kernel, law)
    inside = kernel.forward(law.x, torch.ones(kernel.size, dtype=torch.float64))
    alignment = modes.alignment(inside)
    assert bool((alignment.diff() >= 0).all())
    torch.testing.assert_close(float(alignment[-1]), 1.0, rtol=1e-9, atol=0)


def test_drift_is_zero_without_training_and_one_when_the_kernel_doubles():
    kernel, law = tangent_kernel(bank()), empirical(points(5, 2))
    gram = kernel.gram(law.x)
    assert drift(gram, gram, law) == 0
    assert drift(gram, 2 * gram, law) == pytest.approx(1)


def test_a_large_gram_fits_in_memory():
    """n = 500, d = 10, width 512: its Jacobian would hold 11 GB, the factors of its layers 60 MB."""
    kernel = tangent_kernel(bank(dim=10, hidden=(512, 512)))
    gram = kernel.gram(points(500, 10))
    assert gram.shape == (500, 10, 500, 10)
    rows = kernel.backward(points(500, 10)[:1], torch.eye(10, dtype=torch.float64)[:1])
    torch.testing.assert_close(gram[0, 0, 0, 0], rows @ rows, **ROUNDING)


@pytest.mark.parametrize("name", ["gm-1d", "gm-2d"])
def test_quadrature_stands_for_the_density(name):
    pair = problem(name)
    law = quadrature(pair.data, center=0.2, reach=8.0, spacing=0.25, dim=pair.dim)
    x = pair.data.sample(200_000, seed=1)
    mean = (law.weights[:, None] * law.x).sum(0)
    se = x.std(0) / len(x) ** 0.5
    assert bool(((x.mean(0) - mean).abs() < 5 * se).all())
    assert float(law.weights.sum()) == pytest.approx(1)


def test_bad_input_is_refused_in_one_line():
    wrong, right = (seeded(lambda out=out: nn.Linear(3, out), seed=0) for out in (2, 3))
    with pytest.raises(InputError, match=r"must map \(n, 3\) to \(n, 3\)"):
        tangent_kernel(wrong, dim=3)
    with pytest.raises(InputError, match="pass dim="):
        tangent_kernel(right)
    with pytest.warns(DoubtfulWarning, match="float32"):
        assert tangent_kernel(right.float(), dim=3).theta.dtype == torch.float64
    with pytest.raises(InputError, match="modes do not exist"):
        spectrum(tangent_kernel(bank()), empirical(points(3, 2)), count=7)
    with pytest.raises(InputError, match="bank of 2"):
        network = MLP(hidden=(3,))
        tangent_kernel(
            Bank(network, network.init(2, [0, 1], dtype=torch.float64, device=torch.device("cpu")))
        )
    with pytest.raises(InputError, match="one or two dimensions"):
        quadrature(problem("gm-10d").data, center=0.0, reach=1.0, spacing=0.1, dim=10)
