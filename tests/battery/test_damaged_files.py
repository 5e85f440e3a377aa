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
from functools import cache, reduce
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
from steincritic.learning import EnergyMLP, Learning, fit_energy
from steincritic.models import GaussianBernoulliRBM, GaussianMixture
from steincritic.models.perceptron_energy import PerceptronEnergy
from steincritic.models.saved import load_saved, save_model
from steincritic.training.checkpoint import StateFile
from steincritic.training.critic import load_critic
from steincritic_studies.digits.models import LearnedFile
from steincritic_studies.record import Record
from steincritic_studies.sweep import run_sweep

Q, OTHER = GaussianMixture([[0.0, 0.0]]), GaussianMixture([[0.0, 0.1]])
X = Q.sample(40, seed=1) + 0.3
NET = sc.MLP(hidden=(4,))
QUICK = sc.Training(epochs=2, batch_size=20, dtype="float64")
LEARNING = Learning(steps=4, critic_steps=1, batch_size=20, critic=NET, log_every=2, dtype="float64")


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


def write_machine(path, seed):
    save_model(GaussianBernoulliRBM([[1.0, float(seed)], [0.0, 1.0]], [0.0, 1.0], [0.5, 0.0], sweeps=9), path)


def write_perceptron(path, seed):
    weights = {"w1": [[1.0, -1.0], [0.0, 1.0]], "b1": [0.0, 0.5], "w2": [[-1.0], [float(seed)]]}
    save_model(PerceptronEnergy(weights, location=[0.0, 0.0], scale=[1.0, 2.0]), path)


def read_model(path, seed):
    model = load_saved(path)
    return torch.cat([model.score(X), model.sample(2, seed=1)])


def write_training(path, seed):
    with pytest.raises(Stopped):
        fit(seed, path, [stop])


def read_training(path, seed):
    return fit(seed, path).witness(X)


def write_learning(path, seed):
    with pytest.raises(Stopped):
        learn(path, seed, [stop])


def learn(path, seed, callbacks=()):
    energy = EnergyMLP(hidden=(3,))
    return fit_energy(energy, X, learning=LEARNING, seed=seed, checkpoint=path, callbacks=callbacks)


def read_learning(path, seed):
    return learn(path, seed).model.score(X)


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


def write_learned(path, seed):
    LearnedFile(path).write(str(seed), {"weights": torch.arange(6.0)}, {"facts": {"bits": 1.5}})


def read_learned(path, seed):
    tensors, about = LearnedFile(path).read(str(seed), device=torch.device("cpu"))
    return tensors["weights"], about


@dataclass(frozen=True)
class Kind:
    """Of file."""

    write: Callable[[Path, int], None]
    read: Callable[[Path, int], Any]
    keyed: bool = False  # a file of another seed is seen to be another's
    renewed: bool = False  # computed again, not refused


KINDS = {
    "critic": Kind(write_critic, read_critic),
    "machine": Kind(write_machine, read_model),
    "perceptron": Kind(write_perceptron, read_model),
    "training": Kind(write_training, read_training, keyed=True),
    "learning": Kind(write_learning, read_learning, keyed=True),
    "null runs": Kind(write_null, read_null, keyed=True, renewed=True),
    "watch state": Kind(write_watch, read_watch),
    "record": Kind(write_record, read_record),
    "job": Kind(write_job, read_job, keyed=True, renewed=True),
    "learned digits": Kind(write_learned, read_learned, keyed=True),
}


# Damage: a function of the bytes and of a source of chance.


def flipped(data, source, *, head=None, count=1):
    data = bytearray(data)
    for _ in range(count):
        data[source.randrange(len(data) if head is None else min(head, len(data)))] ^= 1 << source.randrange(
            8
        )
    return bytes(data)


def digit_changed(data, source):
    """One digit of the text at the file's beginning: a header, a description, a record."""
    text = min(len(data), 8 + int.from_bytes(data[:8], "little"))
    places = [k for k in range(8, text) if chr(data[k]).isdigit()]
    at = source.choice(places)
    return data[:at] + str((int(chr(data[at])) + 1) % 10).encode() + data[at + 1 :]


def with_length(data, length):
    return struct.pack("<Q", length) + data[8:]


def nested(data, source):
    text = b"[" * 100_000
    return struct.pack("<Q", len(text)) + text


def nested_description(data, source):
    text = json.dumps({"__metadata__": {"steincritic": "[" * 100_000}}).encode()
    return struct.pack("<Q", len(text)) + text


def sector_lost(data, source):
    at = source.randrange(max(1, len(data) - 64))
    return data[:at] + bytes(len(data[at : at + 64])) + data[at + 64 :]


def swapped_parts(data, source):
    a, b = sorted(source.sample(range(8, len(data) - 8), 2))
    return data[:a] + data[b : b + 8] + data[a + 8 : b] + data[a : a + 8] + data[b + 8 :]


def unhashed(data, source):
    return data.replace(b"sha256", b"sha255").replace(b"checksum", b"checksun")


def other_hash(data, source):
    at = min(k for k in (data.find(b"sha256"), data.find(b"checksum"), len(data)) if k >= 0) + 14
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE = {
    **{f"flip {k}": flipped for k in range(6)},
    **{f"flip at the head {k}": lambda d, s: flipped(d, s, head=300) for k in range(4)},
    **{f"many flips {k}": lambda d, s: flipped(d, s, count=9) for k in range(2)},
    **{f"digit {k}": digit_changed for k in range(4)},
    **{f"swapped parts {k}": swapped_parts for k in range(2)},
    **{f"sector {k}": sector_lost for k in range(2)},
    **{f"cut {k}": lambda d, s: d[: s.randrange(len(d))] for k in range(3)},
    "empty": lambda d, s: b"",
    "one byte": lambda d, s: d[:1],
    "half a length": lambda d, s: d[:5],
    "a length alone": lambda d, s: d[:8],
    "half a header": lambda d, s: d[:60],
    "last byte": lambda d, s: d[:-1],
    "last eight bytes": lambda d, s: d[:-8],
    "first byte": lambda d, s: d[1:],
    "zero added": lambda d, s: d + b"\0",
    "text added": lambda d, s: d + b"abc",
    "twice": lambda d, s: d + d,
    "zeros": lambda d, s: bytes(len(d)),
    "noise": lambda d, s: s.randbytes(len(d)),
    "huge length": lambda d, s: with_length(d, 2**64 - 1),
    "large length": lambda d, s: with_length(d, 2**40),
    "longer header": lambda d, s: with_length(d, int.from_bytes(d[:8], "little") + 1 & 2**64 - 1),
    "no header": lambda d, s: with_length(d, 0),
    "nested": nested,
    "nested description": nested_description,
    "brackets": lambda d, s: b"[" * 100_000,
    "a table": lambda d, s: b"a,b\n1,2\n",
    "a pickle": lambda d, s: pickle.dumps({"a": 1}),
    "null": lambda d, s: b"null",
    "an object": lambda d, s: b"{}",
    "no hash": unhashed,
    "another hash": other_hash,
}
CASES = [(kind, damage) for kind in KINDS for damage in DAMAGE]
MODELS = {"machine", "perceptron"}
SWAPS = [(a, b) for a in KINDS for b in KINDS if a != b and {a, b} != MODELS]


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


# On the command line.

COMMANDS = {
    "critic": "witness {folder}/x.npy --critic {file} --model gm-2d",
    "machine": "check {folder}/x.npy --model {file}",
    "perceptron": "doctor --model {file}",
    "watch state": "watch {folder}/x.csv --model gm-2d --state {file}",
    "record": "reproduce gm-1d --out {folder} --redraw",
}


@pytest.mark.parametrize("damage", ["flip 0", "cut 0", "huge length", "empty", "nested", "no hash"])
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_say_it_in_one_line_and_exit_with_code_2(name, damage, specimens, tmp_path, run):
    np.save(tmp_path / "x.npy", X)
    np.savetxt(tmp_path / "x.csv", X, delimiter=",")
    path = tmp_path / ("record.json" if name == "record" else "file.safetensors")
    source = random.Random(zlib.crc32(f"{name} {damage}".encode()))
    path.write_bytes(DAMAGE[damage](specimens(name)[0], source))
    code, out, error = run(COMMANDS[name].format(folder=tmp_path, file=path))
    assert (code, out, len(error.splitlines())) == (2, "", 1)
    assert path.name in error


# Claims of files that are whole.


def claim_wide_critic(path, specimens):
    path.write_bytes(specimens("critic")[0])
    tensors, about = read_tensors(path, kind="critic")
    about["network"]["hidden"] = [25_000, 25_000]
    write_tensors(path, tensors, about, kind="critic")
    load_critic(path)


def claim_wide_watch(path, specimens):
    path.write_bytes(specimens("watch state")[0])
    tensors, about = read_tensors(path, kind="watch state")
    about["test"]["network"]["hidden"] = [25_000, 25_000]
    write_tensors(path, tensors, about, kind="watch state")
    load_watch(path)


def claim_many_sweeps(path, specimens):
    path.write_bytes(specimens("machine")[0])
    tensors, about = read_tensors(path, kind="model")
    write_tensors(path, tensors, about | {"sweeps": 10**12}, kind="model")
    load_saved(path)


def claim_large_archive(path, specimens):
    """2 GiB, in the archive's own words, of some kilobytes."""
    archive = path.with_suffix(".npz")
    np.savez_compressed(archive, np.zeros((2**16, 2)))
    size = struct.pack("<I", 2**20 + 128)
    assert size in archive.read_bytes()
    archive.write_bytes(archive.read_bytes().replace(size, struct.pack("<I", 2**31)))
    sc.data.read_table(archive)


@pytest.mark.parametrize(
    "claim", [claim_wide_critic, claim_wide_watch, claim_many_sweeps, claim_large_archive]
)
def test_what_a_file_claims_is_bounded_before_it_is_built(claim, specimens, tmp_path):
    with pytest.raises(FileFormatError) as caught:
        claim(tmp_path / "file", specimens)
    assert "\n" not in str(caught.value)


# Files with a right hash and absurd values.

FORGED = {  # of which kind the files are, by their own words
    "critic": "critic",
    "machine": "model",
    "perceptron": "model",
    "training": "training checkpoint",
    "learning": "learning checkpoint",
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
    for k, (what, tensors, about) in enumerate(random.Random(name).sample(cases, min(len(cases), 120))):
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
    """Their classes are few; a new one belongs in KINDS."""
    kinds = {subclass.kind for subclass in StateFile.__subclasses__()}
    assert kinds == {"training checkpoint", "learning checkpoint", "image model"}
