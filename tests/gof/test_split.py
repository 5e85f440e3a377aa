"""The split test from door to result."""

import json

import pytest
import torch

from steincritic.critics import MLP
from steincritic.errors import InputError
from steincritic.gof.choose import gof_test
from steincritic.gof.split import Split
from steincritic.models import GaussianMixture
from steincritic.training import Training, fixed
from steincritic.training import fit as fit_module

Q = GaussianMixture([[0.0, 0.0]])
TINY = {
    "network": MLP(hidden=(6,)),
    "staging": fixed(1.0),
    "training": Training(epochs=10, batch_size=20, learning_rate=2e-2, dtype="float64"),
    "draws": 99,
}


@pytest.mark.parametrize("threshold", ["fresh", "pooled"])
@pytest.mark.parametrize(("shift", "rejects"), [(0.0, False), (1.0, True)])
def test_a_wrong_model_is_rejected_and_the_right_one_is_not(threshold, shift, rejects):
    config = Split(threshold=threshold, **TINY)
    result = gof_test(
        Q,
        Q.sample(120, seed=2) + shift,
        test=config,
        seed=0,
    )
    assert result.rejected == rejects
    assert result.exact == (threshold == "fresh")
    assert result.n == 60 and len(result.null_distribution) == 99
    json.dumps(result.to_dict(), allow_nan=False)


def test_the_seed_decides_everything():
    def run(seed):
        return gof_test(
            Q,
            Q.sample(40, seed=1),
            test=Split(**TINY),
            seed=seed,
        )

    one, same, other = run(0), run(0), run(1)
    assert one.to_dict() == same.to_dict()
    assert one.statistic != other.statistic


def test_tested_points_are_not_trained_on(monkeypatch):
    trained = []
    init = fit_module._Run.__init__

    def watched(self, points, *arguments):
        trained.append(points.x)
        init(self, points, *arguments)

    monkeypatch.setattr(fit_module._Run, "__init__", watched)
    x = Q.sample(40, seed=2)
    result = gof_test(
        Q,
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

    x = Q.sample(200, seed=1).clamp(max=2.0)
    with pytest.raises(InputError, match="score is not finite at"):
        gof_test(
            Torn([[0.0, 0.0]]),
            x,
            test=Split(**TINY),
        )


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"train": 0.0}, "train"),
        ({"train": 1.0}, "train"),
        ({"threshold": "normal"}, "threshold"),
        ({"draws": 0}, "draws"),
        ({"pool": 0}, "pool"),
    ],
)
def test_settings_that_are_none_are_refused(bad, words):
    with pytest.raises(InputError, match=words):
        Split(**bad)
