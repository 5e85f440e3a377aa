"""The loss, its gradient, its monitor, and what the monitor stands for."""

import torch

from reference import Z_MAX, z_of_mean
from steincritic.critics import MLP, Bank
from steincritic.data import ScoredPoints, problem, scored
from steincritic.rng import generator
from steincritic.stein import stein_values
from steincritic.training.objective import Gap, loss_cotangents, loss_of, monitor

PAIR = problem("gm-2d")
LAM = torch.tensor([0.7, 2.0], dtype=torch.float64)


def untrained_bank(members=2, dim=2):
    network = MLP(hidden=(6, 5))
    parameters = network.init(dim, list(range(members)), dtype=torch.float64, device=torch.device("cpu"))
    return Bank(network, parameters)


def normal(*shape):
    return torch.randn(*shape, generator=generator(0, "objective test"), dtype=torch.float64)


def test_cotangents_are_the_derivatives_of_the_loss():
    score, f, div_f = normal(2, 7, 3), normal(2, 7, 3).requires_grad_(), normal(2, 7).requires_grad_()
    wanted = torch.autograd.grad(loss_of(score, f, div_f, LAM).total.sum(), (f, div_f))
    got = loss_cotangents(score, f.detach(), LAM)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)  # rounding


def test_the_loss_is_penalty_minus_stein_with_half_lambda():
    score, f, div_f = normal(2, 7, 3), normal(2, 7, 3), normal(2, 7)
    loss = loss_of(score, f, div_f, LAM)
    for k in range(2):
        values = -(score[k] * f[k]).sum(-1) - div_f[k] + LAM[k] / 2 * (f[k] ** 2).sum(-1)
        torch.testing.assert_close(loss.total[k], values.mean(), rtol=1e-12, atol=1e-12)  # rounding


def test_the_monitor_is_mse_p_less_a_constant_under_p_alone():
    bank = untrained_bank()

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


def test_the_monitor_takes_own_points_of_members():
    bank = untrained_bank()
    sets = [scored(PAIR.model, PAIR.data.sample(9, seed=k)) for k in range(2)]
    own = ScoredPoints(torch.stack([s.x for s in sets]), torch.stack([s.score for s in sets]))
    together = monitor(bank, own, LAM)
    for k in range(2):
        alone = monitor(bank[k : k + 1], sets[k], LAM[k : k + 1])
        torch.testing.assert_close(together[k : k + 1], alone, rtol=1e-12, atol=1e-12)  # rounding


def test_no_bank_beats_the_fisher_divergence():
    """-monitor is at most E_p|f*|² for any critic: a lower bound on how wrong the model is."""
    bank = untrained_bank()
    points = scored(PAIR.model, PAIR.data.sample(20_000, seed=5))
    fisher = (PAIR.gap(points.x) ** 2).sum(-1).mean()
    # the sampling error of either side is under 0.05 at 20 000 points, and these critics are untrained
    assert bool((-monitor(bank, points, LAM) < fisher).all())
