"""The compare command: exit codes, table, file, JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

from steincritic.models import GaussianMixture

X = GaussianMixture([[0.0, 0.0]]).sample(60, seed=1).numpy()
MODELS = """
from steincritic.models import GaussianMixture

right, wrong, far = (GaussianMixture([[m, 0.0]]) for m in (0.0, 2.0, -3.0))
narrow = GaussianMixture([[0.0]])
"""
BOTH = "--model models.py:right --model models.py:wrong --test ksd"
WRONG = "--model models.py:far --model models.py:wrong --test ksd"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    Path("models.py").write_text(MODELS)
    np.save("x.npy", X)
    np.save("few.npy", X[:9])
    return tmp_path


def test_some_candidate_left(run):
    code, out, err = run(f"compare x.npy {BOTH} --name one --name two[b]")
    assert code == 0 and err == ""
    assert "Nearest to the data first: one; then two[b]." in out
    assert "No evidence against one" in out and "Fisher divergence at least" in out


def test_all_candidates_rejected(run):
    code, out, _ = run(f"compare x.npy {WRONG}")
    assert code == 1
    assert "models.py:wrong; then models.py:far" in out and "None of them is right" in out


def test_without_tests_nothing_is_rejected(run):
    code, out, _ = run(f"compare x.npy {WRONG.replace('ksd', 'none')}")
    assert code == 0 and "was not tested" in out


def test_json_is_one_object_and_the_file_is_the_same(run, place):
    code, out, err = run(f"compare x.npy {BOTH} --seed 3 --level 0.1 --out deep/er --json")
    result = json.loads(out)
    assert code == 0 and out.count("\n") == 1 and err == ""
    assert result["ranking"] == [["models.py:right"], ["models.py:wrong"]]
    assert result["seed"] == 3 and result["level"] == 0.1 and not result["rejected"]
    assert json.loads((place / "deep" / "er" / "comparison.json").read_text()) == result


BAD = {
    "compare x.npy --model models.py:right": "give --model at least twice, got 1",
    f"compare x.npy {BOTH} --name one": "give --name once per model: got 1 names for 2 models",
    "compare x.npy --model models.py:right --model models.py:right": "names must differ",
    "compare x.npy --model models.py:right --model models.py:narrow": "models[1] (models.py:narrow): x has 2",
    f"compare few.npy {BOTH}": "x has 9 points",
    f"compare nowhere.npy {BOTH}": "no such data file: nowhere.npy",
    f"compare x.npy {BOTH} --out x.npy/below": "cannot write x.npy/below",
    f"compare x.npy {BOTH.replace('ksd', 'magic')}": "test must be one of combined",
    "compare x.npy --model models.py:right --model models.py:wrng": "did you mean wrong?",
}


@pytest.mark.parametrize("line", BAD)
def test_what_is_the_users_to_mend_is_one_line_and_exit_code_2(run, line):
    code, out, err = run(line)
    assert code == 2 and out == ""
    assert err.startswith("steincritic: ") and err.count("\n") == 1 and BAD[line] in err


def test_models_are_required_and_help_is_given(run):
    assert run("compare x.npy")[0] == 2
    code, out, _ = run("compare --help")
    assert code == 0 and "usage" in out.lower()
