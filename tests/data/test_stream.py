"""Tables in chunks equal tables in one; rows that come late are waited for."""

import io
import os
import threading
import time
import tracemalloc

import numpy as np
import pytest

from steincritic.data import Columns, read_chunks, read_table
from steincritic.data.source import FileSource, first_row
from steincritic.data.tables import estimated_rows
from steincritic.data.tail import TailReader
from steincritic.errors import InputError

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

X = np.random.default_rng(0).normal(size=(103, 3))
KINDS = ["x.npy", "x.npz", "fortran.npy", "fortran.npz", "x.csv", "x.parquet", "parts"]


def write(path, x, names="abc"):
    columns = {name: x[:, j] for j, name in enumerate(names)}
    parquet.write_table(pyarrow.table(columns), path, row_group_size=40)


@pytest.fixture
def place(tmp_path):
    """One table in every form; parts have their columns in any order, and what is no data beside them."""
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(X))
    np.savez_compressed(tmp_path / "fortran.npz", np.asfortranarray(X))
    np.savez_compressed(tmp_path / "x.npz", X)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",", fmt="%.17g", header="a,b,c", comments="")
    write(tmp_path / "x.parquet", X)
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts/part-0.parquet", X[:40])
    write(tmp_path / "parts/part-1.parquet", X[40:70, ::-1], "cba")
    write(tmp_path / "parts/part-2.parquet", X[:0])
    write(tmp_path / "parts/part-3.parquet", X[70:])
    (tmp_path / "parts/_metadata.parquet").write_text("no data")
    return tmp_path


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("rows", [1, 7, 103, 1000])
def test_the_chunks_are_the_table(place, name, rows):
    chunks = list(read_chunks(place / name, rows=rows))
    np.testing.assert_array_equal(np.concatenate([chunk.x for chunk in chunks]), X)
    np.testing.assert_array_equal(np.concatenate([chunk.rows.numbers for chunk in chunks]), np.arange(103))
    assert max(len(chunk.x) for chunk in chunks) <= rows
    assert {chunk.columns for chunk in chunks} == {read_table(place / name).columns}
    blocks = list(FileSource(place / name).blocks(rows))  # all of one size, whatever parts there are
    assert [len(block) for block in blocks[:-1]] == [rows] * (len(blocks) - 1)
    np.testing.assert_array_equal(np.concatenate([block.x for block in blocks]), X)


@pytest.mark.parametrize("name", KINDS)
def test_the_number_of_rows_is_known_or_guessed(place, name):
    assert abs(estimated_rows(place / name) - 103) <= 1  # a header counts as a row


@pytest.mark.parametrize("rows", [1, 4, 10, 95, 1000])
def test_rows_left_out_are_counted_once(tmp_path, rows):
    bad = X[:100].copy()
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
    with pytest.raises(InputError, match="no row is left"):
        first_row(source)
    bad[700] = 1.0
    np.save(tmp_path / "x.npy", bad)
    assert first_row(source).rows.numbers.tolist() == [700]


def test_a_part_with_other_columns_or_no_part_is_named(place):
    write(place / "parts/part-4.parquet", X, "abd")
    with pytest.raises(InputError, match=r"part-4\.parquet has other columns than part-0\.parquet: give all"):
        list(read_chunks(place / "parts"))
    chunks = read_chunks(place / "parts", columns=Columns(keep=["b", "a"]))
    np.testing.assert_array_equal(np.concatenate([c.x for c in chunks]), np.concatenate([X, X])[:, [1, 0]])
    (place / "parts/part-9.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(InputError, match=r"cannot be read as parquet: .*part-9\.parquet"):
        list(read_chunks(place / "parts"))
    (place / "empty").mkdir()
    with pytest.raises(InputError, match="is a folder without parquet files"):
        read_table(place / "empty")


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npy_file_is_never_held_as_a_whole(tmp_path, order):
    np.save(tmp_path / "x.npy", np.ones((100_000, 10), order=order))  # 8 MB
    tracemalloc.start()
    count = sum(len(chunk) for chunk in read_chunks(tmp_path / "x.npy", rows=1000))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100_000 and most < 10**6  # some copies of 80 kB


def test_csv_comes_from_standard_input_too(place, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((place / "x.csv").read_bytes())))
    np.testing.assert_array_equal(np.concatenate([c.x for c in read_chunks("-", rows=10)]), X)
    assert estimated_rows("-") == 0


def test_errors_count_rows_and_lines_of_the_whole_file(place):
    lines = (place / "x.csv").read_text().splitlines()
    lines[60] = "1,,3"
    (place / "gap.csv").write_text("\n".join(lines))
    with pytest.raises(
        InputError, match=r"gap.csv has NaN or infinite values in row 59 \(line 61\); .*--drop-nan"
    ):
        list(read_chunks(place / "gap.csv", rows=10))
    lines[80] = "1,2"
    (place / "ragged.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match="2 cells in line 81"):
        list(read_chunks(place / "ragged.csv", rows=10, drop_nan=True))


def test_rows_keep_their_numbers_when_others_are_left_out(place):
    x = X.copy()
    x[[3, 50, 51]] = np.nan
    np.save(place / "gap.npy", x)
    chunks = list(read_chunks(place / "gap.npy", rows=50, drop_nan=True))
    assert [chunk.dropped for chunk in chunks] == [1, 2, 0]
    assert chunks[1].rows.numbers[0] == 52 and len(chunks[0].x) == 49


def test_an_error_comes_with_the_first_chunk_at_the_latest(place):
    with pytest.raises(InputError, match="no such data file"):
        next(read_chunks(place / "nowhere.npy"))
    with pytest.raises(InputError, match="rows must be a whole number"):
        read_chunks(place / "x.npy", rows=0)


# Growing files.


def test_a_whole_file_is_taken_in_parts(place):
    reader = TailReader(place / "x.csv")
    parts = [reader.take(40) for _ in range(4)]
    assert [len(part) for part in parts] == [40, 40, 23, 0]
    np.testing.assert_array_equal(np.concatenate([part.x for part in parts[:3]]), X)


def test_a_last_line_without_newline_counts_at_the_end_and_is_left_while_more_may_come(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3,4")
    assert len(TailReader(path).take(9)) == 2
    assert len(TailReader(path, follow=True, idle=0.01).take(9)) == 1


def test_rows_are_waited_for_and_half_lines_are_left_until_they_are_whole(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("")

    def write():
        for text in ("a,", "b\n1,2\n3", ".5,", "4\n5,6\n"):
            time.sleep(0.15)  # longer than the reader sleeps
            with path.open("a") as file:
                file.write(text)

    writer = threading.Thread(target=write)
    writer.start()
    reader = TailReader(path, follow=True, idle=5.0)
    np.testing.assert_array_equal(reader.take(3).x, [[1, 2], [3.5, 4], [5, 6]])
    writer.join()
    assert reader.parser.columns == ("a", "b")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.write_text("1,2\n"), "was cut while it was watched"),
        (lambda path: path.unlink(), "was removed while it was watched"),
        (lambda path: os.replace(path.with_name("new"), path), "was replaced while it was watched"),
    ],
    ids=["cut", "removed", "rotated"],
)
def test_a_file_that_is_not_the_same_any_more_is_an_error(tmp_path, change, words):
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,4\n")
    path.with_name("new").write_text("1,2\n3,4\n5,6\n")
    reader = TailReader(path, follow=True)
    assert len(reader.take(2)) == 2
    change(path)
    with pytest.raises(InputError, match=words):
        reader.take(1)


def test_bad_rows_of_a_growing_file_are_named_or_skipped_and_counted(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,who,b\n1,u,2\n3,v,\n,w,5\n6,x,7\n8,y,9\n")
    with pytest.raises(InputError, match=r"x\.csv has NaN or infinite values in row 1"):
        TailReader(path, columns=Columns(exclude=("who",))).take(2)
    reader = TailReader(path, drop_nan=True, columns=Columns(exclude=("who",)))
    first, second = reader.take(2), reader.take(9)
    np.testing.assert_array_equal(first.x, [[1, 2], [6, 7]])
    np.testing.assert_array_equal(second.x, [[8, 9]])
    assert reader.dropped == 2 and first.rows.cells() == {"row": [0, 3], "line": [2, 5]}


def test_what_cannot_grow_is_not_watched(place):
    with pytest.raises(InputError, match="cannot grow line by line"):
        TailReader(place / "x.npy")
    with pytest.raises(InputError, match="did you mean x"):
        TailReader(place / "xx.csv")
    with pytest.raises(InputError, match="idle is a time to wait"):
        TailReader(place / "x.csv", idle=1.0)
    with pytest.raises(InputError, match="idle must be a positive"):
        TailReader(place / "x.csv", follow=True, idle=-1.0)
