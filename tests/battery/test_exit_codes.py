"""Whatever a model does, or lacks: 0 and 1 are verdicts, everything else is 2 and says why in one line."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc
from processes import finished

MODELS = """
import asyncio
import sys

import torch

from steincritic.models import GaussianMixture

normal = GaussianMixture([[0.0, 0.0]])


class Odd(BaseException):
    pass


class Model:
    dim = 2

    def __init__(self, score=None, sample=None):
        self._score, self._sample = score, sample

    def score(self, x):
        return normal.score(x) if self._score is None else self._score()

    def sample(self, n, *, seed=0):
        return normal.sample(n, seed=seed) if self._sample is None else self._sample()


def raising(error):
    def fail():
        raise error

    return fail


WAYS = {
    "exit_0": raising(SystemExit(0)),
    "exit_1": raising(SystemExit(1)),
    "exit_none": raising(SystemExit()),
    "exit_text": raising(SystemExit("bye")),
    "cancelled": raising(asyncio.CancelledError()),
    "generator": raising(GeneratorExit()),
    "odd": raising(Odd("odd")),
    "recursion": raising(RecursionError("too deep")),
    "memory": raising(MemoryError()),
    "stop": raising(StopIteration()),
    "assertion": raising(AssertionError()),
    "unicode": raising(ValueError("\\x1b[31m red \\u2207")),
    "allocation": lambda: torch.empty(10**15),
}
for name, way in WAYS.items():
    globals()[f"score_{name}"] = Model(score=way)
    globals()[f"sample_{name}"] = Model(sample=way)
"""
IMPORTS = {
    "exits with 0": "import sys; sys.exit(0)",
    "exits with 1": "import sys; sys.exit(1)",
    "exits with nothing": "raise SystemExit",
    "lacks a package": "import no_such_package",
    "lacks a name": "from math import no_such_name",
    "raises": "1 / 0",
    "raises outside Exception": "raise GeneratorExit",
    "has a slip": "def f(:",
    "has null bytes": "x = '\0'",
    "recurses": "def f(): f()\nf()",
}
WAYS = [
    *("exit_0", "exit_1", "exit_none", "exit_text", "cancelled", "generator", "odd", "recursion", "memory"),
    *("stop", "assertion", "unicode", "allocation"),
]
LINES = {
    "check": "check x.npy --test split --draws 99",
    "test": "test x.npy --test split --draws 99",
    "watch": "watch long.csv --batch 200 --quiet",  # which has told of batches before
    "compare": "compare x.npy --model gm-2d --test split",
}


@pytest.fixture(autouse=True)
def place(tmp_path, x):
    np.save("x.npy", x)
    np.savetxt("long.csv", np.tile(x, (20, 1)) + np.linspace(0, 1e-3, 1200)[:, None], delimiter=",")
    Path("models.py").write_text(MODELS)
    return tmp_path


def refused(code, out, err):
    assert code == 2 and out == ""
    assert err.startswith("steincritic: ") and err.count("\n") == 1 and "\x1b" not in err


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", ["score", "sample"])
@pytest.mark.parametrize("command", LINES)
def test_a_model_that_ends_or_raises_is_no_verdict(run, command, part, way):
    refused(*run(f"{LINES[command]} --model models.py:{part}_{way}"))


@pytest.mark.parametrize("case", IMPORTS)
@pytest.mark.parametrize("command", [*LINES, "doctor"])
def test_a_model_file_that_cannot_be_imported_is_no_verdict(run, command, case):
    Path("bad.py").write_text(IMPORTS[case])
    line = LINES.get(command, "doctor").replace("--model gm-2d", "")
    again = " --model gm-2d" if command == "compare" else ""
    refused(*run(f"{line} --model bad.py:q{again}"))


@pytest.mark.parametrize("package", ["torch", "numpy", "safetensors", "tyro", "rich"])
@pytest.mark.parametrize("error", ["ImportError('no such symbol')", "OSError('libcuda.so is missing')"])
def test_a_dependency_that_cannot_be_imported_is_no_verdict(place, package, error):
    (place / "broken").mkdir()
    (place / f"broken/{package}.py").write_text(f"raise {error}")
    source = str(Path(sc.__file__).parents[1])
    path = os.pathsep.join([str(place / "broken"), source])
    refused(*finished("check x.npy --model gm-2d --test ksd", place, PYTHONPATH=path))


@pytest.mark.parametrize("command", ["check", "test", "compare"])
def test_a_score_that_writes_into_its_argument_changes_nothing(run, command):
    Path("writes.py").write_text("def score(x):\n    x.mul_(-1)\n    return x\n\nq = (score, None)\n")
    Path("plain.py").write_text("q = (lambda x: -x, None)\n")
    rest = "x.npy --test ksd --json" + (" --model gm-2d" if command == "compare" else "")
    answers = [run(f"{command} {rest} --model {file}:q")[:2] for file in ("writes.py", "plain.py")]
    codes, objects = zip(*answers, strict=True)
    assert codes[0] == codes[1]
    found = [json.loads(text) for text in objects]
    for name in ("estimates", "pvalues") if command == "compare" else ("statistic", "pvalue"):
        assert found[0][name] == found[1][name]
