"""How long it takes: said before a test that is not short, and alone with --dry-run."""

import json
from pathlib import Path

import numpy as np
import pytest

from steincritic.cli import tested
from steincritic.gof import combined, large, one_pass, streamed
from steincritic.models import GaussianMixture

Q = GaussianMixture([[0.0, 0.0]])


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save("good.npy", Q.sample(40, seed=1).numpy())
    Path("models.py").write_text(
        "from steincritic.models import GaussianMixture\nnormal = GaussianMixture([[0.0, 0.0]])\n"
    )


@pytest.mark.parametrize("command", ["test", "check"])
def test_a_dry_run_tells_the_plan_and_writes_nothing(run, command):
    code, out, err = run(f"{command} good.npy --model models.py:normal --test ksd --dry-run --out there")
    first, *plan = out.splitlines()
    assert (
        code == 0 and err == "" and first.startswith(("About ", "Less than ")) and not Path("there").exists()
    )
    assert plan[0].startswith(("  test ksd of 40 rows: about ", "  test ksd of 40 rows: less than "))
    assert ("diagnosis" in out) == (command == "check")


def test_a_dry_run_as_an_object(run):
    code, out, _ = run("check good.npy --model models.py:normal --test ksd --dry-run --json")
    found = json.loads(out)
    assert code == 0 and found["command"] == "check" and "pvalue" not in found
    assert 0 < found["seconds_expected"] <= found["seconds_most"] and len(found["plan"]) == 2


def test_the_first_line_says_how_long_unless_it_is_short(run, monkeypatch):
    asked = "test good.npy --model models.py:normal --test ksd --json"
    assert run(asked)[2] == ""
    monkeypatch.setattr(tested, "SHORT", 0.0)
    code, out, err = run(asked)
    found = json.loads(out)
    assert (
        code == 0
        and err.startswith(("steincritic: about ", "steincritic: less than "))
        and err.count("\n") == 1
    )
    assert 0 < found["seconds_expected"] < 600 and "seconds" in found
    assert run(f"{asked} --quiet")[2] == ""


@pytest.fixture
def many(monkeypatch):
    """Rows that go by in one pass."""
    monkeypatch.setitem(combined.Combined.__init__.__kwdefaults__, "exact_up_to", 5000)
    monkeypatch.setattr(large, "LARGE", 5000)
    monkeypatch.setattr(streamed, "_SETS", 99)
    monkeypatch.setattr(streamed, "_ROWS", (200, 2**22))
    monkeypatch.setattr(one_pass, "_SAMPLE", (1000, 2**23))
    np.save("many.npy", Q.sample(6000, seed=1).numpy() * 1.2)


@pytest.mark.parametrize("command", ["test", "check"])
def test_the_diagnosis_of_rows_that_went_by_is_counted(run, many, command):
    code, out, _ = run(f"{command} many.npy --model models.py:normal --draws 99 --dry-run --json")
    plan = [part["what"] for part in json.loads(out)["plan"]]
    assert code == 0 and plan[0] == "one pass over 6,000 rows"
    assert ("two critics for the diagnosis" in plan) == (command == "check")
