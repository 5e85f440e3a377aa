"""check, test, compare, doctor, demo: the verdicts of the library, and exit codes that a script can trust."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc
from steincritic.gof.choose import TESTS

Q = sc.models.GaussianMixture([[0.0, 0.0]])
MODEL = "--model models.py:normal"
KSD = f"{MODEL} --test ksd"
FILES = {"report.html", "result.json", "witness.csv", "critic.safetensors"}


def names_in(folder):
    return {path.name for path in Path(folder).iterdir()}


@pytest.mark.parametrize("command", ["check", "test"])
@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ("x.npy", 0, "No evidence against the model"),
        ("x.csv", 0, "No evidence against the model"),
        ("wrong.npy", 1, "The data do not look like draws from the model"),
    ],
)
def test_the_exit_code_is_the_verdict(run, command, data, code, words):
    got, out, err = run(f"{command} {data} {KSD}")
    assert got == code and err == "" and words in out and f"{data} against models.py:normal" in out
    assert ("--out DIR" in out) == (command == "check")


@pytest.mark.parametrize("command", ["check", "test"])
def test_where_there_is_no_verdict_none_is_shown(run, monkeypatch, command):
    np.save("four.npy", np.load("x.npy")[:4])
    shown = []
    monkeypatch.setattr(
        "steincritic.cli.out.print_verdict", lambda lines, title, rejected: shown.append(rejected)
    )
    assert run(f"{command} four.npy --model models.py:scores --test ksd")[0] == 0 and shown == [None]


def test_models_are_built_in_files_or_modules(run, monkeypatch, place):
    monkeypatch.syspath_prepend(place)
    for model in ("gm-2d", "models.py:normal", "models:normal", f"{place}/models.py:scores"):
        assert run(f"test x.npy --model {model} --test ksd --json")[0] in (0, 1)


def test_a_settings_file_stops_the_critic_of_the_split_test_early(run):
    Path("split.toml").write_text('test = "split"\nearly-stopping = true\ndraws = 39\n')
    result = json.loads(run(f"test x.npy {MODEL} --config split.toml --json")[1])
    test = sc.Split(draws=39, training=sc.Training(selection="monitor"))
    assert result["pvalue"] == sc.gof_test(Q, np.load("x.npy"), test).pvalue
    assert result["settings"]["training"]["selection"] == "monitor"


@pytest.mark.parametrize("name", [name for name in TESTS if name != "crossfit"])
def test_the_result_is_that_of_python(run, name):
    expected = sc.gof_test(Q, np.load("x.npy"), name, level=0.1, seed=3)
    code, out, _ = run(f"test x.npy {MODEL} --test {name} --seed 3 --level 0.1 --json --out deep/er")
    told = json.loads(out)
    assert code == int(expected.rejected)
    np.testing.assert_allclose(told["pvalue"], expected.pvalue)
    np.testing.assert_allclose(told["statistic"], expected.statistic, rtol=1e-5)  # float32 sums
    assert told["level"] == 0.1 and told["seed"] == 3 and told["data"] == "x.npy" and told["dropped"] == 0
    assert json.loads(Path("deep/er/result.json").read_text()) == told


def test_draws_are_those_of_the_test_that_was_named_or_chosen_and_the_reason_is_told(run):
    for test in ("--test ksd", ""):
        told = json.loads(run(f"test few.npy {MODEL} {test} --draws 39 --json")[1])
        assert len(told["null_distribution"]) == 39
    assert told["test"] == "combined" and told["notes"][0].startswith("Test combined: 6 points are too few")


def test_null_runs_are_kept_unless_told_otherwise(run):
    line = f"test few.npy {MODEL} --draws 39 --json"
    assert run(f"{line} --no-cache")[0] in (0, 1) and not Path("cache").exists()
    assert run(line)[0] in (0, 1) and Path("cache").exists()


def test_a_check_writes_four_files_and_replaces_them_only_if_told(run):
    code, out, _ = run(f"check wrong.npy {KSD} --out there --json")
    printed = json.loads(out)
    assert {Path(name).name for name in printed.pop("files")} == names_in("there") == FILES
    assert code == 1 and json.loads(Path("there/result.json").read_text()) == printed
    rows = Path("there/witness.csv").read_text().splitlines()
    assert rows[0] == "row,witness,pvalue,flagged" and len(rows) == 61
    assert sc.load_critic("there/critic.safetensors", Q).witness(np.load("x.npy")).shape == (60,)
    before = Path("there/report.html").read_bytes()
    code, _, err = run(f"check x.npy {KSD} --out there")
    assert code == 2 and "there holds report.html already" in err
    assert Path("there/report.html").read_bytes() == before
    assert run(f"check x.npy {KSD} --out there --overwrite")[0] == 0


def test_few_points_are_tested_without_a_diagnosis(run):
    code, out, _ = run(f"check few.npy {KSD} --out there --json")
    assert code == 0 and json.loads(out)["n"] == 6 and names_in("there") == {"result.json"}


def test_names_are_printed_as_they_are(run):
    np.save("x[bold].npy", np.load("x.npy"))
    assert "x[bold].npy against" in run(f"check x[bold].npy {KSD}")[1]


def test_rows_keep_number_line_and_id_when_others_are_left_out(run):
    """What is found is what is found in the rows that are left, under the names of the file."""
    x = np.load("x.npy") + 2.0
    kept = [k for k in range(len(x)) if k not in (5, 20)]
    np.save("kept.npy", x[kept])
    lines = [f"p{k},{a!r},{b!r}" for k, (a, b) in enumerate(x.tolist())]
    lines[5], lines[20] = "p5,,1", "p20,nan,1"
    Path("named.csv").write_text("\n".join(["who,a,b", "# a remark", *lines]) + "\n")
    alone = json.loads(run(f"check kept.npy {KSD} --json")[1])["points"]
    run(f"check named.csv {KSD} --id-column who --drop-nan --out named")
    told = json.loads(Path("named/result.json").read_text())
    points = told["points"]
    assert told["dropped"] == 2 and alone["flagged"] and told["rejected"]
    for name in ("flagged", "worst"):
        assert points[name] == [kept[k] for k in alone[name]]
    assert points["worst_lines"] == [k + 3 for k in points["worst"]]
    assert points["worst_ids"] == [f"p{k}" for k in points["worst"]]
    table = list(csv.DictReader(Path("named/witness.csv").read_text().splitlines()))
    assert list(table[0]) == ["row", "line", "id", "witness", "pvalue", "flagged"]
    assert [int(row["row"]) for row in table] == kept
    assert sorted(int(row["row"]) for row in table if row["flagged"] == "1") == sorted(points["flagged"])
    page, first = Path("named/report.html").read_text(), points["flagged"][0]
    name = f"{first} (line {first + 3}, id p{first})"
    assert any(name in sentence for sentence in told["findings"]) and name in page
    assert f'<td data-value="{first + 3}">{first + 3}</td><td data-value="p{first}">' in page
    assert "2 rows with NaN or infinite values left out." in page


@pytest.mark.parametrize("tolerance", ["0.3", "fisher:0.5"])
def test_a_tolerance_asks_whether_the_model_is_wrong_by_more(run, tolerance):
    np.save("far.npy", np.load("x.npy") + 4.0)
    for data, code in (("x.npy", 0), ("far.npy", 1)):
        got, out, _ = run(f"test {data} {MODEL} --tolerance {tolerance} --json")
        told = json.loads(out)
        assert got == code and told["rejected"] == bool(code) and told["tolerance"]["null"]


def test_rows_that_are_many_go_by_in_one_pass(run, monkeypatch):
    from steincritic.gof import combined, one_pass, streamed

    monkeypatch.setattr(streamed, "_SETS", 99)
    monkeypatch.setattr(streamed, "_ROWS", (300, 2**22))
    monkeypatch.setattr(one_pass, "_SAMPLE", (500, 2**20))
    monkeypatch.setattr(combined, "EXACT_UP_TO", 2000)
    x = Q.sample(2400, seed=2).numpy()
    x[2300, 0] = np.nan
    x[:, 1] += 0.3
    np.save("many.npy", x)
    code, out, err = run(f"test many.npy {MODEL} --json")
    assert code == 2 and "NaN or infinite values in row 2300" in err
    code, out, err = run(f"test many.npy {MODEL} --json --drop-nan")
    told = json.loads(out)
    assert code == 1 and told["threshold"] == "scaled" and told["n"] == 2399
    assert told["dropped"] == 1 and any("in one pass" in note for note in told["notes"])
    code, out, _ = run(f"check many.npy {MODEL} --json --drop-nan --out report")
    told = json.loads(out)
    assert code == 1 and told["rows"] == 1000 and told["n"] == 2399
    assert max(told["points"]["worst"]) > 1000 and Path("report/report.html").exists()  # rows of the file
    told = json.loads(run(f"test many.npy {MODEL} --json --drop-nan --test ksd")[1])
    assert any("Tested on 2,000 of 2,399 rows" in note for note in told["notes"])


# Models with bounds, models of y given x, fitted ones.


@pytest.mark.parametrize(("stretch", "code"), [(1, 0), (2, 1)])
def test_bounds_make_scores_of_a_half_line_usable(run, stretch, code):
    x = stretch * np.random.default_rng(3).exponential(size=(120, 1))
    np.savetxt("age.csv", x, header="age", comments="")
    line = "test age.csv --model models.py:half_line --test ksd --json"
    assert run(line, "--bounds", "age 0 inf")[0] == code and run(line)[0] == 1
    code, out, _ = run("doctor --model models.py:half_line --data age.csv --json", "--bounds", "age 0 inf")
    assert json.loads(out)["ok"] or stretch == 2


def test_a_check_of_a_model_with_bounds_speaks_of_the_column(run):
    np.savetxt("age.csv", 2 * np.random.default_rng(3).exponential(size=(120, 1)), header="age", comments="")
    code, out, _ = run("check age.csv --model models.py:exponential --test ksd --json --out o")
    told = json.loads(out)
    assert code == 1 and told["columns"] == ["age"] and any(f.startswith("age ") for f in told["findings"])
    assert "log age" in " ".join(told["notes"])
    line = "witness age.csv --model models.py:exponential --critic o/critic.safetensors --draws 50"
    assert run(line)[0] == 0


@pytest.mark.parametrize("target", ["y", "1"])
def test_a_model_of_y_given_x_is_tested_at_the_rows(run, target):
    x, e = (np.random.default_rng(k).normal(size=60) for k in (0, 1))
    columns = np.column_stack([x, x + 2 + e, e[::-1]])
    np.savetxt("given.csv", columns, delimiter=",", header="a,y,b", comments="")
    line = f"check given.csv --target {target} --model models.py:given --json --no-cache"
    code, out, _ = run(line)
    told = json.loads(out)
    assert code == 1 and told["columns"] == ["a", "b", "y"]
    assert "too large on average" in told["findings"][0]
    assert run(f"doctor --data given.csv --target {target} --model models.py:given")[0] == 0


def test_a_function_that_fits_is_fitted_anew_to_every_null_set(run):
    Path("fits.py").write_text(
        "import torch\n"
        "def fit(x):\n"
        "    x = torch.as_tensor(x)\n"
        "    return torch.distributions.MultivariateNormal(x.mean(0), torch.cov(x.T))\n"
    )
    code, out, _ = run("test wrong.npy --model fits.py:fit --fitted --draws 39 --no-cache --json")
    assert code == 0 and json.loads(out)["threshold"] == "refitted"


# Compare, doctor, demo.


@pytest.mark.parametrize(
    ("first", "test", "code", "words"),
    [
        ("normal", "ksd", 0, "Nearest to the data first: one; then two[b]."),
        ("moved --model models.py:three", "none", 2, "x has 2"),
        ("wrong", "ksd", 1, "None of them is right"),
        ("wrong", "none", 0, "was not tested"),
    ],
)
def test_models_are_ranked_and_tested(run, first, test, code, words):
    line = f"compare x.npy --model models.py:{first} --model models.py:far --test {test}"
    names = "" if "three" in first else " --name one --name two[b]"
    got, out, err = run(line + names)
    assert got == code and words in out + err


def test_a_comparison_is_an_object_and_a_file(run):
    line = f"compare x.npy {MODEL} --model models.py:far --test ksd --seed 3 --level 0.1 --out deep --json"
    told = json.loads(run(line)[1])
    assert told["ranking"] == [["models.py:normal"], ["models.py:far"]]
    assert told["seed"] == 3 and told["level"] == 0.1 and not told["rejected"]
    assert json.loads(Path("deep/comparison.json").read_text()) == told


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("--model gm-2d --n 1000", 0, "No evidence against the adapter: 0 failed, 0 warnings"),
        (f"{MODEL} --data x.npy --n 1000", 0, "60 rows of x"),
        ("--model models.py:scores --data x.npy", 0, "The model cannot be sampled"),
        ("--model models.py:wrong --n 1000", 1, "The adapter cannot be trusted yet: 1 failed"),
    ],
)
def test_the_exit_code_of_doctor_says_whether_a_check_failed(run, line, code, words):
    got, out, err = run(f"doctor {line}")
    assert got == code and err == "" and words in out and "Stein's identity" in out


def test_the_demo_writes_two_reports(run):
    code, out, _ = run("demo --n 20 --test ksd --out shown")
    assert code == 0 and "Control: the model's own draws" in out and "Open shown/data/report.html" in out
    for name in ("data", "control"):
        assert names_in(f"shown/{name}") == FILES
        assert json.loads(Path(f"shown/{name}/result.json").read_text())["rows"] == 20
