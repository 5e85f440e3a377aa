"""Files become tables of floats with named columns, or are refused in one line with the way out."""

import pickle
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import steincritic as sc
from steincritic.data import Columns, as_points, binary, read_table
from steincritic.data.delimited import CsvParser
from steincritic.errors import InputError

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

VALUES = np.array([[1.0, 2.0], [3.0, 4.5], [-1.0, 0.25]])


def saved(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def save_parquet(path, **columns):
    parquet.write_table(pyarrow.table(columns), path)
    return path


# What Python holds.


class FrameLike:
    """Stands for pandas and polars: all that is asked of a frame is to_numpy."""

    def to_numpy(self):
        return VALUES


LOCKED = VALUES.copy()
LOCKED.flags.writeable = False
HELD = {
    "array": VALUES,
    "tensor": torch.tensor(VALUES),
    "list": VALUES.tolist(),
    "frame": FrameLike(),
    "byte order": VALUES.astype(">f8"),
    "long double": VALUES.astype(np.longdouble),
    "negative strides": VALUES[::-1, ::-1].copy()[::-1, ::-1],
    "column order": np.asfortranarray(VALUES),
    "strided": np.repeat(VALUES, 2, axis=1)[:, ::2],
    "read-only": LOCKED,
}


@pytest.mark.parametrize("kind", HELD)
def test_every_kind_of_table_gives_the_same_points(kind):
    assert torch.equal(as_points(HELD[kind]), torch.tensor(VALUES))


def test_precision_is_kept():
    assert as_points(VALUES.astype(np.float32)).dtype == torch.float32


class DaskLike:
    def to_delayed(self):
        raise AssertionError


def with_value(value):
    x = VALUES.copy()
    x[1, 0] = value
    return x


FLOATS = "x must (hold floating-point|be an array of floats)"
MALFORMED = {
    "a row": (VALUES[0], "x must have shape"),
    "a number": (np.float64(3.0), "x must have shape"),
    "three axes": (VALUES[None], "x must have shape"),
    "no rows": (VALUES[:0], "x must have shape"),
    "no columns": (VALUES[:, :0], "x must have shape"),
    "NaN": (with_value(np.nan), "x has NaN or infinite values in 1 of 3 rows, the first is row 1"),
    "infinity": (with_value(np.inf), "x has NaN or infinite values"),
    "too many columns": (np.zeros((9, 3)), "x has 3 columns but the model has 2"),
    "integers": (np.ones((9, 2), dtype=int), FLOATS),
    "booleans": (torch.ones(9, 2, dtype=torch.bool), FLOATS),
    "complex": (np.ones((9, 2), dtype=complex), FLOATS),
    "objects": (np.array([[1.0, None]] * 9), FLOATS),
    "text": ([["a", "b"]] * 9, FLOATS),
    "nothing": (None, FLOATS),
    "meta tensor": (torch.ones(3, 2, device="meta"), "x must be a dense array of numbers, got a meta tensor"),
    "sparse tensor": (torch.eye(2).to_sparse(), "x must be a dense array of numbers, got a sparse"),
    "ragged rows": ([[1.0, 2.0], [3.0]], "x must be a rectangular"),
    "a Dask frame": (DaskLike(), "x is a Dask DaskLike, .*: pass a folder of parquet files"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_no_table_of_floats_is_refused_in_one_line(kind):
    x, words = MALFORMED[kind]
    model = sc.models.GaussianMixture([[0.0, 0.0]])
    with pytest.raises(InputError, match=words) as refused:
        sc.gof_test(model, x)
    assert "\n" not in str(refused.value)


# What is read.


PLAIN = "1,2\n3,4.5\n-1,.25\n"
MIXED = 'who,height,color,weight\nanna,1,red,10\nbob,2,blue,\n\n"c, d",3,red,30\n'
GIVES = [  # what a file holds, which of its columns are read, their names; the numbers are VALUES
    ("a,b\n" + PLAIN, {}, "a b"),
    (PLAIN.rstrip(), {}, "x1 x2"),
    ("2,1\n4.5,3\n.25,-1", {"keep": ["x2", "x1"]}, "x2 x1"),
    ("a;b\n" + PLAIN.replace(",", ";"), {}, "a b"),
    ("a\tb\n" + PLAIN.replace(",", "\t"), {}, "a b"),
    ("a,b\r\n1,2\n3,4.5\r\n-1,0.25\n", {}, "a b"),
    ("# a,b\n" + PLAIN, {}, "a b"),
    ("# made by hand\n\na, b\n1, 2\n\n# a remark\n3, 4.5\n  \n-1, .25\n", {}, "a b"),
    (' a , b \n "1" , 2 \n +3 , 45e-1 \n -1. , 0.25 \n', {}, "a b"),
    ('"a ""x""",größe\n' + PLAIN, {}, 'a_"x" größe'),
    ("1999,µ\n" + PLAIN, {}, "1999 µ"),
    (",b\n" + PLAIN, {}, "x1 b"),
    ('t,a,b\n"u, v",1,2\n"w\nx",3,4.5\ny,-1,.25\n', {"exclude": ["t"]}, "a b"),
    ("b,color,a\n2,red,1\n4.5,blue,3\n.25,red,-1\n", {"keep": ["a", "b"]}, "a b"),
    ("a,b,who,t\n1,2,=A1,x\n3,4.5,v,y\n-1,.25,v,z\n", {"id": "who", "exclude": ["t"]}, "a b"),
    ("a,b,c\n1,2,\n3,4.5,x\n-1,.25,nan\n", {"exclude": ["c"]}, "a b"),
    ("a,b,\n1,2,\n3,4.5,\n-1,.25,\n", {"exclude": ["x3"]}, "a b"),
    ("t,a,t,b\nx,1,y,2\nx,3,y,4.5\nx,-1,y,.25\n", {"exclude": ["t"]}, "a b"),
    *(
        (f"a,b\n1,2\n{cell},7\n3,4.5\n-1,0.25\n", {}, "a b")  # a gap, which is dropped
        for cell in ("", "nan", "NaN", "NA", "N/A", "null", "None", "inf", "-Infinity", '""', " ")
    ),
]


@pytest.mark.parametrize(("content", "columns", "names"), GIVES)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_csv_is_read_as_the_numbers_that_a_person_sees(tmp_path, content, columns, names, mark):
    path = saved(tmp_path, "x.csv", mark + content)
    table = read_table(path, drop_nan=True, columns=Columns(**columns))
    np.testing.assert_array_equal(table.x, VALUES)
    assert table.columns == tuple(name.replace("_", " ") for name in names.split())


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f8", "f2", "g"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_native_floats(tmp_path, dtype, order):
    np.save(tmp_path / "x.npy", np.array(VALUES, dtype=dtype, order=order))
    np.savez_compressed(tmp_path / "x.npz", anything=np.array(VALUES, dtype=dtype, order=order))
    for name in ("x.npy", "x.npz"):
        table = read_table(tmp_path / name)
        assert table.x.dtype in (np.float32, np.float64) and table.columns == ("x1", "x2")
        np.testing.assert_array_equal(table.x, VALUES)  # each is a binary fraction


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


def test_rows_with_gaps_are_counted_or_left_out_on_demand(tmp_path):
    path = saved(tmp_path, "X.CSV", GAPS)
    assert (
        "in 4 of 6 rows, the first is row 1 (line 3); repair them or leave them out: --drop-nan"
        in refusal(path)
    )
    table = read_table(path, drop_nan=True)
    np.testing.assert_array_equal(table.x, [[1, 2], [7, 8]])
    assert table.dropped == 4
    assert table.rows.cells() == {"row": [0, 5], "line": [2, 7]} and table.rows.name(1) == "5 (line 7)"
    assert "all of its 2 rows" in refusal(saved(tmp_path, "y.csv", "a\nnan\n-inf\n"), drop_nan=True)
    gaps = save_parquet(tmp_path / "x.parquet", a=[1.0, None, 3.0], b=[1, 2, None])
    assert len(read_table(gaps, drop_nan=True).x) == 1


# What is refused.

SAYS = [  # what a file holds, which of its columns are read, what the line must say
    ("\n \n", {}, "x.csv must hold rows of numbers, it holds nothing"),
    ("a,b\n# 1,2\n\n", {}, "it holds only the header a, b"),
    (
        "a,b\n1,2\n3,4,5\n",
        {"keep": ["a"]},
        "x.csv has 3 cells in line 3 but 2 columns; give every line 2 cells",
    ),
    (
        "a;b\n1;2\n\n3\n",
        {},
        "x.csv has 1 cell in line 4 but 2 columns; give every line 2 cells, separated by semi",
    ),
    ("a,b,c\n1,red,2\n2,blue,big\n", {}, "got text in columns b ('red' in line 2), c ('big' in line 3)"),
    ("1.5,red\n2.5,blue\n", {}, "got text in column x2 ('red' in line 1); leave it out with --exclude x2,"),
    ("t,a,u\nx,1,y\nx,2,z\n", {}, "leave them out with --exclude t,u"),
    ("a,eye color\n1,red\n2,blue\n", {}, "--exclude 'eye color'"),
    ("a,b\ncm,kg\n1,2\n3,4\n", {}, "a ('cm' in line 2), b ('kg' in line 2); repair line 2 or remove it"),
    ("a,b\n1,1_000\n", {}, "got text in column b ('1_000' in line 2)"),
    (
        "a;b\n1,5;2,5\n",
        {},
        "got decimal commas in columns a ('1,5' in line 2), b ('2,5' in line 2); write 1.5",
    ),
    ("a;b\n1;2\n3;4,5\n", {}, "'4,5' in line 3); repair line 3 or remove it"),
    ("1.0 2.0\n3.0 4.0\n", {}, "got numbers separated by spaces"),
    (",".join("abcdefghi") + "\n" + ",".join("t" * 9) + "\n", {}, "e ('t' in line 2) and 4 more"),
    ("a\n" + "long " * 99 + "\n", {}, "('long long long long long lo...' in line 2)"),
    ("a,b,\n1,2,\n3,4,\n", {}, "no number is in x3, so perhaps --exclude x3"),
    ('a,b\n"1,2\n3,4\n', {}, "line"),
    ("a,b\r1,2\r3,4\r", {}, "carriage return"),
    ("größe,b\n1,2\n".encode("latin-1"), {}, "line 1 is not UTF-8"),
    ("a,b\n1,2\n".encode("utf-16"), {}, "line 1 is not UTF-8"),
    (b"a,b\n1,\xff\n", {}, "line 2 is not UTF-8"),
    (bytes(range(256)), {}, "x.csv"),
    ("a,a\n1,2\n3,4\n", {}, "'a' is there more than once"),
    (MIXED, {"keep": ["weight", "weight"]}, "'weight' is there more than once"),
    (MIXED, {"keep": ["wieght"]}, "x.csv has no column 'wieght'; did you mean weight?"),
    (MIXED, {"exclude": ["zebra"]}, "has no column 'zebra'; it has who, height, color, weight"),
    (MIXED, {"id": "Who"}, "did you mean who?"),
    (MIXED, {"exclude": ["who", "height", "color", "weight"]}, "no column of"),
]


def refusal(path, **options):
    start = time.perf_counter()
    with pytest.raises(InputError) as caught:
        read_table(path, **options)
    assert "\n" not in str(caught.value) and time.perf_counter() - start < 2
    return str(caught.value)


@pytest.mark.parametrize(("content", "columns", "words"), SAYS)
def test_csv_that_is_no_table_of_numbers_is_refused_with_place_and_way_out(tmp_path, content, columns, words):
    assert words in refusal(saved(tmp_path, "x.csv", content), columns=Columns(**columns))


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
    assert "must end in one of .npy, .npz, .csv, .parquet, got .txt" in refusal(tmp_path / "notes.txt")


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
        assert "object" in refusal(save_array(tmp_path, name, objects)).lower()  # which are never unpickled


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.parquet"])
@pytest.mark.parametrize(
    "content", [b"", b"hello there", pickle.dumps([1.0]), b"PK\x03\x04cut", "cut", "long"]
)
def test_damaged_files_are_refused_in_one_line(tmp_path, name, content):
    """What only has the name, what was cut, and a header that promises what no machine holds."""
    if isinstance(content, str):
        whole = save_array(tmp_path, "x.npy", VALUES).read_bytes()
        content = whole[:-5] if content == "cut" else whole.replace(b"(3, 2), }", b"(30000000, 2), }")
    message = refusal(saved(tmp_path, name, content))
    assert f"{name} cannot be read as {name[2:]}" in message


def test_a_small_file_that_unpacks_to_very_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    zeros = np.zeros((2**17, 4))
    np.savez_compressed(tmp_path / "x.npz", zeros)
    assert read_table(tmp_path / "x.npz").x.shape == zeros.shape  # 4 MiB do no harm
    monkeypatch.setattr(binary, "_SMALL", 2**20)
    many = save_parquet(tmp_path / "x.parquet", **{name: zeros[:, 0] for name in "abcd"})
    for path in (tmp_path / "x.npz", many):
        assert "and claims to unpack to 4194" in refusal(path)
    noise = np.random.default_rng(0).normal(size=zeros.shape).astype(np.float32)
    np.savez_compressed(tmp_path / "y.npz", noise)
    assert np.array_equal(read_table(tmp_path / "y.npz").x, noise)


def test_columns_of_parquet_that_are_no_numbers_are_named(tmp_path, monkeypatch):
    path = save_parquet(tmp_path / "x.parquet", a=[1.0], color=["red"], flag=[True])
    assert "in columns color (string, such as 'red'), flag (bool, such as 'True')" in refusal(path)
    assert "it has no rows" in refusal(save_parquet(tmp_path / "y.parquet", a=np.empty(0)))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "needs pyarrow: pip install 'steincritic[parquet]'" in refusal(path)


# Some of the columns.


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


def test_arrays_have_columns_too(tmp_path):
    np.save(tmp_path / "x.npy", VALUES)
    table = read_table(tmp_path / "x.npy", columns=Columns(exclude=["x1"], id="x1"))
    assert table.columns == ("x2",) and table.rows.cells() == {"row": [0, 1, 2], "id": ["1", "3", "-1"]}


def test_only_chosen_columns_of_parquet_have_to_be_numbers(tmp_path):
    path = save_parquet(tmp_path / "x.parquet", a=[1.0, 2.0], who=["u", "v"], color=["red", "blue"])
    table = read_table(path, columns=Columns(exclude=["color"], id="who"))
    assert table.columns == ("a",) and table.rows.cells() == {"row": [0, 1], "id": ["u", "v"]}


def test_columns_cannot_be_kept_and_left_out_or_name_the_rows_at_once():
    with pytest.raises(InputError, match="not both"):
        Columns(keep=["a"], exclude=["b"])
    with pytest.raises(InputError, match="names the rows"):
        Columns(keep=["a", "b"], id="a")
