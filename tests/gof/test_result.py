"""The p-value and the ways to tell it."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("statistic", "null"), [(math.nan, [1.0]), (math.inf, [1.0]), (1.0, [math.nan]), (1.0, [1.0, math.inf])]
)
def test_what_is_not_finite_is_no_result(statistic, null):
    with pytest.raises(InputError, match="must be finite"):
        result(statistic, null)
