"""Digits: the idx format, the logit transform and its inverse, where MNIST is looked for, and bad files."""

import gzip
import struct
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import Z_MAX, z_of_mean
from steincritic.errors import FileFormatError, InputError
from steincritic.rng import generator
from steincritic_studies.digits.data import (
    MIRRORS,
    MNIST_FILES,
    Digits,
    data_folder,
    fetch_mnist,
    from_logits,
    mnist,
    read_idx,
    small_digits,
    to_logits,
)

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.to(torch.uint8).numpy().tobytes()


def some_digits(n=6, *, levels=256, seed=0):
    pixels = torch.randint(levels, (n, 4, 5), generator=generator(seed, "pixels")).to(torch.uint8)
    return Digits(pixels, torch.arange(n) % 3, levels)


@pytest.mark.parametrize("pack", [gzip.compress, bytes], ids=["packed", "plain"])
@pytest.mark.parametrize("shape", [(3,), (2, 4, 5)])
def test_an_idx_file_is_read_as_it_was_written(tmp_path, pack, shape):
    array = torch.randint(256, shape, generator=generator(1)).to(torch.uint8)
    (tmp_path / "file").write_bytes(pack(idx(array)))
    assert torch.equal(read_idx(tmp_path / "file"), array)


WHOLE = idx(torch.zeros(2, 4, 5))
PACKED = gzip.compress(WHOLE, mtime=0)
BAD_FILES = {
    "empty": (b"", "not an idx file of bytes: it begins with nothing"),
    "page": (b"<html>not found</html>", "not an idx file of bytes: it begins with 3c68746d"),
    "floats": (b"\0\0\x0d" + WHOLE[3:], "not an idx file of bytes"),
    "cut in its header": (WHOLE[:9], "truncated: its header"),
    "cut": (WHOLE[:-1], r"truncated: 39 bytes of data for an array of shape \(2, 4, 5\)"),
    "too long": (WHOLE + b"\0", "too long: 41 bytes"),
    "packed and cut": (PACKED[:-9], "truncated; remove it and fetch it again"),
    "packed and changed": (PACKED[:-8] + b"\0" * 8, "damaged"),
    "cut and packed": (gzip.compress(WHOLE[:-1]), "truncated: 39 bytes"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_is_no_idx_file_is_named_in_one_line(tmp_path, kind):
    content, words = BAD_FILES[kind]
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(FileFormatError, match=words) as caught:
        read_idx(tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_idx(tmp_path / "file")


@given(level=st.integers(0, 255), seed=st.integers(0, 1000))
def test_the_transform_is_undone_up_to_the_noise(level, seed):
    x = to_logits(torch.full((8,), level), levels=256, generator=generator(seed))
    gray = 256 * from_logits(x)
    # the noise lies within the level; rounding of the sigmoid and its edge, 1e-9 in levels
    assert x.isfinite().all() and bool(((gray > level - 1e-6) & (gray < level + 1 + 1e-6)).all())


@pytest.mark.parametrize("levels", [256, 17])
def test_logits_of_images_give_the_images_back(levels):
    digits = some_digits(50, levels=levels)
    x = digits.logits(seed=2)
    assert x.shape == (50, 20) and x.dtype == torch.float32
    # single precision near white: the noise may cross into the next level by rounding only
    back = (levels * from_logits(x.double())).floor().clamp(max=levels - 1).view(50, 4, 5)
    assert torch.equal(back.to(torch.uint8), digits.pixels)
    assert torch.equal(x, digits.logits(seed=2)) and not torch.equal(x, digits.logits(seed=3))


def test_the_noise_is_uniform_over_its_level():
    x = to_logits(torch.full((20_000,), 100), levels=256, generator=generator(4))
    noise = 256 * from_logits(x) - 100
    assert abs(z_of_mean(noise, 0.5)) < Z_MAX and abs(z_of_mean(noise**2, 1 / 3)) < Z_MAX


def test_far_points_are_black_or_white():
    assert from_logits(torch.tensor([-1e4, 1e4, 0.0])).tolist() == [0.0, 1.0, 0.5]


def test_a_class_filter_keeps_images_with_their_labels():
    digits = some_digits()
    only = digits.only(1, 2)
    assert only.labels.tolist() == [1, 2, 1, 2] and len(only) == 4
    assert torch.equal(only.pixels, digits.pixels[[1, 2, 4, 5]]) and only.levels == digits.levels
    with pytest.raises(InputError, match="no images of class 7; the classes are 0, 1, 2"):
        digits.only(1, 7)


def test_the_small_digits_need_no_download():
    pytest.importorskip("sklearn")
    digits = small_digits()
    assert digits.image_shape == (8, 8) and len(digits) == 1797 and digits.levels == 17
    assert int(digits.pixels.max()) == 16 and digits.labels.unique().tolist() == list(range(10))
    assert digits[:5].logits(seed=0).shape == (5, 64)


def test_without_scikit_learn_the_way_to_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match="pip install"):
        small_digits()


def test_the_folder_is_the_argument_or_the_variable_or_the_usual_place(monkeypatch, tmp_path):
    monkeypatch.delenv("STEINCRITIC_DATA", raising=False)
    assert str(data_folder()) == "data/mnist"
    monkeypatch.setenv("STEINCRITIC_DATA", "elsewhere")
    assert str(data_folder()) == "elsewhere" and data_folder(tmp_path) == tmp_path


def test_a_missing_folder_or_file_says_where_to_put_the_four_files(tmp_path):
    with pytest.raises(InputError, match=f"no folder {tmp_path / 'none'}") as caught:
        mnist(tmp_path / "none")
    for name in (*MNIST_FILES, "STEINCRITIC_DATA", "fetch_mnist"):
        assert name in str(caught.value)
    with pytest.raises(InputError, match=rf"no {IMAGES}\.gz in {tmp_path}"):
        mnist(tmp_path)
    with pytest.raises(InputError, match="part must be one of train, test"):
        mnist(tmp_path, part="validation")


@pytest.mark.parametrize("ending", [".gz", ""])
def test_other_content_under_mnists_names_is_refused(tmp_path, ending):
    pack = gzip.compress if ending else bytes
    (tmp_path / (IMAGES + ending)).write_bytes(pack(idx(torch.zeros(3, 28, 28))))
    with pytest.raises(FileFormatError, match="is not MNIST's: SHA-256 of its content is"):
        mnist(tmp_path)


def test_files_with_the_right_checksums_are_taken(tmp_path, monkeypatch):
    from hashlib import sha256

    content = {IMAGES: idx(some_digits().pixels), LABELS: idx(some_digits().labels)}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
        own = SimpleNamespace(content=sha256(data).hexdigest())
        monkeypatch.setitem(MNIST_FILES, name, own)
    digits = mnist(tmp_path)
    assert torch.equal(digits.pixels, some_digits().pixels) and digits.labels.dtype == torch.int64


def test_downloading_without_pooch_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r"pip install 'steincritic\[mnist\]'"):
        fetch_mnist(tmp_path)


def test_the_second_mirror_is_asked_where_the_first_fails(monkeypatch, tmp_path):
    asked = []

    def retrieve(url, known_hash, *, fname, path):
        asked.append(url)
        if url.startswith(MIRRORS[0]):
            raise ValueError("SHA256 hash of downloaded file does not match\nthe known hash")
        assert known_hash == f"sha256:{MNIST_FILES[fname.removesuffix('.gz')].packed}" and path == tmp_path

    monkeypatch.setitem(sys.modules, "pooch", SimpleNamespace(retrieve=retrieve))
    assert fetch_mnist(tmp_path) == tmp_path
    assert len(asked) == 8 and asked[1] == f"{MIRRORS[1]}{IMAGES}.gz"
    monkeypatch.setattr("steincritic_studies.digits.data.MIRRORS", MIRRORS[:1])
    with pytest.raises(InputError, match=r"could not download train-images.* does not match the known hash"):
        fetch_mnist(tmp_path)


def test_mnist_itself_where_it_is():
    if not (data_folder() / f"{IMAGES}.gz").is_file():
        pytest.skip("no MNIST here")
    digits = mnist(part="test")
    assert digits.image_shape == (28, 28) and len(digits) == 10_000
    assert len(digits.only(1)) == 1135


def test_one_image_is_a_set_of_one_and_no_class_is_a_mistake():
    digits = small_digits()
    assert repr(digits) == "Digits(1797 images of 8 x 8 in 17 gray levels)"
    assert digits[3].pixels.shape == digits[-1].pixels.shape == (1, 8, 8)
    assert torch.equal(digits[-1].labels, digits.labels[-1:])
    with pytest.raises(InputError, match="name the classes"):
        digits.only()
