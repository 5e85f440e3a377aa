"""The suggested staging: a rule of one epoch, and what it must not get wrong."""

import pytest

import steincritic as sc
from steincritic.data.problems import problem
from steincritic.training.staging import fixed
from studies.power.suggest import GRID, PACES, first_epoch_ratios, held_out_signal


def points_of(name, n):
    pair = problem(name)
    return sc.data.scored(pair.model, pair.data.sample(n, seed=0))


def test_the_ratio_falls_as_lambda_grows_until_the_scale_is_reached():
    ratios = first_epoch_ratios(points_of("gm-10d", 500), seed=0, training=sc.Training())
    above = [ratio for ratio in ratios if ratio > 2]
    assert len(above) > 5 and above == sorted(above, reverse=True)
    assert above[0] / above[4] == pytest.approx(10, rel=0.05)  # ρ ∝ 1/λ


def test_floor_and_decay_come_from_the_number_of_steps():
    ratios = [2.0 / lam for lam in GRID]  # ρ is at most 4 from λ = 0.5 on, and 16 from 0.125 on
    early, low = (pace.staging(ratios, steps=400, epochs=30) for pace in PACES)
    assert early.initial == pytest.approx(10**-0.25) and low.initial == pytest.approx(10**-0.75)
    assert early.floor == pytest.approx(early.initial / 20)
    assert early.at(20) == pytest.approx(early.floor) and early.at(19) > early.floor
    assert low.floor == pytest.approx(low.initial / 400)
    assert low.at(30) == pytest.approx(low.floor) and low.at(29) > low.floor


def test_held_out_points_choose():
    points = points_of("gm-2d", 300)
    with_a_lambda_far_too_large, learned = (
        held_out_signal(points, fixed(lam), seed=0, training=sc.Training(epochs=30)) for lam in (1e4, 0.3)
    )
    assert learned > with_a_lambda_far_too_large
