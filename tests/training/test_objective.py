"""The loss, its monitor and what it stands for; λ through training, by formula and by script."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import Z_MAX, z_of_mean
from steincritic.critics import MLP, Bank
from steincritic.data import ScoredPoints, problem, scored
from steincritic.errors import InputError
from steincritic.rng import generator
from steincritic.stein import stein_values
from steincritic.training import Adaptive, Staged, fixed
from steincritic.training.objective import Gap, loss_of, monitor

PAIR = problem("gm-2d")
LAM = torch.tensor([0.7, 2.0], dtype=torch.float64)


@pytest.fixture
def bank():
    network = MLP(hidden=(6, 5))
    return Bank(network, network.init(2, [0, 1], dtype=torch.float64, device=torch.device("cpu")))


def normal(*shape):
    return torch.randn(*shape, generator=generator(0, "objective test"), dtype=torch.float64)


def test_the_loss_is_penalty_minus_stein_with_half_lambda():
    score, f, div_f = normal(2, 7, 3), normal(2, 7, 3), normal(2, 7)
    loss = loss_of(score, f, div_f, LAM)
    for k in range(2):
        values = -(score[k] * f[k]).sum(-1) - div_f[k] + LAM[k] / 2 * (f[k] ** 2).sum(-1)
        torch.testing.assert_close(loss.total[k], values.mean(), rtol=1e-12, atol=1e-12)  # rounding


def test_the_monitor_is_mse_p_less_a_constant_under_p_alone(bank):
    def excess(source):
        """Per point: monitor + |f*|² - |λf - f*|², which is -2λ T_p f and has mean zero under p."""
        points = scored(PAIR.model, source.sample(20_000, seed=3))
        f, div_f = bank.field_and_divergence(points.x)
        gap, lam = PAIR.gap(points.x), LAM[:, None]
        values = -2 * lam * stein_values(points.score, f, div_f) + lam**2 * (f * f).sum(-1)
        by_monitor = monitor(bank, points, LAM)
        torch.testing.assert_close(values.mean(-1), by_monitor, rtol=1e-10, atol=1e-10)  # rounding
        error = ((lam[..., None] * f - gap) ** 2).sum(-1)
        torch.testing.assert_close(
            error.mean(-1), Gap(points.x, gap).error(bank, LAM), rtol=1e-10, atol=1e-10
        )
        return values + (gap * gap).sum(-1) - error

    assert all(abs(z_of_mean(member)) < Z_MAX for member in excess(PAIR.data))
    assert any(abs(z_of_mean(member)) > Z_MAX for member in excess(PAIR.model))


def test_the_monitor_takes_own_points_of_members(bank):
    sets = [scored(PAIR.model, PAIR.data.sample(9, seed=k)) for k in range(2)]
    together = monitor(bank, ScoredPoints.stack(sets), LAM)
    for k in range(2):
        alone = monitor(bank[k : k + 1], sets[k], LAM[k : k + 1])
        torch.testing.assert_close(together[k : k + 1], alone, rtol=1e-12, atol=1e-12)  # rounding


def test_no_bank_beats_the_fisher_divergence(bank):
    """-monitor is at most E_p|f*|² for any critic: a lower bound on how wrong the model is."""
    points = scored(PAIR.model, PAIR.data.sample(20_000, seed=5))
    fisher = (PAIR.gap(points.x) ** 2).sum(-1).mean()
    # the sampling error of either side is under 0.05 at 20 000 points, and these critics are untrained
    assert bool((-monitor(bank, points, LAM) < fisher).all())


def run(staging, observations):
    """λ after each observation."""
    stage, lams = staging.begin(), []
    for value in observations:
        stage = staging.advance(stage, lambda quantity, value=value: value)
        lams.append(stage.lam)
    return lams


def nothing_to_see(quantity):
    raise AssertionError("a schedule by formula observes nothing")


@given(initial=st.floats(1e-3, 1e3), ratio=st.floats(1e-4, 1), decay=st.floats(0.01, 1))
def test_staged_is_the_formula_and_fixed_stays(initial, ratio, decay):
    staging = Staged(initial=initial, floor=initial * ratio, decay=decay)
    stage = staging.begin()
    for k in range(8):
        assert stage.lam == staging.at(k) == max(initial * ratio, initial * decay**k)
        stage = staging.advance(stage, nothing_to_see)
    assert run(fixed(initial), [0.0] * 5) == [initial] * 5


def test_adaptive_must_improve_once_before_it_may_stage_down():
    script = [  # observation, λ after it
        (5.0, 1.0),  # the first observation has nothing to compare with
        (6.0, 1.0),  # a rise, but nothing has fallen yet
        (7.0, 1.0),
        (4.0, 1.0),  # falls: from now on a rise counts
        (3.0, 1.0),
        (3.0, 1.0),  # equal is no rise
        (math.nan, 1.0),  # nor is what is no number
        (3.0, 1.0),
        (3.5, 0.5),  # rises: λ is lowered
        (4.0, 0.5),  # rises again, but must fall first
        (4.5, 0.5),
        (4.4, 0.5),  # falls
        (4.6, 0.25),  # rises: lowered
        (4.5, 0.25),
        (4.7, 0.2),  # the floor
        (4.6, 0.2),
        (4.7, 0.2),
    ]
    staging = Adaptive(initial=1.0, floor=0.2, decay=0.5)
    assert run(staging, [value for value, _ in script]) == [lam for _, lam in script]


@pytest.mark.parametrize("kind", [Staged, Adaptive])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial", math.inf),
        ("floor", -1.0),
        ("floor", 2.0),
        ("decay", 1.1),
        ("decay", math.nan),
        ("every", 2.5),
    ],
)
def test_schedules_that_are_none_are_refused(kind, name, value):
    with pytest.raises(InputError, match=name):
        kind(**{"initial": 1.0, "floor": 0.1, "decay": 0.5} | {name: value})


def test_adaptive_on_something_unknown_is_refused():
    with pytest.raises(InputError, match="on must be one of"):
        Adaptive(initial=1.0, floor=0.1, decay=0.5, on="loss")
