"""Every threshold at its level, the ones that must miss it, and the doubts they state.

The witness of f(x) = x for a standard normal model is 1 - x^2: mean zero, skewness -2.8. No critic is
trained here: given the critic, a threshold sees numbers.
"""

import math
import re

import pytest
import torch

from steincritic import ScoredPoints
from steincritic.critics import MLP
from steincritic.errors import InputError, ModelError
from steincritic.gof.choose import gof_test
from steincritic.gof.null import (
    bootstrap_t,
    mean_gap,
    permutation,
    pooled_bootstrap,
    studentized,
)
from steincritic.gof.split import Split
from steincritic.gof.thresholds import (
    FRESH_NUMBERS,
    THRESHOLDS,
    ModelWitness,
    Request,
    choose_threshold,
    dependence,
)
from steincritic.models import GaussianMixture
from steincritic.rng import Source, generator
from steincritic.training import Training, fixed
from steincritic.training import fit as fit_module

LEVEL = 0.05
RUNS = 400
FEWEST, MOST = 3, 44  # rejections in 400 runs at 5 %: outside once in a million (binomial)
Q = GaussianMixture([[0.0]])
PLANE = GaussianMixture([[0.0, 0.0]])
TINY = {
    "network": MLP(hidden=(6,)),
    "staging": fixed(1.0),
    "training": Training(epochs=10, batch_size=20, learning_rate=2e-2, dtype="float64"),
    "draws": 99,
}


def left_skewed(points):
    return 1 - points.x[:, 0] ** 2


def request(seed=0, *, draws=99, pool=3):
    return Request(draws=draws, pool=pool, seed=seed)


def calibrated(name, values, seed=0, **settings):
    draw = ModelWitness(Q, left_skewed, like=values[:, None], seed=seed)
    return THRESHOLDS[name](values, draw, request(seed, **settings))


def pvalue(statistic, null):
    return (1 + int((null >= statistic).sum())) / (1 + len(null))


def witness_of_model_draws(n, seed):
    x = Q.sample(n, seed=10**6 + seed)
    return left_skewed(ScoredPoints(x, -x))


def rejections(name, n, **settings):
    count = 0
    for seed in range(RUNS):
        null = calibrated(name, witness_of_model_draws(n, seed), seed, **settings)
        count += pvalue(null.statistic, null.null_distribution) <= LEVEL
    return count


@pytest.mark.parametrize(
    ("name", "n", "settings"),
    [
        ("fresh", 20, {}),
        ("permutation", 20, {"pool": 1}),
        ("permutation", 5, {"pool": 3}),
        ("pooled", 20, {"pool": 50}),
        ("bootstrap-t", 100, {}),
    ],
)
def test_the_level_is_kept(name, n, settings):
    assert FEWEST <= rejections(name, n, **settings) <= MOST


def test_z_misses_its_level_on_few_points_of_a_left_skewed_witness():
    """The twin that must fail: the same ratio beside the normal law."""
    ratios = [studentized(witness_of_model_draws(20, seed)) for seed in range(RUNS)]
    assert sum(float(ratio) >= 1.645 for ratio in ratios) > MOST  # about 59: the size is near 15 %


def test_a_pool_that_is_small_and_not_centered_misses_its_level():
    def rejected(seed):
        pool = witness_of_model_draws(20, 10**7 + seed)
        null = pooled_bootstrap(pool, 20, draws=99, source=Source(seed), centered=False)
        return pvalue(witness_of_model_draws(20, seed).mean(), null) <= LEVEL

    assert sum(map(rejected, range(2 * RUNS))) > 74  # 1 - Phi(1.645 / sqrt 2) is 12 %; 5 %: once in a million


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_witness_that_is_far_from_zero_is_rejected(name):
    values = witness_of_model_draws(100, 3) + 1.0
    null = calibrated(name, values, draws=199, pool=20)
    assert pvalue(null.statistic, null.null_distribution) <= LEVEL
    assert null.exact == (name in ("fresh", "permutation"))
    assert len(null.null_distribution) == 199


def test_permutation_needs_no_stein_identity():
    """A constant added to the witness of points and pool alike changes nothing but rounding."""
    values, pool = witness_of_model_draws(30, 0), witness_of_model_draws(90, 1)
    null = permutation(values, pool, draws=99, source=Source(0))
    shifted = permutation(values + 7, pool + 7, draws=99, source=Source(0))
    torch.testing.assert_close(shifted, null, rtol=0, atol=1e-12)  # rounding of sums near 7


@pytest.mark.parametrize(("n", "m"), [(3, 4), (4, 3)])
def test_permutation_takes_every_split_equally_often(n, m):
    values, pool = 2.0 ** torch.arange(n).double(), 2.0 ** torch.arange(n, n + m).double()
    null = permutation(values, pool, draws=70_000, source=Source(0))
    seen, counts = null.mul(1e6).round().unique(return_counts=True)
    expected = 70_000 / math.comb(n + m, n)
    assert len(seen) == math.comb(n + m, n)  # powers of two: every split has its own sum
    assert float((counts - expected).abs().max()) < 5 * math.sqrt(expected)  # 5 standard errors
    assert bool((null == mean_gap(values, pool)).any())


def test_values_that_are_all_equal_are_ties():
    values = torch.full((7,), 0.1, dtype=torch.float64)
    null = permutation(values, values.repeat(3), draws=50, source=Source(0))
    assert pvalue(mean_gap(values, values.repeat(3)), null) == 1.0


def test_bootstrap_t_against_its_formula():
    values = witness_of_model_draws(12, 0)
    null = bootstrap_t(values, draws=5, source=Source(4))
    index = Source(4).integers(12, 5, 12)
    for row, got in zip(index, null, strict=True):
        again = values[row]
        assert float(got) == pytest.approx(float((again.mean() - values.mean()) / (again.std() / 12**0.5)))


def test_a_small_pool_is_doubted_by_pooled_alone():
    values = witness_of_model_draws(50, 0)
    assert "20" in calibrated("pooled", values, pool=19).doubts[0]
    assert not calibrated("pooled", values, pool=20).doubts
    assert not calibrated("permutation", values, pool=1).doubts


def test_a_pool_far_from_zero_is_doubted():
    values = witness_of_model_draws(50, 0)
    draw = ModelWitness(Q, lambda points: left_skewed(points) + 1, like=values[:, None], seed=0)
    assert "disagree" in THRESHOLDS["pooled"](values, draw, request(pool=50)).doubts[0]


class Chain(GaussianMixture):
    """An autoregressive chain whose law is the model's, but whose draws depend on each other."""

    def sample(self, n, *, seed=0):
        noise, x = super().sample(n, seed=seed), torch.empty(n, self.dim, dtype=torch.float64)
        x[0] = noise[0]
        for k in range(1, n):
            x[k] = 0.9 * x[k - 1] + (1 - 0.81) ** 0.5 * noise[k]
        return x


class Stock(GaussianMixture):
    """Draws from a stock of fifty points."""

    def sample(self, n, *, seed=0):
        index = torch.randint(50, (n,), generator=generator(seed))
        return super().sample(50, seed=0)[index]


class Worthless(GaussianMixture):
    def effective_sample_size(self, x):
        return len(x) / 10


@pytest.mark.parametrize(
    ("kind", "words"), [(Chain, "correlation 0.[78]"), (Stock, "repeat"), (Worthless, "worth 40")]
)
def test_dependent_draws_are_doubted_and_not_called_exact(kind, words):
    model, values = kind([[0.0]]), witness_of_model_draws(20, 0)
    draw = ModelWitness(model, left_skewed, like=values[:, None], seed=0)
    null = THRESHOLDS["permutation"](values, draw, request(pool=20))
    (doubt,) = null.doubts
    assert not null.exact
    assert re.search(words, doubt)


def test_independent_draws_are_not_doubted():
    found = [dependence(Q, x := Q.sample(500, seed=s), left_skewed(ScoredPoints(x, -x))) for s in range(200)]
    assert not any(found)


def test_a_broken_effective_sample_size_is_a_model_error():
    class Broken(GaussianMixture):
        def effective_sample_size(self, x):
            raise OSError("no such chain")

    with pytest.raises(ModelError, match="no such chain"):
        dependence(Broken([[0.0]]), torch.zeros(3, 1), torch.zeros(3))


def test_auto_takes_what_the_model_allows():
    most = FRESH_NUMBERS // 1000

    def chosen(model, n, dim=1):
        return choose_threshold("auto", model, n=n, dim=dim, draws=1000)

    assert chosen(Q, most) == "fresh"
    assert chosen(Q, most + 1) == chosen(Q, most, dim=2) == "permutation"
    assert chosen((lambda x: -x, None), 10) == chosen(None, 10) == "bootstrap-t"
    assert choose_threshold("fresh", Q, n=10**6, dim=1, draws=99) == "fresh"


def test_points_that_are_all_alike_have_no_spread():
    with pytest.raises(InputError, match="no spread"):
        calibrated("bootstrap-t", torch.ones(30, dtype=torch.float64))


@pytest.mark.parametrize("threshold", ["permutation", "bootstrap-t"])
@pytest.mark.parametrize(("shift", "rejects"), [(0.0, False), (1.0, True)])
@pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")
def test_the_split_test_with_each_threshold(threshold, shift, rejects):
    config = Split(threshold=threshold, **TINY)
    result = gof_test(
        PLANE,
        PLANE.sample(120, seed=2) + shift,
        test=config,
        seed=0,
    )
    assert result.rejected == rejects
    assert result.threshold == threshold and result.exact == (threshold == "permutation")


def test_tested_points_are_not_trained_on(monkeypatch):
    trained = []
    init = fit_module._Run.__init__

    def watched(self, points, *arguments):
        trained.append(points.x)
        init(self, points, *arguments)

    monkeypatch.setattr(fit_module._Run, "__init__", watched)
    x = PLANE.sample(40, seed=2)
    result = gof_test(
        PLANE,
        x,
        test=Split(train=0.25, standardize=False, **TINY),
        seed=0,
    )
    assert trained[0].shape == (1, 10, 2) and result.n == 30
    rows = {tuple(row) for row in x.tolist()}
    assert {tuple(row) for row in trained[0][0].tolist()} < rows


def test_a_score_that_is_not_finite_on_model_draws_gives_no_result():
    """NaN compares as smaller than anything, so it would pass for evidence."""

    class Torn(GaussianMixture):
        def score(self, x):
            return torch.where(x > 2.5, torch.nan, super().score(x))

    x = PLANE.sample(200, seed=1).clamp(max=2.0)
    with pytest.raises(InputError, match="score is not finite at"):
        gof_test(
            Torn([[0.0, 0.0]]),
            x,
            test=Split(**TINY),
        )


@pytest.mark.gpu
@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")
def test_thresholds_on_an_accelerator(threshold):
    config, x = Split(threshold=threshold, **TINY), PLANE.sample(120, seed=1).cuda()
    for shift, rejects in ((0.0, False), (1.0, True)):
        result = gof_test(
            PLANE.to("cuda"),
            x + shift,
            test=config,
            seed=0,
        )
        assert result.rejected == rejects and result.null_distribution.device.type == "cpu"
