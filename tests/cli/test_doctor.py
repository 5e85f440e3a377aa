"""steincritic doctor: exit codes, the table, JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

from steincritic.models import GaussianMixture

MODELS = """
from steincritic.models import GaussianMixture, PairModel

normal = GaussianMixture([[0.0, 0.0]])
wrong = PairModel(lambda x: x, lambda n, seed: normal.sample(n, seed=seed))
no_sampler = (lambda x: -x, None)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    Path("models.py").write_text(MODELS)
    np.save("good.npy", GaussianMixture([[0.0, 0.0]]).sample(50).numpy())


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (
            "--model gm-2d --n 1000",
            0,
            "No evidence against the adapter: 0 failed, 0 warnings, 12 passed.",
        ),
        ("--model models.py:normal --data good.npy --n 1000", 0, "50 rows of x"),
        ("--model models.py:no_sampler --data good.npy", 0, "The model cannot be sampled"),
        ("--model models.py:wrong --n 1000", 1, "The adapter cannot be trusted yet: 1 failed"),
    ],
)
def test_the_exit_code_says_whether_a_check_failed(run, line, code, words):
    got, out, err = run(f"doctor {line}")
    assert got == code and err == "" and words in out and "Stein's identity" in out


def test_json_is_one_object_and_nothing_else(run):
    code, out, err = run("doctor --model models.py:wrong --n 1000 --seed 3 --json")
    result = json.loads(out)
    assert code == 1 and err == "" and out.count("\n") == 1
    assert result["ok"] is False and result["seed"] == 3 and result["n"] == 1000
    assert {c["name"]: c["status"] for c in result["checks"]}["Stein's identity"] == "failed"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--model models.py:no_sampler", "pass x, data that you will test (on the command line --data FILE)"),
        ("--model models.py:normal --data nowhere.npy", "no such data file: nowhere.npy"),
        ("--model models.py:normal --n 3", "n must be a whole number of at least 500"),
        ("--model models.py:norml", "did you mean normal"),
    ],
)
def test_what_is_the_users_to_mend_is_one_line(run, line, words):
    code, out, err = run(f"doctor {line}")
    assert code == 2 and out == "" and words in err and err.count("\n") == 1
