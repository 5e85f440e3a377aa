"""--target on the command line."""

import json

import numpy as np
import pytest

MODEL = """
import torch
from steincritic import ConditionalModel
from steincritic.rng import Source

noise = lambda x, seed: Source(seed, "y").normals(len(x), 1, dtype=x.dtype)
model = ConditionalModel(lambda x, y: x[:, :1] - y, lambda x, seed: x[:, :1] + noise(x, seed))
known = ConditionalModel(model.score, model._sample, columns=("a", "b"), targets=("y",))
ignores = ConditionalModel(lambda x, y: -y, noise)
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "m.py").write_text(MODEL)
    source = np.random.default_rng(0)
    x, e = source.normal(size=(60, 2)), source.normal(size=60)
    rows = np.column_stack([x[:, 0], x[:, 0] + 2 + e, x[:, 1]])
    text = "\n".join(",".join(f"{v:.6f}" for v in row) for row in rows)
    (tmp_path / "d.csv").write_text(f"a,y,b\n{text}\n")
    return tmp_path


def test_check_tests_the_target(run, place):
    code, out, _ = run(f"check {place}/d.csv --target y --model {place}/m.py:model --json --no-cache")
    found = json.loads(out)
    assert (
        code == 1 and found["columns"] == ["a", "b", "y"] and "too large on average" in found["findings"][0]
    )


def test_the_model_may_know_its_target(run, place):
    assert run(f"test {place}/d.csv --model {place}/m.py:known --no-cache")[0] == 1


def test_a_number_is_a_column_from_0(run, place):
    assert run(f"test {place}/d.csv --target 1 --model {place}/m.py:model --no-cache")[0] == 1


def test_doctor_looks_at_the_rows(run, place):
    code, out, _ = run(f"doctor --data {place}/d.csv --target y --model {place}/m.py:ignores")
    assert code == 0 and "do not change with x" in out.replace("\n", " ")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("check {0}/d.csv --model {0}/m.py:model", "which column is y"),
        ("check {0}/d.csv --target z --model {0}/m.py:model", "no target column 'z'"),
        ("test {0}/d.csv --target y --test ksd --model {0}/m.py:model", "got ksd"),
        ("test {0}/d.csv --target y --exclude a,b --model {0}/m.py:model", "needs covariates"),
        ("doctor --target y --model {0}/m.py:model", "--data FILE"),
    ],
)
def test_bad_input_is_one_line(run, place, line, says):
    code, _, error = run(line.format(place))
    assert code == 2 and says in error and len(error.strip().splitlines()) == 1
