"""The combined test in one pass: sums that merge, samples that do not depend on blocks, level and power."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import steincritic as sc
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.gof import streamed
from steincritic.gof.bench import Bench, Setting
from steincritic.gof.one_pass import Means, blocks_of
from steincritic.gof.streamed import Sizes, Streamed

NORMAL = sc.models.GaussianMixture(torch.zeros(1, 3))
FAR = sc.models.GaussianMixture([[0.0] * 3, [12.0, 0.0, 0.0]], 1.0, [0.7, 0.3])  # weights are seen by cells
QUICK = sc.Combined(critics=None, cache=False, draws=99, exact_up_to=20_000)
SETS = 99


@pytest.fixture(scope="module")
def bench():
    draws = sample_points(FAR, 4000, seed=1)
    return Bench.of((*QUICK.lenses, Means()), draws, Setting.of(draws), n=3000, seed=0, model=FAR)


@pytest.fixture(scope="module")
def points():
    return sample_points(FAR, 3000, seed=2)


@pytest.fixture
def few(monkeypatch):
    """Null sets that are few and small, so that a test takes a second."""
    monkeypatch.setattr(streamed, "_SETS", SETS)
    monkeypatch.setattr(streamed, "_ROWS", (500, 2**22))


@settings(max_examples=10)
@given(cut=st.integers(1, 2999))
def test_sums_of_parts_are_those_of_the_whole(bench, points, cut):
    whole, first, rest = (bench.sums(p.alone()) for p in (points, points[:cut], points[cut:]))
    torch.testing.assert_close(first + rest, whole, rtol=1e-5, atol=0.05)  # rounding of 3,000 floats near 1


def test_entries_by_way_of_sums_are_those_of_the_lens(bench, points):
    entries = bench.entries(points.alone(), [0])
    by_sums = bench.of_sums(bench.sums(points.alone()), len(points))
    torch.testing.assert_close(by_sums, entries, rtol=1e-3, atol=1e-4)  # kernels cancel digits of floats


def test_a_lens_that_needs_all_rows_at_once_is_named(few):
    with pytest.raises(sc.InputError, match="lens 'critics' needs all rows"):
        lenses = (sc.lenses.Moments(), sc.lenses.Critics())
        sc.gof_test(NORMAL, NORMAL.sample(20_001), sc.Combined(lenses=lenses, exact_up_to=20_000))


def pvalues(model, count, cache, *, n=20_000, change=lambda x: x):
    """By quick lenses in one pass; ten datasets share null sets."""
    found = []
    for seed in range(count):
        if seed % 10 == 0:
            config = sc.Combined(
                critics=None, cache=cache, draws=SETS, null_seed=1000 + seed, engine="serial"
            )
            test = Streamed(config, model, model.sample(1)[:0], level=0.05, seed=0)
        x = change(model.sample(n, seed=5_000_000 + seed))
        found.append(test.result(test.look(blocks_of(ScoredPoints(x, model.score(x).to(x))))).pvalue)
    return torch.tensor(found)


def test_the_level_holds_and_fails_without_the_error_of_what_the_model_says(few, monkeypatch, tmp_path):
    # 40 runs at 5 %: more than 9 rejections once in 20,000; in full, 400 runs: see docs/large_data.md
    assert int((pvalues(NORMAL, 40, tmp_path) <= 0.05).sum()) <= 9

    def without(self, means, null):
        return null.mean(0) + (means - null.mean(0)) * math.sqrt(self.n / self.rows)

    monkeypatch.setattr(streamed, "_TIMES", 0.5)
    monkeypatch.setattr(streamed, "_ROWS", (100, 2**22))
    monkeypatch.setattr(Sizes, "brought", without)
    assert int((pvalues(NORMAL, 10, tmp_path) <= 0.05).sum()) >= 8


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (NORMAL, lambda x: x + torch.tensor([0.0, 0.05, 0.0])),  # 7 standard errors of 20,000 rows
        (NORMAL, lambda x: x * torch.tensor([1.0, 1.0, 1.04])),
        (
            FAR,
            lambda x: torch.cat([x[:, :1] + 12.0 * (torch.arange(len(x)) % 40 == 0)[:, None], x[:, 1:]], 1),
        ),
    ],
    ids=["a mean", "a spread", "rows beyond a mode"],
)
def test_small_faults_are_found_by_all_rows(few, model, change):
    assert float(pvalues(model, 1, False, change=change)[0]) <= 0.05


def test_one_result_for_array_tensor_table_file_and_mapped_file(few, tmp_path):
    x = NORMAL.sample(21_000, seed=3).numpy()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    given_as = [x, torch.as_tensor(x), mapped, tmp_path / "x.npy", sc.data.read_table(tmp_path / "x.npy")]
    results = [sc.gof_test(NORMAL, data, QUICK) for data in given_as]
    assert len({result.statistic for result in results}) == 1
    assert results[0].threshold == "scaled" and not results[0].exact and results[0].n == 21_000
    assert "all 21,000 rows in one pass, beside 99 null sets of 500 rows" in results[0].summary()
