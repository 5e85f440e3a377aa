"""Models that were fitted to the tested data: every null set is fitted anew, by one function."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import steincritic as sc
from steincritic.errors import InputError, ModelError
from steincritic.gof.fitted import OwnSetting
from steincritic.lenses import Cells, Critics, Moments
from steincritic.rng import Source

NORMAL = sc.models.FitNormal()
KINDS = ("full", "diagonal", "identity")
TEST = sc.Combined(critics=None, draws=39, reference=40, cache=False)


def data(n=60, d=3, seed=0):
    """Correlated, far from the origin, columns of different scales."""
    z = Source(seed, "data").normals(n, d, dtype=torch.float64)
    return 5 + z.cumsum(-1) * torch.arange(1, d + 1, dtype=torch.float64)


def tailed(n=60, d=3, seed=0):
    z = Source(seed, "tailed").normals(n, d + 2, dtype=torch.float64)
    return z[:, :d] / z[:, d:].square().mean(1, keepdim=True).sqrt()


@pytest.mark.parametrize("covariance", KINDS)
def test_scores_of_many_fits_are_those_of_each_alone(covariance):
    fit = sc.models.FitNormal(covariance)
    x = torch.stack([data(seed=seed) for seed in range(4)])
    together, loop = sc.Fitted(fit, x[0]).refit(x), sc.Fitted(lambda points: fit(points), x[0]).refit(x)
    torch.testing.assert_close(together.score, loop.score, rtol=1e-10, atol=1e-10)  # float64 rounding
    torch.testing.assert_close(loop.score[2], fit(x[2]).score(x[2]))


@pytest.mark.parametrize("covariance", KINDS)
def test_the_data_go_through_the_function_of_the_null_sets(covariance):
    x = data()
    fitted = sc.Fitted(sc.models.FitNormal(covariance), x)
    torch.testing.assert_close(fitted.refit(x[None]).score[0], fitted.score(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("fit", [NORMAL, sc.models.FitNormal("diagonal"), lambda x: NORMAL(x)])
def test_shift_and_scale_of_the_data_change_nothing(fit):
    x = data(seed=1)
    moved = x * torch.tensor([8.0, 0.5, 64.0]) - 7
    first, second = (sc.gof_test(sc.Fitted(fit, y), y, TEST) for y in (x, moved))
    assert first.pvalue == second.pvalue
    assert first.statistic == pytest.approx(second.statistic, abs=0.01)  # kernels in single precision


def test_single_precision_and_an_ill_conditioned_covariance_are_no_evidence():
    """What a fit makes zero is zero for data and null sets alike, whatever the rounding."""
    z = Source(3, "flat").normals(80, 2)
    x = torch.stack([z[:, 0] + 1000, z[:, 0] + 1e-3 * z[:, 1]], 1)
    assert x.dtype == torch.float32 and sc.gof_test(sc.Fitted(NORMAL, x), x, TEST).pvalue > 0.1


def test_lenses_look_in_coordinates_of_each_dataset():
    x = torch.stack([data(seed=seed) for seed in range(3)])
    points = sc.Fitted(NORMAL, x[0]).refit(x)
    for whole in (False, True):
        own = OwnSetting.at(points.sets(slice(0, 1)).map(lambda t: t[0]), whole=whole).enter(
            points, Moments()
        )
        one = torch.ones(3, 3)
        torch.testing.assert_close(own.x.std(1), one, rtol=0, atol=1e-5)  # float32
        torch.testing.assert_close((own.x * own.score).mean(1), -one, rtol=0, atol=1e-4)  # the fit's own mark


MOMENTS = replace(TEST, draws=19, reference=20, lenses=(Moments(),))
KERNEL = sc.Ksd(threshold="fresh", draws=19)


def rejections(test, model_of, law, runs=100, n=40):
    """Of tests at level 0.1 that each fit their data."""
    count = 0
    for seed in range(runs):
        x = law(n, 2, 100 + seed)
        model, own = model_of(x), test if test is KERNEL else replace(test, null_seed=seed)
        points = sc.ScoredPoints(x, model.score(x)).alone()
        count += own.run(model, points, level=0.1, seeds=[seed])[0].rejected
    return count


def refitted(x):
    return sc.Fitted(NORMAL, x)


@pytest.mark.parametrize("test", [MOMENTS, KERNEL], ids=["moments", "kernel"])
def test_the_level_is_kept_and_tails_are_seen(test):
    assert 1 <= rejections(test, refitted, data) <= 27  # binomial(100, 0.1), outside once in 30,000
    assert rejections(test, refitted, tailed, runs=20) > 10


def test_the_level_of_the_naive_test_is_not_kept():
    assert rejections(KERNEL, NORMAL, data) == 0  # of a test at level 0.1, once in 40,000


def test_kernel_test_and_critics_are_honored():
    x = tailed(n=40, d=2)
    kernel = sc.gof_test(sc.Fitted(NORMAL, x), x, "ksd")
    assert kernel.threshold == "refitted" and kernel.rejected and not kernel.exact
    small = Critics(folds=2, look=1, network=sc.MLP(hidden=(4,)), training=sc.Training(epochs=4))
    good = data(n=40, d=2, seed=3)
    r = sc.gof_test(sc.Fitted(NORMAL, good), good, replace(TEST, critics=small, draws=None))
    assert "critics" in {reading.lens for reading in r.readings} and r.threshold == "refitted"


def test_families_of_other_libraries():
    x = data(n=50, d=1).numpy()
    family = sc.Fitted(scipy.stats.logistic, x)
    location, scale = scipy.stats.logistic.fit(x[:, 0])
    expected = scipy.stats.logistic(location, scale).logpdf(x[:, 0])
    np.testing.assert_allclose(family.log_prob(torch.as_tensor(x)).numpy(), expected)
    assert sc.Fitted(scipy.stats.norm, x).exact and sc.Fitted(scipy.stats.multivariate_normal, x).exact
    with pytest.raises(InputError, match="law of one column"):
        sc.Fitted(scipy.stats.logistic, data().numpy())


def test_estimators_are_copied_for_every_fit():
    mixture = pytest.importorskip("sklearn.mixture").GaussianMixture(2)
    x = data(n=60, d=2).numpy()
    x[Source(0, "far").uniforms(60).numpy() > 0.5] += 20
    fitted = sc.Fitted(mixture, x)
    assert not hasattr(mixture, "means_") and len(fitted.model.means) == 2
    again = sc.Fitted(mixture, x)  # with a seed of its own where none was given
    torch.testing.assert_close(fitted.model.means, again.model.means)
    r = sc.gof_test(fitted, x, replace(TEST, draws=19, reference=10))
    assert not r.rejected and not r.exact


def test_a_training_function_of_torch_starts_from_one_seed():
    def fit(x):
        noise = torch.randn(1)
        return sc.models.GaussianMixture(x.mean(0, keepdim=True) + noise)

    x = data()
    before = torch.random.get_rng_state()
    first, second = sc.Fitted(fit, x), sc.Fitted(fit, x)
    assert torch.equal(first.model.means, second.model.means)
    assert torch.equal(before, torch.random.get_rng_state())


class Sometimes:
    """Fails on every k-th dataset after the first."""

    def __init__(self, every):
        self.every, self.calls = every, 0

    def __call__(self, x):
        self.calls += 1
        if self.calls > 1 and self.calls % self.every == 0:
            raise RuntimeError("no convergence")
        return NORMAL(x)


def test_fits_that_fail_are_counted_and_drawn_again():
    x = data()
    r = sc.gof_test(sc.Fitted(Sometimes(60), x), x, replace(TEST, draws=99, reference=40, stop_early=False))
    (note,) = [note for note in r.notes if "anew" in note]
    assert len(r.null_distribution) == 99
    assert "each of 140 null sets" in note and "2 failed (fit raised RuntimeError: no convergence)" in note
    with pytest.raises(ModelError, match=r"fit failed on \d+ of \d+ datasets .*no convergence"):
        sc.gof_test(sc.Fitted(Sometimes(20), x), x, TEST)


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (lambda x: None, "fit(x) on the data: a model must have score"),
        (lambda x: 1 / 0, "fit raised ZeroDivisionError"),
        (lambda x: (lambda y: -y, None), "can be sampled"),
        (lambda x: NORMAL(x[:2]), "2 points cannot give a full covariance"),
        (sc.models.GaussianMixture, "got the class GaussianMixture"),
        (3, "got int"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_one_line(fit, words):
    with pytest.raises(InputError) as error:
        sc.Fitted(fit, data())
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("test", "options", "words"),
    [
        ("split", {}, "combined and ksd"),
        (sc.Combined(critics=None, lenses=(Cells(),)), {}, "cells"),
        (None, {"dependent": True}, "depend on each other"),
    ],
)
def test_what_cannot_be_tested_is_refused(test, options, words):
    x = data()
    with pytest.raises(InputError, match=words):
        sc.gof_test(sc.Fitted(NORMAL, x), x, test, **options)
    with pytest.raises(InputError, match="very data"):
        sc.gof_test(sc.Fitted(NORMAL, x), data(seed=1))


def test_columns_of_a_frame_keep_their_order(tmp_path):
    x = data().numpy()
    path, turned = tmp_path / "x.csv", tmp_path / "turned.csv"
    for file, order in ((path, [0, 1, 2]), (turned, [2, 0, 1])):
        names = ",".join("abc"[k] for k in order)
        np.savetxt(file, x[:, order], delimiter=",", header=names, comments="", fmt="%.17g")
    table = sc.data.read_table(path)
    results = [sc.gof_test(sc.Fitted(NORMAL, table), file, TEST) for file in (path, turned)]
    assert results[0].pvalue == results[1].pvalue


def test_the_warning_names_the_way_out():
    x = data(n=200)
    with pytest.warns(sc.DoubtfulWarning, match=r"sc\.Fitted\(fit, x\).*--fitted"):
        sc.gof_test(NORMAL(x), x, TEST)
