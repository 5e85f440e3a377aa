"""Sources: folders of parquet parts, and rows in blocks of any size."""

import numpy as np
import pytest

import steincritic as sc
from steincritic.data.layout import Columns
from steincritic.data.source import FileSource, as_source, first_row
from steincritic.data.tables import estimated_rows, read_chunks

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

X = np.random.default_rng(0).normal(size=(100, 2))


def write(path, x, names=("a", "b")):
    parquet.write_table(pa.table({name: x[:, j] for j, name in enumerate(names)}), path)


@pytest.fixture
def folder(tmp_path):
    """Three parts, one with its columns in another order, one without rows, and what is no data."""
    write(tmp_path / "part-0.parquet", X[:40])
    write(tmp_path / "part-1.parquet", X[40:70, ::-1], ("b", "a"))
    write(tmp_path / "part-2.parquet", X[:0])
    write(tmp_path / "part-3.parquet", X[70:])
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "_metadata.parquet").write_text("no data")
    return tmp_path


def test_a_folder_is_one_table_of_its_parts(folder):
    assert estimated_rows(folder) == 100
    table = sc.data.read_table(folder)
    assert table.columns == ("a", "b") and table.rows.numbers.tolist() == list(range(100))
    np.testing.assert_array_equal(table.x, X)
    np.testing.assert_array_equal(sc.data.as_points(folder).numpy(), X)


@pytest.mark.parametrize("rows", [1, 7, 40, 1000])
def test_blocks_have_the_size_that_was_asked_for(folder, rows):
    blocks = list(FileSource(folder).blocks(rows))
    assert [len(block) for block in blocks[:-1]] == [rows] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate([block.x for block in blocks]), X)
    assert np.concatenate([block.rows.numbers for block in blocks]).tolist() == list(range(100))


def test_rows_left_out_are_counted_once(folder):
    bad = X.copy()
    bad[[3, 50, 99], 0] = np.nan
    write(folder / "part-0.parquet", bad)
    (folder / "part-1.parquet").unlink()
    (folder / "part-3.parquet").unlink()
    blocks = list(FileSource(folder, drop_nan=True).blocks(10))
    assert sum(block.dropped for block in blocks) == 3 and sum(map(len, blocks)) == 97


@pytest.mark.parametrize("rows", [1, 4, 10, 95, 1000])
def test_rows_left_out_at_the_end_are_counted(tmp_path, rows):
    bad = X.copy()
    bad[[0, 4]] = bad[95:] = np.nan
    for part in (0, 1):
        write(tmp_path / f"part-{part}.parquet", bad[50 * part :][:50])
    write(tmp_path / "part-2.parquet", bad[95:])
    blocks = list(FileSource(tmp_path, drop_nan=True).blocks(rows))
    assert sum(block.dropped for block in blocks) == 12 and sum(map(len, blocks)) == 93
    assert all(map(len, blocks))


def test_a_first_row_is_found_behind_those_left_out_or_told_to_be_missing(tmp_path):
    bad = np.full((1000, 2), np.nan)
    np.save(tmp_path / "x.npy", bad)
    source = FileSource(tmp_path / "x.npy", drop_nan=True)
    with pytest.raises(sc.InputError, match="no row is left"):
        first_row(source)
    bad[700] = 1.0
    np.save(tmp_path / "x.npy", bad)
    assert first_row(source).rows.numbers.tolist() == [700]


def test_a_part_with_other_columns_is_named(folder):
    write(folder / "part-4.parquet", X, ("a", "c"))
    with pytest.raises(
        sc.InputError, match=r"part-4.parquet has other columns than part-0.parquet: it lacks b "
    ):
        list(read_chunks(folder))
    assert sum(len(block) for block in read_chunks(folder, columns=Columns(keep=["a"]))) == 200


def test_a_damaged_part_is_named(folder):
    (folder / "part-9.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(sc.InputError, match=r"part-9.parquet cannot be read as parquet"):
        list(read_chunks(folder))


def test_a_folder_without_parts_is_refused(tmp_path):
    with pytest.raises(sc.InputError, match="is a folder without parquet files"):
        sc.data.as_points(tmp_path)


def test_integers_are_no_measurements():
    with pytest.raises(sc.InputError, match="floating-point"):
        as_source(np.arange(6).reshape(3, 2))
