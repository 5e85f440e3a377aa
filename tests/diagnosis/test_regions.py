"""Rules: what a tree proposes, what they say, and the tests on points that chose nothing."""

import numpy as np
import pytest

from steincritic.diagnosis.regions import (
    Condition,
    Region,
    _count_pvalue,
    _distinct,
    _holm,
    _mass_task,
    _rules,
    _simplified,
    _witness_pvalue,
)

NAMES = ["a", "b", "c"]


def condition(column, above, cut):
    return Condition(column, NAMES[column], above, cut)


def region(*conditions, pvalue=0.01, kind="too thin", count=30, expected=10.0):
    return Region(conditions, kind, count, expected, 100, pvalue)


def test_a_rule_reads_like_a_sentence():
    box = region(condition(0, True, -0.5), condition(1, True, 2.0), condition(0, False, 1.0))
    assert box.rule == "-0.5 < a ≤ 1 and b > 2"
    assert (
        str(box)
        == f"{box.rule}: the model is too thin here (30 of 100 held-out points, 10.0 expected, p = 0.01)"
    )
    shape = Region(box.conditions, "wrong shape", 30, 29.0, 100, 0.01, "c")
    assert "wrong shape here, most of all along c" in str(shape)
    assert region().rule == "everywhere"
    assert "expected, p < 1e-99)" in str(region(pvalue=0.0))


def test_of_two_conditions_on_one_side_the_tighter_stays():
    rule = (
        condition(0, True, 0.0),
        condition(0, True, 1.0),
        condition(0, False, 3.0),
        condition(0, False, 2.0),
    )
    assert _simplified(rule) == (condition(0, True, 1.0), condition(0, False, 2.0))


def test_slight_differences_in_mass_are_not_notable():
    assert region(count=30, expected=10.0).is_notable and region(count=3, expected=10.0).is_notable
    assert not region(count=11, expected=10.0).is_notable
    assert region(count=11, expected=10.0, kind="wrong shape").is_notable


def normal(n, seed):
    return np.random.default_rng(seed).normal(size=(n, 3))


def test_the_tree_finds_a_box_with_too_many_points():
    x = normal(3000, 0)
    inside = (x[:, 0] > 0.5) & (x[:, 2] < 0.0)
    x = x[inside | (np.random.default_rng(1).uniform(size=3000) < 0.4)]
    rules = _rules(*_mass_task(x, normal(5000, 2)), NAMES)
    fresh = normal(20_000, 3)
    truth = (fresh[:, 0] > 0.5) & (fresh[:, 2] < 0.0)
    overlaps = [
        (region(*r).holds(fresh) & truth).sum() / (region(*r).holds(fresh) | truth).sum() for r in rules
    ]
    assert max(overlaps) > 0.8


def test_a_tree_has_few_leaves_where_there_is_nothing_to_find():
    grown = [len(_rules(*_mass_task(normal(500, s), normal(5000, 100 + s)), NAMES)) for s in range(20)]
    assert sum(leaves > 0 for leaves in grown) <= 10  # many cuts are tried; what is proposed is tested


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_tested_by_fishers_exact_test(seed):
    source = np.random.default_rng(seed)
    same = [
        _count_pvalue(source.uniform(size=200) < 0.2, source.uniform(size=2000) < 0.2) for _ in range(300)
    ]
    assert np.mean(np.array(same) <= 0.05) <= 0.05 + 3.3 * (0.05 * 0.95 / 300) ** 0.5
    assert _count_pvalue(source.uniform(size=200) < 0.5, source.uniform(size=2000) < 0.2) < 1e-6


def test_the_witness_test_asks_for_more_inside_than_outside():
    source = np.random.default_rng(0)
    own, drawn = source.normal(size=400), source.normal(size=4000)
    inside, drawn_inside = source.uniform(size=400) < 0.3, source.uniform(size=4000) < 0.3
    assert _witness_pvalue(own + 1.0, inside, drawn, drawn_inside) > 1e-3  # everywhere, so nothing local
    assert _witness_pvalue(own + inside, inside, drawn, drawn_inside) < 1e-6
    assert _witness_pvalue(own, np.zeros(400, bool), drawn, drawn_inside) == 1.0
    null = []
    for _ in range(400):
        own, inside = source.normal(size=200), source.uniform(size=200) < 0.3
        null.append(_witness_pvalue(own, inside, drawn, drawn_inside))
    assert np.mean(np.array(null) <= 0.05) <= 0.05 + 3.3 * (0.05 * 0.95 / 400) ** 0.5


def test_pvalues_are_adjusted_for_all_rules():
    adjusted = _holm([region(pvalue=p) for p in (0.04, 0.01, 0.5)])
    assert [r.pvalue for r in adjusted] == pytest.approx([0.03, 0.08, 0.5])


def test_rules_that_say_the_same_are_said_once():
    first, again = region(condition(0, True, 0.0)), region(condition(0, True, 0.01))
    other = region(condition(1, True, 0.0))
    assert _distinct([first, again, other], normal(2000, 0)) == [first, other]
