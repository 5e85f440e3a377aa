"""λ through training, by formula and by script."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steincritic.errors import InputError
from steincritic.training import Adaptive, Stage, Staged, fixed


def nothing_to_see(quantity):
    raise AssertionError("a schedule by formula observes nothing")


def run(staging, observations):
    """λ after each observation."""
    stage, lams = staging.begin(), []
    for value in observations:
        stage = staging.advance(stage, lambda quantity, value=value: value)
        lams.append(stage.lam)
    return lams


@given(initial=st.floats(1e-3, 1e3), ratio=st.floats(1e-4, 1), decay=st.floats(0.01, 1))
def test_staged_is_the_formula(initial, ratio, decay):
    staging = Staged(initial=initial, floor=initial * ratio, decay=decay)
    stage = staging.begin()
    for k in range(8):
        assert stage.lam == staging.at(k) == max(initial * ratio, initial * decay**k)
        stage = staging.advance(stage, nothing_to_see)


@given(lam=st.floats(1e-6, 1e6))
def test_fixed_stays(lam):
    assert run(fixed(lam), [0.0] * 5) == [lam] * 5


def test_adaptive_must_improve_once_before_it_may_stage_down():
    script = [  # observation, λ after it
        (5.0, 1.0),  # the first observation has nothing to compare with
        (6.0, 1.0),  # a rise, but nothing has fallen yet
        (7.0, 1.0),
        (4.0, 1.0),  # falls: from now on a rise counts
        (3.0, 1.0),
        (3.0, 1.0),  # equal is no rise
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


def test_adaptive_asks_for_its_own_quantity():
    asked = []
    staging = Adaptive(initial=1.0, floor=0.1, decay=0.5, on="mse_p")
    staging.advance(staging.begin(), lambda quantity: asked.append(quantity) or 1.0)
    assert asked == ["mse_p"]


def test_an_observation_that_is_no_number_moves_nothing():
    staging = Adaptive(initial=1.0, floor=0.1, decay=0.5)
    assert run(staging, [3.0, 2.0, math.nan, math.nan]) == [1.0] * 4


def test_a_stage_is_plain_numbers():
    assert Stage(0.5) == Stage(lam=0.5, index=0, last=math.inf, improved=False)


@pytest.mark.parametrize("kind", [Staged, Adaptive])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"initial": 0.0}, "initial"),
        ({"initial": math.inf}, "initial"),
        ({"floor": -1.0}, "floor"),
        ({"floor": 2.0}, "floor"),
        ({"decay": 0.0}, "decay"),
        ({"decay": 1.1}, "decay"),
        ({"decay": math.nan}, "decay"),
        ({"every": 0}, "every"),
        ({"every": 2.5}, "every"),
    ],
)
def test_schedules_that_are_none_are_refused(kind, change, words):
    with pytest.raises(InputError, match=words):
        kind(**{"initial": 1.0, "floor": 0.1, "decay": 0.5} | change)


def test_adaptive_on_something_unknown_is_refused():
    with pytest.raises(InputError, match="on must be one of"):
        Adaptive(initial=1.0, floor=0.1, decay=0.5, on="loss")
