"""What a p-value takes for granted: seen where it does not hold, and not where it does."""

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import steincritic as sc
from steincritic.data.points import scored
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.gof.assumptions import (
    dependence_of_rows,
    discrete_columns,
    find_caveats,
    unseen_weights,
)
from steincritic.rng import generator

QUICK = sc.Combined(critics=None, draws=99, reference=50, cache=False)
PLANE = sc.models.GaussianMixture([[0.0, 0.0]])


def chain(n, dim, correlation, seed):
    """A stationary autoregression with standard normal rows."""
    noise = torch.randn(n, dim, generator=generator(seed, "chain"), dtype=torch.float64)
    rows = [noise[0]]
    for step in noise[1:]:
        rows.append(correlation * rows[-1] + math.sqrt(1 - correlation**2) * step)
    return torch.stack(rows)


def kinds(model, x, **options):
    model = None if model is None else sc.as_model(model)
    points = x if isinstance(x, sc.ScoredPoints) else scored(model, x)
    return [caveat.kind for caveat in find_caveats(model, points, **options)]


@pytest.mark.parametrize(("n", "dim"), [(50, 1), (200, 5), (1000, 30)])
def test_good_data_get_no_word_in_98_of_100(n, dim):
    q = sc.models.GaussianMixture([[0.0] * dim])
    told = sum(bool(kinds(q, q.sample(n, seed=k), by_scores=True)) for k in range(100, 200))
    assert told <= 4  # binomial(100, 0.01), left four times in a thousand


def test_heavy_tails_alone_are_no_dependence():
    cauchy = [torch.randn(2, 200, 3, generator=generator(k, "cauchy")).double() for k in range(100)]
    assert sum(dependence_of_rows(a / b) is not None for a, b in cauchy) <= 4


@pytest.mark.parametrize("correlation", [0.5, -0.5, 0.9])
def test_dependent_rows_are_found_in_95_of_100(correlation):
    found = sum(
        dependence_of_rows(chain(200, 2, correlation, seed)) is not None for seed in range(1000, 1100)
    )
    assert found >= 95


def test_sorted_rows_are_not_called_dependent():
    x = PLANE.sample(300, seed=1)
    assert kinds(PLANE, x[x[:, 0].argsort()]) == []


def test_repeated_rows():
    x = PLANE.sample(150, seed=2)
    assert "repeated rows" in kinds(PLANE, torch.cat([x, x])[torch.randperm(300, generator=generator(1))])
    once = torch.cat([x, x[:1]])
    assert kinds(PLANE, once) == []


def test_rows_that_rounding_makes_alike_are_not_called_repeated():
    q = sc.models.GaussianMixture([[0.0]])
    assert kinds(q, (100 * q.sample(400, seed=2)).round() / 100) == []


def test_chains_that_have_hardly_mixed_are_told_where_they_make_the_null_sets():
    q = sc.models.GaussianMixture([[0.0, 0.0]])
    q.tuned = SimpleNamespace(mixed=False, rhat=1.4)
    x = q.sample(100, seed=1)
    assert kinds(q, x) == ["unmixed chains"] and kinds(q, x, by_scores=True) == []


def test_rounded_and_whole_columns_are_all_named():
    q = sc.models.GaussianMixture([[0.0] * 4], 9.0)
    x = q.sample(300, seed=3)
    x[:, 1] = x[:, 1].round()
    x[:, 3] = x[:, 3].round()
    x[:, 2] = (x[:, 2] * 2).round() / 2
    found = find_caveats(q, scored(q, x), ["height", "children", "shoe size", "rooms"])
    told = {caveat.kind: caveat.detail for caveat in found}
    assert "children, rooms" in told["discrete columns"]
    assert "shoe size" in told["rounded columns"] and "height" not in str(told)


def test_constant_columns_and_flat_data_are_told_before_the_p_value():
    q = sc.models.GaussianMixture([[0.0] * 3])
    x = q.sample(100, seed=5)
    constant = x.clone()
    constant[:, 1] = 0.7
    flat = x.clone()
    flat[:, 2] = flat[:, 0] + flat[:, 1]
    for data, word in ((constant, "x2 = 0.7"), (flat, "x1, x2, x3 decide each other")):
        with pytest.warns(DoubtfulWarning):
            lines = sc.gof_test(q, data, QUICK).summary().splitlines()
        assert lines[0].startswith("Read this first") and word in lines[0]
        assert "p <" in lines[1] or "p =" in lines[1]


@pytest.mark.parametrize("dim", [1, 2, 10])
def test_a_mixture_fitted_to_the_rows_is_found_and_held_out_rows_are_not(dim):
    mixture = pytest.importorskip("sklearn.mixture")
    seen = held_out = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x, other = rng.gamma(2.0, size=(2, 300, dim))
        fitted = mixture.GaussianMixture(10, random_state=0).fit(x)
        seen += "fitted to these rows" in kinds(fitted, x)
        held_out += "fitted to these rows" in kinds(fitted, other)
    assert seen >= 9 and held_out == 0


EDGED = {  # log-density on the half line, and draws from it
    "exponential": (lambda x: -x.sum(-1), lambda z: -z.sigmoid().log()),
    "half normal": (lambda x: -x.square().sum(-1) / 2, lambda z: z.abs()),
}


@pytest.mark.parametrize("name", EDGED)
def test_an_edge_where_the_density_does_not_vanish_is_named(name):
    log_density, draws = EDGED[name]
    z = torch.randn(300, 2, generator=generator(6), dtype=torch.float64)
    x = draws(torch.special.ndtr(z).logit() if name == "exponential" else z)
    assert kinds(log_density, x, by_scores=True) == ["edges of the support"]
    assert kinds(log_density, x) == []  # a test by draws of the model has no such trouble


def test_an_edge_is_told_beside_the_verdict_where_scores_alone_are_used():
    z = torch.randn(200, 1, generator=generator(7), dtype=torch.float64).abs()
    with pytest.warns(DoubtfulWarning, match="The data stop at x1"):
        result = sc.gof_test(lambda x: -x.square().sum(-1) / 2, z, "ksd")
    assert "Caution: The data stop" in result.summary()
    assert result.to_dict()["caveats"][0]["kind"] == "edges of the support"


@pytest.mark.parametrize("test", [QUICK, sc.Ksd(draws=199)])
@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
def test_dependent_rows_keep_the_level_where_it_is_said_that_they_are(test):
    """The control: the same tests reject far too often where it is not said."""
    sets = [chain(300, 2, 0.6, 5000 + seed) for seed in range(60)]
    rejected = [sc.gof_test(PLANE, x, test, seed=k, dependent=True).rejected for k, x in enumerate(sets)]
    silent = [sc.gof_test(PLANE, x, test, seed=k).rejected for k, x in enumerate(sets[:20])]
    assert sum(rejected) <= 9  # binomial(60, 0.05), left three times in a thousand
    assert sum(silent) >= 6  # binomial(20, 0.05) reaches that three times in ten thousand


def test_dependent_rows_say_what_was_done_and_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = sc.gof_test(PLANE, chain(300, 2, 0.6, 1), QUICK, dependent=True)
    assert not result.exact and "Rows were taken as dependent" in result.summary()
    assert sc.gof_test(PLANE, chain(400, 2, 0.5, 2) + 1.0, QUICK, dependent=True).rejected


def test_a_test_without_signs_cannot_take_dependent_rows():
    with pytest.raises(InputError, match="ksdagg; got crossfit"):
        sc.gof_test(PLANE, PLANE.sample(100, seed=1), "crossfit", dependent=True)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_points_far_away_are_rejected_where_the_model_can_be_sampled(n):
    result = sc.gof_test(PLANE, PLANE.sample(n, seed=1) + 100)
    assert result.rejected and result.exact


def test_few_points_without_a_sampler_cannot_reject_and_say_so_first():
    with pytest.warns(DoubtfulWarning, match="cannot reject"):
        result = sc.gof_test((PLANE.score, None), PLANE.sample(4, seed=1) + 100)
    assert not result.rejected
    assert result.summary().startswith("Read this first: 4 points cannot give a p-value below 0.12")


def test_rows_outside_the_support_are_told_first():
    log_density = lambda x: 2 * x.log().sum(-1) - x.sum(-1)  # noqa: E731
    x = torch.randn(200, 1, generator=generator(8), dtype=torch.float64)
    found = find_caveats(sc.as_model(log_density), scored(log_density, x))
    assert found[0].kind == "outside the support" and found[0].grave


def test_a_score_with_its_sign_turned_is_told():
    x = PLANE.sample(200, seed=9)
    assert "scores that point outward" in kinds((lambda y: y, None), x, by_scores=True)
    halves = sc.models.GaussianMixture([[-3.0], [3.0]], 1.0)
    assert "scores that point outward" not in kinds(halves, halves.sample(300, seed=1), by_scores=True)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_a_score_that_may_be_off_by_a_factor_is_told(factor):
    x = PLANE.sample(300, seed=9)
    told = "one factor in all columns"
    assert (told in kinds((lambda y: factor * PLANE.score(y), None), x)) == (factor != 1)
    assert told not in kinds((lambda y: PLANE.score(y) * torch.tensor([1.0, factor]), None), x)
    assert told not in kinds(PLANE, 2 * x)  # draws of the model show that its score is right


def test_row_numbers_are_told_and_are_no_dependence():
    x = PLANE.sample(200, seed=10)
    x[:, 1] = torch.arange(200) + 7
    assert kinds(PLANE, torch.cat([x[100:], x[:100]])) == ["row numbers"]


def test_slow_rows_that_are_worth_few_say_so_first():
    with pytest.warns(DoubtfulWarning, match="can hardly reject"):
        result = sc.gof_test(PLANE, chain(200, 2, 0.97, 3), QUICK, dependent=True)
    assert result.summary().startswith("Read this first: Rows change so slowly")


FAR = sc.models.GaussianMixture([[0.0] * 5, [8.0] + [0.0] * 4], 1.0, [0.6, 0.4])  # apart in one column


def test_scores_alone_do_not_see_weights_of_separate_groups():
    x = FAR.sample(200, seed=2)
    with pytest.warns(DoubtfulWarning, match="2 separate groups.*Give the model a sampler"):
        result = sc.gof_test((FAR.score, None), x, sc.Combined(critics=None))
    assert [caveat.kind for caveat in result.caveats] == ["weights of modes"]
    with pytest.warns(DoubtfulWarning, match="The combined test sees them"):
        sc.gof_test(FAR, x, "ksd")
    assert not sc.gof_test(FAR, x, QUICK).caveats  # counts draws


class Noised:
    score, with_noise = FAR.score, FAR.with_noise


def test_noised_scores_see_them():
    result = sc.gof_test(Noised(), FAR.sample(200, seed=2), sc.Combined(critics=None))
    assert not result.caveats and "noise" in result.settings["lenses"]


@pytest.mark.parametrize("n", [100, 400])
def test_one_group_is_not_taken_for_several(n):
    wide = torch.distributions.Independent(torch.distributions.StudentT(torch.full((3,), 5.0)), 1)
    for q in (sc.models.GaussianMixture([[0.0] * 20]), sc.models.GaussianMixture([[0.0], [2.0]]), wide):
        model = sc.as_model(q)
        told = [list(unseen_weights(None, scored(model, model.sample(n, seed=k)))) for k in range(20)]
        assert sum(map(bool, told)) <= 1


def test_a_sampler_that_stays_where_it_is_rounds_nothing():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0)).repeat_interleave(5, dim=0)
    assert discrete_columns(x) == ([], []) and discrete_columns(x.round(decimals=1))[1] == [0, 1]
