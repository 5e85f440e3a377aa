"""The suggested staging: a rule of one epoch, and what it must not get wrong."""

import pytest
import torch

import steincritic as sc
from reference import small_module
from steincritic.data import ScoredPoints
from steincritic.data.problems import problem
from steincritic.errors import InputError
from steincritic.training.staging import fixed
from steincritic.training.suggest import GRID, PACES, first_epoch_ratios, held_out_signal, suggest_stagings


@pytest.mark.parametrize(("name", "n"), [("gm-2d", 300), ("gm-10d", 300)])
def test_the_beginning_lies_where_hand_tuning_found_it(name, n):
    """By hand 0.04 was too low a beginning and 0.3 to 0.4 served these problems."""
    pair = problem(name)
    staging = sc.suggest_staging(pair.model, pair.data.sample(n, seed=0), training=sc.Training(epochs=15))
    assert 0.05 < staging.initial < 3.2


def test_the_ratio_falls_as_lambda_grows_until_the_scale_is_reached():
    pair = problem("gm-10d")
    x = pair.data.sample(500, seed=0)[None]
    ratio = first_epoch_ratios(ScoredPoints(x, pair.model.score(x)), seeds=[0], training=sc.Training())[0]
    above = ratio[ratio > 2]
    assert len(above) > 5 and bool((above.diff() < 0).all())
    torch.testing.assert_close(above[0] / above[4], torch.tensor(10.0), rtol=0.05, atol=0)  # ρ ∝ 1/λ


def test_floor_and_decay_come_from_the_number_of_steps():
    ratios = [2.0 / lam for lam in GRID]  # ρ is at most 4 from λ = 0.5 on, and 16 from 0.125 on
    early, low = (pace.staging(ratios, steps=400, epochs=30) for pace in PACES)
    assert early.initial == pytest.approx(10**-0.25) and low.initial == pytest.approx(10**-0.75)
    assert early.floor == pytest.approx(early.initial / 20)
    assert early.at(20) == pytest.approx(early.floor) and early.at(19) > early.floor
    assert low.floor == pytest.approx(low.initial / 400)
    assert low.at(30) == pytest.approx(low.floor) and low.at(29) > low.floor


def test_held_out_points_choose_the_pace():
    """A candidate that cannot learn (λ far too large) loses to one that can."""
    pair = problem("gm-2d")
    x = pair.data.sample(300, seed=0)[None]
    candidates = [[fixed(1e4)], [fixed(0.3)]]
    signal = held_out_signal(
        ScoredPoints(x, pair.model.score(x)), candidates, seeds=[0], training=sc.Training(epochs=30)
    )
    assert float(signal[1, 0]) > float(signal[0, 0])


def test_a_suggestion_does_not_depend_on_the_datasets_beside_it():
    pair = problem("gm-2d")
    x = torch.stack([pair.data.sample(60, seed=k) for k in range(3)])
    points, training = ScoredPoints(x, pair.model.score(x)), sc.Training(epochs=3)
    together = suggest_stagings(points, seeds=[5, 6, 7], training=training)
    alone = suggest_stagings(ScoredPoints(x[2:], points.score[2:]), seeds=[7], training=training)
    assert together[2:] == alone
    paces = [[fixed(0.3)] * 3, [fixed(0.01)] * 3]
    signal = held_out_signal(points, paces, seeds=[5, 6, 7], training=training)
    one = held_out_signal(
        ScoredPoints(x[1:2], points.score[1:2]), [row[1:2] for row in paces], seeds=[6], training=training
    )
    torch.testing.assert_close(signal[:, 1:2], one)


def test_the_seed_decides_the_suggestion_and_it_trains():
    pair = problem("gm-2d")
    x = pair.data.sample(100, seed=0)
    training = sc.Training(epochs=3)
    staging = sc.suggest_staging(pair.model, x, seed=1, training=training)
    assert staging == sc.suggest_staging(pair.model, x, seed=1, training=training)
    sc.fit_critic(pair.model, x, staging=staging, training=training, callbacks=[])
    with pytest.raises(InputError, match="at least 4"):
        sc.suggest_staging(pair.model, x[:3])


def test_auto_staging_trains_with_the_suggestion():
    pair = problem("gm-2d")
    x = pair.data.sample(60, seed=0)
    training = sc.Training(epochs=3)
    auto = sc.fit_critic(pair.model, x, staging="auto", training=training, callbacks=[])
    suggested = sc.suggest_staging(pair.model, x, training=training)
    by_hand = sc.fit_critic(pair.model, x, staging=suggested, training=training, callbacks=[])
    assert torch.equal(auto.witness(x), by_hand.witness(x))
    with pytest.raises(InputError, match="staging must be one of auto"):
        sc.fit_critic(pair.model, x, staging="car", callbacks=[])


def test_one_module_is_refused():
    pair = problem("gm-2d")
    with pytest.raises(InputError, match="not one module"):
        sc.suggest_staging(pair.model, pair.data.sample(20, seed=0), network=small_module(2, seed=0))
    with pytest.raises(InputError, match="many critics at once"):
        sc.fit_critic(
            pair.model, pair.data.sample(20, seed=0), staging="auto", network=small_module(2, seed=0)
        )
