"""The laws of lazy training, each with the slope that theory expects of it.

Setting: the paper's two-dimensional mixture by quadrature, so that population statements are exact, and
a network of two layers of 16 (354 parameters), in float64. Tolerances of slopes are those within which the
asymptotic exponent shows at these finite λ and t; they come from the expansion's next term, not from noise.
"""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from steincritic.critics import MLP, Bank, ModuleNetwork
from steincritic.data import ScoredPoints
from steincritic.data.problems import problem
from steincritic.errors import InputError
from steincritic.rng import generator
from steincritic_studies.lazy.bounds import envelope, power_corollary
from steincritic_studies.lazy.flow import KernelSolution, Objective, gradient_flow, integrate, slope
from steincritic_studies.lazy.law import empirical, quadrature
from steincritic_studies.lazy.ntk import tangent_kernel

LAMBDAS = [0.25, 1.0, 16.0, 64.0, 256.0, 1024.0]
LAZY = slice(2, None)
EARLY = [0.01, 0.02, 0.05, 0.1]  # μ_1 λ t, far below one
LATE = [1.0, 10.0, 40.0]


def bank(dim=2, hidden=(16, 16), seed=3):
    network = MLP(hidden=hidden)
    return Bank(network, network.init(dim, [seed], dtype=torch.float64, device=torch.device("cpu")))


@dataclass
class Setting:
    pair: object
    law: object
    kernel: object
    solution: KernelSolution
    flow: object

    def __post_init__(self):
        self.gap = self.pair.gap(self.law.x)
        self.size = float(self.law.norm(self.gap))  # |f*|_p
        self.fields = self.flow.fields(self.law.x)  # λu
        self.regression = torch.stack([self.solution.field(self.law.x, t) for t in self.flow.scaled_times])
        self.difference = self.law.norm(self.fields - self.regression[:, None])  # |λu - λū|, (times, λ)
        self.times = torch.tensor(self.flow.scaled_times)[:, None] / self.flow.lam  # t itself


@pytest.fixture(scope="module")
def setting():
    pair = problem("gm-2d")
    law = quadrature(pair.data, center=0.25, reach=7.0, spacing=0.8, dim=2)
    kernel = tangent_kernel(bank())
    objective = Objective.population(law, pair.gap(law.x))
    solution = KernelSolution.of(kernel, objective)
    scaled = [s / float(solution.spectrum.values[0]) for s in EARLY + LATE]
    flow = gradient_flow(kernel.bank, objective, lam=LAMBDAS, scaled_times=scaled, tolerance=1e-7)
    return Setting(pair, law, kernel, solution, flow)


def test_the_stein_identity_makes_both_losses_one(setting):
    """Under p in full, E[J's_q + ∇·J] = E[J'f*]; the grid ends where 1e-6 of this weak tail is left."""
    law, kernel = setting.law, setting.kernel
    known = Objective.population(law, setting.gap).drive(kernel)
    by_parts = Objective(law.x, law.weights, setting.pair.model.score(law.x), True).drive(kernel)
    assert float((known - by_parts).norm() / known.norm()) < 1e-4


@pytest.mark.parametrize("k", range(len(EARLY + LATE)))
def test_distance_to_the_kernel_solution_falls_as_one_over_lambda(setting, k):
    assert slope(LAMBDAS[LAZY], setting.difference[k, LAZY]) == pytest.approx(-1, abs=0.1)


@pytest.mark.parametrize("k", range(len(EARLY + LATE)))
def test_parameters_move_as_one_over_lambda(setting, k):
    assert slope(LAMBDAS[LAZY], setting.flow.moved()[k, LAZY]) == pytest.approx(-1, abs=0.05)


def test_parameters_stay_within_their_bound_at_all_times(setting):
    """[repasky2023] eq. (29), an inequality: no tolerance."""
    bound = (setting.times / (2 * setting.flow.lam)).sqrt() * setting.size
    assert bool((setting.flow.moved() <= bound).all())


@pytest.mark.parametrize("member", range(len(LAMBDAS)))
def test_distance_grows_as_the_square_of_early_time(setting, member):
    early = slice(0, len(EARLY))
    assert slope(setting.times[early, member], setting.difference[early, member]) == pytest.approx(2, abs=0.1)


def test_distance_stays_under_the_envelope_of_the_paper(setting):
    """[repasky2023] eq. (30) with the constants that hold along the path itself."""
    bound = envelope(setting.flow, setting.law, setting.gap)
    assert bool((setting.difference <= bound).all())


def test_kernel_solution_stays_under_its_bound_for_every_number_of_modes(setting):
    for scaled, field in zip(setting.flow.scaled_times, setting.regression, strict=True):
        error = setting.law.norm(field - setting.gap)
        bound = setting.solution.spectrum.bound(setting.gap, scaled)
        assert bool((error <= bound * (1 + 1e-8)).all())  # equality is reached at m = 0; rounding


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


SCALED = 20.0
SIZES = [128, 256, 512, 1024]
REPLICATES = 16


@pytest.fixture(scope="module")
def samples(setting):
    """Root-mean-square distance to the population's kernel solution, by n: kernel alone, λ = 64, λ = 1."""
    wanted = setting.solution.field(setting.law.x, SCALED)
    rows = []
    for n in SIZES:
        x = torch.stack([setting.pair.data.sample(n, seed=100 * n + r) for r in range(REPLICATES)])
        points = ScoredPoints(x, setting.pair.model.score(x))
        alone = [
            KernelSolution.of(setting.kernel, Objective.sample(ScoredPoints(*pair)))
            for pair in zip(points.x, points.score, strict=True)
        ]
        fields = [torch.stack([one.field(setting.law.x, SCALED) for one in alone])]
        for lam in (64.0, 1.0):
            flow = gradient_flow(
                setting.kernel.bank,
                Objective.sample(points),
                lam=[lam] * REPLICATES,
                scaled_times=[SCALED],
                tolerance=1e-4,
            )
            fields.append(flow.fields(setting.law.x)[0])
        rows.append([float(setting.law.norm(f - wanted).square().mean().sqrt()) for f in fields])
    return torch.tensor(rows)


def test_finite_sample_error_falls_as_the_root_of_n(samples):
    """Sixteen replicates of a root mean square at each n: 0.1 is about two standard errors of the slope."""
    assert slope(SIZES, samples[:, 0]) == pytest.approx(-0.5, abs=0.1)
    assert slope(SIZES, samples[:, 1]) == pytest.approx(-0.5, abs=0.1)


def test_finite_sample_error_has_a_floor_of_the_size_of_the_lazy_error(setting, samples):
    """The error of infinitely many points stays: far below the noise at λ = 64, most of it at λ = 1."""
    objective = Objective.population(setting.law, setting.gap)
    flow = gradient_flow(
        setting.kernel.bank, objective, lam=[64.0, 1.0], scaled_times=[SCALED], tolerance=1e-6
    )
    wanted = setting.solution.field(setting.law.x, SCALED)
    lazy, not_lazy = setting.law.norm(flow.fields(setting.law.x)[0] - wanted).tolist()
    assert float(samples[-1, 1]) > 5 * lazy
    assert 0.8 * not_lazy < float(samples[-1, 2]) < 2 * not_lazy
    assert float(samples[-1, 2]) > 2 * float(samples[-1, 1])


class _LinearInParameters(nn.Module):
    """f(x) = B tanh(x): its tangent kernel never changes, so lazy training is no approximation."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[0.3, -0.2], [0.1, 0.5]], dtype=torch.float64))

    def forward(self, x):
        return torch.tanh(x) @ self.matrix


@pytest.mark.parametrize("finite", [False, True])
def test_a_network_linear_in_its_parameters_is_the_kernel_solution(finite):
    x = torch.randn(30, 2, generator=generator(0), dtype=torch.float64)
    law, target = empirical(x), torch.sin(2 * x)
    objective = replace(Objective.population(law, target), with_divergence=finite)
    kernel = tangent_kernel(_LinearInParameters(), dim=2)
    solution = KernelSolution.of(kernel, objective)
    flow = gradient_flow(kernel.bank, objective, lam=[0.1, 3.0], scaled_times=[0.5, 30.0], tolerance=1e-10)
    for scaled, fields in zip((0.5, 30.0), flow.fields(x), strict=True):
        wanted = solution.field(x, scaled).expand(2, -1, -1)
        torch.testing.assert_close(fields, wanted, rtol=1e-7, atol=1e-8)  # the integrator's tolerance


def test_a_drive_outside_the_span_of_few_points_grows_without_bound():
    """Three points cannot see most directions of the parameters; there the divergence drives linearly."""
    kernel = tangent_kernel(bank())
    x = torch.randn(3, 2, generator=generator(0), dtype=torch.float64)
    solution = KernelSolution.of(kernel, Objective.sample(ScoredPoints(x, -x)))
    assert len(solution.spectrum) == 6
    far = [float(solution.displacement(scaled).norm()) for scaled in (1e4, 2e4)]
    assert far[1] / far[0] == pytest.approx(2, abs=0.01)


def test_the_integrator_is_of_high_order():
    """y' = -y and a rotation's worth of decay in one batch; the error stays near the tolerance."""
    rates = torch.tensor([[1.0, 20.0], [0.1, 3.0]], dtype=torch.float64)
    start = torch.ones(2, 2, dtype=torch.float64)
    for state, time in zip(
        integrate(lambda y: -rates * y, start, [0.3, 2.0], tolerance=1e-9), (0.3, 2.0), strict=True
    ):
        torch.testing.assert_close(state, torch.exp(-rates * time), rtol=1e-6, atol=1e-8)


def test_the_power_corollary_holds_where_its_constants_are_known():
    """A one-dimensional critic after lazy training: the promised n suffices, by a wide margin."""
    pair = problem("gm-1d")
    law = quadrature(pair.data, center=0.0, reach=7.0, spacing=0.1, dim=1)
    null = quadrature(pair.model, center=0.0, reach=7.0, spacing=0.1, dim=1)
    kernel = tangent_kernel(bank(dim=1))
    objective = Objective.population(law, pair.gap(law.x))
    flow = gradient_flow(kernel.bank, objective, lam=[16.0], scaled_times=[60.0], tolerance=1e-6)
    found = power_corollary(flow, pair, law, null, level=0.05, miss=0.05)
    assert found.relative_error < 0.9  # what the corollary asks of training
    assert found.level < 0.05 and found.power > 0.95
    assert found.needed < found.promised
    assert found.threshold == pytest.approx(
        math.sqrt(2 * math.log(1 / (0.9 * 0.05)) / found.promised) * found.bound
    )


def test_bad_input_is_refused_in_one_line(setting):
    start, objective = setting.kernel.bank, Objective.population(setting.law, setting.gap)
    for lam, times, why in (
        ([0.0], [1.0], "lambda must be a positive"),
        ([1.0], [-1.0], "scaled time"),
        ([1.0], [2.0, 1.0], "must rise"),
    ):
        with pytest.raises(InputError, match=why):
            gradient_flow(start, objective, lam=lam, scaled_times=times)
    with pytest.raises(InputError, match="scaled time"):
        setting.solution.displacement(0.0)
    with pytest.raises(InputError, match="float64"):
        module = nn.Module.float(_LinearInParameters())
        network = ModuleNetwork(module)
        single = Bank(network, network.init(2, [0], dtype=torch.float32, device=torch.device("cpu")))
        gradient_flow(single, objective, lam=[1.0], scaled_times=[1.0])
