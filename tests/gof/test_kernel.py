import json

import pytest
import torch

from steincritic.data import ScoredPoints
from steincritic.errors import InputError, ModelError
from steincritic.gof.choose import gof_test
from steincritic.gof.kernel import Ksd
from steincritic.models import GaussianMixture
from steincritic.stein.kernels import IMQ, RBF
from steincritic.stein.tiles import ksd

q = GaussianMixture([[0.0, 0.0], [2.0, 1.0]])
CONFIGS = [
    Ksd(draws=99),
    Ksd(draws=99, kernel=IMQ(), statistic="u", flip=0.4),
    Ksd(draws=19, threshold="fresh"),
    Ksd(draws=19, threshold="fresh", statistic="u", kernel=IMQ(scale="median")),
]


def data(n=40, *, seed, stretch=1.0):
    return q.sample(n, seed=10_000 + seed) * stretch


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
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
    assert (result.test, result.threshold, result.n) == ("ksd", threshold, 40)
    assert result.null_distribution.shape == (59,)
    again = gof_test(q, x, seed=3, test=config)
    assert torch.equal(again.null_distribution, result.null_distribution)
    other = gof_test(q, x, seed=4, test=config)
    assert not torch.equal(other.null_distribution, result.null_distribution)
    assert json.loads(json.dumps(result.to_dict()))["settings"]["kernel"] == repr(config.kernel)


def test_u_and_v_have_one_wild_p_value():
    for k in range(20):
        v, u = (gof_test(q, data(seed=k), test=Ksd(statistic=s, draws=99)).pvalue for s in ("v", "u"))
        assert v == u


def test_fresh_draws_do_not_depend_on_how_many_go_together(monkeypatch):
    config = Ksd(threshold="fresh", draws=59)
    result = gof_test(q, data(seed=1), test=config)
    monkeypatch.setattr("steincritic.gof.null._TOGETHER", 7 * 40**2)
    apart = gof_test(q, data(seed=1), test=config)
    torch.testing.assert_close(apart.null_distribution, result.null_distribution, rtol=1e-10, atol=0)


def test_scored_points_need_no_model():
    x = data(seed=1)
    with_model = gof_test(q, x, test="ksd")
    without = gof_test(None, ScoredPoints(x, q.score(x)), test="ksd")
    assert without.pvalue == with_model.pvalue


def test_float32_gives_nearly_the_same_null():
    x = data(seed=1)
    double, single = gof_test(q, x, test="ksd"), gof_test(q, x.float(), test="ksd")
    torch.testing.assert_close(single.null_distribution, double.null_distribution, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: gof_test(q, torch.ones(20, 2), test="ksd"),
            InputError,
            "median distance between points is zero",
        ),
        (lambda: gof_test(q, torch.ones(1, 2), test="ksd"), InputError, "at least 2 points"),
        (lambda: gof_test(q, torch.ones(20, 3), test="ksd"), InputError, "3 columns but the model has 2"),
        (lambda: gof_test(q, data(seed=0), test="ksd", level=1.5), InputError, "level must lie in"),
        (lambda: gof_test(q, data(seed=0), level=0.01, test=Ksd(draws=98)), InputError, "at least 99"),
        (lambda: gof_test(q, data(seed=0), test=Ksd(draws=10**13)), InputError, "draws fit"),
        (lambda: gof_test(None, data(seed=0), test="ksd"), InputError, "a model must have score"),
        (lambda: gof_test((q.score, None), data(seed=0), test=CONFIGS[2]), ModelError, "no sample"),
        (lambda: Ksd(statistic="w"), InputError, "statistic must be one of v, u"),
        (lambda: Ksd(threshold="permutation"), InputError, "threshold must be one of wild, fresh"),
        (lambda: Ksd(draws=0), InputError, "draws must be"),
        (lambda: Ksd(flip=0.0), InputError, "flip"),
        (lambda: Ksd(flip=0.7), InputError, "flip"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
