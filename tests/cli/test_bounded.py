"""--bounds, and models that state their own, from a CSV file."""

import json
from pathlib import Path

import numpy as np
import pytest

MODEL = """
import torch
exponential = torch.distributions.Exponential(torch.ones(1).double())
score, sample = lambda x: -torch.ones_like(x), lambda n, seed: exponential.sample((n,)).view(n, 1)
alone = (score, None)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("m.py").write_text(MODEL)
    x = np.random.default_rng(3).exponential(size=(120, 1))
    for name, rows in (("good", x), ("long", 2 * x), ("bad", np.where(np.arange(120)[:, None] == 7, -1, x))):
        np.savetxt(f"{name}.csv", rows, header="age", comments="")


@pytest.mark.parametrize(("data", "code"), [("good", 0), ("long", 1)])
def test_bounds_make_scores_of_a_half_line_usable(run, data, code):
    assert run(f"test {data}.csv --model m.py:alone --test ksd --json", "--bounds", "age 0 inf")[0] == code
    assert run(f"test {data}.csv --model m.py:alone --test ksd --json")[0] == 1


def test_a_check_speaks_of_the_column(run):
    code, out, _ = run("check long.csv --model m.py:exponential --test ksd --json --out o")
    told = json.loads(out)
    assert code == 1 and told["columns"] == ["age"] and any(f.startswith("age ") for f in told["findings"])
    assert "log age" in " ".join(told["notes"])
    code, out, _ = run("witness good.csv --model m.py:exponential --critic o/critic.safetensors --draws 50")
    assert code == 0


def test_the_doctor_takes_bounds_and_names_them(run):
    code, out, _ = run("doctor --model m.py:alone --data good.csv --json", "--bounds", "age 0 inf")
    assert code == 0 and json.loads(out)["ok"]


@pytest.mark.parametrize(
    ("bounds", "word"),
    [
        ("age 0", "name, low and high"),
        ("age 0 x", "name, low and high"),
        ("age 1 0", "low < high"),
        (",", '--bounds must be "age 0 inf'),
        ("agee 0 inf", "did you mean age"),
        ("age 0 inf", r"does not in 1 of 120 rows (row 7 (line 9); the first is -1)"),
    ],
)
def test_mistakes_are_one_line(run, bounds, word):
    code, out, err = run("test bad.csv --model m.py:alone --test ksd", "--bounds", bounds)
    assert code == 2 and out == "" and err.count("\n") == 1 and word in err
