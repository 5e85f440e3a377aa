"""Learning: the optimum is the data's law, and a run is the same with and without a break."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from reference import seeded, small_module
from steincritic.critics import MLP
from steincritic.errors import DivergedError, DoubtfulWarning, FileFormatError, InputError
from steincritic.files import read_tensors, write_tensors
from steincritic.learning import EnergyMLP, Learning, fit_energy
from steincritic.models import GaussianBernoulliRBM, GaussianMixture
from steincritic.models.base import DensityModel, SamplingModel
from steincritic.rng import generator
from steincritic.training.staging import Adaptive, Staged, fixed

MEAN = torch.tensor([1.0, -0.5], dtype=torch.float64)
X = GaussianMixture(MEAN[None]).sample(1000, seed=1)
QUICK = Learning(
    steps=12,
    critic_steps=2,
    batch_size=50,
    staging=fixed(1.0),
    critic=MLP(hidden=(8,)),
    log_every=4,
    dtype="float64",
)


class Location(nn.Module):
    """N(m, 1) with m to be learned."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x):
        return 0.5 * (x - self.mean).square().sum(-1)


def parameters(fitted):
    return fitted.model.weights


def test_the_mean_of_a_gaussian_is_learned():
    settings = replace(QUICK, steps=150, critic_steps=3, learning_rate=0.03, critic_learning_rate=0.01)
    found = -fit_energy(Location(), X, learning=settings, seed=0).model.score(torch.zeros(1, 2).double())
    # the minimizer is the rows' own mean, of standard error 0.03; three of them for the learning
    torch.testing.assert_close(-found[0], X.mean(0), rtol=0, atol=0.1)


def test_a_machine_is_learned_from_its_draws():
    truth = GaussianBernoulliRBM(
        [[2.0, 0.0], [0.0, 2.0], [1.0, -1.0]], [0.5, 0.0, -0.5], [0.3, -0.3], sweeps=200
    )
    x = truth.sample(4000, seed=1)
    noise = torch.randn(3, 2, generator=generator(0, "start"), dtype=torch.float64)
    start = GaussianBernoulliRBM(truth.weights + 0.5 * noise, torch.zeros(3), torch.zeros(2), sweeps=200)
    settings = Learning(
        steps=150,
        critic_steps=4,
        batch_size=100,
        staging=fixed(1.0),
        critic=MLP(hidden=(32,)),
        learning_rate=2e-2,
        critic_learning_rate=5e-3,
    )
    fitted = fit_energy(start, x, learning=settings, seed=0)
    assert isinstance(fitted.model, GaussianBernoulliRBM) and fitted.model.sweeps == 200
    gap_before, gap = (
        (model.score(x) - truth.score(x)).square().sum(-1).mean() for model in (start, fitted.model)
    )
    assert gap < 0.1 * gap_before  # 0.03 of it was measured
    draws = fitted.model.sample(4000, seed=2)
    # standard errors: 0.03 of a mean on either side, 0.07 of a covariance; learning adds as much
    torch.testing.assert_close(draws.mean(0).double(), x.mean(0), rtol=0, atol=0.2)
    torch.testing.assert_close(torch.cov(draws.T).double(), torch.cov(x.T), rtol=0, atol=0.45)


@pytest.mark.parametrize("divergence", ["exact", "gaussian", "rademacher"])
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, divergence):
    staged = Staged(initial=1.0, floor=0.2, decay=0.5, every=3)
    settings = replace(QUICK, divergence=divergence, staging=staged, weight_decay=0.01)
    whole = fit_energy(EnergyMLP(hidden=(6,)), X, learning=settings, seed=3)

    class Interrupt(Exception):
        pass

    def stop(step, steps, row):
        if step + 1 == 8:
            raise Interrupt

    path = tmp_path / "state"
    with pytest.raises(Interrupt):
        fit_energy(EnergyMLP(hidden=(6,)), X, learning=settings, seed=3, callbacks=[stop], checkpoint=path)
    seen = []
    resumed = fit_energy(
        EnergyMLP(hidden=(6,)),
        X,
        learning=settings,
        seed=3,
        callbacks=[lambda step, steps, row: seen.append(step)],
        checkpoint=path,
    )
    assert seen == [11]
    for name, value in parameters(whole).items():
        assert torch.equal(value, parameters(resumed)[name])
    for name, value in whole.history.items():
        assert torch.equal(value, resumed.history[name])
    again = fit_energy(EnergyMLP(hidden=(6,)), X, learning=settings, seed=3, checkpoint=path)  # nothing left
    assert torch.equal(parameters(again)["w1"], parameters(whole)["w1"])


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "state"
    fit_energy(EnergyMLP(hidden=(6,)), X, learning=QUICK, seed=0, checkpoint=path)
    for change in ({"seed": 1}, {"learning": replace(QUICK, steps=13)}, {"x": X[1:]}):
        given = {"x": X, "learning": QUICK, "seed": 0} | change
        with pytest.raises(InputError, match="other data or settings"):
            fit_energy(EnergyMLP(hidden=(6,)), given.pop("x"), **given, checkpoint=path)
    with pytest.raises(InputError, match="other data or settings"):
        fit_energy(EnergyMLP(hidden=(6,), spread=3.0), X, learning=QUICK, seed=0, checkpoint=path)
    tensors, about = read_tensors(path, kind="learning checkpoint")
    write_tensors(path, tensors, about, kind="another")
    with pytest.raises(FileFormatError):
        fit_energy(EnergyMLP(hidden=(6,)), X, learning=QUICK, seed=0, checkpoint=path)


def test_the_seed_decides_all():
    one, same, other = (fit_energy(EnergyMLP(hidden=(6,)), X, learning=QUICK, seed=s) for s in (0, 0, 1))
    assert torch.equal(parameters(one)["w1"], parameters(same)["w1"])
    assert not torch.equal(parameters(one)["w1"], parameters(other)["w1"])


def test_the_fisher_column_takes_each_step_with_its_own_lambda():
    staging = Staged(initial=10.0, floor=0.1, decay=0.5, every=1)
    every_step = fit_energy(
        EnergyMLP(hidden=(6,)), X, learning=replace(QUICK, steps=8, log_every=1, staging=staging)
    ).history
    at_once = fit_energy(
        EnergyMLP(hidden=(6,)), X, learning=replace(QUICK, steps=8, log_every=8, staging=staging)
    ).history
    torch.testing.assert_close(at_once["fisher"][0], every_step["fisher"].mean())
    single = 2 * every_step["lam"] * (every_step["stein"] - every_step["penalty"])
    torch.testing.assert_close(every_step["fisher"], single, rtol=1e-4, atol=1e-6)


def test_what_cannot_be_learned_is_refused_at_the_door():
    with pytest.raises(InputError, match="subtract its mean"):
        fit_energy(EnergyMLP(hidden=(6,)), X.double() + 1e8, learning=replace(QUICK, dtype="float32"))
    with pytest.raises(InputError, match=r"must return \(n,\)"):
        fit_energy(small_module(2, seed=0), X, learning=QUICK)
    with pytest.raises(InputError, match="held_out > 0"):
        staging = Adaptive(initial=1.0, floor=0.1, decay=0.5)
        fit_energy(EnergyMLP(hidden=(6,)), X, learning=replace(QUICK, staging=staging, held_out=0.0))


def test_the_history_holds_what_it_says_and_watchers_are_called():
    rows, looks = [], []
    fitted = fit_energy(
        EnergyMLP(hidden=(6,)),
        X,
        learning=replace(QUICK, steps=10),
        callbacks=[lambda step, steps, row: rows.append((step, steps, set(row)))],
        observers=[lambda step, model: looks.append((step, model.sample(3, seed=0).shape))],
    )
    history = fitted.history
    columns = {"step", "lam", "stein", "penalty", "fisher", "fisher_held_out"}
    assert rows == [(3, 10, columns), (7, 10, columns), (9, 10, columns)]
    assert looks == [(step, (3, 2)) for step in (3, 7, 9)]
    assert history["step"].tolist() == [4.0, 8.0, 10.0]
    fisher = 2 * history["lam"] * (history["stein"] - history["penalty"])
    torch.testing.assert_close(history["fisher"], fisher)
    assert isinstance(fitted.model, SamplingModel) and isinstance(fitted.model, DensityModel)
    assert fitted.seconds > 0 and len(fitted.critic) == 1
    bare = fit_energy(EnergyMLP(hidden=(6,)), X, learning=replace(QUICK, held_out=0.0))
    assert set(bare.history) == columns - {"fisher_held_out"}


def test_lambda_follows_its_staging():
    staged = Staged(initial=1.0, floor=0.2, decay=0.5, every=3)
    history = fit_energy(EnergyMLP(hidden=(6,)), X, learning=replace(QUICK, staging=staged)).history
    assert history["lam"].tolist() == [staged.at(1), staged.at(2), staged.at(3)]  # after steps 4, 8, 12
    adaptive = Adaptive(initial=1.0, floor=0.2, decay=0.5, every=1)
    lams = fit_energy(EnergyMLP(hidden=(6,)), X, learning=replace(QUICK, staging=adaptive)).history["lam"]
    assert bool((lams.diff() <= 0).all())


def test_weight_decay_and_averaging_act():
    plain, decayed, last = (
        fit_energy(EnergyMLP(hidden=(6,)), X, learning=replace(QUICK, **change), seed=0)
        for change in (
            {"learning_rate": 0.1},
            {"learning_rate": 0.1, "weight_decay": 0.9},
            {"learning_rate": 0.1, "averaging": 0.0},
        )
    )
    assert parameters(decayed)["w1"].norm() < parameters(plain)["w1"].norm()
    assert not torch.equal(parameters(last)["w1"], parameters(plain)["w1"])


def test_the_start_is_not_changed():
    start = EnergyMLP(hidden=(6,)).begin(X, 0)
    before = {name: value.clone() for name, value in start.weights.items()}
    fit_energy(start, X, learning=QUICK)
    assert all(torch.equal(value, before[name]) for name, value in start.weights.items())


def test_divergence_is_an_error_that_names_the_step():
    with pytest.raises(DivergedError, match=r"at step [1-4] of 12 .*learning rates"):
        fit_energy(EnergyMLP(hidden=(6,)), X, learning=replace(QUICK, learning_rate=1e30))


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"critic_steps": 0},
        {"batch_size": 1.5},
        {"learning_rate": 0.0},
        {"cooldown": 2.0},
        {"betas": (0.9, 1.0)},
        {"averaging": 1.0},
        {"weight_decay": -0.1},
        {"critic_weight_decay": float("inf")},
        {"held_out": -0.1},
        {"staging": 1.0},
        {"divergence": "auto"},
        {"dtype": "float16"},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError):
        Learning(**wrong)


def test_data_that_cannot_be_learned_from_are_refused():
    energy = EnergyMLP(hidden=(6,))
    with pytest.raises(InputError, match="40 rows, fewer than one batch of 50"):
        fit_energy(energy, X[:40], learning=QUICK)
    with pytest.raises(InputError, match="45 rows are left"):
        fit_energy(energy, X[:50], learning=QUICK)
    with pytest.raises(InputError, match="NaN"):
        fit_energy(energy, torch.full((60, 2), torch.nan), learning=QUICK)
    with pytest.raises(InputError, match="needs held_out"):
        adaptive = Adaptive(initial=1.0, floor=0.2, decay=0.5, every=1)
        fit_energy(energy, X, learning=replace(QUICK, staging=adaptive, held_out=0.0))


def test_a_critic_that_knows_its_rows_by_heart_is_reported():
    noise = torch.randn(100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    eager = replace(
        QUICK, steps=60, critic_steps=20, critic_learning_rate=0.01, critic=MLP(hidden=(64,)), batch_size=40
    )
    with pytest.warns(DoubtfulWarning, match="by heart"):
        fit_energy(EnergyMLP(hidden=(6,)), noise, learning=eager)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_energy(EnergyMLP(hidden=(6,)), noise, learning=replace(eager, critic_weight_decay=20.0))


def test_a_module_learns_and_answers_without_dropout():
    energy = seeded(
        lambda: nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.SiLU(), nn.Linear(8, 1)), seed=0
    )
    model = fit_energy(energy, X, learning=QUICK).model
    assert torch.equal(model.score(X[:5]), model.score(X[:5]))
    with pytest.raises(InputError, match="cannot take x with 2 columns"):
        fit_energy(seeded(lambda: nn.Linear(3, 1), seed=0), X, learning=QUICK)


def test_data_beyond_the_precision_are_refused():
    with pytest.raises(InputError, match=r"too large for torch\.float32"):
        fit_energy(EnergyMLP(hidden=(6,)), 1e60 * X, learning=replace(QUICK, dtype="float32"))
