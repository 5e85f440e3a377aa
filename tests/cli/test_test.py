"""test: the verdict alone, by the same options as check."""

import json
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc
from steincritic.cli.tested import TESTS
from steincritic.models import GaussianMixture

Q = GaussianMixture([[0.0, 0.0]])
X = Q.sample(40, seed=1).numpy()
MODEL = "--model models.py:normal"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    Path("models.py").write_text(
        "from steincritic.models import GaussianMixture\nnormal = GaussianMixture([[0.0, 0.0]])\n"
    )
    np.save("good.npy", X)
    np.save("wrong.npy", X + 1.0)
    np.save("few.npy", X[:6])


def test_a_model_that_ends_the_program_gives_no_verdict(run):
    Path("ends.py").write_text("import sys\nmodel = (lambda x: sys.exit(0), None)\n")
    code, out, err = run("test good.npy --model ends.py:model --test ksd")
    assert code == 2 and out == "" and err.count("\n") == 1 and "exit" in err.lower()


@pytest.mark.parametrize(("data", "code"), [("good.npy", 0), ("wrong.npy", 1)])
def test_the_exit_code_is_the_verdict(run, data, code):
    got, out, err = run(f"test {data} {MODEL} --test ksd")
    assert got == code and err == "" and f"{data} against models.py:normal" in out
    assert "report" not in out


@pytest.mark.parametrize("name", [name for name in TESTS if name != "crossfit"])
def test_the_result_is_that_of_python(run, name):
    wanted = sc.gof_test(Q, X, name, level=0.1, seed=3)
    code, out, _ = run(f"test good.npy {MODEL} --test {name} --seed 3 --level 0.1 --json --out o")
    told = json.loads(out)
    assert code == int(wanted.rejected)
    np.testing.assert_allclose(told["pvalue"], wanted.pvalue)
    np.testing.assert_allclose(told["statistic"], wanted.statistic, rtol=1e-5)  # float32 sums
    assert told["level"] == 0.1 and told["seed"] == 3 and told["data"] == "good.npy" and told["dropped"] == 0
    assert json.loads(Path("o/result.json").read_text()) == told


def test_draws_are_those_of_the_test_that_was_named_or_chosen(run):
    for test in ("--test ksd", "--test crossfit --device cpu", ""):
        told = json.loads(run(f"test few.npy {MODEL} {test} --draws 39 --json")[1])
        if "error" not in told:  # six points are too few to train critics on
            assert len(told["null_distribution"]) == 39
    assert told["test"] == "combined" and told["notes"][0].startswith("Test combined: 6 points are too few")


def test_null_runs_are_kept_unless_told_otherwise(run):
    line = f"test few.npy {MODEL} --test crossfit --draws 19 --device cpu --json"
    np.save("few.npy", X[:20])
    assert run(f"{line} --no-cache")[0] in (0, 1) and not Path("cache").exists()
    assert run(line)[0] in (0, 1) and Path("cache").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--test magic", "test must be one of combined, crossfit, split, ksd, ksdagg, fssd; got 'magic'"),
        ("--test ksd --draws 0", "draws must be a whole number of at least 1"),
        ("--test ksd --draws 3", "3 null draws cannot reach level"),
        ("--test ksd --address here", "--address is for --engine dask"),
        ("--engine dask --address here", "address is that of a Dask scheduler, such as tcp://10.0.0.5:8786"),
        ("--test ksd --device cuda:99", "device 'cuda:99' cannot be used here"),
        ("--test ksd --out good.npy/below", "cannot write good.npy/below"),
    ],
)
def test_what_is_the_users_to_mend_is_one_line(run, line, words):
    code, out, err = run(f"test good.npy {MODEL} {line}")
    assert code == 2 and out == "" and words in err and err.count("\n") == 1


def test_where_no_scheduler_answers_one_line_says_so(run, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("steincritic.cluster._ANSWER", 0.5)
    code, out, err = run(f"test good.npy {MODEL} --engine dask --address 127.0.0.1:9")
    assert code == 2 and out == "" and "no Dask scheduler answers at tcp://127.0.0.1:9" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("tolerance", ["0.3", "fisher:0.5", "foreign:0.2"])
def test_a_tolerance_asks_whether_the_model_is_wrong_by_more(run, tolerance):
    for data, code in (("good.npy", 0), ("far.npy", 1)):
        np.save("far.npy", X + 4.0)
        got, out, _ = run(f"test {data} {MODEL} --tolerance {tolerance} --json")
        told = json.loads(out)
        assert got == code and told["rejected"] == bool(code) and told["tolerance"]["null"]


@pytest.mark.parametrize("wrong", ["-0.1", "5", "5%", "fischer:0.1", "foreign:2", "0.1 --test ksd"])
def test_a_tolerance_that_makes_no_sense_is_answered_in_one_line(run, wrong):
    code, out, err = run(f"test good.npy {MODEL} --tolerance={wrong}")
    assert code == 2 and out == "" and err.count("\n") == 1 and "tolerance" in err


def test_compare_has_no_tolerance(run):
    code, _, err = run(f"compare good.npy {MODEL} {MODEL} --tolerance 0.1")
    assert code == 2 and "--tolerance is for check and test" in err


def test_rows_that_are_many_go_by_in_one_pass(run, monkeypatch):
    from steincritic.gof import combined, large, one_pass, streamed

    monkeypatch.setattr(streamed, "_SETS", 99)
    monkeypatch.setattr(streamed, "_ROWS", (300, 2**22))
    monkeypatch.setattr(one_pass, "_SAMPLE", (500, 2**20))
    monkeypatch.setattr(large, "LARGE", 5000)
    monkeypatch.setitem(combined.Combined.__init__.__kwdefaults__, "exact_up_to", 5000)
    x = Q.sample(6000, seed=2).numpy()
    x[5500, 0] = np.nan
    x[:, 1] += 0.2
    np.save("many.npy", x)
    code, out, err = run(f"test many.npy {MODEL} --json")
    assert code == 2 and "NaN or infinite values in row 5500" in err
    code, out, err = run(f"test many.npy {MODEL} --json --drop-nan")
    found = json.loads(out)
    assert code == 1 and found["threshold"] == "scaled" and found["n"] == 5999
    assert found["dropped"] == 1 and any("in one pass" in note for note in found["notes"])
    code, out, _ = run(f"check many.npy {MODEL} --json --drop-nan --out report")
    found = json.loads(out)
    assert code == 1 and found["rows"] == 1000 and found["n"] == 5999
    assert max(found["points"]["worst"]) > 1000 and Path("report/report.html").exists()  # rows of the file
    code, out, _ = run(f"test many.npy {MODEL} --json --drop-nan --test split")
    found = json.loads(out)
    assert any("Tested on 5,000 of 5,999 rows" in note for note in found["notes"])
