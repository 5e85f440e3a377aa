"""The laws of lazy training, each with the slope that theory expects of it, and the kernel against Jacobians.

Setting: the paper's two-dimensional mixture by quadrature, so that population statements are exact, and
a network of two layers of 16 (354 parameters), in float64. Tolerances of slopes are those within which the
asymptotic exponent shows at these finite λ and t; they come from the expansion's next term, not from noise.
"""

from types import SimpleNamespace

import pytest
import torch

from steincritic.critics import MLP, Bank
from steincritic.data import ScoredPoints
from steincritic.data.problems import problem
from steincritic.rng import generator
from studies.lazy.bounds import envelope, power_corollary
from studies.lazy.flow import KernelSolution, Objective, gradient_flow, slope
from studies.lazy.ntk import Law, TangentKernel, quadrature, spectrum

LAMBDAS = [0.25, 1.0, 16.0, 64.0, 256.0, 1024.0]
LAZY = slice(2, None)
EARLY = [0.01, 0.02, 0.05, 0.1]  # μ_1 λ t, far below one
LATE = [1.0, 10.0, 40.0]
SIZES, REPLICATES, SCALED = [128, 256, 512], 12, 20.0
ROUNDING = {"rtol": 1e-9, "atol": 1e-11}  # float64 sums of some thousand terms of size one


def kernel_of(dim=2, hidden=(16, 16), seed=3):
    network = MLP(hidden=hidden)
    return TangentKernel(
        Bank(network, network.init(dim, [seed], dtype=torch.float64, device=torch.device("cpu")))
    )


def sample_law(n, dim=2, seed=0):
    x = torch.randn(n, dim, generator=generator(seed), dtype=torch.float64)
    return Law(x, x.new_full((n,), 1 / n))


@pytest.fixture(scope="module")
def setting():
    pair = problem("gm-2d")
    law = quadrature(pair.data, center=0.25, reach=7.0, spacing=0.8, dim=2)
    kernel, gap = kernel_of(), pair.gap(law.x)
    objective = Objective(law, gap)
    solution = KernelSolution.of(kernel, objective)
    scaled = [s / float(solution.spectrum.values[0]) for s in EARLY + LATE]
    flow = gradient_flow(kernel.bank, objective, lam=LAMBDAS, scaled_times=scaled, tolerance=1e-7)
    fields, regression = flow.fields(law.x), torch.stack([solution.field(law.x, t) for t in scaled])
    return SimpleNamespace(
        pair=pair,
        law=law,
        kernel=kernel,
        gap=gap,
        size=float(law.norm(gap)),  # |f*|_p
        solution=solution,
        flow=flow,
        fields=fields,  # λu
        regression=regression,  # λū
        difference=law.norm(fields - regression[:, None]),  # (times, λ)
        times=torch.tensor(scaled)[:, None] / flow.lam,  # t itself
    )


def test_the_stein_identity_makes_both_losses_one(setting):
    """Under p in full, E[J's_q + ∇·J] = E[J'f*]; the grid ends where 1e-6 of this weak tail is left."""
    law, kernel = setting.law, setting.kernel
    known = Objective(law, setting.gap).drive(kernel)
    by_parts = Objective(law, setting.pair.model.score(law.x), with_divergence=True).drive(kernel)
    assert float((known - by_parts).norm() / known.norm()) < 1e-4


def test_distance_and_movement_fall_as_one_over_lambda_and_early_distance_grows_as_time_squared(setting):
    for distance, moved in zip(setting.difference, setting.flow.moved(), strict=True):
        assert slope(LAMBDAS[LAZY], distance[LAZY]) == pytest.approx(-1, abs=0.1)
        assert slope(LAMBDAS[LAZY], moved[LAZY]) == pytest.approx(-1, abs=0.05)
    early = slice(0, len(EARLY))
    for times, distance in zip(setting.times[early].T, setting.difference[early].T, strict=True):
        assert slope(times, distance) == pytest.approx(2, abs=0.1)


def test_movement_distance_and_kernel_error_stay_within_their_bounds(setting):
    """[repasky2023] eq. (29), (30) and (27), inequalities: no tolerance but rounding at m = 0."""
    bound = (setting.times / (2 * setting.flow.lam)).sqrt() * setting.size
    assert bool((setting.flow.moved() <= bound).all())
    assert bool((setting.difference <= envelope(setting.flow, setting.law, setting.gap)).all())
    for scaled, field in zip(setting.flow.scaled_times, setting.regression, strict=True):
        bound = setting.solution.spectrum.bound(setting.gap, scaled)
        assert bool((setting.law.norm(field - setting.gap) <= bound * (1 + 1e-8)).all())


def test_kernel_solution_decays_mode_by_mode(setting):
    modes, scaled = setting.solution.spectrum, setting.flow.scaled_times[-1]
    wanted = (1 - torch.exp(-modes.values * scaled)) * modes.coefficients(setting.gap)
    got = modes.coefficients(setting.regression[-1])
    torch.testing.assert_close(got[:60], wanted[:60], rtol=1e-6, atol=1e-9)


def test_laziness_is_not_quality(setting):
    """The honest twin: at equal λt the small-λ network, far from lazy, fits much better than the kernel."""
    error = setting.law.norm(setting.fields[-1] - setting.gap) / setting.size
    kernel_error = float(setting.law.norm(setting.regression[-1] - setting.gap)) / setting.size
    assert float(error[0]) < 0.5 * kernel_error
    assert float(error[-1]) == pytest.approx(kernel_error, abs=1e-3)


def test_finite_sample_error_falls_as_the_root_of_n_of_the_kernel_and_of_a_lazy_network(setting):
    """Twelve replicates of a root mean square at each n: 0.15 is about two standard errors of the slope."""
    wanted = setting.solution.field(setting.law.x, SCALED)
    errors = []
    for n in SIZES:
        x = torch.stack([setting.pair.data.sample(n, seed=100 * n + r) for r in range(REPLICATES)])
        points = ScoredPoints(x, setting.pair.model.score(x))
        solutions = [KernelSolution.of(setting.kernel, Objective.sample(one)) for one in points.each()]
        alone = torch.stack([solution.field(setting.law.x, SCALED) for solution in solutions])
        times = {"lam": [64.0] * REPLICATES, "scaled_times": [SCALED], "tolerance": 1e-4}
        lazy = gradient_flow(setting.kernel.bank, Objective.sample(points), **times).fields(setting.law.x)[0]
        errors.append([float(setting.law.norm(f - wanted).square().mean().sqrt()) for f in (alone, lazy)])
    for curve in torch.tensor(errors).T:
        assert slope(SIZES, curve) == pytest.approx(-0.5, abs=0.15)


def test_a_drive_outside_the_span_of_few_points_grows_without_bound():
    """Three points cannot see most directions of the parameters; there the divergence drives linearly."""
    x = sample_law(3).x
    solution = KernelSolution.of(kernel_of(), Objective.sample(ScoredPoints(x, -x)))
    assert len(solution.spectrum.values) == 6
    far = [float(solution.displacement(scaled).norm()) for scaled in (1e4, 2e4)]
    assert far[1] / far[0] == pytest.approx(2, abs=0.01)


def test_the_power_corollary_holds_where_its_constants_are_known():
    """A one-dimensional critic after lazy training: the promised n suffices, by a wide margin."""
    pair = problem("gm-1d")
    law, null = (quadrature(q, center=0.0, reach=7.0, spacing=0.1, dim=1) for q in (pair.data, pair.model))
    objective = Objective(law, pair.gap(law.x))
    flow = gradient_flow(kernel_of(1).bank, objective, lam=[16.0], scaled_times=[60.0], tolerance=1e-6)
    corollary = power_corollary(flow, pair, law, null, level=0.05, miss=0.05)
    assert corollary["relative_error"] < 0.9  # what the corollary asks of training
    assert corollary["level"] < 0.05 and corollary["power"] > 0.95
    assert corollary["needed"] < corollary["promised"]


@pytest.mark.parametrize("hidden", [(6,), (7, 5)])
def test_the_kernel_is_the_product_of_jacobians(hidden):
    kernel, x = kernel_of(hidden=hidden), sample_law(6).x
    theta = kernel.theta.clone().requires_grad_()
    outputs = kernel.field(x, theta).flatten()
    rows = torch.stack([torch.autograd.grad(f, theta, retain_graph=True)[0] for f in outputs])  # (n d, m)
    torch.testing.assert_close(kernel.jacobian(x).flatten(0, 1), rows, **ROUNDING)
    torch.testing.assert_close(kernel.gram(x), rows @ rows.T, **ROUNDING)
    direction, values = torch.randn(len(theta), generator=generator(2)).double(), sample_law(6, seed=3).x
    torch.testing.assert_close(kernel.forward(x, direction).flatten(), rows @ direction, **ROUNDING)
    torch.testing.assert_close(kernel.backward(x, values), rows.T @ values.flatten(), **ROUNDING)


@pytest.mark.parametrize("n", [5, 60])  # more parameters than outputs, and fewer
def test_eigenfunctions_solve_their_equation_and_are_orthonormal(n):
    kernel, law = kernel_of(hidden=(4, 3)), sample_law(n)
    modes = spectrum(kernel, law)
    leading = modes.functions[:8].flatten(1)
    applied = leading @ kernel.gram(law.x) / n
    torch.testing.assert_close(applied, modes.values[:8, None] * leading, rtol=1e-6, atol=1e-8)
    products = torch.stack([modes.coefficients(v) for v in modes.functions[:8]])[:, :8]
    torch.testing.assert_close(products, torch.eye(8, dtype=torch.float64), rtol=0, atol=1e-7)
    squares = modes.values.square().sum().sqrt()  # the Hilbert-Schmidt norm
    torch.testing.assert_close(kernel.operator(law).norm(), squares, rtol=1e-9, atol=0)
    inside = kernel.forward(law.x, torch.ones_like(kernel.theta))
    alignment = modes.alignment(inside)
    assert bool((alignment.diff() >= 0).all()) and float(alignment[-1]) == pytest.approx(1, rel=1e-9)
