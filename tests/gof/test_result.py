"""The p-value and the ways to tell it."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from scipy import stats

from steincritic.errors import InputError
from steincritic.gof.result import GofResult


def result(statistic, null, level=0.05, **changes):
    return GofResult(
        statistic=statistic,
        null_distribution=torch.as_tensor(null, dtype=torch.float64),
        level=level,
        **{"test": "split", "threshold": "fresh", "exact": True, "n": 10, "seed": 0} | changes,
    )


@given(statistic=st.integers(-3, 3), null=st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_pvalue_counts_ties_and_itself_and_is_never_zero(statistic, null):
    pvalue = result(float(statistic), null).pvalue
    assert pvalue == (1 + sum(value >= statistic for value in null)) / (1 + len(null))
    assert 1 / (1 + len(null)) <= pvalue <= 1


def test_pvalue_agrees_with_scipy():
    rng = np.random.default_rng(0)
    data = rng.normal(0.3, 1, 20)
    reference = stats.monte_carlo_test(
        data,
        lambda size: rng.normal(size=size),
        lambda x, axis: x.mean(axis),
        n_resamples=199,
        alternative="greater",
    )
    ours = result(float(reference.statistic), reference.null_distribution.copy())
    assert ours.pvalue == pytest.approx(reference.pvalue, rel=1e-12)  # one division each


def test_rejection_is_at_or_below_the_level():
    null = list(range(19))
    assert result(100.0, null).pvalue == 0.05 and result(100.0, null).rejected
    assert not result(18.0, null).rejected


def test_the_dictionary_is_json_and_complete():
    ours = result(2.0, [1.0, 3.0], notes=("a note",), settings={"hidden": (4, 4)})
    back = json.loads(json.dumps(ours.to_dict(), allow_nan=False))
    assert back["pvalue"] == ours.pvalue and back["null_distribution"] == [1.0, 3.0]
    assert (
        back["rejected"] is False and back["settings"] == {"hidden": [4, 4]} and back["notes"] == ["a note"]
    )
    assert set(back) >= {"statistic", "level", "test", "threshold", "exact", "n", "seed"}


def test_the_summary_tells_verdict_strength_and_notes():
    rejected = result(9.0, list(range(-50, 0)), notes=("Mind the tails.",)).summary()
    assert "do not look like draws from the model" in rejected and "exact" in rejected
    assert rejected.endswith("Mind the tails.")
    kept = result(-90.0, list(range(-50, 0)), exact=False).summary()
    assert "No evidence against the model" in kept and "approximate" in kept


def test_the_printed_form_is_one_line():
    assert repr(result(9.0, list(range(-50, 0)))) == (
        "GofResult(rejected at level 0.05: statistic=9, p=0.0196, 50 null draws, split)"
    )


def test_plot_draws_on_the_given_axes_or_on_new_ones():
    _, ax = pyplot.subplots()
    assert result(1.0, [0.0, 0.5, 2.0]).plot(ax=ax) is ax
    fresh = result(1.0, [0.0, 0.5, 2.0]).plot()
    assert fresh is not ax and fresh.get_title() == "p = 0.5"
    pyplot.close("all")


@pytest.mark.parametrize(
    ("statistic", "null"), [(math.nan, [1.0]), (math.inf, [1.0]), (1.0, [math.nan]), (1.0, [1.0, math.inf])]
)
def test_what_is_not_finite_is_no_result(statistic, null):
    with pytest.raises(InputError, match="must be finite"):
        result(statistic, null)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, math.nan, "0.05"])
def test_a_level_lies_between_zero_and_one(level):
    with pytest.raises(InputError, match="level"):
        result(1.0, [1.0], level=level)
