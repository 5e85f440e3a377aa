"""Rates and their intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from steincritic.gof import Rate


@given(trials=st.integers(1, 2000), share=st.floats(0, 1), confidence=st.sampled_from([0.9, 0.95, 0.999]))
def test_the_interval_is_wilsons(trials, share, confidence):
    rejections = round(share * trials)
    wanted = stats.binomtest(rejections, trials).proportion_ci(confidence, method="wilson")
    got = Rate(rejections, trials).interval(confidence)
    assert got == pytest.approx((wanted.low, wanted.high), abs=1e-9)  # rounding


def test_rates_add_as_counts():
    assert Rate(1, 10) + Rate(4, 10) == Rate(5, 20) and (Rate(1, 10) + Rate(4, 10)).value == 0.25
