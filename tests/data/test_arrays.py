"""What people have becomes an (n, d) tensor of floats, or is refused."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from steincritic.data import as_points, read_points
from steincritic.errors import FileFormatError, InputError

VALUES = np.array([[1.0, 2.0], [3.0, 4.5], [-1.0, 0.25]])


class FrameLike:
    """Stands for pandas and polars: all that is asked of a frame is to_numpy."""

    def to_numpy(self):
        return VALUES


@pytest.mark.parametrize(
    "given",
    [VALUES, torch.tensor(VALUES), VALUES.tolist(), FrameLike()],
    ids=["array", "tensor", "list", "frame"],
)
def test_every_kind_of_table_gives_the_same_points(given):
    assert torch.equal(as_points(given), torch.tensor(VALUES))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(dtype):
    assert as_points(VALUES.astype(dtype)).numpy().dtype == dtype


@pytest.mark.parametrize(
    "unusual",
    [
        VALUES.astype(">f8"),
        VALUES.astype(np.longdouble),
        VALUES[:, ::-1].copy()[:, ::-1],
        np.asfortranarray(VALUES),
        np.repeat(VALUES, 2, axis=1)[:, ::2],
    ],
    ids=["byte order", "long double", "negative strides", "column order", "strided"],
)
def test_arrays_of_unusual_layout_are_taken(unusual):
    assert torch.equal(as_points(unusual), torch.tensor(VALUES))


def test_reversed_rows_are_taken():
    assert torch.equal(as_points(VALUES[::-1]), torch.tensor(VALUES).flip(0))


def test_read_only_arrays_are_copied():
    locked = VALUES.copy()
    locked.flags.writeable = False
    assert torch.equal(as_points(locked), torch.tensor(VALUES))


def test_npy_and_npz_are_read(tmp_path):
    np.save(tmp_path / "x.npy", VALUES)
    np.savez(tmp_path / "x.npz", anything=VALUES)
    for name in ("x.npy", "x.npz"):
        assert torch.equal(as_points(tmp_path / name), torch.tensor(VALUES))
        assert torch.equal(as_points(str(tmp_path / name)), torch.tensor(VALUES))


@pytest.mark.parametrize("header", ["", "height,width\n", '"a","b"\n'])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_csv_is_read_with_and_without_header_and_byte_order_mark(tmp_path, header, encoding):
    path = tmp_path / "x.csv"
    path.write_text(header + "\n".join(",".join(map(str, row)) for row in VALUES), encoding=encoding)
    np.testing.assert_array_equal(read_points(path), VALUES)


def test_csv_of_one_column_stays_a_column(tmp_path):
    (tmp_path / "x.csv").write_text("1.0\n2.0\n")
    assert read_points(tmp_path / "x.csv").shape == (2, 1)


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is an extra")
def test_parquet_is_read(tmp_path):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": VALUES[:, 0], "b": VALUES[:, 1]}), tmp_path / "x.parquet")
    np.testing.assert_array_equal(read_points(tmp_path / "x.parquet"), VALUES)


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is here")
def test_parquet_without_its_reader_says_what_to_install(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(FileFormatError, match="pip install"):
        read_points(tmp_path / "x.parquet")


def test_the_message_counts_the_bad_rows_and_names_the_first():
    x = VALUES.copy()
    x[1, 0] = np.nan
    with pytest.raises(InputError, match="in 1 of 3 rows, the first is row 1"):
        as_points(x)


@pytest.mark.parametrize(
    ("name", "content"), [("x.npz", b"PK\x03\x04 cut"), ("x.npy", b""), ("x.csv", b"\xff")]
)
def test_damaged_files_are_refused_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFormatError) as caught:
        read_points(tmp_path / name)
    assert "\n" not in str(caught.value) and name in str(caught.value)
