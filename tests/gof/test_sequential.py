"""Streams: e-values have mean one, wealth keeps the level at all times, and a state can be put away."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import Z_MAX, z_of_mean
from steincritic import ScoredPoints
from steincritic.critics import MLP
from steincritic.errors import DoubtfulWarning, FileFormatError, InputError, ModelError
from steincritic.files import read_tensors, write_tensors
from steincritic.gof import betting
from steincritic.gof.betting import (
    Sequential,
    pooled_wealth,
    soft_rank,
    wealth_path,
)
from steincritic.gof.sequential import watch
from steincritic.gof.watch_state import load_watch
from steincritic.models import GaussianMixture
from steincritic.rng import generator
from steincritic.training import Training, fixed

LEVEL = 0.05
STREAMS, POINTS = 400, 150
MOST = 44  # of 400 streams at 5 %: more once in a million (binomial)
ETAS = torch.tensor([0.0, 0.2, 0.4, 0.8], dtype=torch.float64)
Q = GaussianMixture([[0.0, 0.0]])
TINY = {
    "network": MLP(hidden=(6,)),
    "staging": fixed(1.0),
    "training": Training(epochs=5, batch_size=20, learning_rate=2e-2, dtype="float64"),
    "draws": 8,
    "first": 20,
}
SOFT = Sequential(**TINY)


def left_skewed(*shape, seed, shift=0.0):
    """The witness 1 - x^2 of f(x) = x under a standard normal model; spread sqrt 2, skewness -2.8."""
    x = torch.randn(*shape, generator=generator(seed), dtype=torch.float64)
    return 1 - (x * (1 - shift)) ** 2


def batches(count, *, shift=0.0, size=20, seed=1):
    return [Q.sample(size, seed=1000 * seed + k) + shift for k in range(count)]


def last(states):
    return list(states)[-1]


@given(scale=st.floats(0.01, 100), shift=st.floats(-50, 50))
def test_soft_rank_evalues_of_a_set_have_mean_one(scale, shift):
    """Put each of m + 1 numbers in the place of the point: the law behind exactness, without chance."""
    values = scale * left_skewed(5, seed=0) + shift
    others = torch.stack([torch.cat([values[:k], values[k + 1 :]]) for k in range(5)])
    evalues = soft_rank(values, others, ETAS).exp()
    torch.testing.assert_close(evalues.mean(0), torch.ones(4).double(), rtol=1e-12, atol=0)  # rounding
    assert float(evalues.max()) <= 5 * (1 + 1e-12)


def test_evalues_do_not_overflow():
    own, others = torch.tensor([1e6, -1e6]).double(), torch.zeros(2, 3).double()
    log_evalues = soft_rank(own, others, ETAS)
    assert bool(log_evalues.isfinite().all())
    assert float(log_evalues[0, 1]) == pytest.approx(math.log(4))
    paths, wealth = wealth_path(torch.zeros(2), torch.full((10**4, 2), 5.0))
    assert float(wealth[-1]) == 5e4 == float(paths[-1, 0])


def test_mean_of_evalues_is_one_under_the_model_and_above_it_otherwise():
    others = left_skewed(20_000, 8, seed=3)
    under = soft_rank(left_skewed(20_000, seed=4), others, ETAS)[:, 1:].exp()
    assert all(abs(z_of_mean(column, 1.0)) < Z_MAX for column in under.T)
    away = soft_rank(left_skewed(20_000, seed=4, shift=0.3), others, ETAS)[:, 1:].exp()
    assert all(z_of_mean(column, 1.0) > Z_MAX for column in away.T)


def crossing_share(log_evalues):
    """Of streams (s, n, k): how many ever reach 1/level."""
    wealth = pooled_wealth(log_evalues.cumsum(1))
    return int((wealth.amax(1) >= -math.log(LEVEL)).sum())


def soft_rank_streams(seed, shift=0.0):
    own = left_skewed(STREAMS * POINTS, seed=seed, shift=shift)
    return soft_rank(own, left_skewed(STREAMS * POINTS, 8, seed=seed + 1), ETAS).view(STREAMS, POINTS, -1)


def test_wealth_keeps_the_level_over_all_times():
    assert crossing_share(soft_rank_streams(10)) <= MOST


def test_wealth_grows_when_the_model_is_wrong():
    assert crossing_share(soft_rank_streams(14, shift=0.3)) > 0.9 * STREAMS


def test_peeking_at_z_does_not_keep_the_level():
    """The twin that must fail: a z-test after every point from the tenth on."""
    values = left_skewed(STREAMS, POINTS, seed=15)
    n = torch.arange(1, POINTS + 1)
    mean, square = values.cumsum(1) / n, (values**2).cumsum(1) / n
    z = mean / ((square - mean**2) / n).sqrt()
    assert int((z[:, 10:] > 1.645).any(1).sum()) > 2 * MOST  # about 45 %


def test_rivals_that_are_used_again_do_not_keep_the_level():
    """The twin that must fail: one set of model draws for all points of a stream."""
    own = left_skewed(STREAMS * POINTS, seed=16)
    few = left_skewed(STREAMS, 1, 4, seed=17).expand(-1, POINTS, -1).reshape(-1, 4)
    assert crossing_share(soft_rank(own, few, ETAS).view(STREAMS, POINTS, -1)) > MOST


def test_null_streams_with_critics_trained_on_the_way():
    """120 streams at 5 %: more than 20 once in a million."""
    ends = [last(watch(Q, batches(3, seed=s), seed=s, test=SOFT)) for s in range(120)]
    assert sum(state.rejected for state in ends) <= 20
    factors = torch.cat([state.log_evalues.exp() for state in ends])
    assert abs(z_of_mean(factors, 1.0)) < Z_MAX


def test_a_wrong_model_is_found():
    states = list(watch(Q, batches(12, shift=1.0), test=SOFT))
    end = states[-1]
    assert end.rejected and end.pvalue <= LEVEL and end.log_wealth > -math.log(LEVEL)
    first = next(state for state in states if state.rejected)
    assert first.points - 20 < first.rejected_at <= first.points
    assert all(state.rejected for state in states[states.index(first) :])
    assert "rejected at point" in repr(end)


def test_no_bets_before_the_first_critic():
    first, second, third = watch(Q, batches(3, size=10), test=SOFT)
    assert first.log_wealth == second.log_wealth == 0.0
    assert second.bettor is None and third.bettor.trained_on == 20
    assert third.evalues["count"] == 10 and second.evalues["mean"] == 1.0


def test_critics_are_trained_on_the_past_and_only_when_it_has_grown(monkeypatch):
    seen, fit = [], betting.fit_critic

    def watched(model, x, **options):
        seen.append(x.x)
        return fit(model, x, **options)

    monkeypatch.setattr(betting, "fit_critic", watched)
    stream = batches(8, size=10)
    list(watch(Q, stream, test=SOFT))
    assert [len(x) for x in seen] == [20, 30, 50]  # factors of at least 1.5
    assert all(torch.equal(x, torch.cat(stream)[: len(x)]) for x in seen)


def test_model_draws_are_never_used_twice():
    class Counting(GaussianMixture):
        seeds = []  # noqa: RUF012

        def sample(self, n, *, seed=0):
            self.seeds.append(seed)
            return super().sample(n, seed=seed)

    list(watch(Counting([[0.0, 0.0]]), batches(8), test=SOFT))
    assert len(set(Counting.seeds)) == len(Counting.seeds) > 8


def test_a_long_batch_is_bet_on_in_pieces():
    pieces = Sequential(longest=20, **TINY)
    (whole,) = watch(Q, [torch.cat(batches(4))], test=pieces)
    apart = last(watch(Q, batches(4), test=pieces))
    assert whole.log_wealth == apart.log_wealth != 0.0
    assert (whole.batches, apart.batches, whole.points) == (1, 4, 80)


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_state_continues_as_if_never_interrupted(tmp_path, stop):
    stream = batches(7, shift=0.3)
    whole = last(watch(Q, stream, test=SOFT, seed=5, level=0.01))
    last(watch(Q, stream[:stop], test=SOFT, seed=5, level=0.01)).save(tmp_path / "state")
    resumed = last(watch(Q, stream[stop:], state=load_watch(tmp_path / "state")))
    assert torch.equal(resumed.log_wealths, whole.log_wealths)
    assert resumed.to_dict() == whole.to_dict()


def test_arrays_and_scored_points_are_the_same_stream():
    stream = batches(3)
    ends = [
        last(watch(Q, kind, test=SOFT))
        for kind in (
            stream,
            [x.numpy() for x in stream],
            [ScoredPoints(x, -x) for x in stream],
            np.stack(stream),
        )
    ]
    assert len({end.log_wealth for end in ends}) == 1


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (torch.zeros(5, 3), "batch 4 has 3 columns"),
        (torch.full((5, 2), torch.nan), "batch 4 has NaN"),
        (ScoredPoints(torch.zeros(2, 5, 2), torch.zeros(2, 5, 2)), "batch 4 must have shape"),
        ("no such file.csv", "no such data file"),
    ],
)
def test_a_bad_batch_is_refused_and_leaves_no_trace(bad, words):
    stream, kept = batches(5), []
    with pytest.raises(InputError, match=words) as caught:
        for state in watch(Q, [*stream[:3], bad, *stream[3:]], test=SOFT):
            kept.append(state)
    assert "\n" not in str(caught.value) and "state=" in str(caught.value)
    assert len(kept) == 3
    resumed = last(watch(Q, stream[3:], state=kept[-1]))
    assert resumed.to_dict() == last(watch(Q, stream, test=SOFT)).to_dict()


@pytest.mark.parametrize(
    "stream", [torch.zeros(5, 2), np.zeros(3), "points.csv", ScoredPoints(Q.means, Q.means), 7]
)
def test_what_is_no_stream_is_refused_at_once(stream):
    with pytest.raises(InputError, match=r"for one batch pass \[x\]"):
        watch(Q, stream)


def test_a_model_without_a_sampler_is_refused_at_once():
    with pytest.raises(ModelError, match="no sample"):
        watch((lambda x: -x, None), batches(1))


def test_a_state_keeps_its_level_seed_and_settings():
    state = last(watch(Q, batches(1), test=SOFT, level=0.01))
    for other in ({"level": 0.05}, {"seed": 1}, {"test": Sequential()}):
        with pytest.raises(InputError, match="was begun with"):
            watch(Q, [], state=state, **other)
    assert list(watch(Q, [], state=state, level=0.01, seed=0, test=SOFT)) == []


def test_files_that_are_no_state_are_refused(tmp_path):
    last(watch(Q, batches(2), test=SOFT)).save(tmp_path / "state")
    content = (tmp_path / "state").read_bytes()
    (tmp_path / "short").write_bytes(content[: len(content) // 2])
    (tmp_path / "text").write_bytes(b"hello")
    tensors, about = read_tensors(tmp_path / "state", kind="watch state")
    for name, (arrays, description) in {
        "kind": (tensors, about),
        "wealth": ({k: v for k, v in tensors.items() if k != "log_wealths"}, about),
        "count": (tensors, about | {"test": about["test"] | {"etas": [0.0, 0.1]}}),
        "critic": ({k: v for k, v in tensors.items() if k != "critic/snapshot/0/w1"}, about),
        "wide": (tensors, about | {"test": about["test"] | {"network": {"hidden": [25_000, 25_000]}}}),
    }.items():
        kind = "critic" if name == "kind" else "watch state"
        write_tensors(tmp_path / name, arrays, description, kind=kind)
    for name in ("short", "text", "kind", "wealth", "count", "critic", "wide"):
        with pytest.raises(FileFormatError, match=name):
            load_watch(tmp_path / name)


def test_dependent_model_draws_are_doubted_once():
    class Worthless(GaussianMixture):
        def effective_sample_size(self, x):
            return 1.0

    with pytest.warns(DoubtfulWarning, match="not independent") as caught:
        end = last(watch(Worthless([[0.0, 0.0]]), batches(6), test=SOFT))
    assert len(caught) == 1 and len(end.notes) == 1


@pytest.mark.gpu
def test_a_state_from_an_accelerator_continues_there(tmp_path):
    stream = [x.cuda() for x in batches(7, shift=0.3)]
    model = Q.to("cuda")
    whole = last(watch(model, stream, test=SOFT))
    last(watch(model, stream[:3], test=SOFT)).save(tmp_path / "state")
    state = load_watch(tmp_path / "state")
    resumed = last(watch(model, [x.cpu() for x in stream[3:]], state=state))
    assert resumed.bettor.critic.fitted.bank.device.type == "cuda"
    assert resumed.log_wealth == pytest.approx(whole.log_wealth, rel=1e-6)  # sums in another order
