import json
import math

import pytest
import torch

from steincritic.data import ScoredPoints
from steincritic.gof.choose import gof_test
from steincritic.gof.kernel import Ksd, KsdAgg, _evidence, bootstrap_signs, kernels_at
from steincritic.models import GaussianMixture
from steincritic.rng import generator
from steincritic.stein.kernels import IMQ, RBF
from steincritic.stein.tiles import ksd, stein_sums

q = GaussianMixture([[0.0, 0.0], [2.0, 1.0]])
FEW = kernels_at((2.0**-4, 1.0))
CONFIGS = [
    Ksd(draws=99),
    Ksd(draws=99, kernel=IMQ(), statistic="u", flip=0.4),
    Ksd(draws=19, threshold="fresh"),
    Ksd(draws=19, threshold="fresh", statistic="u", kernel=IMQ(scale="median")),
    KsdAgg(draws=99, reference=199),
    KsdAgg(draws=99, reference=99, statistic="v", kernels=FEW),
    KsdAgg(draws=19, threshold="fresh", kernels=FEW),
]


def data(n=40, *, seed, stretch=1.0):
    return q.sample(n, seed=10_000 + seed) * stretch


@pytest.mark.parametrize(
    "config", CONFIGS, ids=lambda config: f"{config.name} {config.threshold} {config.statistic}"
)
@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")  # one in a hundred datasets, by chance
def test_level_and_power(config):
    rejections = sum(gof_test(q, data(seed=k), seed=k, test=config).rejected for k in range(400))
    assert 3 <= rejections <= 44  # binomial(400, 0.05), left once in a million
    stretched = [gof_test(q, data(100, seed=k, stretch=1.6), seed=k, test=config) for k in range(10)]
    assert all(result.rejected for result in stretched)


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")  # one in a hundred datasets, by chance
def test_sign_chain_holds_the_level_of_dependent_rows_where_free_signs_do_not():
    """A stationary chain with law N(0, 1) and correlation 0.8 between neighbors."""
    normal = GaussianMixture([[0.0]])
    rejections = {0.5: 0, 0.05: 0}
    for run in range(60):
        noise = normal.sample(200, seed=run)
        rows = [noise[0]]
        for step in noise[1:]:
            rows.append(0.8 * rows[-1] + 0.6 * step)
        for flip in rejections:
            config = Ksd(draws=99, flip=flip)
            rejections[flip] += gof_test(normal, torch.stack(rows), seed=run, test=config).rejected
    assert rejections[0.5] > 20  # 60 runs: chance at level 5 % is below 1e-12
    assert rejections[0.05] < rejections[0.5] / 2


@pytest.mark.parametrize("statistic", ["v", "u"])
@pytest.mark.parametrize("threshold", ["wild", "fresh"])
def test_result_is_that_of_the_statistic_and_of_the_seed(statistic, threshold):
    config = Ksd(kernel=RBF(factor=0.5), statistic=statistic, threshold=threshold, draws=59)
    x = data(seed=1)
    result = gof_test(q, x, seed=3, test=config)
    expected = ksd(ScoredPoints(x, q.score(x)), RBF(factor=0.5), statistic)
    assert result.statistic == pytest.approx(expected, rel=1e-12)
    assert result.exact == (threshold == "fresh")
    assert json.loads(json.dumps(result.to_dict()))["settings"]["kernel"] == repr(config.kernel)


def test_u_and_v_have_one_wild_p_value():
    for k in range(20):
        v, u = (gof_test(q, data(seed=k), test=Ksd(statistic=s, draws=99)).pvalue for s in ("v", "u"))
        assert v == u


def test_float32_gives_nearly_the_same_null():
    x = data(seed=1)
    double, single = gof_test(q, x, test="ksd"), gof_test(q, x.float(), test="ksd")
    torch.testing.assert_close(single.null_distribution, double.null_distribution, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")  # one in a hundred datasets, by chance
def test_finds_a_difference_that_the_median_bandwidth_misses():
    """Modes far apart, so that the median distance is far too long; data with narrower modes."""
    wide = GaussianMixture([[0.0, 0.0], [8.0, 0.0]], 1.0)
    narrow = GaussianMixture([[0.0, 0.0], [8.0, 0.0]], 0.5)
    runs = [
        (
            gof_test(wide, x, test="ksdagg", seed=k).pvalue,
            gof_test(wide, x, seed=k, test=Ksd(kernel=RBF())).pvalue,
        )
        for k, x in ((k, narrow.sample(60, seed=k)) for k in range(10))
    ]
    assert sum(aggregated <= 0.05 for aggregated, _ in runs) > sum(median <= 0.05 for _, median in runs)


def by_bisection(observed, reference, second, level):
    """The procedure of [schrab2022]: the largest common level u whose rejection rate on the second set keeps
    to the level, then one comparison a kernel."""
    pool = torch.cat([reference, observed[:, None]], -1).sort(-1).values  # (k, b + 1)
    size = pool.shape[-1]

    def quantiles(u):
        return pool[:, math.ceil(size * (1 - u)) - 1]

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        rate = float((second > quantiles(middle)[:, None]).any(0).double().mean())
        low, high = (middle, high) if rate <= level else (low, middle)
    return bool((observed > quantiles(low)).any())


def test_decisions_are_those_of_the_bisection():
    config = KsdAgg(draws=199, reference=499, kernels=FEW)
    agree = rejected = 0
    for k in range(60):
        x = data(seed=k, stretch=1 + 0.3 * (k % 2))
        result = gof_test(q, x, seed=k, test=config)
        points = ScoredPoints(x, q.score(x))
        sums = stein_sums(points, FEW, signs=bootstrap_signs(points, 698, flip=0.5, seed=k))
        reference, second = sums.bootstrap("u").split([499, 199], -1)
        agree += by_bisection(sums.statistic("u"), reference, second, 0.05) == result.rejected
        rejected += result.rejected
    assert agree >= 58  # they part on ties of whole ranks, and on counting the observed value
    assert 5 < rejected < 55  # both decisions are common here


def test_evidence_is_minus_the_logarithm_of_the_p_value_and_grows():
    reference = torch.randn(1, 99, generator=generator(0, "test"), dtype=torch.float64)
    values = torch.linspace(-6, 9, 400, dtype=torch.float64)[None]
    evidence = _evidence(values, reference)[0]
    counted = ((reference[0] >= values[0][:, None]).sum(-1) + 1) / 100
    assert bool((evidence.diff() >= 0).all())
    assert bool((10**-evidence <= counted + 1e-12).all())
    inside = values[0] <= reference.max()
    assert bool((10**-evidence >= counted - 0.01 - 1e-12)[inside].all())
    assert float(evidence[0]) == 0 and float(evidence[-1]) > 2


def test_fresh_runs_are_standardized_alike():
    """The maximum over one kernel alone orders runs as that kernel's own test does."""
    x = data(seed=1)
    one = gof_test(q, x, test=KsdAgg(threshold="fresh", kernels=(RBF(),), draws=59))
    assert one.pvalue == gof_test(q, x, test=Ksd(threshold="fresh", statistic="u", draws=59)).pvalue
