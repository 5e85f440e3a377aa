"""Conformal p-values, their list, and that a critic's own training points would spoil both."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from steincritic.data.points import scored
from steincritic.diagnosis.halves import split_in_halves
from steincritic.diagnosis.points import benjamini_hochberg, find_missing, find_points
from steincritic.gof.null import rank_pvalues
from steincritic.models import GaussianMixture
from steincritic.rng import generator

values = st.lists(st.floats(-5, 5), min_size=1, max_size=30)


@given(pvalues=st.lists(st.floats(0.001, 1), min_size=1, max_size=40), level=st.floats(0.01, 0.5))
def test_the_list_is_the_largest_that_the_rule_allows(pvalues, level):
    p = torch.tensor(pvalues, dtype=torch.float64)
    chosen = benjamini_hochberg(p, level)
    sizes = [k for k in range(len(p) + 1) if k == 0 or sorted(p.tolist())[k - 1] <= level * k / len(p)]
    assert int(chosen.sum()) >= max(sizes)  # ties may add to it
    assert not chosen.any() or float(p[chosen].max()) <= level * int(chosen.sum()) / len(p)
    assert not chosen.any() or chosen.all() or float(p[chosen].max()) < float(p[~chosen].min())


def test_uniform_pvalues_give_a_list_as_rarely_as_the_level_says():
    p = torch.rand(2000, 30, generator=generator(0, "uniform"), dtype=torch.float64)
    share = sum(bool(benjamini_hochberg(row, 0.1).any()) for row in p) / 2000
    assert abs(share - 0.1) < 0.03  # 4.5 standard errors


Q = GaussianMixture([[0.0, 0.0, 0.0]])


def halves_of(x, seed=0):
    return split_in_halves(Q, scored(Q, x), seed=seed)


def test_every_point_is_judged_by_the_critic_that_was_not_trained_on_it():
    x = Q.sample(61, seed=1)
    halves = halves_of(x)
    rows = torch.cat([half.rows for half in halves])
    assert sorted(rows.tolist()) == list(range(61))
    first, second = halves
    torch.testing.assert_close(first.points.x, x[first.rows])
    expected = first.critic.witness(x[first.rows]).double()
    torch.testing.assert_close(first.held_out.witness, expected, rtol=1e-4, atol=1e-5)
    trained = second.critic.witness(x[first.rows[:30]]).double()  # second's critic was trained on first
    torch.testing.assert_close(second.trained.witness, trained, rtol=1e-4, atol=1e-5)


def test_pvalues_of_model_draws_are_uniform_and_those_of_trained_points_are_not():
    own, trained = [], []
    for seed in range(6):
        halves = halves_of(Q.sample(80, seed=seed), seed=seed)
        own.append(find_points(halves, fdr=0.1, listed=True).pvalues)
        trained += [rank_pvalues(half.trained.witness, half.of_draws.witness) for half in halves]
    error = (1 / 12 / 480) ** 0.5
    assert abs(float(torch.cat(own).mean()) - 0.5) < 4.5 * error
    assert float(torch.cat(trained).mean()) < 0.5 - 4.5 * error


def test_foreign_points_are_listed_first():
    x = Q.sample(300, seed=3)
    x[:9] = x[:9] * 0.3 + 4.0
    found = find_points(halves_of(x), fdr=0.1, listed=True)
    assert set(range(9)) <= set(found.flagged.tolist()) and len(found) <= 13
    assert set(found.worst(9).tolist()) == set(range(9))
    assert not set(found.best(9).tolist()) & set(range(9))
    assert len(find_points(halves_of(x), fdr=0.1, listed=False)) == 0


def test_draws_are_listed_where_data_are_missing():
    x = Q.sample(900, seed=4)
    x = x[x[:, 0] < 0.3][:300]
    missing = find_missing(halves_of(x), fdr=0.1, listed=True)
    assert len(missing) > 50
    flagged = missing.points.x[missing.flagged]
    assert float((flagged[:, 0] > 0.3).double().mean()) > 0.8
    assert len(find_missing(halves_of(Q.sample(300, seed=5)), fdr=0.1, listed=True)) == 0
