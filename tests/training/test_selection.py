"""Which epochs make the result: against banks stopped at each epoch."""

import pytest
import torch

from steincritic.critics import MLP
from steincritic.data import problem, scored
from steincritic.errors import InputError
from steincritic.stein import stein_values
from steincritic.training import Staged, Training, Yardsticks, always, fit_bank
from steincritic.training.selection import keeper

PAIR = problem("gm-2d")
POINTS = scored(PAIR.model, PAIR.data.sample(20, seed=0))
FRESH = scored(PAIR.model, PAIR.data.sample(30, seed=2))
EPOCHS = 6


def fit(selection, epochs=EPOCHS):
    return fit_bank(
        POINTS,
        staging=Staged(initial=1.0, floor=0.05, decay=0.7, every=2),
        seeds=[0, 1, 2],
        network=MLP(hidden=(6,)),
        training=Training(
            epochs=epochs, batch_size=8, learning_rate=5e-2, dtype="float64", selection=selection
        ),
        yardsticks=Yardsticks(validation=always(scored(PAIR.model, PAIR.data.sample(25, seed=1)))),
    )


@pytest.fixture(scope="module")
def stopped():
    """The bank as it was after each epoch: training does not know how long it will be."""
    return [fit("last", epochs) for epochs in range(1, EPOCHS + 1)]


def test_last_is_the_last_epoch_scaled_by_its_lambda():
    fitted = fit("last")
    assert len(fitted.snapshots.banks) == 1
    assert torch.equal(fitted.snapshots.coefficients[0], fitted.history["lam"][-1])


def test_monitor_picks_for_each_member_the_epoch_of_its_lowest_monitor(stopped):
    fitted = fit("monitor")
    best = fitted.history["monitor"].argmin(0)
    assert len(set(best.tolist())) > 1 and int(best.min()) < EPOCHS - 1  # else this test says little
    for member, epoch in enumerate(best.tolist()):
        one = slice(member, member + 1)
        wanted = stopped[epoch][one].witness(FRESH)
        torch.testing.assert_close(fitted[one].witness(FRESH), wanted, rtol=0, atol=0)
        assert fitted.snapshots.coefficients[0, member] == fitted.history["lam"][epoch, member]


def test_trajectory_is_the_average_of_the_later_half_each_divided_by_its_spread(stopped):
    fitted = fit("trajectory")
    later = stopped[EPOCHS // 2 :]
    weights = []
    for bank in later:
        f, div_f = bank.snapshots.banks[0].field_and_divergence(POINTS.x)
        scaleless = bank.snapshots.coefficients[0][:, None] * stein_values(POINTS.score, f, div_f)
        weights.append(1 / scaleless.std(-1))
    shares = torch.stack(weights) / torch.stack(weights).sum(0)  # (epochs, e)
    wanted = sum(share[:, None] * bank.witness(FRESH) for share, bank in zip(shares, later, strict=True))
    torch.testing.assert_close(fitted.witness(FRESH), wanted, rtol=1e-10, atol=1e-12)  # rounding
    wanted_field = sum(
        share[:, None, None] * bank.field(FRESH.x) for share, bank in zip(shares, later, strict=True)
    )
    torch.testing.assert_close(fitted.field(FRESH.x), wanted_field, rtol=1e-10, atol=1e-12)


def test_points_all_alike_have_no_spread_and_weigh_the_same():
    same = POINTS[torch.zeros(6, dtype=torch.int64)]
    fitted = fit_bank(
        same,
        staging=Staged(initial=1.0, floor=1.0, decay=1.0),
        seeds=[0],
        network=MLP(hidden=(4,)),
        training=Training(epochs=4, dtype="float64", selection="trajectory"),
    )
    assert bool(fitted.witness(FRESH).isfinite().all())


def test_an_unknown_rule_is_refused():
    with pytest.raises(InputError, match="selection must be one of"):
        keeper("best")
