"""Rows that depend on the rows before them."""

import math

import pytest
import torch

from steincritic.data.points import ScoredPoints
from steincritic.gof.combined import Combined
from steincritic.gof.serial import Blocks, slowness_if_any, stein_series, summed
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.lenses import Moments
from steincritic.models.density import PairModel
from steincritic.models.mixing import autocorrelation_time
from steincritic.rng import generator
from steincritic.training.fit import Training

NORMAL = PairModel(lambda x: -x)


def chains(count, steps, keep, *, dim=2, seed=0):
    """Autocorrelation keep^lag, standard normal draws, (count, steps, dim)."""
    noise = torch.randn(count, steps, dim, generator=generator(seed, "chain"), dtype=torch.float64)
    x = noise.clone()
    for t in range(1, steps):
        x[:, t] = keep * x[:, t - 1] + math.sqrt(1 - keep**2) * noise[:, t]
    return x


def scored(x):
    return ScoredPoints(x.flatten(0, 1), -x.flatten(0, 1))


@pytest.mark.parametrize("n", [40, 101, 1000])
@pytest.mark.parametrize("count", [1, 3, 4])
@pytest.mark.parametrize("slow", [1.2, 4.0, 60.0])
def test_blocks_cover_all_rows_and_stay_within_chains_and_halves(n, count, slow):
    n -= n % count
    blocks = Blocks.of(n, count, slow)
    ends = set(blocks.lengths.cumsum(0).tolist())
    assert int(blocks.lengths.sum()) == n and int(blocks.lengths.min()) >= 1
    assert {n // 2, *(c * n // count for c in range(1, count + 1))} <= ends
    assert 0.5 <= blocks.shrink**2 <= 1


def test_blocks_shrink_to_rows_as_dependence_goes():
    assert torch.equal(Blocks.of(100, 1, 1.0).lengths, Blocks.single(100).lengths)
    assert Blocks.of(100, 1, 1.0).shrink == 1


def test_sums_and_signs_of_blocks_are_those_of_their_rows():
    lengths = torch.tensor([2, 3, 1])
    values = torch.arange(12.0).view(6, 2)
    slow = torch.stack([part.sum(0) for part in values.split(lengths.tolist())])
    torch.testing.assert_close(summed(values, lengths), slow)
    signs = torch.tensor([[1, -1, 1]], dtype=torch.int8)
    assert Blocks(lengths).spread(signs).tolist() == [[1, 1, -1, -1, -1, 1]]
    torch.testing.assert_close(signs.float() @ slow, Blocks(lengths).spread(signs).float() @ values)


@pytest.mark.parametrize(("keep", "worth"), [(0.5, 3.0), (0.8, 9.0)])
def test_slowness_is_that_of_an_autoregression(keep, worth):
    found = autocorrelation_time(stein_series(scored(chains(4, 5000, keep)), 4))
    assert 0.8 * worth < found < 1.4 * worth  # the largest of eight; each is known to some 5 %


def test_chains_that_alternate_are_as_slow_as_their_squares():
    found = autocorrelation_time(stein_series(scored(chains(4, 5000, -0.7)), 4))
    assert 0.8 * 2.9 < found < 1.4 * 2.9  # squares have correlation 0.49^lag: (1 + 0.49) / (1 - 0.49)


def test_independent_rows_are_not_taken_for_dependent():
    """At most 10 % of them; of 200, 38 or more except once in ten thousand."""
    alarms = sum(
        slowness_if_any(stein_series(scored(chains(2, 50, 0.0, seed=s)), 2), seed=s) > 1 for s in range(200)
    )
    assert 2 <= alarms < 38
    slow = [
        slowness_if_any(stein_series(scored(chains(2, 50, 0.6, seed=s)), 2), seed=s) > 1 for s in range(20)
    ]
    assert all(slow)


def rejections(test: GofTest, x):
    seeds = range(len(x))
    points = ScoredPoints.stack([scored(one) for one in x])
    return sum(result.rejected for result in test.run(NORMAL, points, level=0.05, seeds=seeds))


def test_blocks_hold_the_level_and_independence_assumed_does_not():
    x = [chains(2, 200, 0.8, seed=s) for s in range(60)]
    few = {"lenses": (Moments(),), "critics": None, "draws": 99, "reference": 60}
    assert rejections(Combined(**few), x) > 30
    assert rejections(Combined(**few, slowness=9.0, chains=2), x) <= 10  # 3 expected; 11 once in 3,000
    shifted = [one + 1.0 for one in x[:10]]
    assert rejections(Combined(**few, slowness=9.0, chains=2), shifted) >= 8


def test_the_split_test_resamples_blocks():
    x = [chains(2, 300, 0.8, seed=s) for s in range(30)]
    quick = Training(epochs=5)
    careless = rejections(Split(threshold="bootstrap-t", training=quick, draws=99), x)
    careful = rejections(Split(training=quick, draws=99, slowness=9.0, chains=2), x)
    assert careless > careful and careful <= 7  # 1.5 expected; 8 once in ten thousand
