"""ScoredPoints, frames and the scoring of points."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steincritic.data import Frame, ScoredPoints, sample_points, score_points, scored
from steincritic.errors import InputError
from steincritic.models import GaussianMixture, PairModel

Q = GaussianMixture([[1.0, -2.0], [0.0, 3.0]], [[4.0, 0.25], [1.0, 1.0]])


def numbered(n, d=2):
    x = torch.arange(n * d, dtype=torch.float64).view(n, d)
    return ScoredPoints(x, -x)


def as_set(points):
    return {tuple(row) for row in points.x.tolist()}


@given(n=st.integers(2, 30), first=st.integers(1, 15), seed=st.integers(0, 5))
def test_split_gives_disjoint_parts_of_the_sizes_asked_for(n, first, seed):
    first = min(first, n - 1)
    one, two = numbered(n).split([first, n - first], seed=seed)
    assert (len(one), len(two)) == (first, n - first)
    assert as_set(one) | as_set(two) == as_set(numbered(n))
    assert torch.equal(one.score, -one.x)


def test_the_seed_alone_decides_the_order():
    points = numbered(20)
    assert torch.equal(points.shuffled(seed=1).x, points.shuffled(seed=1).x)
    assert not torch.equal(points.shuffled(seed=1).x, points.shuffled(seed=2).x)


def test_rows_are_taken_from_every_set_of_a_bank():
    x = torch.arange(12.0).view(2, 3, 2)
    part = ScoredPoints(x, x)[torch.tensor([2, 0])]
    assert torch.equal(part.x, x[:, [2, 0]]) and len(part) == 2 and part.dim == 2


@pytest.mark.parametrize("sizes", [[3, 3], [0, 2], []])
def test_impossible_splits_are_refused(sizes):
    with pytest.raises(InputError, match="cannot cut 5 points"):
        numbered(5).split(sizes, seed=0)


def test_a_frame_is_a_change_of_variables():
    x = Q.sample(50, seed=0)
    frame = Frame.of(x)
    y = frame.enter(ScoredPoints(x, Q.score(x)))
    covariances = Q.covariances / frame.scale[:, None] / frame.scale
    in_frame = GaussianMixture((Q.means - frame.location) / frame.scale, covariances)
    torch.testing.assert_close(y.score, in_frame.score(y.x), rtol=1e-10, atol=1e-10)  # rounding
    # the standardized sample has mean 0 and standard deviation 1 up to rounding
    torch.testing.assert_close(y.x.mean(0), torch.zeros(2).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(y.x.std(0), torch.ones(2).double(), rtol=1e-12, atol=0)


def test_a_constant_coordinate_keeps_its_scale():
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    assert Frame.of(x).scale[1] == 1 and Frame.of(x[:1]).scale.tolist() == [1, 1]


def test_the_identity_frame_changes_nothing():
    points = numbered(4)
    assert torch.equal(Frame.identity(2).enter(points).x, points.x)


def test_points_are_scored_once_and_scored_points_pass():
    calls = []
    model = PairModel(lambda x: calls.append(len(x)) or -x)
    points = scored(model, np.ones((4, 2)))
    assert calls == [4]
    assert scored(model, points) is points and calls == [4]
    assert torch.equal(points.score, -points.x)


@pytest.mark.parametrize("answer", [np.asarray, lambda s: s.tolist(), lambda s: s.float()])
def test_a_score_may_come_as_an_array_a_list_or_another_dtype(answer):
    x = Q.sample(3, seed=0)
    points = score_points(PairModel(lambda x: answer(-x)), x)
    assert points.score.dtype == torch.float64
    torch.testing.assert_close(points.score, -x, rtol=1e-6, atol=1e-6)  # float32 rounding of one answer


def test_a_score_on_a_graph_is_cut_from_it():
    weight = torch.ones(1, requires_grad=True)
    assert not score_points(PairModel(lambda x: -weight * x), Q.sample(2)).score.requires_grad


def raises(x):
    raise ZeroDivisionError("first\nsecond")


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (raises, r"model.score.*raised ZeroDivisionError: first$"),
        (lambda x: x[:, :1], "must return the shape of its argument"),
        (lambda x: x[:, 0], "must return the shape of its argument"),
        (lambda x: x / 0 * 0, "the score at x has NaN"),
        (lambda x: None, "model.score"),
        (lambda x: x.long(), "model.score"),
    ],
)
def test_what_is_no_score_is_refused_in_one_line(score, words):
    with pytest.raises(InputError, match=words):
        scored(PairModel(score), Q.sample(2))


def test_draws_follow_the_dtype_of_the_data():
    draws = sample_points(Q, 5, seed=0, like=torch.zeros(1, 2, dtype=torch.float32))
    assert draws.x.dtype == draws.score.dtype == torch.float32
    assert torch.equal(draws.x, Q.sample(5, seed=0).float())


@pytest.mark.parametrize(
    "sample",
    [
        lambda n, seed: torch.zeros(n - 1, 2),
        lambda n, seed: torch.zeros(n, 3),
        lambda n, seed: torch.zeros(n),
        lambda n, seed: torch.full((n, 2), torch.nan),
        lambda n, seed: None,
        lambda n, seed: torch.zeros(n, 2, dtype=torch.int64),
        lambda n, seed: 1 / 0,
        None,
    ],
    ids=["too few", "too wide", "flat", "nan", "none", "integers", "raises", "no sampler"],
)
def test_samplers_that_do_not_sample_are_refused(sample):
    with pytest.raises(InputError, match="sample"):
        sample_points(PairModel(lambda x: -x, sample), 5, seed=0, like=torch.zeros(1, 2))


def test_a_score_that_is_not_finite_at_model_draws_is_refused():
    model = PairModel(lambda x: x / 0, lambda n, seed: torch.zeros(n, 2))
    with pytest.raises(InputError, match="score is not finite at"):
        sample_points(model, 5, seed=0)


def test_a_module_with_a_score_is_asked_in_the_precision_of_its_weights():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.pull = torch.nn.Linear(2, 2, bias=False)

        def score(self, x):
            return -self.pull(x)

    with torch.random.fork_rng():  # of its weights
        net = Net()
    points = scored(net, torch.ones(3, 2, dtype=torch.float64))
    assert points.score.dtype == torch.float64
    torch.testing.assert_close(points.score.float(), -net.pull(torch.ones(3, 2)).detach())
