"""The command line: exit codes that a script can trust, one line for what is the user's to mend."""

import csv
import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import numpy as np
import pytest

import steincritic
from steincritic.cli import reproduce
from steincritic.models import GaussianMixture
from steincritic_studies.record import Record

Q = GaussianMixture([[0.0, 0.0]])
X = Q.sample(40, seed=1).numpy()
MODELS = """
import torch
from steincritic.models import GaussianMixture

normal = GaussianMixture([[0.0, 0.0]])
scoreless = 3
no_sampler = (lambda x: -x, None)
narrow = (lambda x: -x[:, :1], None)
nan = (lambda x: x / 0 * 0, None)

def broken_score(x):
    raise OSError("the server is away\\nsecond line")

broken = (broken_score, None)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder to work in, with good and bad files; the null cache is there too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    Path("models.py").write_text(MODELS)
    Path("exits.py").write_text("import sys; sys.exit(0)")
    Path("fails.py").write_text("raise RuntimeError('no weights\\nsecond line')")
    np.save("good.npy", X)
    np.save("wrong.npy", X + 1.0)
    np.save("few.npy", X[:6])
    np.save("three.npy", np.zeros((9, 3)))
    np.save("flat.npy", X[:, 0])
    np.save("empty.npy", X[:0])
    np.save("whole.npy", np.ones((9, 2), dtype=int))
    np.save("pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez("two.npz", a=X, b=X)
    np.savetxt("good.csv", X, delimiter=",", header="a,b", comments="")
    Path("nan.csv").write_text("a,b\n1.0,nan\n2.0,3.0\n")
    Path("text.csv").write_text("a,b\n1.0,red\n2.0,blue\n")
    Path("data.txt").write_text("1.0 2.0")
    Path("damaged.npy").write_bytes(b"\x93NUMPY")
    return tmp_path


# Verdicts.


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ("good.npy", 0, "No evidence against the model"),
        ("good.csv", 0, "No evidence against the model"),
        ("wrong.npy", 1, "The data do not look like draws from the model"),
    ],
)
@pytest.mark.parametrize("method", ["ksd", "ksdagg"])
def test_the_exit_code_is_the_verdict(run, data, code, words, method):
    got, out, err = run(f"check {data} --model models.py:normal --test {method}")
    assert got == code and err == ""
    assert words in out and f"{data} against models.py:normal" in out


def test_models_are_built_in_files_or_modules(run, monkeypatch, place):
    monkeypatch.syspath_prepend(place)
    for model in ("gm-2d", "models.py:normal", "models:normal", f"{place}/models.py:no_sampler"):
        assert run(f"check good.npy --model {model} --test ksd --json")[0] in (0, 1)


def test_without_a_method_one_is_chosen_and_named(run):
    code, out, _ = run("check few.npy --model models.py:normal")
    assert code == 0 and "Test combined: 6 points are too few to train critics on" in out


def test_json_is_one_object_on_standard_output_and_nothing_else(run):
    code, out, err = run("check wrong.npy --model models.py:normal --test ksd --seed 3 --json")
    result = json.loads(out)
    assert out.count("\n") == 1 and err == "" and code == 1
    assert result["rejected"] and result["test"] == "ksd" and result["seed"] == 3 and result["n"] == 40


def test_the_result_goes_to_a_file_too(run, place):
    code, out, _ = run("check good.npy --model models.py:normal --test ksd --out deep/er --json")
    printed = json.loads(out)
    files = [Path(name).name for name in printed.pop("files")]
    assert code == 0 and json.loads((place / "deep" / "er" / "result.json").read_text()) == printed
    assert files == ["report.html", "result.json", "witness.csv", "critic.safetensors"]
    assert {path.name for path in (place / "deep" / "er").iterdir()} == set(files)


def test_an_existing_report_is_kept_unless_told_otherwise(run, place):
    line = "check good.npy --model models.py:normal --test ksd --out there"
    assert run(line)[0] == 0
    before = (place / "there" / "report.html").read_bytes()
    code, _, err = run(line)
    assert code == 2 and "there holds report.html already" in err and "--overwrite" in err
    assert (place / "there" / "report.html").read_bytes() == before
    assert run(f"{line} --overwrite")[0] == 0


def test_the_witness_of_every_row_is_in_the_csv_and_the_critic_can_be_loaded(run, place):
    run("check wrong.npy --model models.py:normal --test ksd --out there")
    rows = (place / "there" / "witness.csv").read_text().splitlines()
    assert rows[0] == "row,witness,pvalue,flagged" and len(rows) == 41
    critic = steincritic.load_critic(place / "there" / "critic.safetensors", Q)
    assert critic.witness(X).shape == (40,)


def test_rows_with_nan_are_left_out_on_demand(run):
    values = np.vstack([X, np.full((2, 2), np.nan)])
    np.savetxt("gaps.csv", values, delimiter=",", header="height,width", comments="")
    code, out, _ = run("check gaps.csv --model models.py:normal --test ksd --drop-nan")
    assert code == 0 and "2 rows with NaN or infinite values left out" in out


def test_few_points_are_tested_without_a_diagnosis(run, place):
    code, out, _ = run("check few.npy --model models.py:normal --test ksd --out there --json")
    assert code == 0 and json.loads(out)["n"] == 6
    assert [path.name for path in (place / "there").iterdir()] == ["result.json"]


def test_settings_may_come_from_a_file_and_the_command_line_has_the_last_word(run):
    Path("check.toml").write_text('model = "models.py:normal"\ntest = "ksd"\nlevel = 0.1\ndrop-nan = true\n')
    code, out, _ = run("check good.npy --config check.toml --json")
    assert code == 0 and json.loads(out)["level"] == 0.1
    assert json.loads(run("check good.npy --config check.toml --level 0.2 --json")[1])["level"] == 0.2
    Path("check.toml").write_text('data = "good.npy"\nmodel = "models.py:normal"\ntest = "ksd"\n')
    assert run("check --config check.toml --json")[0] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("level = [", "is no TOML file"),
        ("levle = 0.1", "sets 'levle'; did you mean level?"),
        ("zebra = 1", "sets 'zebra', which is none of"),
        ("level = [0.1]", "must be one value"),
        ("json = 1", "json in the settings file must be true or false, got 1"),
        ("level = 'high'", "--level must be a number, got 'high'"),
    ],
)
def test_settings_that_cannot_be_used_are_named(run, text, words):
    Path("check.toml").write_text(text)
    code, _, err = run("check good.npy --config check.toml")
    assert code == 2 and words in err and err.count("\n") == 1
    assert "no such settings file: nowhere.toml" in run("check good.npy --config nowhere.toml")[2]


def test_names_are_printed_as_they_are(run):
    np.save("x[bold].npy", X)
    assert "x[bold].npy against" in run("check x[bold].npy --model models.py:normal --test ksd")[1]


# Errors.

CHECK = "--model models.py:normal --test ksd"
BAD_INPUT = {
    f"check nowhere.npy {CHECK}": "no such data file: nowhere.npy",
    f"check . {CHECK}": "no such data file",
    f"check data.txt {CHECK}": "data.txt must end in one of .npy, .npz, .csv, .parquet",
    f"check text.csv {CHECK}": "text.csv must hold numbers, got text in column b ('red' in line 2)",
    f"check nan.csv {CHECK}": "nan.csv has NaN or infinite values in 1 of 2 rows, the first is row 0",
    f"check damaged.npy {CHECK}": "damaged.npy cannot be read as npy",
    f"check pickled.npy {CHECK}": "pickled.npy cannot be read as npy",
    f"check two.npz {CHECK}": "two.npz must hold one array, it holds 2",
    f"check three.npy {CHECK}": "x has 3 columns but the model has 2 dimensions",
    f"check flat.npy {CHECK}": "flat.npy must have shape (n, d), got (40,)",
    f"check empty.npy {CHECK}": "empty.npy must have shape (n, d)",
    f"check whole.npy {CHECK}": "whole.npy must hold floating-point numbers, got int64",
    "check good.npy --model nowhere.py:q": "no such model file: nowhere.py",
    "check good.npy --model model.py:q": "did you mean models.py?",
    "check good.npy --model models.py:norma": "models.py has no attribute 'norma'; did you mean normal?",
    "check good.npy --model models.py": "a model is named package.module:attr or file.py:attr",
    "check good.npy --model gm-3d": "a model is named package.module:attr or file.py:attr, got 'gm-3d'",
    "check good.npy --model no_such_package:q": "cannot import 'no_such_package'",
    "check good.npy --model fails.py:q": "fails.py raised RuntimeError: no weights",
    "check good.npy --model exits.py:q": "exits.py raised SystemExit: 0",
    "check good.npy --model models.py:scoreless": "a model must have score(x)",
    "check good.npy --model models.py:broken": "raised OSError: the server is away",
    "check good.npy --model models.py:narrow": "model.score must return the shape of its argument",
    "check good.npy --model models.py:nan": "the score at x has NaN",
    "check good.npy --model models.py:no_sampler --test crossfit": "tests split and ksd work without",
    "check few.npy --model models.py:normal --test crossfit": "x has 6 points; 5 folds need",
    "check good.npy --model models.py:normal --test magic": "test must be one of combined, crossfit, split",
    f"check good.npy {CHECK} --level 2": "level must lie in (0, 1), for example 0.05: got 2.0",
    f"check good.npy {CHECK} --level nan": "level must lie in (0, 1)",
    f"check good.npy {CHECK} --level 1e-6": "level 1e-06 wants",
    f"check good.npy {CHECK} --out there --image-shape 3": "image-shape is height x width",
    f"check good.npy {CHECK} --out there --image-shape 3x3": "has 9 pixels, the data have 2 columns",
    f"check good.npy {CHECK} --out data.txt/below": "data.txt is not a folder",
    "demo --n 0": "n must be a whole number of at least 1, got 0",
    "demo --n 6 --out data.txt/below": "data.txt is not a folder",
    "reproduce gm-1d --tiny --device nonsense": "device 'nonsense' cannot be used here",
    "reproduce gm-1d --tiny --device cuda:99": "device 'cuda:99' cannot be used here",
    "reproduce gm-1d --tiny --out data.txt/below": "data.txt is not a folder",
    "reproduce gm-1d --redraw --out nowhere": "no record at nowhere/record.json",
}


@pytest.mark.parametrize("line", BAD_INPUT)
def test_what_is_the_users_to_mend_is_one_line_and_exit_code_2(run, line):
    code, out, err = run(line)
    assert code == 2
    assert err.startswith("steincritic: ") and err.count("\n") == 1
    assert BAD_INPUT[line] in err
    assert out == ""


@pytest.mark.parametrize(
    "line",
    [
        "chekc good.npy --model gm-2d",
        "check good.npy",
        "check --model gm-2d",
        "check good.npy --model gm-2d --seed half",
        "check good.npy --model gm-2d --level high",
        "check good.npy --model gm-2d --no-such-option 3",
        "check good.npy more.npy --model gm-2d",
        "reproduce gm-3d --tiny",
        "reproduce",
        "demo --n many",
        "",
    ],
)
def test_a_command_line_that_is_none_has_exit_code_2(run, line):
    code, out, err = run(line)
    assert code == 2 and "Traceback" not in out + err
    assert err.strip() != ""


@pytest.mark.parametrize("line", ["--help", "check --help", "demo --help", "reproduce --help"])
def test_help_is_given(run, line):
    code, out, _ = run(line)
    assert code == 0 and "usage" in out.lower()


def test_the_place_of_an_error_is_shown_on_demand(run):
    code, _, err = run(f"check nowhere.npy {CHECK} --traceback")
    assert code == 2  # 1 would pass for a rejected model
    assert err.startswith("Traceback") and "InputError: no such data file: nowhere.npy" in err


def test_an_error_that_nobody_expected_is_no_verdict(run, monkeypatch):
    def fail(*arguments, **options):
        raise AttributeError("a defect")

    monkeypatch.setattr("steincritic.gof.choose.gof_test", fail)
    code, out, err = run(f"check good.npy {CHECK}")
    assert code == 2 and out == "" and "AttributeError: a defect" in err


def test_an_interrupt_has_the_shells_exit_code(run, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("steincritic.gof.choose.gof_test", interrupt)
    code, _, err = run(f"check good.npy {CHECK}")
    assert code == 130 and err.count("\n") == 1


# Demo and experiments.


def test_the_demo_writes_two_reports(run, place):
    code, out, _ = run("demo --n 20 --out shown")
    assert code == 0 and "Control: the model's own draws" in out and "Open shown/data/report.html" in out
    for name in ("data", "control"):
        found = {path.name for path in (place / "shown" / name).iterdir()}
        assert found == {"report.html", "result.json", "witness.csv", "critic.safetensors"}
        assert json.loads((place / "shown" / name / "result.json").read_text())["rows"] == 20


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", sorted(entry_points(group=reproduce.GROUP).names))
def test_an_experiment_leaves_record_table_and_figures_and_redraws_them_to_the_byte(run, place, name):
    code, out, err = run(f"reproduce {name} --tiny --device cpu --out shown")
    assert code == 0 and err == ""
    files = contents(place / "shown")
    assert {"record.json", "table.md"} < set(files) and any(file.endswith(".png") for file in files)
    assert Record.load(place / "shown" / "record.json").name == name
    for file in set(files) - {"record.json"}:
        (place / "shown" / file).unlink()
    code, again, _ = run(f"reproduce {name} --redraw --out shown")
    assert code == 0 and again == out
    assert contents(place / "shown") == files


def test_an_unknown_study_is_refused_in_one_line_with_the_known_ones(run):
    code, _, err = run("reproduce gm-2")
    assert code == 2 and err.count("\n") == 1
    assert "no study 'gm-2'; did you mean gm-2d? (the studies: adaptive, auto-staging, " in err
    assert "did you mean" not in run("reproduce zzzzz")[2]


def test_without_an_installed_package_there_are_no_studies(run, monkeypatch):
    monkeypatch.setattr(reproduce, "entry_points", lambda *, group: ())
    code, _, err = run("reproduce gm-2d")
    assert code == 2 and "no studies are installed" in err and err.count("\n") == 1


def test_another_package_can_bring_a_study(run, monkeypatch, place):
    (place / "elsewhere.py").write_text(
        "class Found:\n"
        "    table, files = '# Here', ['made.png']\n"
        "class Study:\n"
        "    def reproduce(self, folder, **options):\n"
        "        assert options['seed'] == 3 and options['tiny'] and folder.is_dir()\n"
        "        return Found\n"
        "STUDY = Study()\n"
    )
    monkeypatch.syspath_prepend(place)
    point = EntryPoint("theirs", "elsewhere:STUDY", reproduce.GROUP)
    monkeypatch.setattr(reproduce, "entry_points", lambda *, group: (point,))
    code, out, _ = run("reproduce theirs --tiny --seed 3 --device cpu --out shown")
    assert code == 0 and "Here" in out and "made.png" in out


def test_only_records_of_the_experiment_are_redrawn(run, place):
    assert run("reproduce gm-1d --tiny --device cpu")[0] == 0
    folder = place / "out" / "gm-1d"  # the usual place of a tiny run
    assert (folder / "table.md").is_file()
    code, _, err = run(f"reproduce gm-2d --redraw --out {folder}")
    assert code == 2 and "is a record of 'gm-1d', not of 'gm-2d'" in err and err.count("\n") == 1
    (folder / "record.json").write_text("{}")
    code, _, err = run("reproduce gm-1d --redraw --tiny")
    assert code == 2 and "record.json is not a steincritic record" in err and err.count("\n") == 1


# The command as a process of its own.


def process(line):
    source = str(Path(steincritic.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-m", "steincritic.cli", *line.split()],
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_process_ends_with_the_verdict(place):
    done = process("check wrong.npy --model models.py:normal --test ksd --json")
    said = [line for line in done.stderr.splitlines() if not line.startswith("steincritic: about ")]
    assert done.returncode == 1 and not said  # but how long it takes, on a slow machine
    assert json.loads(done.stdout)["rejected"]


def test_a_process_ends_with_one_line_for_an_error(place):
    done = process(f"check nan.csv {CHECK}")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("steincritic: nan.csv has NaN") and done.stderr.count("\n") == 1


def test_rows_keep_number_line_and_id_when_others_are_left_out(run, place):
    """What is found is what is found in the rows that are left, under the names of the file."""
    x = np.load("good.npy") + 2.0
    kept = [k for k in range(len(x)) if k not in (5, 20)]
    np.save("kept.npy", x[kept])
    lines = [f"p{k},{a!r},{b!r}" for k, (a, b) in enumerate(x.tolist())]
    lines[5], lines[20] = "p5,,1", "p20,nan,1"
    Path("named.csv").write_text("\n".join(["who,a,b", "# a remark", *lines]) + "\n")
    check = "--model models.py:normal --test ksd --json"
    alone = json.loads(run(f"check kept.npy {check}")[1])["points"]
    run(f"check named.csv {check} --id-column who --drop-nan --out named")
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
