import math

import pytest
import torch

from steincritic.data import ScoredPoints
from steincritic.errors import InputError, ModelError
from steincritic.gof.aggregated import FACTORS, KsdAgg, _evidence, kernels_at
from steincritic.gof.choose import gof_test
from steincritic.gof.kernel import Ksd, bootstrap_signs
from steincritic.models import GaussianMixture
from steincritic.rng import generator
from steincritic.stein.kernels import IMQ, RBF
from steincritic.stein.tiles import stein_sums

q = GaussianMixture([[0.0, 0.0], [2.0, 1.0]])
FEW = kernels_at((2.0**-4, 1.0))


def data(n=40, *, seed, stretch=1.0):
    return q.sample(n, seed=10_000 + seed) * stretch


@pytest.mark.parametrize(
    "config",
    [
        KsdAgg(draws=99, reference=199),
        KsdAgg(draws=99, reference=99, statistic="v", kernels=FEW),
        KsdAgg(draws=19, threshold="fresh", kernels=FEW),
    ],
    ids=["wild", "wild few", "fresh"],
)
@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")  # one in a hundred datasets, by chance
def test_level_and_power(config):
    rejections = sum(gof_test(q, data(seed=k), seed=k, test=config).rejected for k in range(400))
    assert 3 <= rejections <= 44  # binomial(400, 0.05), left once in a million
    stretched = [gof_test(q, data(100, seed=k, stretch=1.6), seed=k, test=config) for k in range(10)]
    assert all(result.rejected for result in stretched)


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


@pytest.mark.parametrize("threshold", ["wild", "fresh"])
def test_result_says_which_kernel_was_strongest(threshold):
    config = KsdAgg(threshold=threshold, kernels=FEW, draws=59, reference=99)
    result = gof_test(q, data(seed=1), seed=3, test=config)
    assert result.exact == (threshold == "fresh")
    assert result.null_distribution.shape == (59,)
    assert any(repr(kernel) in result.notes[0] for kernel in FEW)
    assert result.settings["kernels"] == [repr(kernel) for kernel in FEW]
    again = gof_test(q, data(seed=1), seed=3, test=config)
    assert torch.equal(again.null_distribution, result.null_distribution)


def test_fresh_runs_are_standardized_alike():
    """The maximum over one kernel alone orders runs as that kernel's own test does."""
    x = data(seed=1)
    one = gof_test(q, x, test=KsdAgg(threshold="fresh", kernels=(RBF(),), draws=59))
    assert one.pvalue == gof_test(q, x, test=Ksd(threshold="fresh", statistic="u", draws=59)).pvalue


def test_default_kernels_are_rbf_and_imq_at_nine_factors():
    assert FACTORS[0] == 2**-6 and FACTORS[-1] == 4 and len(FACTORS) == 9
    assert KsdAgg().kernels == tuple(RBF(factor=f) for f in FACTORS) + tuple(
        IMQ(scale="median", factor=f) for f in FACTORS
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: gof_test(q, torch.ones(20, 2), test="ksdagg"),
            InputError,
            "median distance between points is zero",
        ),
        (lambda: gof_test(q, torch.ones(1, 2), test="ksdagg"), InputError, "at least 2 points"),
        (lambda: gof_test(q, data(seed=0), test=KsdAgg(draws=18)), InputError, "at least 19"),
        (
            lambda: gof_test((q.score, None), data(seed=0), test=KsdAgg(threshold="fresh")),
            ModelError,
            "no sample",
        ),
        (lambda: KsdAgg(kernels=()), InputError, "at least one kernel"),
        (lambda: KsdAgg(statistic="w"), InputError, "statistic"),
        (lambda: KsdAgg(threshold="z"), InputError, "threshold"),
        (lambda: KsdAgg(reference=1), InputError, "reference"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
