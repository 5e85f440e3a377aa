"""Langevin chains: right draws, steps that fit the target, and a clear word where they fail."""

import math

import pytest
import torch
from torch import nn

from reference import Z_MAX, seeded, z_of_mean
from steincritic.errors import DoubtfulWarning, InputError, ModelError
from steincritic.models import (
    EnergyModel,
    GaussianMixture,
    Langevin,
    LangevinModel,
    LogDensity,
    PairModel,
    SamplingModel,
)
from steincritic.models.mixing import effective_draws, potential_scale
from steincritic.rng import generator

NEAR = GaussianMixture([[-1.0, 0.0], [1.0, 0.5]], [[1.0, 0.25], [0.5, 1.0]], [0.3, 0.7])
APART = GaussianMixture([[-4.0, 0.0], [4.0, 0.0]], 1.0, [0.3, 0.7])
NARROW = GaussianMixture([[3.0, -40.0, 0.0]], [[1e-4, 100.0, 1.0]])
N = 1_000
SHORT = Langevin(warmup=160, steps=60)


class Bowl(nn.Module):
    """A float32 energy network of shape (n, 1), steep far out."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x) + (x**4).sum(-1, keepdim=True) / 4


def moments_agree(x, model):
    """Means and second moments against independent draws of the model itself."""
    y = model.sample(20 * N, seed=9)
    for f in (lambda v: v, torch.square):
        for j in range(x.shape[1]):
            gap = f(x)[:, j].mean() - f(y)[:, j].mean()
            error = (f(x)[:, j].var() / len(x) + f(y)[:, j].var() / len(y)).sqrt()
            if abs(float(gap / error)) >= Z_MAX:
                return False
    return True


@pytest.mark.parametrize(
    "model",
    [LogDensity(NEAR.log_prob, dim=2), PairModel(NEAR.score, dim=2)],
    ids=["log-density", "score alone"],
)
def test_draws_have_the_moments_of_the_model(model):
    assert not isinstance(model, SamplingModel)
    x = LangevinModel(model, settings=SHORT).sample(N, seed=1)
    assert moments_agree(x, NEAR)
    assert not moments_agree(1.2 * x, NEAR)  # the twin


def test_scales_of_the_coordinates_are_found_from_a_start_far_away():
    q = LangevinModel(PairModel(NARROW.score, dim=3), settings=Langevin(warmup=500, steps=200))
    assert moments_agree(q.sample(N, seed=2), NARROW)
    assert 0.45 < q.tuned.acceptance < 0.7  # aimed at 0.57; 64 chains of 200 steps
    assert q.tuned.ess > 10 and q.tuned.rhat < 1.05


def test_annealing_reaches_a_mode_that_plain_chains_hardly_see():
    def left(n, source):
        return torch.randn(n, 2, generator=source, dtype=torch.float64) - torch.tensor([4.0, 0.0])

    def share_right(**settings):
        settings = Langevin(warmup=160, steps=60, **settings)
        q = LangevinModel(LogDensity(APART.log_prob, dim=2), settings=settings, start=left)
        with pytest.warns(DoubtfulWarning, match=r"hardly mixed: each is worth .* R-hat"):
            return float((q.sample(N, seed=0)[:, 0] > 0).double().mean())

    assert share_right() < 0.1
    annealed = share_right(temperatures=(20.0, 8.0, 4.0, 2.0))
    # of 0.7: the last temperature at which chains still cross decides, and there the weights are more even
    assert 0.3 < annealed < 0.8


def test_a_ladder_of_models_is_passed_from_its_first():
    wide = GaussianMixture([[-4.0, 0.0], [4.0, 0.0]], 16.0, [0.3, 0.7])
    q = LangevinModel(
        PairModel(NEAR.score, dim=2), ladder=[PairModel(wide.score, dim=2)], settings=Langevin(warmup=200)
    )
    assert moments_agree(q.sample(N, seed=3), NEAR)


def test_an_energy_network_is_sampled_in_its_own_dtype_by_the_seed_alone():
    q = LangevinModel(
        EnergyModel(seeded(Bowl, seed=0).float()), dim=2, settings=Langevin(warmup=100, steps=100)
    )
    x = q.sample(20, seed=5)
    assert x.shape == (20, 2) and x.dtype == torch.float32 and not x.requires_grad
    assert torch.equal(x, q.sample(20, seed=5)) and not torch.equal(x, q.sample(20, seed=6))
    assert q.score(x.double()).dtype == torch.float64 and q.log_prob(x).shape == (20,)
    assert q.sample(1, seed=0).shape == (1, 2)
    assert "ess=" in repr(q.tuned) and "rhat=" in repr(q.tuned)


def test_chains_stay_inside_a_support():
    def log_prob(x):
        inside = (x > 0).all(-1)
        return torch.where(inside, (2 * x.clamp_min(1e-9).log() - x).sum(-1), -math.inf)  # gamma of shape 3

    start = lambda n, source: 1 + torch.rand(n, 2, generator=source)  # noqa: E731
    q = LangevinModel(log_prob, dim=2, start=start, settings=Langevin(warmup=160, steps=150))
    x = q.sample(N, seed=0)
    assert float(x.min()) > 0
    assert abs(z_of_mean(x[:, 0], 3.0)) < Z_MAX
    with pytest.raises(ModelError, match="start where the density is zero"):
        LangevinModel(log_prob, dim=2).sample(2)


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (lambda x: x / 0.0, r"not finite where Langevin chain 0 begins"),
        (
            lambda x: torch.where(x.abs() > 5, math.nan, -x / 9),
            r"Langevin chain \d+ is not finite at step [1-9]\d*, step size [\d.]+",
        ),
    ],
)
def test_a_chain_that_is_not_finite_stops_with_step_and_step_size(score, words):
    with pytest.raises(ModelError, match=words):
        LangevinModel(PairModel(score, dim=2)).sample(50)


@pytest.mark.parametrize("log_prob", [lambda x: x.square().sum(-1), lambda x: 0 * x.sum(-1)])
def test_chains_that_nothing_holds_are_no_draws(log_prob):
    with pytest.raises(ModelError, match=r"run away: .* check the sign of the energy"):
        LangevinModel(log_prob, dim=2, settings=SHORT).sample(5)


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="pass dim="):
        LangevinModel(lambda x: -x.square().sum(-1))
    with pytest.raises(InputError, match="2 coordinates, but dim=3"):
        LangevinModel(NEAR, dim=3)
    with pytest.raises(InputError, match="warmup must be a whole number of at least 10"):
        Langevin(warmup=0)
    with pytest.raises(InputError, match="every temperature"):
        Langevin(temperatures=(-1.0,))
    with pytest.raises(InputError, match=r"acceptance must lie in \(0, 1\)"):
        Langevin(acceptance=1.0)
    with pytest.raises(InputError, match=r"start\(2, generator\) must return shape \(2, 2\)"):
        LangevinModel(NEAR, start=lambda n, source: torch.zeros(n, 3)).sample(2)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, -0.5])
def test_effective_draws_of_an_autoregression_are_those_of_its_formula(correlation):
    source = generator(0, "autoregression")
    noise = torch.randn(200, 1_000, 2, generator=source, dtype=torch.float64)
    trace = noise.clone()
    for t in range(1, 1_000):
        trace[:, t] = correlation * trace[:, t - 1] + math.sqrt(1 - correlation**2) * noise[:, t]
    wanted = 1_000 * (1 - correlation) / (1 + correlation)
    assert torch.allclose(
        effective_draws(trace), torch.tensor(wanted, dtype=torch.float64), rtol=0.15
    )  # as seen
    assert float((potential_scale(trace) - 1).abs().max()) < 0.05


def test_chains_apart_or_adrift_have_a_large_r_hat():
    trace = torch.randn(20, 300, 1, generator=generator(0, "traces"), dtype=torch.float64)
    assert float(potential_scale(trace + torch.arange(20.0)[:, None, None])) > 3
    assert float(potential_scale(trace + torch.linspace(0, 10, 300)[:, None])) > 1.5


def test_what_a_posterior_says_of_its_coordinates_is_passed_on():
    class Posterior:
        dim, names = 1, ["log tau"]

        def score(self, x):
            return -x

        def unconstrain(self, draws):
            return torch.as_tensor(draws["tau"]).log()[:, None]

    q = LangevinModel(Posterior())
    assert q.names == ["log tau"] and q.unconstrain({"tau": [1.0, 1.0]}).tolist() == [[0.0], [0.0]]
    assert not hasattr(LangevinModel(lambda x: -x.square().sum(-1), dim=2), "names")
