"""Tests with a tolerance: the mathematics behind each, their level on the boundary, and what is refused."""

import json
import math

import pytest
import torch
from scipy.stats import binom, norm

import steincritic as sc
from steincritic.gof.choose import as_tolerance
from steincritic.gof.fisher_ball import FisherTerms, Linear, twice
from steincritic.gof.null import rank_pvalues

Q = sc.models.GaussianMixture(torch.zeros(1, 3, dtype=torch.float64))
LINEAR = {"network": None, "draws": 199}
TESTS = [sc.MomentBox(0.1, draws=199), sc.FisherBall(0.2, **LINEAR)]
every = pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)


def data(n, seed, *, shift=0.0, spread=1.0, model=Q):
    """Draws whose first column is off."""
    x = model.sample(n, seed=seed)
    return torch.cat([x[:, :1] * spread + shift, x[:, 1:]], 1)


def rejections(test, x_of, runs, model=Q):
    sets = sc.ScoredPoints.stack([sc.ScoredPoints(x, model.score(x)) for x in map(x_of, range(runs))])
    results = test.run(model, sets, level=0.05, seeds=list(range(runs)))
    return sum(result.rejected for result in results)


# --- the box of means and spreads


def test_gaps_are_the_plain_differences_with_their_errors():
    x = data(4000, 1, shift=0.2, spread=1.3)
    gaps = {(gap.column, gap.kind): gap for gap in sc.gof_test(Q, x, tolerance=0.05).examined.all}
    mean, spread = gaps[0, "shift"], gaps[0, "spread"]
    assert mean.value == pytest.approx(float(x[:, 0].mean()), abs=0.015)  # the model's 80,000 draws: 4 errors
    assert spread.value == pytest.approx(float(x[:, 0].std()), rel=0.015)
    assert (mean.high - mean.low) / 2 == pytest.approx(1.96 * 1.3 / math.sqrt(4000), rel=0.1)
    assert spread.high / spread.low == pytest.approx(math.exp(2 * 1.96 / math.sqrt(2 * 4000)), rel=0.1)


def test_the_pvalue_of_a_box_is_that_of_the_normal_law_at_its_boundary():
    """One column, far from the other side: P(Z > T), where T is the distance beyond the bound in errors."""
    q = sc.models.GaussianMixture(torch.zeros(1, 1, dtype=torch.float64))
    x = q.sample(5000, seed=3)
    x = (x - x.mean()) / x.std() + 0.10
    result = sc.MomentBox(0.08, draws=3999).run(q, sc.ScoredPoints(x, -x).alone(), level=0.05, seeds=[1])[0]
    alone = norm.sf(result.statistic)
    assert alone <= result.pvalue <= 2.2 * alone + 0.02  # two numbers, a mean and a spread; bootstrap of 3999


@pytest.mark.parametrize(
    "off", [{"shift": 0.1}, {"spread": 1.1}, {"spread": 1 / 1.1}], ids=["mean", "wide", "narrow"]
)
def test_a_box_keeps_its_level_on_the_boundary_and_sees_what_is_beyond(off):
    test, runs = TESTS[0], 100
    assert rejections(test, lambda k: data(400, k, **off), runs) <= binom.ppf(1 - 1e-6, runs, 0.05)
    twice_off = {name: 1 + 3 * (v - 1) if name == "spread" else 3 * v for name, v in off.items()}
    assert rejections(test, lambda k: data(1000, k, **twice_off), 20) >= 18


def test_the_ordinary_test_rejects_what_is_tolerated():
    x = data(10_000, 1, shift=0.06)
    lenses = (sc.lenses.Moments(),)
    assert sc.gof_test(Q, x, sc.Combined(critics=None, lenses=lenses, draws=39, cache=False)).rejected
    tolerant = sc.gof_test(Q, x, tolerance=0.1)
    assert not tolerant.rejected and "no evidence" in tolerant.verdict


def test_a_box_without_draws_goes_by_scores_or_says_why_not():
    only_score = (Q.score, None)
    assert sc.gof_test(only_score, data(2000, 1, shift=0.4), tolerance=0.1).rejected
    within = sc.gof_test(only_score, data(2000, 1, shift=0.05), tolerance=0.1)
    assert not within.rejected and "come from scores" in within.summary()
    with pytest.raises(sc.InputError, match=r'scores alone do not tell .*"fisher:0.1"'):
        far_modes = sc.models.GaussianMixture([[-6.0], [6.0]])
        sc.gof_test((far_modes.score, None), far_modes.sample(300, seed=1), tolerance=0.1)


# --- the Fisher ball


def test_the_linear_field_finds_the_divergence_of_normal_laws_in_closed_form():
    """N(m, σ²) beside N(0, 1): f* = (1/σ² - 1)(x - m) - m, and E|f*|² = m² + (σ - 1/σ)²."""
    m, spread = 0.3, 1.2
    x = data(200_000, 1, shift=m, spread=spread)[None]
    points = sc.ScoredPoints(x, Q.score(x[0])[None])
    terms = Linear.of(points).terms(points)
    found = terms.values(torch.ones(1)).mean()
    assert float(found) == pytest.approx(m**2 + (spread - 1 / spread) ** 2, abs=0.01)  # error about 0.002
    sparse = Linear.of(points, sure=3.0).matrix[0]
    assert int((sparse.abs() > 0.05).sum()) == 2  # of the 12 entries, those of the first column


def test_a_lower_bound_is_below_the_divergence_and_near_it_with_many_points():
    sets = [sc.ScoredPoints(x, Q.score(x)) for x in (data(2000, k, shift=0.4) for k in range(40))]
    results = TESTS[1].run(Q, sc.ScoredPoints.stack(sets), level=0.05, seeds=list(range(40)))
    lower = [result.settings["lower"] for result in results]
    assert sum(bound > 0.16 for bound in lower) <= binom.ppf(1 - 1e-6, 40, 0.05)
    assert sum(lower) / 40 > 0.08


def test_a_fisher_ball_keeps_its_level_on_the_boundary_and_sees_what_is_beyond():
    test, runs = TESTS[1], 100
    assert rejections(test, lambda k: data(600, k, shift=0.2), runs) <= binom.ppf(1 - 1e-6, runs, 0.05)
    assert rejections(test, lambda k: data(2000, k, shift=0.5), 20) >= 18


def test_a_network_finds_what_no_linear_field_sees():
    """Two modes with the mean and the spread of the model, which is normal."""
    q = sc.models.GaussianMixture([[0.0]])
    x = sc.models.GaussianMixture([[-0.9], [0.9]], 0.19).sample(1000, seed=1)
    training = sc.Training(epochs=40, batch_size=50, learning_rate=5e-3)
    by_network = sc.FisherBall(0.3, network=sc.MLP(hidden=(32, 32)), training=training, draws=199)
    assert sc.gof_test(q, x, by_network).rejected
    assert not sc.gof_test(q, x, sc.FisherBall(0.3, **LINEAR)).rejected
    with pytest.raises(sc.InputError, match="40 points or more"):
        sc.gof_test(q, x[:20], by_network)


def test_twice_the_null_gives_twice_the_pvalue():
    null = torch.randn(999, generator=torch.Generator().manual_seed(1)).double()
    at = torch.tensor([-0.2, 0.5, 1.0, 2.0]).double()
    doubled = rank_pvalues(at, twice(null))
    assert torch.allclose(doubled, (2 * rank_pvalues(at, null)).clamp(max=1), atol=2 / 1000)


def test_terms_of_the_bound_are_largest_at_the_best_factor():
    terms = FisherTerms(torch.tensor([[0.3, 0.5]]), torch.tensor([[1.0, 1.0]]))
    best = terms.best_factor()
    assert float(best) == pytest.approx(0.4)
    assert float(terms.values(best).mean()) == pytest.approx(0.16)


# --- what holds for all of them


@every
def test_the_seed_decides_and_a_stack_gives_what_each_gives_alone(test):
    points = sc.ScoredPoints(x := data(80, 1), Q.score(x))
    together = test.run(Q, sc.ScoredPoints.stack([points, points]), level=0.05, seeds=[1, 2])
    alone = [test.run(Q, points.alone(), level=0.05, seeds=[seed])[0] for seed in (1, 2)]
    assert [r.pvalue for r in together] == [r.pvalue for r in alone]
    assert [r.statistic for r in together] == pytest.approx([r.statistic for r in alone])


@every
def test_a_result_says_what_was_asked(test):
    far = sc.gof_test(Q, data(300, 1, shift=3.0), tolerance=test)
    assert far.rejected and far.verdict.startswith("Wrong by more than is tolerated: yes (p")
    assert "Tolerated: " in far.verdict and far.tolerance.null in far.summary()
    told = json.loads(json.dumps(far.to_dict(), default=str))
    assert told["tolerance"]["null"] == far.tolerance.null and told["test"] == test.name
    near = sc.gof_test(Q, data(300, 1), tolerance=test)
    assert not near.rejected and "Wrong by more than is tolerated: no evidence" in near.summary()


def test_columns_are_called_by_their_names():
    told = sc.gof_test(Q, data(2000, 1, shift=0.5), tolerance=0.1, names=["age", "income", "size"]).summary()
    assert "Beyond the tolerance: the mean of age is off by 0.5" in told
    assert "Not shown to be beyond it: income, size" in told


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (0.05, sc.MomentBox),
        ("0.05", sc.MomentBox),
        ("fisher:0.1", sc.FisherBall),
    ],
)
def test_a_tolerance_stands_for_a_test(given, kind):
    assert isinstance(as_tolerance(given), kind)
    assert as_tolerance(as_tolerance(given)) == as_tolerance(given)


@pytest.mark.parametrize(
    "wrong", [-0.1, 0.0, 5, 1.0, True, math.nan, "5 %", "fischer:0.1", "fisher:-1", "fisher:"]
)
def test_a_tolerance_that_makes_no_sense_gets_one_line(wrong):
    with pytest.raises(sc.InputError) as error:
        sc.gof_test(Q, Q.sample(50, seed=1), tolerance=wrong)
    assert "\n" not in str(error.value) and ("got" in str(error.value))


def test_a_test_and_a_tolerance_are_one_too_many():
    with pytest.raises(sc.InputError, match="pass test or tolerance, not both"):
        sc.gof_test(Q, Q.sample(50, seed=1), "ksd", tolerance=0.05)


def test_columns_with_bounds_are_looked_at_as_they_are():
    q = torch.distributions.Exponential(torch.tensor([1.0, 2.0]).double())
    x = sc.as_model(q).sample(4000, seed=3)
    inside, outside = (sc.gof_test(q, x * factor, tolerance=0.1) for factor in (1.03, 1.4))
    assert not inside.rejected and outside.rejected
    value = outside.settings["columns"][0]["value"]  # 0.4 of a standard deviation, or 1.4 times the spread
    assert abs(value - 0.4) < 0.1 or abs(value - 1.4) < 0.1
