"""Whole files or none, and nothing executed."""

import os
import pickle

import pytest
import torch
from safetensors.torch import save

from steincritic.errors import FileFormatError, InputError
from steincritic.files import read_tensors, write_atomically, write_tensors

TENSORS = {"a": torch.arange(6, dtype=torch.float64).view(2, 3), "b": torch.tensor([1, 2])}


class Bomb:
    """Pickles to a call; reading it as a pickle would make the file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_tensors_and_description_come_back(tmp_path):
    path = tmp_path / "deep" / "er" / "x.safetensors"
    write_tensors(path, TENSORS, {"seed": 3, "name": "λ"})
    tensors, about = read_tensors(path)
    assert about == {"seed": 3, "name": "λ"}
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())
    assert all(tensors[name].dtype == value.dtype for name, value in TENSORS.items())


def test_views_and_graphs_are_written_as_plain_values(tmp_path):
    leaf = torch.ones(2, 3, requires_grad=True)
    write_tensors(tmp_path / "x", {"t": (leaf * 2).T, "e": torch.ones(1).expand(4)}, {})
    tensors, _ = read_tensors(tmp_path / "x")
    assert tensors["t"].shape == (3, 2) and not tensors["t"].requires_grad
    assert torch.equal(tensors["e"], torch.ones(4))


def test_writing_replaces_the_whole_file(tmp_path):
    path = tmp_path / "x"
    write_atomically(path, b"a longer old content")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("failing", ["fsync", "replace", "chmod"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, failing):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def fail(*args, **kwargs):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, fail)
        with pytest.raises(InputError, match=r"cannot write .*; the old file is untouched"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["x"]


def test_an_interrupt_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def interrupt(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["x"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write_atomically(tmp_path / "file" / "x", b"")


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_tensors(tmp_path / "x")


def test_foreign_files_are_refused_and_not_executed(tmp_path):
    path, made = tmp_path / "x", tmp_path / "made"
    for content in (b"", b"{}", pickle.dumps(Bomb(made)), save(TENSORS), b"\xff" * 64):
        path.write_bytes(content)
        with pytest.raises(FileFormatError) as caught:
            read_tensors(path)
        assert "\n" not in str(caught.value)
    assert not made.exists()


@pytest.mark.parametrize("description", ["not json", "[1, 2]", "3"])
def test_descriptions_that_are_no_objects_are_refused(tmp_path, description):
    (tmp_path / "x").write_bytes(save(TENSORS, metadata={"steincritic": description}))
    with pytest.raises(FileFormatError, match="steincritic file"):
        read_tensors(tmp_path / "x")
