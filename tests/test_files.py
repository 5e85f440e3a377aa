"""Whole files or none, and nothing executed."""

import json
import os
import pickle
import signal
import stat
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save

from steincritic import files
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
    write_tensors(path, TENSORS, {"seed": 3, "name": "λ"}, kind="x")
    tensors, about = read_tensors(path, kind="x")
    assert about == {"seed": 3, "name": "λ"}
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())
    assert all(tensors[name].dtype == value.dtype for name, value in TENSORS.items())


def test_views_and_graphs_are_written_as_plain_values(tmp_path):
    leaf = torch.ones(2, 3, requires_grad=True)
    write_tensors(tmp_path / "x", {"t": (leaf * 2).T, "e": torch.ones(1).expand(4)}, {}, kind="x")
    tensors, _ = read_tensors(tmp_path / "x", kind="x")
    assert tensors["t"].shape == (3, 2) and not tensors["t"].requires_grad
    assert torch.equal(tensors["e"], torch.ones(4))


def test_writing_replaces_the_whole_file(tmp_path):
    path = tmp_path / "x"
    write_atomically(path, b"a longer old content")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("failing", ["fsync", "replace", "interrupt"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, failing):
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def fail(*args, **kwargs):
        raise KeyboardInterrupt if failing == "interrupt" else OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace" if failing == "interrupt" else failing, fail)
        with pytest.raises((InputError, KeyboardInterrupt)) as failed:
            write_atomically(path, b"new")
    assert failing == "interrupt" or "the old file is untouched" in str(failed.value)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["x"]


def test_the_rights_of_a_file_are_what_the_umask_leaves(tmp_path):
    for mask, rights in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            write_atomically(tmp_path / "x", b"")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == rights


KILLED = """
import os, signal, sys
from pathlib import Path
from steincritic.files import atomic_file
with atomic_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print(flush=True)
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_left_goes_with_the_next_write_and_a_living_writers_stays(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    (tmp_path / ".x.swp").write_bytes(b"an editor's")
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        write_atomically(path, b"new")
        assert len(os.listdir(tmp_path)) == 3  # the other's, as it lives
        writer.stdin.write(b"\n")
        writer.stdin.close()
        assert writer.wait() == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 3 and path.read_bytes() == b"new"
    write_atomically(tmp_path / "y", b"")
    assert sorted(os.listdir(tmp_path)) == [".x.swp", "x", "y"]


def test_a_file_that_is_cleared_away_before_its_lock_is_made_again(tmp_path, monkeypatch):
    locked, waits = files._locked, []

    def late(file, *, wait):
        waits.append(wait)
        if wait and len(waits) == 1:
            files._clear(tmp_path)
        return locked(file, wait=wait)

    monkeypatch.setattr(files, "_locked", late)
    write_atomically(tmp_path / "x", b"new")
    assert waits == [True, False, True] and (tmp_path / "x").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


def test_a_folder_that_cannot_be_made_and_a_missing_file_are_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write_atomically(tmp_path / "file" / "x", b"")
    with pytest.raises(InputError, match="no such file"):
        read_tensors(tmp_path / "x", kind="x")


OLD = save(TENSORS, metadata={"steincritic": json.dumps({"format": "critic-1"})})
FOREIGN = {
    "empty": (b"", "not a steincritic file"),
    "json": (b"{}", "not a steincritic file"),
    "a pickle": (pickle.dumps(Bomb("made")), "not a steincritic file"),
    "tensors alone": (save(TENSORS), "not a steincritic file"),
    "noise": (b"\xff" * 64, "not a steincritic file"),
    "a description of its own": (save(TENSORS, metadata={"steincritic": "[1, 2]"}), "not a steincritic file"),
    "without a hash": (OLD, "another version of steincritic: save it again"),
    "another kind": (None, "must be a file of kind 'critic', it is one of kind 'model'"),
}


@pytest.mark.parametrize("content", FOREIGN)
def test_a_foreign_or_damaged_file_is_refused_in_one_line_and_not_executed(tmp_path, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, words = FOREIGN[content]
    write_tensors(tmp_path / "x", TENSORS, {}, kind="model")
    if data is not None:
        (tmp_path / "x").write_bytes(data)
    with pytest.raises(FileFormatError, match=words) as refused:
        read_tensors(tmp_path / "x", kind="critic")
    assert "\n" not in str(refused.value) and os.listdir(tmp_path) == ["x"]


def test_equal_content_gives_equal_files(tmp_path):
    for name in ("x", "y"):
        write_tensors(tmp_path / name, TENSORS, {"b": 1, "a": "0" * 64}, kind="0" * 64)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    assert read_tensors(tmp_path / "x", kind="0" * 64)[1] == {"b": 1, "a": "0" * 64}


def test_every_flipped_bit_of_a_file_is_seen(tmp_path):
    write_tensors(tmp_path / "x", {"a": torch.ones(2)}, {"seed": 1}, kind="x")
    whole = (tmp_path / "x").read_bytes()
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(FileFormatError):
            read_tensors(tmp_path / "x", kind="x")
