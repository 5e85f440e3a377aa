"""Tests of q(y | x) are exact given x: null sets have the very same x, and rows of one order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from steincritic.data.points import ScoredPoints
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.gof.choose import gof_test
from steincritic.gof.combined import Combined
from steincritic.gof.null_runs import NullSets, fingerprint
from steincritic.gof.power import calibrate, trials_of
from steincritic.lenses import Cells, Moments
from steincritic.lenses.critics import Critics
from steincritic.models.conditional import AtRows, ConditionalModel
from steincritic.rng import Source
from steincritic.training.fit import Training

QUICK = Combined(critics=None, cache=False, reference=100)
BRIEF = Critics(training=Training(epochs=6, batch_size=20), look=2)
N = 40


def normal(mean, seed_of=lambda seed: seed):
    return ConditionalModel(
        lambda x, y: mean(x) - y,
        lambda x, seed: mean(x) + Source(seed_of(seed), "y").normals(len(x), 1, dtype=x.dtype),
    )


def covariates(n, columns=1, seed=0):
    return 4 * Source(seed, "x").uniforms(n, columns, dtype=torch.float64) - 2


LINE = normal(lambda x: 3 * x[:, :1] + 1)
X = covariates(N)
AT = AtRows(LINE, X)


def test_null_sets_have_the_very_same_x_in_one_order():
    sets = NullSets(AT, N, X.new_empty(0, 2), seed=1)[range(17, 45)]  # across blocks of 20
    assert torch.equal(sets.x[..., :1], X.expand(28, N, 1))
    assert len(sets.x[..., 1].flatten().unique()) == 28 * N


def test_the_level_holds_given_x():
    trials = calibrate(AT, N, QUICK, runs=400, seed=3)
    assert 3 <= trials.rate().rejections <= 44  # of 400 at 5 %, except once in a million


def test_the_level_holds_for_x_drawn_anew_each_time():
    count = 0
    for t in range(200):
        few = replace(QUICK, lenses=(Moments(), Cells()), draws=19, reference=20, null_seed=t)
        x = covariates(20, seed=t)
        at = AtRows(LINE, x)
        data = at.sample(20, seed=10_000 + t)
        (result,) = few.run(at, ScoredPoints(data, at.score(data)).alone(), level=0.05, seeds=[t])
        count += result.rejected
    assert 0 < count <= 27  # of 200 at 5 %, except once in a million; none at all once in 28,000


def test_y_drawn_at_other_rows_is_rejected():
    """The control: a sampler that takes the rows in another order, whose null sets are not exchangeable."""
    wrong = ConditionalModel(LINE.score, lambda x, seed: LINE.sample(x.flip(0), seed=seed))
    at = AtRows(wrong, X)
    data = torch.stack([AT.sample(N, seed=t) for t in range(20)])
    assert trials_of(at, data, QUICK).rate().rejections == 20


def test_critics_see_data_and_null_sets_in_one_order(monkeypatch):
    """Data are not shuffled, as null sets are not."""
    monkeypatch.setattr(ScoredPoints, "shuffled", lambda *_, **__: pytest.fail("rows were shuffled"))
    both = Combined(critics=BRIEF, cache=False, draws=19, reference=20, stop_early=False)
    data = AT.sample(N, seed=9)
    (result,) = both.run(AT, ScoredPoints(data, AT.score(data)).alone(), level=0.05, seeds=[0])
    assert "critics" in [reading.lens for reading in result.readings]


def test_power_on_a_bend_of_the_mean():
    """Published: N(x + 1, 1) against 0.1 x^2 more; likelihood ratio 0.99 at n = 500."""
    x = covariates(500, seed=5)
    q, p = normal(lambda x: x + 1), normal(lambda x: x + 1 + 0.1 * x**2)
    at, truth = AtRows(q, x), AtRows(p, x)
    data = torch.stack([truth.sample(500, seed=t) for t in range(100)])
    assert trials_of(at, data, QUICK).rate().rejections >= 80


def test_a_target_is_tested_whatever_the_order_of_columns():
    x = covariates(60, 2, seed=7)
    q = normal(lambda x: x[:, :1] - x[:, 1:])
    y = q.sample(x, seed=1)
    one = gof_test(q, torch.cat([x, y], 1), QUICK, target=2)
    two = gof_test(q, torch.cat([y, x], 1).numpy(), QUICK, target="x1")
    assert one.pvalue == two.pvalue and one.exact and not one.rejected
    assert gof_test(q, torch.cat([x, y + 1], 1), QUICK, target=2).rejected


def test_whole_numbers_among_covariates_are_no_caveat():
    x = torch.tensor(np.random.default_rng(0).integers(0, 3, (80, 2)), dtype=torch.float64)
    x[:, 1] = torch.arange(80)  # sorted, and a row number
    q = normal(lambda x: x[:, :1])
    assert not gof_test(q, torch.cat([x, q.sample(x, seed=1)], 1), QUICK, target=2).caveats


def test_a_model_fitted_to_the_rows_is_said():
    x, noise = covariates(80), Source(3, "noise").normals(80, 1, dtype=torch.float64)
    ones = torch.cat([torch.ones_like(x), x], 1)
    weights = torch.linalg.lstsq(ones, x + noise).solution
    q = normal(lambda x: weights[0] + weights[1] * x)
    with pytest.warns(DoubtfulWarning, match="looks fitted to them"):
        gof_test(q, torch.cat([x, x + noise], 1), QUICK, target=1)


def test_a_discrete_target_is_said():
    x = covariates(80)
    q = normal(lambda x: x)
    with pytest.warns(DoubtfulWarning, match="Whole numbers alone in x2"):
        found = gof_test(q, torch.cat([x, q.sample(x, seed=1).round()], 1), QUICK, target=1)
    assert [caveat.kind for caveat in found.caveats] == ["discrete columns"]


def test_the_key_of_null_runs_knows_x_and_the_model():
    like = X.new_empty(0, 2)
    big = torch.zeros(6000, 1, dtype=torch.float64)
    other = big.clone()
    other[-1] = 1  # beyond the draws that the key looks at
    keys = [
        *(fingerprint(AtRows(model, X), N, like, {}) for model in (LINE, normal(lambda x: x))),
        fingerprint(AT.at(torch.arange(N).flip(0)), N, like, {}),
        *(fingerprint(AtRows(LINE, x), 6000, like, {}) for x in (big, other)),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda data: gof_test(LINE, data), "which column is y"),
        (lambda data: gof_test(LINE, data, "ksd", target=1), "combined test.*got ksd"),
        (lambda data: gof_test(LINE, data, target=1, dependent=True), "row by row"),
        (lambda data: gof_test(LINE, data, target=5), "from 0 to 1"),
        (lambda data: trials_of(AT, data[None, :10], QUICK), "must have the 40 rows of x"),
    ],
)
def test_what_cannot_be_tested_is_refused(call, says):
    with pytest.raises(InputError, match=says) as error:
        call(torch.cat([X, LINE.sample(X, seed=1)], 1))
    assert "\n" not in str(error.value)
