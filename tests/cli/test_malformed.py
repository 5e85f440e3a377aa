"""Malformed input of every kind: one line that says what was expected, exit code 2, nothing written."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from steincritic.files import read_tensors, write_tensors

Q = "--model models.py:normal"
CHECK = f"check x.npy {Q} --test ksd"
COMPARE = "compare x.npy --model models.py:normal --model models.py:far --test ksd"
WITNESS = f"witness x.npy {Q} --critic critic"
FILES = {  # names and bytes
    "empty.csv": b"",
    "header.csv": b"a,b\n",
    "text.csv": b"a,b\n1.0,red\n2.0,blue\n",
    "gap.csv": b"a,b\n" + b"1.0,2.0\n" * 9 + b"3.0,\n",
    "all_nan.csv": b"nan,nan\n" * 5,
    "three.csv": b"1.0,2.0,3.0\n" * 9,
    "given.csv": b"a,b\n" + b"1.0,2.0\n2.0,2.5\n" * 10,
    "data.txt": b"1.0,2.0\n",
    "magic.npy": b"\x93NUMPY\x01\x00",
    "cut.npz": b"PK\x03\x04cut",
    "bad.parquet": b"PAR1PAR1",
    "bad.toml": b"level = [",
    "latin.toml": "model = 'é'".encode("latin-1"),
    "unknown.toml": b"levle = 0.1",
    "strange.toml": b"zebra = 1",
    "gone.toml": b"dry-run = true",
    "list.toml": b"level = [0.1, 0.2]",
    "switch.toml": b"json = 1",
    "kind.toml": b"level = 'high'",
    "date.toml": b"seed = 2020-01-01",
    "deep.toml": b"x = " + b"[" * 20_000,
    "null.toml": b'out = "a\\u0000b"',
    "slip.py": b"def f(:",
    "fails.py": b"raise RuntimeError('no weights\\nsecond line')",
    "exits.py": b"import sys; sys.exit(0)",
}
CASES = {  # command line, in a folder with these files and those of conftest: what the one line must say
    "": "name a command",
    "chek x.npy": "did you mean check",
    "--jsn": "no option '--jsn'",
    "check x.npy": "--model is missing",
    f"check {Q}": "DATA is missing",
    f"check x.npy x.npy {Q}": "one argument too many",
    f"{CHECK} --levle 0.1": "did you mean --level?",
    f"{CHECK} -level 0.1": "no option -level",
    f"{CHECK} --level": "--level needs a value",
    f"{CHECK} --level --quiet": "--level needs a value",
    f"{CHECK} --json=1": "--json is a switch without a value",
    f"{CHECK} --level 2": "level must lie in (0, 1), for example 0.05: got 2.0",
    f"{CHECK} --level 5%": "--level must be a number, got '5%'",
    f"{CHECK} --level=-inf": "level must lie in (0, 1)",
    f"{CHECK} --level 1e-6": "level 1e-06 wants",
    f"{CHECK} --seed -1": "seed must be a whole number of at least 0",
    f"{CHECK} --seed 1.5": "--seed must be a whole number",
    f"{CHECK} --draws 0": "draws must be a whole number of at least 1",
    f"{CHECK} --draws 3": "3 null draws cannot reach level",
    f"{CHECK} --early-stopping": "--early-stopping is for --test split",
    f"{CHECK} --fdr 0": "fdr must lie in (0, 1)",
    f"check x.npy {Q} --test kds": "did you mean ksd?",
    f"check x.npy {Q} --test fssd": "test fssd is gone: ",
    f"check x.npy {Q} --tolerance foreign:0.1": "tolerance foreign: is gone: ",
    f"check few.npy {Q} --test crossfit": "x has 6 points; 5 folds need",
    "check x.npy --model models.py:scores --test crossfit": "no sample",
    f"test x.npy {Q} --test ksd --tolerance 0.1": "not both",
    **{f"test x.npy {Q} --tolerance={wrong}": "tolerance" for wrong in ("-0.1", "5", "5%", "fischer:0.1")},
    f"{CHECK} --engine loca": "--engine must be one of serial, threads, local, dask; got 'loca'; did you",
    f"{CHECK} --engine local": "engine spreads null runs",
    f"{CHECK} --address tcp://x:1": "--address is for --engine dask",
    f"{CHECK} --engine dask --address nowhere": "such as tcp://10.0.0.5:8786; got 'nowhere'",
    f"{CHECK} --device cuda:99": "device 'cuda:99' cannot be used here",
    **{
        f"{CHECK} --image-shape {wrong}": "image-shape is height x width"
        for wrong in ("2", "0x2", "1x2x1", "²x1")
    },
    f"{CHECK} --image-shape 3x3": "has 9 pixels, the data have 2 columns",
    f"{CHECK} --out x.csv/below": "x.csv is not a folder",
    f"{CHECK} --junit x.csv/junit.xml": "cannot write x.csv/junit.xml",
    f"{CHECK} --config nowhere.toml": "no such settings file: nowhere.toml",
    f"{CHECK} --config bad.toml": "bad.toml is no TOML file",
    f"{CHECK} --config latin.toml": "latin.toml is no TOML file",
    f"{CHECK} --config deep.toml": "nests its values too deeply",
    f"{CHECK} --config unknown.toml": "sets 'levle'; did you mean level?",
    f"{CHECK} --config strange.toml": "sets 'zebra', which is none of",
    f"{CHECK} --config gone.toml": "sets 'dry-run', which is gone: ",
    f"{CHECK} --config list.toml": "level in the settings file must be one value",
    f"{CHECK} --config switch.toml": "json in the settings file must be true or false",
    f"{CHECK} --config kind.toml": "--level must be a number, got 'high'",
    f"{CHECK} --config date.toml": "--seed must be a whole number",
    f"{CHECK} --config null.toml": "cannot write",
    f"{CHECK} --config .": "cannot be read",
    f"check z.npy {Q}": "no such data file: z.npy",
    f"check no/x.npy {Q}": "there is no folder no",
    f"check folder {Q}": "folder is a folder without parquet files",
    f"check data.txt {Q}": "must end in one of",
    f"check empty.csv {Q}": "it holds nothing",
    f"check header.csv {Q}": "it holds only the header",
    f"check text.csv {Q}": "text.csv must hold numbers, got text in column b ('red' in line 2)",
    f"check gap.csv {Q}": "NaN or infinite values in 1 of 10 rows",
    f"check all_nan.csv {Q} --drop-nan": "nothing is left",
    f"check three.csv {Q}": "x has 3 columns but the model has 2",
    f"check magic.npy {Q}": "magic.npy cannot be read as npy",
    f"check objects.npy {Q}": "objects.npy cannot be read as npy",
    f"check huge.npy {Q}": "huge.npy",
    f"check flat.npy {Q}": "must have shape (n, d), got (40,)",
    f"check whole.npy {Q}": "must hold floating-point numbers",
    f"check cut.npz {Q}": "cut.npz cannot be read as npz",
    f"check bad.parquet {Q}": "bad.parquet",
    "check x.npy --model gm2d": "did you mean gm-2d?",
    "check x.npy --model zzz": "built-in: gm-1d",
    "check x.npy --model models.py:": "a model is named",
    "check x.npy --model model.py:q": "no such model file: model.py; did you mean models.py?",
    "check x.npy --model models.py:norma": "models.py has no attribute 'norma'; did you mean normal?",
    "check x.npy --model models.py:number": "a model must have score(x)",
    "check x.npy --model models.py:Model": "is a class",
    "check x.npy --model models.py:flat": "model.score must return the shape",
    "check x.npy --model models.py:nan": "the score at x has NaN",
    "check x.npy --model models.py:none": "model.score",
    "check x.npy --model models.py:few": "must return shape",
    "check x.npy --model slip.py:f": "slip.py raised SyntaxError",
    "check x.npy --model fails.py:q": "fails.py raised RuntimeError: no weights",
    "check x.npy --model exits.py:q": "exits.py raised SystemExit: 0",
    "check x.npy --model no_package:q": "cannot import 'no_package'",
    "check given.csv --model models.py:given": "which column is y",
    "check given.csv --model models.py:given --target z": "no target column 'z'",
    "test given.csv --model models.py:given --target b --test ksd": "got ksd",
    "test given.csv --model models.py:given --target b --exclude a": "needs covariates",
    "compare x.npy --model gm-2d": "give --model at least twice, got 1",
    f"{COMPARE} --name a": "give --name once per model: got 1 names for 2 models",
    f"{COMPARE} --name a --name a": "names must differ",
    f"{COMPARE.replace('--test ksd', '--tolerance 0.1')}": "--tolerance is for check and test",
    f"{COMPARE.replace('--test ksd', '--draws 9')}": "name it with --test",
    f"compare x.npy {Q} --model models.py:narrow": "models[1] (models.py:narrow): x has 2",
    f"{COMPARE.replace('x.npy', 'few.npy')}": "x has 6 points",
    "doctor --model models.py:scores": "pass x, data that you will test (on the command line --data FILE)",
    "doctor --model gm-2d --n 5": "n must be a whole number of at least 500",
    "doctor --target y --model models.py:given": "--data FILE",
    f"witness x.npy {Q} --critic nowhere": "no such file: nowhere",
    f"witness x.npy {Q} --critic x.npy": "x.npy is not a steincritic file",
    f"witness x.npy {Q} --critic cut": "or is damaged",
    f"witness x.npy {Q} --critic other": "must be a file of kind 'critic'",
    f"witness x.npy {Q} --critic doctored": "damaged",
    "witness x.npy --critic critic --model models.py:three": "a critic of another model than GaussianMixture",
    "witness x.npy --critic critic --model models.py:moved": "their scores differ at 16 of 16 points",
    f"witness three.csv {Q} --critic critic": "data have 3 columns but the model has 2",
    "witness far.npy --critic critic --model models.py:edge": "the model's score is not finite in row 9000",
    f"witness nan.npy {Q} --critic critic --drop-nan": "no row of nan.npy is free of NaN",
    f"{WITNESS} --chunk 0": "chunk must be a whole number",
    f"{WITNESS} --out x.npy": "--out x.npy is the data; name another file",
    f"{WITNESS} --out critic": "--out critic is the critic",
    f"{WITNESS} --out models.py": "--out models.py is the model",
    f"watch x.csv {Q} --batch 0": "batch must be a whole number",
    f"watch x.csv {Q} --idle 5": "idle is a time to wait",
    f"watch x.npy {Q}": "x.npy cannot grow line by line",
    f"watch gap.csv {Q}": "gap.csv has NaN or infinite values in row 9",
    f"watch three.csv {Q}": "batch 1 has 3 columns but the model has 2 dimensions",
    f"watch empty.csv {Q} --follow --idle 0.01": "empty.csv must hold rows of numbers, it holds nothing",
    "watch x.csv --model models.py:scores": "the model, which has no sample",
    f"watch x.csv {Q} --state models.py": "models.py is not a steincritic file",
    f"watch x.csv {Q} --state models.py/below": "models.py is not a folder",
    "demo --n 0": "n must be a whole number of at least 1, got 0",
    # What is gone says what to do instead, for one release.
    f"{CHECK} --no-dry-run": "--dry-run is gone: ",
    f"{CHECK} --precision 0.01": "--precision is gone: pass --draws",
    f"{COMPARE} --units=raw": "--units is gone: ",
    f"{WITNESS} --engine dask": "--engine is gone: ",
    "demo --problem digits": "--problem is gone: ",
    "reproduce zoo": "the command reproduce is gone: ",
}
BOUNDS = {
    "age 0": "name, low and high",
    "age 1 0": "low < high",
    ",": '--bounds must be "age 0 inf',
    "agee 0 inf": "did you mean age",
    "age 0 inf": "does not in 1 of 120 rows (row 7 (line 9); the first is -1)",
}


@pytest.fixture(autouse=True)
def odd_files(place):
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    Path("folder").mkdir()
    np.save("flat.npy", np.ones(40))
    np.save("whole.npy", np.ones((20, 2), dtype=int))
    np.save("objects.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.save("nan.npy", np.full((4, 2), np.nan))
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2)}\n"
    Path("huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    far = np.zeros((9100, 2))  # more than the rows that are scored together
    far[9000] = 3.0
    np.save("far.npy", far)


@pytest.fixture
def odd_critics(place):
    tensors, about = read_tensors(Path("critic"), kind="critic")
    write_tensors(Path("other"), tensors, about, kind="else")
    write_tensors(Path("doctored"), tensors | {"snapshot/0/w1": torch.zeros(1, 5, 128)}, about, kind="critic")
    Path("cut").write_bytes(Path("critic").read_bytes()[:-100])


@pytest.mark.parametrize("line", CASES)
def test_one_line_and_exit_code_2(line, odd_critics, run):
    before = set(Path().rglob("*"))
    code, out, error = run(line)
    assert code == 2 and out == ""
    assert CASES[line] in error
    assert error.startswith("steincritic: ") and len(error.splitlines()) == 1
    assert {path for path in set(Path().rglob("*")) - before if path.parts[0] != "__pycache__"} <= {
        Path("cache"),
        *Path("cache").rglob("*"),
    }


@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_that_make_no_sense_are_refused_in_one_line(bounds, run):
    x = np.random.default_rng(3).exponential(size=(120, 1))
    x[7] = -1
    np.savetxt("age.csv", x, header="age", comments="")
    code, out, error = run("test age.csv --model models.py:half_line --test ksd", "--bounds", bounds)
    assert code == 2 and out == "" and error.count("\n") == 1 and BOUNDS[bounds] in error


def test_with_json_a_mistake_is_an_object_too(run):
    code, out, error = run(f"check nowhere.npy {Q} --json")
    message = error.removeprefix("steincritic: ").strip()
    assert code == 2 and error.count("\n") == 1
    assert json.loads(out) == {"schema_version": 2, "error": {"type": "InputError", "message": message}}
    code, out, error = run(f"check nowhere.npy {Q} --traceback")
    assert code == 2 and error.startswith("Traceback") and f"InputError: {message}" in error
