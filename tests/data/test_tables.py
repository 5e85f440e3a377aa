"""Files become tables of floats with named columns, or are refused in one line with the way out."""

import pickle
import time
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steincritic.data import Columns, binary, read_points, read_table
from steincritic.data.delimited import CsvParser
from steincritic.errors import FileFormatError, InputError

VALUES = np.array([[1.0, 2.0], [3.0, 4.5], [-1.0, 0.25]])
needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is an extra")


def saved(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def save_parquet(path, **columns):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)
    return path


# What is read.


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("height,width\n1,2\n3,4.5\n-1,.25\n", ("height", "width")),
        ("1,2\n3,4.5\n-1,.25", ("x1", "x2")),
        ("height;width\n1;2\n3;4.5\n-1;.25\n", ("height", "width")),
        ("height\twidth\n1\t2\n3\t4.5\n-1\t.25\n", ("height", "width")),
        ('"a, b","c"\r\n"1","2"\r\n3,4.5\r\n-1,.25\r\n', ("a, b", "c")),
        ("# a,b\n1,2\n3,4.5\n-1,.25\n", ("a", "b")),
        ("# made by hand\n\na, b\n1, 2\n\n# a remark\n3, 4.5\n  \n-1, .25\n", ("a", "b")),
        ("1999,width\n1,2\n3,4.5\n-1,.25\n", ("1999", "width")),
        (",width\n1,2\n3,4.5\n-1,.25\n", ("x1", "width")),
        ("größe,µ\n1e0,2\n+3,45E-1\n-1,.25\n", ("größe", "µ")),
    ],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_csv_is_read_in_the_ways_people_write_it(tmp_path, content, columns, mark):
    table = read_table(saved(tmp_path, "x.csv", mark + content.encode()))
    np.testing.assert_array_equal(table.x, VALUES)
    assert table.columns == columns and table.dropped == 0


def test_the_ending_may_be_in_capitals(tmp_path):
    assert read_table(saved(tmp_path, "X.CSV", "1,2\n")).x.shape == (1, 2)


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8", "f2", "g"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_native_floats(tmp_path, dtype, order):
    np.save(tmp_path / "x.npy", np.array(VALUES, dtype=dtype, order=order))
    np.savez_compressed(tmp_path / "x.npz", anything=np.array(VALUES, dtype=dtype, order=order))
    for name in ("x.npy", "x.npz"):
        table = read_table(tmp_path / name)
        assert table.x.dtype in (np.float32, np.float64) and table.columns == ("x1", "x2")
        np.testing.assert_array_equal(table.x, VALUES)  # each is a binary fraction


@needs_pyarrow
def test_parquet_brings_its_names_and_whole_numbers_become_floats(tmp_path):
    path = save_parquet(
        tmp_path / "x.parquet", a=[1, 3, -1], b=VALUES[:, 1], __index_level_0__=["u", "v", "w"]
    )
    table = read_table(path)
    np.testing.assert_array_equal(table.x, VALUES)
    assert table.columns == ("a", "b") and table.x.dtype == np.float64


@given(
    st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2), min_size=1)
)
def test_numbers_come_back_to_the_last_bit(rows):
    lines = [",".join(map(repr, row)).encode() for row in rows]
    np.testing.assert_array_equal(CsvParser("x").parse(lines).x, np.array(rows))


@given(cuts=st.lists(st.integers(0, 7), max_size=3))
def test_text_in_pieces_gives_the_same_rows_as_text_in_one(cuts):
    lines = [b"# note", b"a;b", b"1;2", b"", b"3;NA", b"# x", b"5;6"]
    parser, edges = CsvParser("x"), [0, *sorted(cuts), 7]
    parts = [parser.parse(lines[a:b]) for a, b in pairwise(edges)]
    rows = np.concatenate([part.x for part in parts if len(part)])
    np.testing.assert_array_equal(rows, [[1, 2], [3, np.nan], [5, 6]])
    assert parser.columns == ("a", "b") and (parser.lines, parser.rows) == (7, 3)


# Gaps.

GAPS = "a,b\n1,2\nnan,3\n,4\n5,inf\nNA,6\n7,8\n"


def test_rows_with_gaps_are_counted_and_the_way_out_is_offered(tmp_path):
    with pytest.raises(InputError, match=r"in 4 of 6 rows, the first is row 1 \(line 3\); .*--drop-nan"):
        read_table(saved(tmp_path, "x.csv", GAPS))


def test_rows_with_gaps_are_left_out_on_demand(tmp_path):
    table = read_table(saved(tmp_path, "x.csv", GAPS), drop_nan=True)
    np.testing.assert_array_equal(table.x, [[1, 2], [7, 8]])
    assert table.dropped == 4
    assert table.rows.cells() == {"row": [0, 5], "line": [2, 7]} and table.rows.name(1) == "5 (line 7)"


def test_a_table_of_nothing_but_gaps_is_refused(tmp_path):
    with pytest.raises(InputError, match="all of its 2 rows"):
        read_table(saved(tmp_path, "x.csv", "a\nnan\n-inf\n"), drop_nan=True)


def test_points_may_hold_gaps_for_the_caller_to_judge(tmp_path):
    assert np.isnan(read_points(saved(tmp_path, "x.csv", "1,2\n3,\n"))).sum() == 1


@needs_pyarrow
def test_gaps_of_parquet_are_nan(tmp_path):
    path = save_parquet(tmp_path / "x.parquet", a=[1.0, None, 3.0], b=[1, 2, None])
    assert len(read_table(path, drop_nan=True).x) == 1


# What is refused.

CSV = {
    "a,b\n1,2\n3,4,5\n": "x.csv has 3 cells in line 3 but 2 columns; give every line 2 cells",
    "a,b\n1,2\n\n3\n": "x.csv has 1 cell in line 4 but 2 columns",
    "a,b\n1,2,3\n4,5,6\n": "x.csv has 3 cells in line 2 but 2 columns",
    "a;b\n1;2\n3\n": "separated by semicolons",
    "a,b,c\n1,red,2\n2,blue,big\n": "got text in columns b ('red' in line 2), c ('big' in line 3)",
    "1.5,red\n2.5,blue\n": "got text in column x2 ('red' in line 1); leave it out with --exclude x2,",
    "a,b\n1,2\n3,12.3abc\n": "got text in column b ('12.3abc' in line 3)",
    "a,b\n1,1_000\n": "got text in column b ('1_000' in line 2)",
    "a,flag\n1,True\n": "got truth values in column flag ('True' in line 2)",
    "a,day\n1,2024-01-31\n": "got dates in column day ('2024-01-31' in line 2)",
    "a,at\n1,12:30\n": "got dates in column at",
    "a;b\n1,5;2,5\n": "got decimal commas in columns a ('1,5' in line 2), b ('2,5' in line 2); write 1.5",
    "1.0 2.0\n3.0 4.0\n": "got numbers separated by spaces",
    "a,b\n1,#ff0000\n": "got text in column b ('#ff0000' in line 2)",
    ",".join(f"c{k}" for k in range(9)) + "\n" + ",".join("t" * 9) + "\n": "c4 ('t' in line 2) and 4 more",
    "a\n" + "long " * 99 + "\n": "('long long long long long lo...' in line 2)",
    "": "x.csv must hold rows of numbers, it holds nothing",
    "\n \n": "x.csv must hold rows of numbers, it holds nothing",
    "a,b\n": "it holds only the header a, b",
}


def refusal(path, **options):
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        read_table(path, **options)
    assert "\n" not in str(caught.value) and time.perf_counter() - start < 2
    return str(caught.value)


@pytest.mark.parametrize("content", CSV, ids=[repr(content)[:30] for content in CSV])
def test_csv_that_is_no_table_of_numbers_is_refused_with_place_and_way_out(tmp_path, content):
    assert CSV[content] in refusal(saved(tmp_path, "x.csv", content))


def test_text_that_is_not_utf8_is_refused(tmp_path):
    assert "line 2 is not UTF-8" in refusal(saved(tmp_path, "x.csv", b"a,b\n1,\xff\n"))
    assert "line 1 is not UTF-8" in refusal(saved(tmp_path, "y.csv", "a,b\n1,2\n".encode("utf-16")))
    assert "y.csv" in refusal(saved(tmp_path, "y.csv", bytes(range(256))))


def test_a_late_fault_in_a_long_file_is_found(tmp_path):
    lines = ["a,b"] + ["1.25,2.5"] * 100_000
    lines[70_000] = "1.25,oops"
    assert "('oops' in line 70001)" in refusal(saved(tmp_path, "x.csv", "\n".join(lines)))


def test_a_missing_file_is_reported_with_those_of_a_near_name(tmp_path):
    for name in ("data.csv", "other.npy", "notes.txt"):
        saved(tmp_path, name, "1,2\n")
    assert refusal(tmp_path / "dta.csv").endswith("dta.csv; did you mean data.csv?")
    assert refusal(tmp_path / "data.npy").endswith("did you mean data.csv?")
    assert refusal(tmp_path / "zebra.parquet").endswith("zebra.parquet")
    assert "is a folder" in refusal(tmp_path)
    assert "there is no folder" in refusal(tmp_path / "no" / "x.csv")


def test_a_wrong_ending_is_refused(tmp_path):
    assert "must end in one of .npy, .npz, .csv, .parquet, got .txt" in refusal(saved(tmp_path, "x.txt", "1"))
    assert "it has no ending" in refusal(saved(tmp_path, "x", "1"))


def test_a_file_that_may_not_be_read_is_reported(tmp_path, monkeypatch):
    path = saved(tmp_path, "x.csv", "1,2\n")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    assert refusal(path).endswith("x.csv cannot be read: Permission denied")


def save_array(folder, name, *arrays, **more):
    with (folder / name).open("wb") as file:
        np.save(file, *arrays, **more) if name.endswith("npy") else np.savez(file, *arrays, **more)
    return folder / name


def test_arrays_that_are_no_tables_of_floats_are_refused(tmp_path):
    whole, objects = np.ones((3, 2), dtype=int), np.array([[1, None]], dtype=object)
    path = tmp_path / "x.npy"
    for array, words in (
        (whole, "x.npy must hold floating-point numbers, got int64"),
        (VALUES[0], "x.npy must have shape (n, d), got (2,); for n numbers save x[:, None]"),
        (VALUES[:0], "with n and d at least 1, got (0, 2)"),
    ):
        np.save(path, array)
        assert words in refusal(path)
    two = save_array(tmp_path, "x.npz", a=VALUES, b=VALUES)
    assert "it holds 2: a, b; save the wanted one" in refusal(two)
    assert "it holds 0" in refusal(save_array(tmp_path, "x.npz"))
    for name in ("x.npy", "x.npz"):
        assert "pickled objects, which are never loaded" in refusal(save_array(tmp_path, name, objects))


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
@pytest.mark.parametrize("content", [b"", b"hello there", pickle.dumps([1.0]), b"PK\x03\x04cut", b"PAR1PAR1"])
def test_files_that_only_have_the_name_are_refused(tmp_path, name, content):
    message = refusal(saved(tmp_path, name, content))
    assert f"{name} cannot be read as {name[2:]}" in message or "pip install" in message


def test_a_file_that_was_cut_is_refused(tmp_path):
    path = save_array(tmp_path, "x.npy", VALUES)
    path.write_bytes(path.read_bytes()[:-5])
    assert refusal(path).endswith("x.npy is cut off: 5 bytes are missing; write it again")


def test_a_header_that_promises_what_no_machine_holds_is_refused(tmp_path):
    path = save_array(tmp_path, "x.npy", VALUES)
    path.write_bytes(path.read_bytes().replace(b"(3, 2), }        ", b"(3, 2" + b"0" * 8 + b"), }"))
    assert "x.npy" in refusal(path)


def test_a_small_file_that_unpacks_to_very_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    zeros = np.zeros((2**17, 4))
    np.savez_compressed(tmp_path / "x.npz", zeros)
    assert read_table(tmp_path / "x.npz").x.shape == zeros.shape  # 4 MiB do no harm
    monkeypatch.setattr(binary, "_SMALL", 2**20)
    paths = [tmp_path / "x.npz"]
    if find_spec("pyarrow"):
        paths.append(save_parquet(tmp_path / "x.parquet", **{name: zeros[:, 0] for name in "abcd"}))
    for path in paths:
        assert "and claims to unpack to 4194" in refusal(path)
    noise = np.random.default_rng(0).normal(size=zeros.shape).astype(np.float32)
    np.savez_compressed(tmp_path / "y.npz", noise)
    assert np.array_equal(read_table(tmp_path / "y.npz").x, noise)


@needs_pyarrow
def test_columns_of_parquet_that_are_no_numbers_are_named(tmp_path):
    path = save_parquet(tmp_path / "x.parquet", a=[1.0], color=["red"], flag=[True])
    assert "in columns color (string, such as 'red'), flag (bool, such as 'True')" in refusal(path)
    assert "it has no rows" in refusal(save_parquet(tmp_path / "y.parquet", a=np.empty(0)))


def test_reading_errors_are_file_format_errors(tmp_path):
    with pytest.raises(FileFormatError):
        read_table(saved(tmp_path, "x.csv", "a,b\n1\n"))


# Some of the columns.

MIXED = 'who,height,color,weight\nanna,1,red,10\nbob,2,blue,\n\n"c, d",3,red,30\n'


def test_columns_are_kept_left_out_or_name_the_rows(tmp_path):
    path = saved(tmp_path, "x.csv", MIXED)
    kept = read_table(path, columns=Columns(keep=["weight", "height"]), drop_nan=True)
    assert kept.columns == ("weight", "height") and kept.dropped == 1
    np.testing.assert_array_equal(kept.x, [[10, 1], [30, 3]])
    rest = read_table(path, columns=Columns(exclude=["color"], id="who"), drop_nan=True)
    assert rest.columns == ("height", "weight")
    assert rest.rows.cells() == {"row": [0, 2], "line": [2, 5], "id": ["anna", "c, d"]}
    assert rest.rows.name(1) == "2 (line 5, id c, d)"


@given(
    places=st.permutations(range(4)).flatmap(lambda p: st.integers(1, 4).map(lambda k: p[:k])),
    quoted=st.booleans(),
)
def test_the_quick_way_and_the_careful_way_read_the_same(places, quoted):
    """A quote makes the parser go cell by cell."""
    lines = [b"a,b,c,d", b'"1",2,3,4' if quoted else b"1,2,3,4", b"5,6,7,8"]
    table = CsvParser("x", Columns(keep=["abcd"[j] for j in places])).parse(lines)
    np.testing.assert_array_equal(table.x, np.array([[1, 2, 3, 4], [5, 6, 7, 8]])[:, list(places)])
    assert table.rows.lines.tolist() == [2, 3]


def test_lines_of_another_length_are_refused_whatever_columns_are_used(tmp_path):
    for text in ("a,b,c\n1,2,3\n4,5\n", "a,b,c\n1,2,3\n4,5,6,7\n"):
        assert "in line 3 but 3 columns" in refusal(
            saved(tmp_path, "x.csv", text), columns=Columns(keep=["a"])
        )


def test_arrays_have_columns_too(tmp_path):
    np.save(tmp_path / "x.npy", VALUES)
    table = read_table(tmp_path / "x.npy", columns=Columns(exclude=["x1"], id="x1"))
    assert table.columns == ("x2",) and table.rows.cells() == {"row": [0, 1, 2], "id": ["1", "3", "-1"]}


@needs_pyarrow
def test_only_chosen_columns_of_parquet_have_to_be_numbers(tmp_path):
    path = save_parquet(tmp_path / "x.parquet", a=[1.0, 2.0], who=["u", "v"], color=["red", "blue"])
    table = read_table(path, columns=Columns(exclude=["color"], id="who"))
    assert table.columns == ("a",) and table.rows.cells() == {"row": [0, 1], "id": ["u", "v"]}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"keep": ["wieght"]}, "x.csv has no column 'wieght'; did you mean weight?"),
        ({"exclude": ["zebra"]}, "has no column 'zebra'; it has who, height, color, weight"),
        ({"id": "Who"}, "did you mean who?"),
        ({"exclude": ["who", "height", "color", "weight"]}, "no column of"),
        ({"keep": ["weight", "weight"]}, "'weight' is there more than once"),
        (
            {"exclude": ["who"]},
            "got text in column color ('red' in line 2); leave it out with --exclude color,",
        ),
    ],
)
def test_columns_that_are_not_there_are_named(tmp_path, columns, words):
    assert words in refusal(saved(tmp_path, "x.csv", MIXED), columns=Columns(**columns))


def test_columns_cannot_be_kept_and_left_out_or_name_the_rows_at_once():
    with pytest.raises(InputError, match="not both"):
        Columns(keep=["a"], exclude=["b"])
    with pytest.raises(InputError, match="names the rows"):
        Columns(keep=["a", "b"], id="a")
