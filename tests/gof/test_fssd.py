import json
import warnings

import pytest
import torch

from steincritic.data import ScoredPoints, mixture
from steincritic.errors import DoubtfulWarning, InputError, ModelError
from steincritic.gof.choose import gof_test
from steincritic.gof.fssd import Fssd, weighted_chi_square
from steincritic.models import GaussianMixture
from steincritic.rng import Source
from steincritic.stein.fssd import fssd, stein_features
from steincritic.stein.kernels import IMQ, RBF

q = GaussianMixture([[0.0, 0.0], [2.0, 1.0]])


def data(n=40, *, seed, stretch=1.0):
    return q.sample(n, seed=10_000 + seed) * stretch


@pytest.mark.parametrize(
    "config",
    [
        Fssd(choice="random", draws=99),
        Fssd(steps=3, draws=99, locations=2, kernel=IMQ(scale="median")),
        Fssd(choice="random", draws=19, threshold="fresh", locations=3),
        Fssd(steps=3, draws=19, threshold="fresh", locations=2),
    ],
    ids=["random spectrum", "optimized spectrum", "random fresh", "optimized fresh"],
)
@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")  # one in a hundred datasets, by chance
def test_level_and_power(config):
    rejections = sum(gof_test(q, data(seed=k), seed=k, test=config).rejected for k in range(400))
    assert 3 <= rejections <= 44  # binomial(400, 0.05), left once in a million
    stretched = [gof_test(q, data(300, seed=k, stretch=2.5), seed=k, test=config) for k in range(10)]
    assert all(result.rejected for result in stretched)


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")  # one in a hundred datasets, by chance
def test_optimized_places_find_more_than_random_ones():
    pair = mixture(2)
    rates = {}
    for choice in ("random", "optimized"):
        config = Fssd(choice=choice, steps=60, draws=199)
        runs = [gof_test(pair.model, pair.data.sample(300, seed=k), seed=k, test=config) for k in range(40)]
        rates[choice] = sum(run.rejected for run in runs) / 40
    assert rates["optimized"] > rates["random"] + 0.1  # 0.52 and 0.20 in 100 runs


@pytest.mark.parametrize("choice", ["random", "optimized"])
def test_statistic_is_fssd_at_the_places_that_the_result_names(choice):
    config = Fssd(choice=choice, steps=5, draws=39)
    x = data(50, seed=1)
    points = ScoredPoints(x, q.score(x))
    result = gof_test(q, x, seed=3, test=config)
    found = json.loads(json.dumps(result.to_dict()))["settings"]["found"]
    locations = torch.tensor(found["locations"], dtype=torch.float64)
    assert locations.shape == (5, 2)
    scale = torch.tensor(found["squared_scale"], dtype=torch.float64)
    assert result.n == (50 if choice == "random" else 40)
    if choice == "random":
        features = stein_features(points, RBF(), scale, locations)
        assert result.statistic == pytest.approx(float(fssd(features)), rel=1e-10)
    again = gof_test(None, points, seed=3, test=config)
    assert again.to_dict() == result.to_dict()


def test_optimized_places_stay_in_the_box_of_the_data():
    x = data(100, seed=1)
    result = gof_test(q, x, test=Fssd(steps=50, learning_rate=1.0))
    locations = torch.tensor(result.settings["found"]["locations"], dtype=torch.float64)
    slack = 1e-9  # rounding of the change of variables
    assert bool((locations >= x.amin(0) - slack).all()) and bool((locations <= x.amax(0) + slack).all())


def test_weighted_chi_square_has_its_moments():
    weights = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    draws = weighted_chi_square(weights, 100_000, source=Source(0, "test"))
    variance = float(2 * weights.square().sum())
    assert abs(float(draws.mean())) < 5 * (variance / 100_000) ** 0.5
    assert float(draws.var()) == pytest.approx(variance, rel=0.1)  # heavy tail: standard error 1.4 %


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: gof_test(q, torch.ones(20, 2), test="fssd"),
            InputError,
            "median distance between points is zero",
        ),
        (lambda: gof_test(q, torch.ones(1, 2), test="fssd"), InputError, "at least 2 points"),
        (lambda: gof_test(q, data(4, seed=0), test="fssd"), InputError, "too few to optimize"),
        (lambda: gof_test(q, data(seed=0), test=Fssd(draws=5)), InputError, "at least 19"),
        (
            lambda: gof_test((q.score, None), data(seed=0), test=Fssd(threshold="fresh", steps=1)),
            ModelError,
            "no sample",
        ),
        (lambda: Fssd(locations=0), InputError, "locations"),
        (lambda: Fssd(choice="best"), InputError, "choice"),
        (lambda: Fssd(threshold="wild"), InputError, "threshold"),
        (lambda: Fssd(train=1.0), InputError, "train"),
        (lambda: Fssd(learning_rate=0.0), InputError, "learning_rate"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_the_simulated_law_is_doubted_for_few_points_and_fresh_draws_are_not():
    x = data(25, seed=0)
    with pytest.warns(DoubtfulWarning, match="25 are tested"):
        result = gof_test(q, x, test=Fssd(choice="random", draws=39))
    assert "fresh" in result.notes[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gof_test(q, x, test=Fssd(choice="random", draws=39, threshold="fresh"))
