"""The cross-fit test: exchangeable by construction, exact in fact, and its null runs kept on disk."""

import os
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reference import Z_MAX
from steincritic.critics import MLP
from steincritic.data.frame import model_frame
from steincritic.data.points import ScoredPoints, fold_sets, scored
from steincritic.errors import DivergedError
from steincritic.gof import crossfit, null_runs
from steincritic.gof.choose import gof_test
from steincritic.gof.crossfit import CrossFit, members, panel, statistic
from steincritic.gof.null_runs import NullCache
from steincritic.gof.power import Rate
from steincritic.lenses.critics import chunks
from steincritic.models import GaussianMixture
from steincritic.rng import derive, generator
from steincritic.training import Training, fit_bank, fixed

Q = GaussianMixture([[0.0, 0.0]])
X = Q.sample(24, seed=1)
TINY = CrossFit(
    folds=2,
    draws=19,
    look=1,
    network=MLP(hidden=(4,)),
    training=Training(epochs=4, batch_size=20, learning_rate=5e-2, dtype="float64"),
    cache=False,
)


def normal(*shape, seed):
    return torch.randn(*shape, generator=generator(seed, "crossfit tests"), dtype=torch.float64)


def null_sets(runs, n, dim, *, seed):
    """Datasets from the standard normal, scored by it."""
    x = normal(runs, n, dim, seed=seed)
    return ScoredPoints(x, -x)


def random_panel(runs, *, seed, coordinates=3):
    widths = (coordinates, coordinates, 1)
    return torch.cat([normal(runs, width, seed=seed + k) for k, width in enumerate(widths)], -1)


def assert_same_panels(got, wanted):
    # float64 rounding of batched products, carried through a few steps of Adam
    torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10)


# The panel: what is computed of a dataset.


def test_a_dataset_has_the_same_panel_alone_and_among_others():
    config = replace(TINY, folds=3)
    sets, seeds = null_sets(4, 11, 2, seed=0), [5, 6, 7, 8]
    together = panel(sets, seeds, config)
    for k, seed in enumerate(seeds):
        alone = panel(ScoredPoints(sets.x[[k]], sets.score[[k]]), [seed], config)
        assert_same_panels(alone, together[k : k + 1])


def test_memory_decides_how_many_critics_train_at_a_time_and_nothing_else(monkeypatch):
    sets, seeds = null_sets(5, 10, 3, seed=1), list(range(5))
    together = panel(sets, seeds, TINY)
    monkeypatch.setattr("steincritic.lenses.critics._MEMORY", 1000)
    assert len(list(chunks(5, 10, 3, TINY.critics))) == 5
    assert_same_panels(panel(sets, seeds, TINY), together)


def test_many_coordinates_are_looked_at_in_blocks():
    config = replace(TINY, training=replace(TINY.training, epochs=3))
    _, late, _ = members(panel(null_sets(1, 8, 130, seed=3), [0], config))
    assert late.shape == (1, 44)  # three coordinates each


@given(folds=st.integers(2, 7), more=st.integers(0, 40))
def test_every_row_is_tested_and_none_by_a_critic_that_was_trained_on_it(folds, more):
    n = 2 * folds + more
    rows = torch.arange(2.0 * n).view(2, n, 1)  # each value names its dataset and row
    train, test = fold_sets(ScoredPoints(rows, -rows), folds)
    assert train.x.shape[0] == test.x.shape[0] == 2 * folds
    for k in range(2):
        whole, tested = set(rows[k].flatten().tolist()), set()
        for fold in range(k * folds, (k + 1) * folds):
            seen, unseen = (part.x[fold].flatten().tolist() for part in (train, test))
            assert set(seen) | set(unseen) == whole and not set(seen) & set(unseen)
            assert len(seen) + len(unseen) == n  # no row twice
            tested |= set(unseen)
        assert tested == whole
    assert torch.equal(test.score, -test.x) and torch.equal(train.score, -train.x)


# The statistic: a soft maximum of three standardized members.


@given(seed=st.integers(0, 10**6), runs=st.integers(5, 30))
def test_permuted_runs_have_permuted_statistics(seed, runs):
    values = random_panel(runs, seed=seed)
    order = torch.randperm(runs, generator=generator(seed))
    # float64 rounding of sums in another order
    torch.testing.assert_close(statistic(values[order]), statistic(values)[order], rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 10**6), factor=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3))
@pytest.mark.parametrize("member", [0, 1, 2], ids=["early", "late", "kernel"])
def test_units_and_origin_of_a_member_do_not_matter(member, seed, factor, shift):
    values = random_panel(20, seed=seed)
    moved = values.clone()
    members(moved)[member].mul_(factor).add_(shift)
    # a shift a million times the spread costs six of the sixteen digits
    torch.testing.assert_close(statistic(moved), statistic(values), rtol=1e-7, atol=1e-7)
    assert torch.equal(statistic(moved).argsort(), statistic(values).argsort())


def test_standardizing_over_other_runs_treats_each_run_on_its_own():
    values, scale = random_panel(6, seed=10), random_panel(25, seed=20)
    together = statistic(values, scale)
    alone = torch.cat([statistic(values[k : k + 1], scale) for k in range(6)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)  # rounding


# The level.


def test_ranks_under_the_model_are_uniform():
    """400 tests of level 5 %, each with the 19 other datasets of its group for a null."""
    tests, group = 400, 20
    runs = tests * group
    ranked = panel(null_sets(runs, 20, 1, seed=5), list(range(runs)), TINY)
    values = torch.stack([statistic(ranked[k : k + group]) for k in range(0, runs, group)])
    ranks = (values >= values[:, :1]).sum(1)  # 1 to 20; the p-value is rank / 20
    rejections = int((ranks == 1).sum())
    assert 3 <= rejections <= 44  # binomial(400, 5 %), outside once in a million
    counts = torch.bincount(ranks, minlength=group + 1)[1:]
    assert stats.chisquare(counts.numpy()).pvalue > 0.001


def test_adding_up_the_folds_as_if_they_were_independent_rejects_true_models_too_often():
    """The reason for rerunning the pipeline: the critic of A is tested on B and that of B on A.

    Their two z-scores share their signs: for a linear critic in one dimension both carry
    sign(mean of A x mean of B), so the size of the naive test is (1 - 0.9**2) / 2 = 9.5 % at level 5 %.
    """
    runs, folds = 2000, 2
    train, test = fold_sets(null_sets(runs, 400, 1, seed=6), folds)
    fitted = fit_bank(
        train,
        staging=fixed(1.0),
        seeds=list(range(runs * folds)),
        network=MLP(hidden=(4,)),
        training=Training(epochs=5, batch_size=200, learning_rate=5e-2, dtype="float64"),
    )
    witness = fitted.witness(test)
    z = (witness.mean(1) / witness.std(1) * witness.shape[1] ** 0.5).view(runs, folds)
    limit = stats.norm.isf(0.05)
    naive = Rate(int((z.sum(1) / folds**0.5 > limit).sum()), runs)
    assert naive.interval(0.998)[0] > 0.05  # one-sided 99.9 %; the size is near 12 %
    single = Rate(int((z[:, 0] > limit).sum()), runs)
    # one fold alone keeps its level: standard error 0.5 %, and skewness moves it by less than another
    assert abs(single.value - 0.05) < Z_MAX * (0.05 * 0.95 / runs) ** 0.5 + 0.005


# The whole test.


def test_a_critic_that_does_not_train_gives_no_result():
    wild = replace(TINY, training=replace(TINY.training, learning_rate=1e200))
    with pytest.raises(DivergedError, match="a critic of the cross-fit did not train"):
        gof_test(Q, X, test=wild)


# Stopping early.


class Simulated:
    """Null runs drawn from a generator instead of trained."""

    notes = ()

    def __init__(self, seed):
        self._source = generator(seed, "simulated runs")
        self.next = 0

    def rows(self, start, count):
        assert start == self.next, "runs are used once, in order"
        self.next += count
        return torch.randn(count, 5, generator=self._source, dtype=torch.float64)


@pytest.mark.parametrize("stop_early", [3, 10])
def test_stopping_early_keeps_the_level_and_spares_null_runs(stop_early):
    tests, draws = 400, 199
    config = replace(TINY, stop_early=stop_early)
    rejections, used = 0, 0
    for seed in range(tests):
        null = Simulated(seed)
        observed = null.rows(0, 1)
        null.next = 0
        own, others = config._ranked(observed, null, draws, 0)
        rejections += (int((others >= own).sum()) + 1) / (len(others) + 1) <= 0.05
        used += len(others)
    assert 3 <= rejections <= 44  # binomial(400, 5 %), outside once in a million
    assert used / tests < draws / 2


def test_null_runs_are_what_an_observed_dataset_would_be():
    """Draws of the model, taken as data with a null run's seed, have that run's numbers."""
    model = GaussianMixture([[0.5, -1.0]], 2.0)
    config = replace(TINY, cache=False)
    points = scored(model, model.sample(11, seed=3))
    frame = model_frame(model, points, seed=0)
    made = config._null(model, frame, points).rows(0, 43)
    for block in range(3):  # twenty datasets a block
        drawn = model.sample(20 * 11, seed=derive(0, "null block", block))
        for k in range(block * 20, min(block * 20 + 20, 43)):
            x = drawn[(k % 20) * 11 : (k % 20 + 1) * 11]
            own = frame.enter(ScoredPoints(x, model.score(x)))
            seeds = [derive(0, "null run", k)]
            observed = panel(ScoredPoints(own.x[None], own.score[None]), seeds, config)
            assert_same_panels(observed, made[k : k + 1])


# The cache of null runs.


@pytest.fixture
def made(monkeypatch):
    """Counts datasets that critics are trained on."""
    counts = []

    def counting(datasets, seeds, config):
        counts.append(len(seeds))
        return panel(datasets, seeds, config)

    monkeypatch.setattr(crossfit, "panel", counting)
    return counts


def without_notes(result):
    return {name: value for name, value in result.to_dict().items() if name != "notes"}


def files(folder):
    return sorted(folder.rglob("*.safetensors"))


def test_a_second_test_takes_its_null_runs_from_the_cache(tmp_path, made):
    config = replace(TINY, cache=tmp_path)
    first = gof_test(Q, X, test=config)
    assert sum(made) == 1 + 20 and len(files(tmp_path)) == 1  # 19 in pieces of 4
    made.clear()
    second = gof_test(Q, X, test=config)
    assert sum(made) == 1  # the observed data
    assert without_notes(first) == without_notes(second) == without_notes(gof_test(Q, X, test=TINY))
    assert second.notes == ("20 null runs came from the cache.",) and first.notes == ()


def test_more_draws_add_to_the_kept_ones_and_fewer_use_some(tmp_path, made):
    config = replace(TINY, cache=tmp_path)
    gof_test(Q, X, test=config)
    made.clear()
    more = gof_test(Q, X, test=replace(config, draws=25))
    assert sum(made) == 1 + 8 and len(more.null_distribution) == 25  # 20 are there
    made.clear()
    fewer = gof_test(Q, X, test=config)
    assert sum(made) == 1 and len(fewer.null_distribution) == 19
    fresh = gof_test(Q, X, test=replace(TINY, draws=25))
    assert torch.equal(more.null_distribution, fresh.null_distribution)  # by the same pieces


def test_other_models_sizes_and_settings_have_files_of_their_own(tmp_path):
    config = replace(TINY, cache=tmp_path)
    gof_test(Q, X, test=config)
    for count, (model, x, settings) in enumerate(
        [
            (GaussianMixture([[0.0, 0.1]]), X, {}),
            (Q, X[:-1], {}),
            (Q, X, {"folds": 3}),
            (Q, X, {"network": MLP(hidden=(5,))}),
            (Q, X.float(), {}),
        ],
        start=2,
    ):
        assert gof_test(model, x, test=replace(config, **settings)).notes == ()
        assert len(files(tmp_path)) == count
    for settings in ({"draws": 20}, {"stop_early": 5}):
        assert gof_test(Q, X, test=replace(config, **settings)).notes != ()
    assert gof_test(Q, X + 1, test=config, seed=9).notes != ()  # the null knows nothing of the data


def test_the_usual_folder_follows_the_environment_and_no_cache_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gof_test(Q, X, test=TINY)
    assert list(tmp_path.iterdir()) == []
    gof_test(Q, X, test=replace(TINY, cache=True))
    assert [path.parent for path in files(tmp_path)] == [tmp_path / "steincritic" / "null"]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert null_runs.usual_folder() == tmp_path / ".cache" / "steincritic" / "null"


@pytest.mark.parametrize("harm", ["cut", "of another model"])
def test_a_damaged_file_is_ignored_and_made_anew(tmp_path, made, harm):
    config = replace(TINY, cache=tmp_path)
    first = gof_test(Q, X, test=config)
    (file,) = files(tmp_path)
    if harm == "cut":
        file.write_bytes(file.read_bytes()[:-7])
    else:
        gof_test(GaussianMixture([[0.0, 0.1]]), X, test=replace(TINY, cache=tmp_path / "other"))
        os.replace(files(tmp_path / "other")[0], file)
    made.clear()
    second = gof_test(Q, X, test=config)
    assert sum(made) == 1 + 20 and without_notes(second) == without_notes(first) and second.notes == ()
    assert gof_test(Q, X, test=config).notes != ()


def test_a_folder_that_fails_does_not_fail_the_test(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    result = gof_test(Q, X, test=replace(TINY, cache=tmp_path / "file" / "below"))
    assert without_notes(result) == without_notes(gof_test(Q, X, test=TINY))
    (tmp_path / "gone.safetensors").symlink_to(tmp_path / "nowhere")  # another process took it away
    NullCache(tmp_path).put("mine", {"kernel": torch.zeros(3)})
    assert NullCache(tmp_path).get("mine") is not None

    def refuse(path, *, kind):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(null_runs, "read_tensors", refuse)
    assert NullCache(tmp_path).get("mine") is None


def test_the_oldest_files_go_when_the_folder_grows_past_its_bound(tmp_path):
    kept = NullCache(tmp_path, bound=10**9)
    for age, key in enumerate(("new", "middle", "old")):
        kept.put(key, {"kernel": torch.zeros(100, dtype=torch.float64)})
        os.utime(tmp_path / f"{key}.safetensors", (1000 - age, 1000 - age))
    size = (tmp_path / "new.safetensors").stat().st_size
    NullCache(tmp_path, bound=3 * size).put("newest", {"kernel": torch.zeros(100, dtype=torch.float64)})
    assert [path.stem for path in files(tmp_path)] == ["middle", "new", "newest"]
    NullCache(tmp_path, bound=0).put("last", {"kernel": torch.zeros(100, dtype=torch.float64)})
    assert [path.stem for path in files(tmp_path)] == ["last"]  # what was just made stays


@pytest.mark.parametrize("engine", [None, "threads", "local"])
def test_null_runs_are_the_same_wherever_they_are_made(engine):
    config = replace(TINY, draws=45)  # three pieces
    apart, here = (gof_test(Q, X, config, seed=1, engine=name) for name in (engine, "serial"))
    assert torch.equal(apart.null_distribution, here.null_distribution)
