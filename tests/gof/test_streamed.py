"""The combined test in one pass: sums that merge, samples that do not depend on blocks, level and power."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import steincritic as sc
from steincritic.data import source
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.data.source import FileSource, as_source, sampled
from steincritic.gof import combined, one_pass, streamed
from steincritic.gof.bench import Bench, Setting
from steincritic.gof.one_pass import Means, blocks_of
from steincritic.gof.streamed import Judged, Sizes, Streamed
from steincritic.rng import generator

NORMAL = sc.models.GaussianMixture(torch.zeros(1, 3))
FAR = sc.models.GaussianMixture([[0.0] * 3, [12.0, 0.0, 0.0]], 1.0, [0.7, 0.3])  # weights are seen by cells
QUICK = sc.Combined(critics=None, cache=False, draws=99)
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
    """Null sets that are few and small beside 20,000 rows and more, so that a test takes a second."""
    monkeypatch.setattr(combined, "EXACT_UP_TO", 20_000)
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
        sc.gof_test(NORMAL, NORMAL.sample(20_001), sc.Combined(lenses=lenses))


def pvalues(model, count, cache, *, n=8000, change=lambda x: x):
    """By quick lenses in one pass; ten datasets share null sets."""
    found = []
    for seed in range(count):
        if seed % 10 == 0:
            config = sc.Combined(critics=None, cache=cache, draws=SETS, null_seed=1000 + seed)
            test = Streamed(config, model, model.sample(1)[:0], level=0.05, seed=0)
        x = change(model.sample(n, seed=5_000_000 + seed))
        passed = one_pass.one_pass(test.summing, blocks_of(ScoredPoints(x, model.score(x).to(x))))
        found.append(Judged(test, passed).result().pvalue)
    return torch.tensor(found)


def test_the_level_holds_and_fails_without_the_error_of_what_the_model_says(few, monkeypatch, tmp_path):
    # 40 runs at 5 %: more than 9 rejections once in 20,000; in full, 400 runs: see docs/howto/large_data.md
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
    assert float(pvalues(model, 1, False, n=20_000, change=change)[0]) <= 0.05


def test_one_result_for_array_tensor_table_file_and_mapped_file(few, tmp_path):
    x = NORMAL.sample(21_000, seed=3).numpy()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    given_as = [x, torch.as_tensor(x), mapped, tmp_path / "x.npy", sc.data.read_table(tmp_path / "x.npy")]
    results = [sc.gof_test(NORMAL, data, QUICK) for data in given_as]
    assert len({result.statistic for result in results}) == 1
    assert results[0].threshold == "scaled" and not results[0].exact and results[0].n == 21_000
    assert "all 21,000 rows in one pass, beside 99 null sets of 500 rows" in results[0].summary()


def test_a_sample_is_uniform_and_does_not_depend_on_blocks():
    x = np.arange(3000.0)[:, None]
    wholes = [sampled(Blocked(x, size), 300, seed=5)[0] for size in (7, 1000, 3000)]
    assert all((table.rows.numbers == wholes[0].rows.numbers).all() for table in wholes)
    assert (wholes[0].x[:, 0] == wholes[0].rows.numbers).all() and len(set(wholes[0].x[:, 0])) == 300
    counts = sum(np.bincount(sampled(Blocked(x, 500), 300, seed=s)[0].rows.numbers // 300) for s in range(60))
    away = (counts - 1800) / np.sqrt(1800 * 0.9 * 0.9)  # ten tenths of the rows; without replacement
    assert np.abs(away).max() < 5


@dataclass(frozen=True)
class Blocked:
    """A source whose blocks have sizes of their own."""

    x: np.ndarray
    size: int

    @property
    def rows(self):
        return len(self.x)

    def blocks(self, rows):
        return as_source(self.x).blocks(self.size)


def test_results_do_not_depend_on_how_a_file_is_read(few, tmp_path, monkeypatch):
    x = NORMAL.sample(21_000, seed=3).numpy()
    np.save(tmp_path / "x.npy", x)
    found = []
    for rows in (999, 2**16):
        monkeypatch.setattr(source, "_READ", rows)
        result = sc.gof_test(NORMAL, tmp_path / "x.npy", QUICK)
        found.append((result.statistic, result.examined.passed.rows.numbers.tolist()))
    assert found[0] == found[1]


def test_rows_with_nan_are_named_or_left_out(few, tmp_path):
    x = NORMAL.sample(21_000, seed=3).numpy()
    x[17_001, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(sc.InputError, match="NaN or infinite values in row 17001"):
        sc.gof_test(NORMAL, tmp_path / "x.npy", QUICK)
    with pytest.raises(sc.InputError, match=r"x has NaN or infinite values in row 17001; drop or repair it$"):
        sc.gof_test(NORMAL, x, QUICK)  # which cannot leave it out
    result = sc.gof_test(NORMAL, FileSource(tmp_path / "x.npy", drop_nan=True), QUICK)
    assert result.n == 20_999 and "1 row with NaN or infinite values left out" in result.summary()
    assert 17_001 not in result.examined.passed.rows.numbers


@pytest.mark.parametrize("rows", [100, 21_000])
def test_data_without_a_whole_row_are_told_so(few, tmp_path, rows):
    np.save(tmp_path / "x.npy", np.full((rows, 3), np.nan))
    with pytest.raises(sc.InputError, match=r"(nothing|no row) is left"):
        sc.gof_test(NORMAL, FileSource(tmp_path / "x.npy", drop_nan=True), QUICK)


def test_a_score_that_is_not_finite_is_named_with_its_row(few):
    def score(x):
        return torch.where(x[:, :1] > 1e6, torch.nan, -x)

    x = NORMAL.sample(21_000, seed=3)
    x[20_500, 0] = 2e6
    with pytest.raises(sc.InputError, match="the first is row 20500"):
        sc.gof_test((score, lambda n, seed: NORMAL.sample(n, seed=seed)), x, QUICK)


def test_models_that_cannot_be_sampled_get_a_sample_of_a_large_file(few, tmp_path, monkeypatch):
    monkeypatch.setattr(combined, "EXACT_UP_TO", 2000)
    np.save(tmp_path / "x.npy", NORMAL.sample(2500, seed=3).numpy())
    result = sc.gof_test((NORMAL.score, None), tmp_path / "x.npy", sc.Combined(critics=None))
    assert result.n == 2000 and "Tested on 2,000 of 2,500 rows, chosen at random" in result.summary()


def test_models_with_bounds_go_by_in_coordinates_without(few):
    model = sc.as_model(
        torch.distributions.Independent(torch.distributions.Gamma(torch.full((2,), 3.0), 1.0), 1)
    )
    x = model.sample(21_000, seed=4)
    assert not sc.gof_test(model, x, QUICK).rejected
    wrong = sc.gof_test(model, x * 1.05, QUICK)
    assert wrong.rejected and "Tested in coordinates without bounds" in wrong.summary()


def test_check_tells_sizes_from_all_rows_and_names_rows_of_the_file(few, tmp_path, monkeypatch):
    monkeypatch.setattr(one_pass, "_SAMPLE", (2000, 2**23))
    x = NORMAL.sample(40_000, seed=6).numpy()
    x[:, 1] += 0.05  # 10 standard errors of all rows, 2 of the sample
    np.save(tmp_path / "x.npy", x)
    result = sc.check(NORMAL, tmp_path / "x.npy", test=QUICK)
    shift = next(seen for seen in result.seen if seen.kind == "shift")
    assert (
        shift.names == ("x2",) and shift.interval[1] - shift.interval[0] < 0.04
    )  # 4 of 0.005, and the model's
    assert shift.interval[0] < 0.05 < shift.interval[1] and shift.interval[0] > 0
    assert abs(shift.estimate - x[:, 1].mean()) < 0.015  # what null sets say is off by 1/sqrt(80,000)
    assert len(result.data) == 2000 and result.rows_tested == 40_000
    assert result.numbers(torch.tensor([5])) == [int(result.rows.numbers[5])]
    np.testing.assert_array_equal(result.data.x.numpy(), x[result.rows.numbers])
    assert "were looked for among 2,000 rows, chosen at random" in result.summary()


def test_points_in_memory_are_searched_as_a_whole_and_not_called_a_sample(few, monkeypatch):
    monkeypatch.setattr(combined, "EXACT_UP_TO", 2000)
    x = NORMAL.sample(2_100, seed=6)
    x[torch.randperm(2_100, generator=generator(0, "far"))[:100], 1] += 8.0
    result = sc.check(NORMAL, ScoredPoints(x, NORMAL.score(x)), test=QUICK)
    assert len(result.points) and len(result.data) == 2_100 and "sample" not in result.summary()


def test_a_folder_of_parts_gives_the_result_of_the_array(few, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    x = NORMAL.sample(21_000, seed=3).numpy()
    for k, part in enumerate(np.array_split(x, [100, 13_000])):
        columns = {f"x{j + 1}": part[:, j] for j in range(3)}
        parquet.write_table(pyarrow.table(columns), tmp_path / f"part-{k}.parquet", row_group_size=4000)
    one, other = (sc.gof_test(NORMAL, data, QUICK) for data in (x, tmp_path))
    assert one.statistic == other.statistic and one.n == other.n
    assert one.examined.passed.rows.numbers.tolist() == other.examined.passed.rows.numbers.tolist()
