"""The combined test: exact in one step and in two, whatever the lenses are, and clear about what it did."""

from dataclasses import dataclass, replace

import pytest
import torch

import steincritic as sc
from steincritic.data.points import sample_points
from steincritic.gof import combined
from steincritic.gof.bench import Bench, Setting, among_themselves
from steincritic.gof.combined import Combined
from steincritic.gof.power import trials_of
from steincritic.lenses import Cells, Critics, Kernels, Moments
from steincritic.rng import generator

Q = sc.models.GaussianMixture([[0.0, 0.0]])
QUICK = Combined(critics=None, draws=39, reference=30, cache=False, lenses=(Moments(), Cells()))
SMALL = Critics(
    folds=2,
    look=1,
    network=sc.MLP(hidden=(4,)),
    training=sc.Training(epochs=4, batch_size=10, learning_rate=5e-2, dtype="float64"),
)


def rejections(test, shift, runs=400, n=25):
    x = Q.sample(runs * n, seed=5).view(runs, n, 2) + shift
    return trials_of(Q, x, test, seed=1).rate().rejections


def test_the_level_is_kept_and_a_shift_is_seen():
    pooled = replace(QUICK, null_pool=2000)
    assert 3 <= rejections(pooled, 0.0) <= 44  # binomial(400, 5 %), outside once in a million
    assert rejections(pooled, 1.0, runs=40) > 35


def test_the_level_is_kept_in_two_steps():
    test = replace(QUICK, critics=SMALL, draws=None, null_pool=400)
    assert 0 <= rejections(test, 0.0, runs=100) <= 17  # binomial(100, 5 %), outside once in 100,000


def test_a_plain_fault_ends_without_training_and_the_rest_is_left_to_critics():
    test = replace(QUICK, critics=SMALL, draws=None)
    plain = sc.gof_test(Q, Q.sample(60, seed=1) + 1.0, test)
    assert plain.pvalue <= 0.005 and plain.spent == 0
    assert {reading.lens for reading in plain.readings} == {"moments", "cells"}
    assert any("no critic was trained" in note for note in plain.notes)
    fits = sc.gof_test(Q, Q.sample(60, seed=2), test)
    assert fits.spent == pytest.approx(0.005) and fits.readings and not fits.rejected
    assert "critics" in {reading.lens for reading in fits.readings}
    assert any("critics were trained" in note for note in fits.notes)


def test_stopping_early_saves_null_sets_where_there_is_no_evidence():
    x = Q.sample(50, seed=3)
    short, long = (sc.gof_test(Q, x, replace(QUICK, draws=999, stop_early=stop)) for stop in (True, False))
    assert len(short.null_distribution) < len(long.null_distribution) == 999
    assert torch.equal(short.null_distribution, long.null_distribution[: len(short.null_distribution)])


def test_null_sets_of_an_earlier_call_are_used_again(tmp_path):
    x, test = Q.sample(50, seed=3), replace(QUICK, cache=tmp_path)
    first = sc.gof_test(Q, x, test)
    again = sc.gof_test(Q, x, replace(test, draws=99))
    assert any("from the cache" in note for note in again.notes)
    assert not any("from the cache" in note for note in first.notes)
    fresh = sc.gof_test(Q, x, replace(QUICK, draws=99))
    assert again.statistic == fresh.statistic
    torch.testing.assert_close(again.null_distribution, fresh.null_distribution, rtol=1e-4, atol=1e-4)


def test_the_smallest_p_value_is_called_that_and_draws_make_it_smaller():
    x = Q.sample(50, seed=3) + 2
    result = sc.gof_test(Q, x, QUICK)
    assert result.smallest and "p <= 0.025, the smallest that 39 null draws allow" in result.summary()
    finer = sc.gof_test(Q, x, replace(QUICK, draws=499))
    assert finer.pvalue <= 0.002


@dataclass(frozen=True)
class Broken:
    answer: object
    name: str = "broken"
    whitened: bool = False
    size: int = 1

    def prepare(self, draws, *, n, seed):
        return self

    def entries(self, datasets, seeds):
        return self.answer(len(datasets.x))

    def numbers(self, seen):
        return {"broken": seen.plain[..., 0]}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda r: torch.zeros(r, 2), "lens 'broken' must return"),
        (lambda r: [0.0] * r, "lens 'broken' must return"),
        (lambda r: torch.full((r, 1), torch.nan), "lens 'broken' returned a number that is not finite"),
    ],
)
def test_a_lens_that_answers_nonsense_is_named(answer, words):
    with pytest.raises(sc.InputError, match=words):
        sc.gof_test(Q, Q.sample(20, seed=0), replace(QUICK, lenses=(Broken(answer),)))


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
def test_constant_columns_few_points_and_one_column_are_looked_at():
    def sample(n, seed=0):
        return torch.cat([Q.sample(n, seed=seed), torch.zeros(n, 1)], 1)

    flat = sc.as_model((lambda x: -x, sample))
    x = torch.cat([Q.sample(30, seed=1), torch.zeros(30, 1)], 1)
    every = replace(QUICK, lenses=Combined().lenses)
    assert not sc.gof_test(flat, x, every).rejected
    assert sc.gof_test(Q, Q.sample(4, seed=1), every).pvalue > 0
    line = sc.models.GaussianMixture([[0.0]])
    assert sc.gof_test(line, line.sample(30, seed=1) + 3, every).rejected


def test_many_columns_leave_pairs_out_and_say_so():
    wide = sc.models.GaussianMixture(torch.zeros(1, 210))
    test = replace(QUICK, lenses=(Moments(),), reference=12)
    result = sc.gof_test(wide, wide.sample(20, seed=1), test)
    assert any("left out pairs of columns" in note for note in result.notes)


def test_plentiful_data_are_split_and_every_point_is_still_looked_at():
    x = Q.sample(5000, seed=2)
    test = Combined(reference=20, draws=99, cache=False, lenses=(Moments(), Kernels(frequencies=4)))
    fits = sc.gof_test(Q, x, test)
    assert fits.spent == pytest.approx(0.025) and fits.test == "combined" and not fits.rejected
    assert sc.gof_test(Q, x + 0.1, test).pvalue <= 0.01


def test_datasets_among_themselves_are_treated_alike():
    """Shuffling them shuffles their evidence: what makes ranks exact without reference sets."""
    sets, draws = sample_points(Q, 12 * 30, seed=1).cut(30), sample_points(Q, 500, seed=2)
    bench = Bench.of((Moments(),), draws, Setting.of(draws), n=30, seed=0)
    entries = bench.entries(sets, range(12))
    order = torch.randperm(12, generator=generator(0, "order"))
    columns, evidence = among_themselves(bench, entries)
    torch.testing.assert_close(among_themselves(bench, entries[order])[1], evidence[order])
    assert evidence.shape == (12, len(columns)) and float(evidence.amin()) >= 0


@pytest.mark.parametrize(("most", "told"), [(500, True), (501, False)])
def test_a_result_of_many_rows_says_how_kernels_were_summed(monkeypatch, most, told):
    monkeypatch.setattr(combined, "_APPROXIMATED", most)
    result = sc.gof_test(Q, Q.sample(501, seed=2), replace(QUICK, lenses=(Kernels(),)))
    assert ("Kernels were taken at 191 random frequencies." in result.notes) == told
