"""Damaged files of every kind: one line, or the same result again; no other result and no traceback."""

import copy
import json
import math
import pickle
import random
import struct
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

import steincritic as sc
from steincritic.errors import DivergedError, DoubtfulWarning, FileFormatError, InputError
from steincritic.files import read_tensors, write_tensors
from steincritic.gof.watch_state import load_watch
from steincritic.models import GaussianMixture
from steincritic.training.checkpoint import StateFile
from steincritic.training.critic import load_critic
from studies.record import Record
from studies.sweep import run_sweep

Q, OTHER = GaussianMixture([[0.0, 0.0]]), GaussianMixture([[0.0, 0.1]])
X = Q.sample(40, seed=1) + 0.3
NET = sc.MLP(hidden=(4,))
QUICK = sc.Training(epochs=2, batch_size=20, dtype="float64")


class Stopped(Exception):
    """An interrupt."""


def stop(done, total, row):
    raise Stopped


@dataclass(frozen=True)
class Job:
    """Of a sweep."""

    seed: int


def draw(job):
    return {"x": torch.randn(3, generator=torch.Generator().manual_seed(job.seed)).tolist()}


# What is written, and what is made of it again.


def fit(seed, checkpoint=None, callbacks=()):
    return sc.fit_critic(
        Q, X, network=NET, training=QUICK, seed=seed, checkpoint=checkpoint, callbacks=callbacks
    )


def write_critic(path, seed):
    fit(seed).save(path)


def read_critic(path, seed):
    return load_critic(path, Q).witness(X)


def write_training(path, seed):
    with pytest.raises(Stopped):
        fit(seed, path, [stop])


def read_training(path, seed):
    return fit(seed, path).witness(X)


def gof(folder, seed):
    training = replace(QUICK, epochs=4)
    test = sc.CrossFit(folds=2, draws=19, look=1, network=NET, training=training, cache=folder)
    return sc.gof_test((Q, OTHER)[seed], X, test=test)


def write_null(path, seed):
    gof(path.parent / "null", seed)
    next((path.parent / "null").iterdir()).rename(path)


@cache
def name_of_null(seed):
    with TemporaryDirectory() as folder:
        gof(Path(folder), seed)
        return next(Path(folder).iterdir()).name


def read_null(path, seed):
    """With the file where the test looks for it."""
    path.rename(path.with_name(name_of_null(seed)))
    result = gof(path.parent, seed)
    return {name: value for name, value in result.to_dict().items() if name != "notes"}


def write_watch(path, seed):
    test = sc.Sequential(first=10, network=NET, training=QUICK)
    *_, state = sc.watch(Q, [X[:20], X[20:]], test=test, seed=seed)
    state.save(path)


def read_watch(path, seed):
    state = load_watch(path)
    return json.dumps(state.to_dict()), state.bettor.critic.witness(sc.ScoredPoints(X, Q.score(X)))


def write_record(path, seed):
    results = {"power": [0.125, 0.75], "n": 100, "by name": {"KSD": 0.5, "none": None}}
    Record(
        name="gm-1d",
        command="x",
        config={"a": 1},
        seed=seed,
        results=results,
        seconds={"all": 1.5},
        finished="",
    ).save(path)


def read_record(path, seed):
    return Record.load(path)


def write_job(path, seed):
    run_sweep(draw, [Job(seed)], folder=path.parent / "jobs", engine="serial")
    next((path.parent / "jobs").iterdir()).rename(path)


def read_job(path, seed):
    (path.parent / "jobs").mkdir(exist_ok=True)
    run_sweep(draw, [Job(seed)], folder=path.parent / "jobs", engine="serial")
    path.replace(next((path.parent / "jobs").iterdir()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)
        return run_sweep(draw, [Job(seed)], folder=path.parent / "jobs", engine="serial")


@dataclass(frozen=True)
class Kind:
    """Of file."""

    write: Callable[[Path, int], None]
    read: Callable[[Path, int], Any]
    keyed: bool = False  # a file of another seed is seen to be another's
    renewed: bool = False  # computed again, not refused


KINDS = {
    "critic": Kind(write_critic, read_critic),
    "training": Kind(write_training, read_training, keyed=True),
    "null runs": Kind(write_null, read_null, keyed=True, renewed=True),
    "watch state": Kind(write_watch, read_watch),
    "record": Kind(write_record, read_record),
    "job": Kind(write_job, read_job, keyed=True, renewed=True),
}


# Damage: a function of the bytes and of a source of chance. That every bit of the container counts, and what
# is no container at all, is for test_files.py.


def flipped(data, source):
    at = source.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << source.randrange(8))]) + data[at + 1 :]


def digit_changed(data, source):
    """One digit of the text at the file's beginning: a header, a description, a record."""
    text = min(len(data), 8 + int.from_bytes(data[:8], "little"))
    at = source.choice([k for k in range(8, text) if chr(data[k]).isdigit()])
    return data[:at] + str((int(chr(data[at])) + 1) % 10).encode() + data[at + 1 :]


def swapped_parts(data, source):
    a, b = sorted(source.sample(range(8, len(data) - 8), 2))
    return data[:a] + data[b : b + 8] + data[a + 8 : b] + data[a : a + 8] + data[b + 8 :]


def nested_description(data, source):
    text = json.dumps({"__metadata__": {"steincritic": "[" * 100_000}}).encode()
    return struct.pack("<Q", len(text)) + text


DAMAGE = {
    "flip": flipped,
    "another flip": flipped,
    "digit": digit_changed,
    "swapped parts": swapped_parts,
    "cut": lambda d, s: d[: s.randrange(len(d))],
    "empty": lambda d, s: b"",
    "text added": lambda d, s: d + b"abc",
    "huge length": lambda d, s: struct.pack("<Q", 2**64 - 1) + d[8:],
    "nested description": nested_description,
    "brackets": lambda d, s: b"[" * 100_000,
    "a pickle": lambda d, s: pickle.dumps({"a": 1}),
    "an object": lambda d, s: b"{}",
    "no hash": lambda d, s: d.replace(b"sha256", b"sha255").replace(b"checksum", b"checksun"),
}
CASES = [(kind, damage) for kind in KINDS for damage in DAMAGE]
SWAPS = list(pairwise([*KINDS, next(iter(KINDS))]))


@pytest.fixture(scope="module")
def specimens(tmp_path_factory):
    """By kind: a whole file, one of another seed, and what the whole one gives; each made once."""
    made: dict[str, tuple[bytes, bytes, Any]] = {}

    def specimen(name):
        if name not in made:
            kind, contents = KINDS[name], []
            for seed in (0, 1):
                path = tmp_path_factory.mktemp("whole") / "file"
                kind.write(path, seed)
                contents.append(path.read_bytes())
            path = tmp_path_factory.mktemp("read") / "file"
            path.write_bytes(contents[0])
            made[name] = (*contents, kind.read(path, 0))
        return made[name]

    return specimen


def same(found, wanted):
    if isinstance(wanted, torch.Tensor):
        return torch.equal(found, wanted)
    if isinstance(wanted, tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == wanted


def survives(name, data, specimens, path):
    """Refused in one line, or the same result; computed again where that is promised."""
    kind, wanted = KINDS[name], specimens(name)[2]
    path.write_bytes(data)
    try:
        found = kind.read(path, 0)
    except InputError as error:
        assert not kind.renewed and "\n" not in str(error), str(error)
        return
    assert same(found, wanted)
    assert kind.renewed or name == "record", "a damaged file was read as if it were whole"


@pytest.mark.parametrize(("name", "damage"), CASES, ids=[f"{kind}, {damage}" for kind, damage in CASES])
def test_damage_is_seen(name, damage, specimens, tmp_path):
    whole = specimens(name)[0]
    data = DAMAGE[damage](whole, random.Random(zlib.crc32(f"{name} {damage}".encode())))
    assert data != whole
    survives(name, data, specimens, tmp_path / "file")


@pytest.mark.parametrize(("name", "other"), SWAPS, ids=[f"{other} for {kind}" for kind, other in SWAPS])
def test_files_of_other_kinds_are_not_taken(name, other, specimens, tmp_path):
    survives(name, specimens(other)[0], specimens, tmp_path / "file")


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.keyed])
def test_files_of_another_key_are_not_taken(name, specimens, tmp_path):
    survives(name, specimens(name)[1], specimens, tmp_path / "file")


# Claims of files that are whole.


def claim_wide(kind, path, specimens):
    path.write_bytes(specimens(kind)[0])
    tensors, about = read_tensors(path, kind=kind)
    network = about["network"] if kind == "critic" else about["test"]["network"]
    network["hidden"] = [25_000, 25_000]
    write_tensors(path, tensors, about, kind=kind)
    KINDS[kind].read(path, 0)


def claim_large_archive(path, specimens):
    """2 GiB, in the archive's own words, of some kilobytes."""
    archive = path.with_suffix(".npz")
    np.savez_compressed(archive, np.zeros((2**16, 2)))
    size = struct.pack("<I", 2**20 + 128)
    assert size in archive.read_bytes()
    archive.write_bytes(archive.read_bytes().replace(size, struct.pack("<I", 2**31)))
    sc.data.read_table(archive)


@pytest.mark.parametrize(
    "claim", [partial(claim_wide, "critic"), partial(claim_wide, "watch state"), claim_large_archive]
)
def test_what_a_file_claims_is_bounded_before_it_is_built(claim, specimens, tmp_path):
    with pytest.raises(FileFormatError) as caught:
        claim(tmp_path / "file", specimens)
    assert "\n" not in str(caught.value)


# Files with a right hash and absurd values.

FORGED = {  # of which kind the files are, by their own words
    "critic": "critic",
    "training": "training checkpoint",
    "null runs": "null runs",
    "watch state": "watch state",
}
ABSURD = (1e308, -1, None, "x", [], {}, 10**30, math.inf, math.nan)


def leaves(content, path=()):
    """Where something stands in nested lists and objects."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from leaves(value, (*path, key))


def absurd_tensors(value):
    yield from (value.new_zeros(()), value.new_zeros((0,) * max(1, value.ndim)), value[None])
    yield from (-torch.ones_like(value), torch.full_like(value, torch.nan))
    yield from (value.to(torch.int64), value.to(torch.complex64))
    if value.ndim:
        yield value[:-1]


def forgeries(tensors, about):
    for path in leaves(about):
        for value in ABSURD if path != ("identity",) else ():
            changed = copy.deepcopy(about)
            place = reduce(lambda part, key: part[key], path[:-1], changed)
            place[path[-1]] = value
            yield f"{path} is {value!r}", tensors, changed
    for name, value in tensors.items():
        for k, other in enumerate(absurd_tensors(value)):
            yield f"{name} is absurd in way {k}", tensors | {name: other}, about
        yield f"{name} is missing", {key: tensors[key] for key in tensors if key != name}, about


@pytest.mark.parametrize("name", FORGED)
def test_forged_values_are_refused_in_one_line_or_do_no_harm(name, specimens, tmp_path):
    """A sample of them: what a value does to Adam's program may be a segmentation fault."""
    path = tmp_path / "whole"
    path.write_bytes(specimens(name)[0])
    cases = list(forgeries(*read_tensors(path, kind=FORGED[name])))
    for k, (what, tensors, about) in enumerate(random.Random(name).sample(cases, min(len(cases), 60))):
        file = tmp_path / str(k) / "file"
        write_tensors(file, tensors, about, kind=FORGED[name])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DoubtfulWarning)
                KINDS[name].read(file, 0)
        except (InputError, DivergedError) as error:
            assert "\n" not in str(error), what
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")


def test_every_kind_of_state_file_is_here():
    """The library's classes are few; a new one belongs in KINDS."""
    library = (c for c in StateFile.__subclasses__() if c.__module__.startswith("steincritic."))
    assert {subclass.kind for subclass in library} == {"training checkpoint"}
