"""Whole files or none, and nothing executed."""

import json
import os
import pickle
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize("failing", ["fsync", "replace"])
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


def test_threads_that_write_one_file_at_once_leave_one_of_theirs(tmp_path):
    contents = [bytes([k]) * 1000 for k in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda data: write_atomically(tmp_path / "x", data), contents * 20))
    assert (tmp_path / "x").read_bytes() in contents and os.listdir(tmp_path) == ["x"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        write_atomically(tmp_path / "file" / "x", b"")


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_tensors(tmp_path / "x", kind="x")


def test_foreign_files_are_refused_and_not_executed(tmp_path):
    path, made = tmp_path / "x", tmp_path / "made"
    for content in (b"", b"{}", pickle.dumps(Bomb(made)), save(TENSORS), b"\xff" * 64):
        path.write_bytes(content)
        with pytest.raises(FileFormatError) as caught:
            read_tensors(path, kind="x")
        assert "\n" not in str(caught.value)
    assert not made.exists()


@pytest.mark.parametrize("description", ["not json", "[1, 2]", "3"])
def test_descriptions_that_are_no_objects_are_refused(tmp_path, description):
    (tmp_path / "x").write_bytes(save(TENSORS, metadata={"steincritic": description}))
    with pytest.raises(FileFormatError, match="steincritic file"):
        read_tensors(tmp_path / "x", kind="x")


def test_a_file_of_a_version_without_hashes_says_to_save_it_again(tmp_path):
    (tmp_path / "x").write_bytes(save(TENSORS, metadata={"steincritic": json.dumps({"format": "critic-1"})}))
    with pytest.raises(FileFormatError, match="another version of steincritic: save it again"):
        read_tensors(tmp_path / "x", kind="critic")


def test_another_kind_is_refused_by_name(tmp_path):
    write_tensors(tmp_path / "x", TENSORS, {}, kind="model")
    with pytest.raises(FileFormatError, match="must be a file of kind 'critic', it is one of kind 'model'"):
        read_tensors(tmp_path / "x", kind="critic")


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
