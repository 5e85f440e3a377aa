"""Inputs that are wrong: one line that says what was expected, exit code 2, no traceback."""

import numpy as np
import pytest

GM = "--model gm-2d"
CHECK = f"check data.csv {GM}"
COMPARE = "compare data.csv --model gm-2d --model m.py:q"
FIT = "fit-energy data.csv --out out"
WITNESS = f"witness data.csv {GM} --critic data.csv"
FILES = {  # names and bytes, beside data.csv (20 x 2)
    "empty.csv": b"",
    "header.csv": b"a,b\n",
    "text.csv": b"a,b\n1.0,red\n2.0,blue\n",
    "ragged.csv": b"1.0,2.0\n3.0\n",
    "gap.csv": b"a,b\n" + b"1.0,2.0\n" * 9 + b"3.0,\n",
    "inf.csv": b"a,b\n" + b"1.0,2.0\n" * 9 + b"3.0,inf\n",
    "all_nan.csv": b"nan,nan\n" * 5,
    "binary.csv": bytes(range(256)) * 4,
    "utf16.csv": "a,b\n1.0,2.0\n".encode("utf-16"),
    "twice.csv": b"a,a\n1.0,2.0\n",
    "three.csv": b"1.0,2.0,3.0\n" * 9,
    "one_row.csv": b"1.0,2.0\n",
    "quote.csv": b'a,b\n"1.0,2.0\n',
    "data.txt": b"1.0,2.0\n",
    "noending": b"1.0,2.0\n",
    "empty.npy": b"",
    "magic.npy": b"\x93NUMPY\x01\x00",
    "version.npy": b"\x93NUMPY\x09\x00v\x00",
    "cut.npz": b"PK\x03\x04cut",
    "none.npz": b"PK\x05\x06" + b"\x00" * 18,
    "bad.parquet": b"PAR1PAR1",
    "bad.toml": b"level = [",
    "latin.toml": "model = 'é'".encode("latin-1"),
    "unknown.toml": b"levle = 0.1",
    "table.toml": b"[level]\nx = 1",
    "list.toml": b"level = [0.1, 0.2]",
    "switch.toml": b"json = 1",
    "kind.toml": b"level = 'high'",
    "date.toml": b"seed = 2020-01-01",
    "deep.toml": b"x = " + b"[" * 20_000,
    "twice.toml": b"level = 0.1\nlevel = 0.2",
    "null.toml": b'out = "a\\u0000b"',
    "m.py": b"from steincritic.models import GaussianMixture\nq = GaussianMixture([[0.0, 0.0]])\nn = 3\n"
    b"class Model:\n    def score(self, x):\n        return -x\n\ntext = 'gm-2d'\n"
    b"score = (lambda x: -x, None)\n"
    b"flat = (lambda x: x[0], None)\nnan = (lambda x: x / 0 * 0, None)\nnone = (lambda x: None, None)\n"
    b"few = (lambda x: -x, lambda n, seed: q.sample(2))\n",
    "slip.py": b"def f(:",
    "bad.safetensors": b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ",
    "short.safetensors": b"\xff",
}
CASES = {  # command line, in a folder with these files: what the one line must say
    "": "name a command",
    "chek data.csv": "did you mean check",
    "--jsn": "no option '--jsn'",
    "check data.csv": "--model is missing",
    f"check {GM}": "DATA is missing",
    f"check data.csv data.csv {GM}": "one argument too many",
    f"{CHECK} --levle 0.1": "did you mean --level?",
    f"{CHECK} -level 0.1": "no option -level",
    f"{CHECK} --level": "--level needs a value",
    f"{CHECK} --level --quiet": "--level needs a value",
    f"{CHECK} --json=1": "--json is a switch without a value",
    f"{CHECK} --level 0": "level must lie in (0, 1)",
    f"{CHECK} --level 1": "level must lie in (0, 1)",
    f"{CHECK} --level 5%": "--level must be a number",
    f"{CHECK} --level nan": "level must lie in (0, 1)",
    f"{CHECK} --level=-inf": "level must lie in (0, 1)",
    f"{CHECK} --seed=-1": "seed must be a whole number of at least 0",
    f"{CHECK} --seed 1.5": "--seed must be a whole number",
    f"{CHECK} --seed one": "--seed must be a whole number",
    f"{CHECK} --draws 0": "draws must be a whole number of at least 1",
    f"{CHECK} --draws=-5": "draws must be a whole number of at least 1",
    f"{CHECK} --precision 2": "precision is a p-value in (0, 1)",
    f"{CHECK} --precision 0.01 --draws 9": "not both",
    f"{CHECK} --precision 0.01 --test ksd": "--precision is for the combined test",
    f"{CHECK} --fdr 0": "fdr must lie in (0, 1)",
    f"{CHECK} --test magic": "test must be one of",
    f"{CHECK} --test kds": "did you mean ksd?",
    f"{CHECK} --engine fast": "--engine must be one of",
    f"{CHECK} --engine loca": "did you mean local?",
    f"{CHECK} --engine local --test ksd": "--engine spreads null runs",
    f"{CHECK} --address tcp://x:1": "--address is for --engine dask",
    f"{CHECK} --engine dask --address nowhere": "such as tcp://10.0.0.5:8786; got 'nowhere'",
    f"{CHECK} --device cudaa": "device 'cudaa' cannot be used here",
    f"{CHECK} --device cuda:99": "device 'cuda:99' cannot be used here",
    f"{CHECK} --image-shape 2": "image-shape is height x width",
    f"{CHECK} --image-shape 0x2": "image-shape is height x width",
    f"{CHECK} --image-shape 1x2x1": "image-shape is height x width",
    f"{CHECK} --image-shape 1x2x2": "image-shape is height x width",
    f"{CHECK} --image-shape ²x1": "image-shape is height x width",
    f"{CHECK} --image-shape 3x3": "has 9 pixels, the data have 2 columns",
    f"{CHECK} --out data.csv": "data.csv is not a folder",
    f"{CHECK} --out data.csv/below": "data.csv is not a folder",
    f"{CHECK} --config nowhere.toml": "no such settings file",
    f"{CHECK} --config bad.toml": "bad.toml is no TOML file",
    f"{CHECK} --config latin.toml": "latin.toml is no TOML file",
    f"{CHECK} --config twice.toml": "twice.toml is no TOML file",
    f"{CHECK} --config deep.toml": "nests its values too deeply",
    f"{CHECK} --config unknown.toml": "did you mean level?",
    f"{CHECK} --config table.toml": "level in the settings file must be one value",
    f"{CHECK} --config list.toml": "level in the settings file must be one value",
    f"{CHECK} --config switch.toml": "json in the settings file must be true or false",
    f"{CHECK} --config kind.toml": "--level must be a number",
    f"{CHECK} --config date.toml": "--seed must be a whole number",
    f"{CHECK} --config null.toml": "cannot write",
    f"{CHECK} --config .": "cannot be read",
    f"check date.csv {GM}": "did you mean data.csv",
    f"check no/data.csv {GM}": "there is no folder no",
    f"check . {GM}": "is a folder",
    f"check data.txt {GM}": "must end in one of",
    f"check noending {GM}": "it has no ending",
    f"check empty.csv {GM}": "it holds nothing",
    f"check header.csv {GM}": "it holds only the header",
    f"check text.csv {GM}": "must hold numbers, got text",
    f"check ragged.csv {GM}": "has 1 cell in line 2",
    f"check gap.csv {GM}": "NaN or infinite values in 1 of 10 rows",
    f"check inf.csv {GM}": "NaN or infinite values in 1 of 10 rows",
    f"check all_nan.csv {GM} --drop-nan": "nothing is left",
    f"check binary.csv {GM}": "binary.csv",
    f"check utf16.csv {GM}": "utf16.csv",
    f"check three.csv {GM}": "x has 3 columns but the model has 2",
    f"check quote.csv {GM}": "quote.csv",
    f"check empty.npy {GM}": "empty.npy cannot be read as npy",
    f"check magic.npy {GM}": "magic.npy cannot be read as npy",
    f"check version.npy {GM}": "version.npy cannot be read as npy",
    f"check cut.npz {GM}": "cut.npz cannot be read as npz",
    f"check none.npz {GM}": "must hold one array, it holds 0",
    f"check bad.parquet {GM}": "bad.parquet",
    f"check flat.npy {GM}": "must have shape (n, d), got (40,)",
    f"check whole.npy {GM}": "must hold floating-point numbers",
    f"check huge.npy {GM}": "huge.npy",
    f"check objects.npy {GM}": "pickled objects",
    "check data.csv --model gm2d": "did you mean gm-2d?",
    "check data.csv --model gm-1d": "x has 2 columns but the model has 1",
    "check data.csv --model zzz": "built-in: gm-1d",
    "check data.csv --model m.py": "a model is named",
    "check data.csv --model :q": "a model is named",
    "check data.csv --model m.py:": "a model is named",
    "check data.csv --model n.py:q": "no such model file: n.py; did you mean m.py?",
    "check data.csv --model m.py:Q": "m.py has no attribute 'Q'",
    "check data.csv --model m.py:scor": "did you mean score?",
    "check data.csv --model m.py:n": "a model must have score(x)",
    "check data.csv --model m.py:text": "a model must have score(x)",
    "check data.csv --model m.py:Model": "is a class",
    "check data.csv --model m.py:flat": "model.score must return the shape",
    "check data.csv --model m.py:nan": "the score at x has NaN",
    "check data.csv --model m.py:none": "model.score",
    "check data.csv --model m.py:few": "must return shape",
    "check data.csv --model slip.py:f": "slip.py raised SyntaxError",
    "check data.csv --model no_package:q": "cannot import 'no_package'",
    "check data.csv --model ..:q": "..",
    "check data.csv --model bad.safetensors": "bad.safetensors",
    "check data.csv --model short.safetensors": "short.safetensors",
    "check data.csv --model rbm:nowhere": "no such file",
    "check data.csv --model m.py:score --test crossfit": "no sample",
    "compare data.csv --model gm-2d": "give --model at least twice",
    f"{COMPARE} --name a": "give --name once per model",
    f"{COMPARE} --name a --name a": "names must differ",
    f"{COMPARE} --draws 9": "name it with --test",
    "doctor --model m.py:score": "pass x, data",
    f"doctor {GM} --n 5": "n must be a whole number of at least 500",
    f"doctor {GM} --data nowhere.csv": "no such data file",
    f"{WITNESS}": "data.csv",
    f"witness data.csv {GM} --critic nowhere": "no such file",
    f"{WITNESS} --chunk 0": "chunk must be a whole number",
    f"{WITNESS} --out data.csv": "name another file",
    f"watch data.csv {GM} --batch 0": "batch must be a whole number",
    f"watch data.csv {GM} --idle 5": "idle is a time to wait",
    f"watch flat.npy {GM}": "cannot grow line by line",
    f"watch data.csv {GM} --state data.csv": "data.csv",
    f"watch data.csv {GM} --state m.py/below": "m.py is not a folder",
    "watch data.csv --model m.py:score": "sample",
    "fit-energy data.csv": "--out is missing",
    f"{FIT} --energy mpl": "did you mean mlp?",
    f"{FIT} --hidden 0": "hidden is a width",
    f"{FIT} --energy rbm --hidden 3x3": "one layer of hidden units",
    f"{FIT} --steps 0": "steps must be a whole number",
    f"{FIT} --resume": "holds no checkpoint.safetensors",
    f"{FIT} --learning-rate 0": "learning_rate must be",
    "demo --problem peple": "did you mean people?",
    "demo --n 0": "n must be a whole number",
    "reproduce": "NAME is missing",
    "reproduce gm-2": "did you mean gm-2d?",
    "reproduce gm-1d --tiny --resume c.safetensors": "keeps no checkpoint",
    "reproduce gm-1d --redraw --out nowhere": "no record at",
    "reproduce gm-1d --tiny --address tcp://x:1": "--address is for --engine dask",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = "\n".join(f"{k / 7:.3f},{(k * k) % 5 / 3:.3f}" for k in range(20))
    (tmp_path / "data.csv").write_text(f"a,b\n{rows}\n")
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    np.save("flat.npy", np.ones(40))
    np.save("whole.npy", np.ones((20, 2), dtype=int))
    np.save("objects.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2)}\n"
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return tmp_path


def test_the_table_is_long():
    assert len(CASES) >= 100


@pytest.mark.parametrize("line", CASES)
def test_one_line_and_exit_code_2(line, folder, run):
    code, out, error = run(line)
    assert code == 2 and out == ""
    assert CASES[line] in error
    assert error.startswith("steincritic: ") and len(error.splitlines()) == 1
    assert not (folder / "out").exists()
