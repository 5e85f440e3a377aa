"""Residuals along the model's own predictions."""

import pytest
import torch

from steincritic.data.points import ScoredPoints
from steincritic.lenses.conditional import PredictedMoments
from steincritic.lenses.lens import Scale, leave_one_out
from steincritic.models import Regression
from steincritic.models.conditional import AtRows, as_conditional
from steincritic.rng import generator

N, SETS = 60, 400
X = torch.randn(N, 2, generator=generator(0, "x"), dtype=torch.float64)
MODEL = Regression(lambda x: torch.stack((x.sum(1), x[:, 0]), 1), lambda x: 1 + x[:, :1] ** 2)


def datasets(model, sets, *, seed):
    at = AtRows(as_conditional(model), X, targets=2)
    z = at.sample(sets * N, seed=seed)
    return ScoredPoints(z, AtRows(as_conditional(MODEL), X, targets=2).score(z))


PREPARED = PredictedMoments(covariates=2).prepare(datasets(MODEL, 200, seed=1), n=N, seed=0)
NULL = PREPARED.entries(datasets(MODEL, SETS, seed=2).cut(N), ())


def test_entries_are_means_of_stein_values_times_functions():
    points = datasets(MODEL, 1, seed=3)
    functions = torch.cat((PREPARED.of_mean, PREPARED.of_spread), 2)
    slow = []
    for kind in ("shift", "spread"):
        for m in range(functions.shape[2]):
            for t in range(2):
                y = (points.x[:, 2 + t] - PREPARED.mean[:, t]) / PREPARED.spread[:, t]
                s = points.score[:, 2 + t] * PREPARED.spread[:, t]
                slow.append((functions[t, :, m] * (s if kind == "shift" else y * s + 1)).mean())
    found = PREPARED.entries(points.alone(), ())
    assert found.shape == (1, PREPARED.size)
    torch.testing.assert_close(found[0], torch.stack(slow))


@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        (
            Regression(lambda x: 2 * MODEL.moments(x)[0], lambda x: 1 + x[:, :1] ** 2),
            "shift by predicted mean",
        ),
        (Regression(lambda x: MODEL.moments(x)[0], 1.7), "spread by predicted spread"),
    ],
)
def test_what_is_wrong_along_the_predictions_is_seen(wrong, number):
    scale = Scale.of(NULL)
    usual = PREPARED.numbers(leave_one_out(NULL))[number]
    found = PREPARED.numbers(scale.see(PREPARED.entries(datasets(wrong, 20, seed=4).cut(N), ())))[number]
    assert (found > usual.quantile(0.95)).double().mean() > 0.7
