"""The whole diagnosis: gate, coordinates, Fisher bound, and what a model without a sampler gets."""

import json

import numpy as np
import pytest
import torch

import steincritic as sc
from steincritic.data.points import scored
from steincritic.diagnosis.coordinates import _largest_under_null, _ratios, find_coordinates
from steincritic.diagnosis.halves import fisher_bound, split_in_halves
from steincritic.gof.result import GofResult
from steincritic.rng import generator
from steincritic.stein.operator import coordinate_blocks
from steincritic.training.pacing import DEFAULT_STAGING

Q = sc.models.GaussianMixture([[0.0] * 4])
X = Q.sample(200, seed=1)
WRONG = X + torch.tensor([0.0, 0.0, 1.0, 0.0])


def verdict(rejected):
    about = {"level": 0.05, "test": "ksd", "threshold": "fresh", "exact": True, "n": 200, "seed": 0}
    statistic = 2.0 if rejected else -1.0
    return GofResult(statistic=statistic, null_distribution=torch.linspace(0, 1, 99), **about)


@pytest.fixture(scope="module")
def wrong():
    return sc.check(Q, WRONG, test=verdict(True), names=["a", "b", "c", "d"])


def test_a_wrong_coordinate_is_named_first(wrong):
    assert wrong.coordinates[0].name == "c" and wrong.wrong_coordinates[0].name == "c"
    assert wrong.coordinates[0].pvalue <= 0.01 and wrong.coordinates[0].share > 0.5
    assert "Coordinates that do not fit: c" in wrong.summary()
    assert wrong.regions and wrong.regions[0].rule.startswith("c")


def test_the_fisher_divergence_is_bounded_from_below(wrong):
    assert 0.3 < wrong.fisher_lower_bound < 1.0  # the truth is 1
    assert wrong.fisher.lower < wrong.fisher.estimate and "at least" in wrong.summary()


def test_nothing_is_listed_where_the_test_does_not_reject():
    calm = sc.check(Q, WRONG, test=verdict(False))
    assert not calm.findings and not calm.regions and not calm.wrong_coordinates
    assert len(calm.points) == 0 and len(calm.missing) == 0
    assert "No evidence against the model" in calm.summary()


def test_the_result_is_plain_and_shows_itself(wrong):
    plain = json.loads(json.dumps(wrong.to_dict()))
    assert plain["rejected"] and plain["columns"] == ["a", "b", "c", "d"] and plain["rows"] == 200
    assert plain["coordinates"][0]["name"] == "c" and plain["regions"][0]["conditions"]
    assert repr(wrong).startswith("CheckResult(rejected") and "<li>" in wrong._repr_html_()
    assert len(wrong.plot().patches) == 4


def test_a_model_without_a_sampler_has_no_pvalues_of_points():
    found = sc.check((lambda x: -x, None), WRONG, test="ksd")
    assert found.points.pvalues is None and found.missing is None and not found.regions
    assert found.coordinates[0].name == "x3" and found.rejected
    bare = sc.check(None, sc.ScoredPoints(WRONG, -WRONG), test="ksd")
    assert bare.coordinates[0].name == "x3"


@pytest.mark.parametrize(
    ("x", "options", "words"),
    [
        (X[:19], {}, "x has 19 points, too few to see where a model fails"),
        (X, {"names": ["a"]}, "names must name the 4 columns of x, got 1"),
        (X, {"fdr": 0.0}, "level must"),
        (X, {"level": 2.0}, "level must"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused(x, options, words):
    with pytest.raises(sc.InputError, match=words):
        sc.check(Q, x, test=verdict(True), **options)


def test_the_bound_does_not_depend_on_the_units():
    wide = sc.models.GaussianMixture([[0.0] * 4], 100.0)
    halves = [split_in_halves(q, scored(q, x), seed=0) for q, x in ((Q, WRONG), (wide, 10 * WRONG))]
    one, ten = (fisher_bound(half) for half in halves)
    assert ten.lower == pytest.approx(one.lower, rel=0.05)


def test_the_bound_is_below_the_truth_and_in_sample_values_are_not():
    """Draws of the model itself: the truth is zero. Ten at 95 %: more than three once in a thousand."""
    bounds, naive = [], []
    for seed in range(10):
        halves = split_in_halves(Q, scored(Q, Q.sample(100, seed=seed)), seed=seed)
        bounds.append(fisher_bound(halves).lower)
        naive.append(float(halves.first.trained.witness.mean()))
    assert sum(bound > 0 for bound in bounds) <= 3
    assert all(value > 0 for value in naive)


def test_adjusted_pvalues_of_coordinates_keep_their_level(monkeypatch):
    brief = sc.Training(epochs=10), DEFAULT_STAGING  # the level holds for every critic
    monkeypatch.setattr("steincritic.diagnosis.halves.paced", lambda size, **settings: brief)
    smallest = []
    for seed in range(40):
        halves = split_in_halves(Q, scored(Q, Q.sample(60, seed=seed)), seed=seed)
        smallest.append(min(c.pvalue for c in find_coordinates(halves, "abcd", seed=seed)))
    assert sum(p <= 0.05 for p in smallest) <= 8  # of 40 at 5 %: more once in a thousand


def test_the_normal_limit_agrees_with_resampling():
    shares = torch.randn(20_000, 5, generator=generator(0, "shares"), dtype=torch.float64)
    shares[:, 1] = shares[:, 0] + 0.1 * shares[:, 1]
    drawn = _largest_under_null(shares, 500, generator(1, "a"))
    limit = _largest_under_null(shares, 5000, generator(2, "a"))
    assert abs(float(drawn.quantile(0.95) - limit.quantile(0.95))) < 0.25
    assert torch.equal(_ratios(torch.ones(5, 2)), torch.zeros(2))


def test_shares_add_up_to_the_witness():
    critic = sc.fit_critic(Q, X, training=sc.Training(epochs=2))
    shares = critic.shares(X, coordinate_blocks(4))
    torch.testing.assert_close(shares.sum(-1), critic.witness(X), rtol=1e-4, atol=1e-5)
    assert np.shape(shares) == (200, 4)


def test_findings_are_those_of_the_seed_and_do_not_depend_on_the_number_of_threads(wrong):
    """To the last bit: the critics train on one thread, and each thread judges whole pieces."""
    alone = wrong
    torch.set_num_threads(2)
    try:
        together = sc.check(Q, WRONG, test=verdict(True), names=["a", "b", "c", "d"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(alone.points.witness, together.points.witness)
    assert torch.equal(alone.points.pvalues, together.points.pvalues)
    assert alone.coordinates == together.coordinates
    assert alone.regions == together.regions and alone.fisher == together.fisher
    assert alone.to_dict() == together.to_dict()


def test_cautions_stand_under_the_verdict_and_name_columns():
    x = X.clone()
    x[:, 2] = (3 * x[:, 2]).round()
    with pytest.warns(sc.DoubtfulWarning, match="rooms"):
        lines = sc.check(Q, x, test="ksd", names=["a", "b", "rooms", "c"]).summary().splitlines()
    assert lines[0].startswith("The data do not look") and any("Caution: Whole" in line for line in lines)


@pytest.mark.parametrize(
    ("score", "sample", "said"),
    [
        (lambda x: -2 * x, lambda n, seed: Q.sample(n, seed=seed), "Score and sampler disagree"),
        (Q.score, lambda n, seed: Q.sample(n, seed=1), "does not use its seed"),
        (Q.score, lambda n, seed: Q.sample(-(-n // 4), seed=seed).repeat_interleave(4, 0)[:n], "draws"),
    ],
)
def test_a_glance_finds_a_wrong_score_and_a_broken_sampler(score, sample, said):
    result = sc.check(sc.models.PairModel(score, sample), X, test="ksd")
    (problem,) = (problem for problem in result.checkup.problems if said in problem.detail)
    assert f"About the model: {problem.detail}" in result.summary()
    assert result.to_dict()["model_problems"]
