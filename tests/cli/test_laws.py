"""What holds for every command: quick help, mistakes in one line, one JSON object, silence, settings."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc
from steincritic.cli import COMMANDS
from steincritic.cli.options import check_data
from steincritic.cli.parsing import options_of, parsed
from steincritic.learning import FOR_PERCEPTRONS, Learning

HEAVY = ("torch", "numpy", "matplotlib", "scipy", "rich", "jinja2")
# One good call of each command, quick.
QUICK = "--steps 4 --batch-size 20 --log-every 2 --hidden 4 --critic-steps 1 --pictures 1 --overwrite"
CALLS = {
    "check": "check x.npy --model gm-2d --test ksd",
    "test": "test x.npy --model gm-2d --test ksd",
    "doctor": "doctor --model gm-2d --n 500",
    "compare": "compare x.npy --model gm-2d --model models.py:far --test ksd",
    "watch": "watch x.csv --model gm-2d --batch 20",
    "witness": "witness x.npy --critic critic --model gm-2d",
    "fit-energy": f"fit-energy x.npy --device cpu --out energy {QUICK}",
    "demo": "demo --n 20 --test ksd --out shown",
    "reproduce": "reproduce gm-1d --tiny --device cpu --out record",
}
MODELS = """
from steincritic.models import GaussianMixture

print("loaded")
far = GaussianMixture([[9.0, 0.0]])
"""
LIGHT = [name for name in COMMANDS if name != "reproduce"]  # it lists its experiments, which import torch
WITH_JSON = [name for name in LIGHT if name != "watch"]  # which prints one object per batch
NO_FILE = {
    name: line.replace("x.npy", "nowhere.npy").replace("x.csv", "nowhere.csv")
    for name, line in CALLS.items()
    if "x.npy" in line or "x.csv" in line
} | {"doctor": "doctor --model gm-2d --data nowhere.npy"}


def command(name):
    module, _, kind = COMMANDS[name][0].partition(":")
    return getattr(import_module(f"steincritic.cli.{module}"), kind)


@pytest.fixture(scope="module")
def critic():
    q = sc.data.problem("gm-2d").model
    return sc.fit_critic(q, q.sample(60, seed=1), training=sc.Training(epochs=2), seed=0, callbacks=())


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, critic):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    x = sc.data.problem("gm-2d").model.sample(60, seed=1).numpy()
    np.save("x.npy", x)
    np.savetxt("x.csv", x, delimiter=",", header="a,b", comments="")
    critic.save("critic")
    Path("models.py").write_text(MODELS)
    return tmp_path


# Without torch.

SCRIPT = """
import contextlib, io, json, sys
from steincritic.cli import main
answers = []
for line in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(line.split())
        except SystemExit as exited:
            code = exited.code
    loaded = [name for name in HEAVY if name in sys.modules]
    answers.append([code, out.getvalue(), err.getvalue(), loaded])
print(json.dumps(answers))
"""


def fresh(lines):
    """Code, standard output, standard error and heavy modules after each line, in one new process."""
    source = str(Path(sc.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {HEAVY!r}\n{SCRIPT}", json.dumps(lines)],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_overview_names_every_command_and_the_version_is_told():
    overview, short, version = fresh(["--help", "-h", "--version"])
    assert overview == short and overview[0] == 0 and overview[3] == []
    assert all(f"  {name} " in overview[1] for name in COMMANDS) and "exit codes" in overview[1]
    assert version == [0, f"steincritic {sc.__version__}\n", "", []]


@pytest.mark.parametrize("name", LIGHT)
def test_help_and_plain_mistakes_need_no_torch(name, place):
    Path("bad.toml").write_text("level = [")
    call = CALLS[name]
    lines = {
        f"{call} --no-such-option 3": "no option --no-such-option",
        f"{call} --quite": "did you mean --quiet?",
        f"{call} --config nowhere.toml": "no such settings file: nowhere.toml",
        f"{call} --config bad.toml": "bad.toml is no TOML file",
        f"{call} more.npy": "one argument too many",
    }
    options = {option.name for option in options_of(command(name))}
    if "seed" in options:
        lines[f"{call} --seed half"] = "--seed must be a whole number, got 'half'"
        lines[f"{call} --seed -1"] = "seed must be a whole number of at least 0, got -1"
    if "level" in options:
        lines[f"{call} --level 2"] = "level must lie in (0, 1)"
    if "draws" in options:
        lines[f"{call} --draws 0"] = "draws must be a whole number of at least 1"
    if "image_shape" in options:
        lines[f"{call} --image-shape 3"] = "image-shape is height x width"
    if "out" in options:
        lines[f"{call} --out x.npy/below"] = "cannot write"
    if name in NO_FILE:
        lines[NO_FILE[name]] = "no such data file: nowhere"
    for option in options_of(command(name)):
        if option.required:
            lines[_without(call, option)] = f"{option.shown} is missing"
    help_text, *answers = fresh([f"{name} --help", *lines])
    assert help_text[0] == 0 and help_text[2:] == ["", []] and f"usage: steincritic {name}" in help_text[1]
    for (line, words), (code, out, err, loaded) in zip(lines.items(), answers, strict=True):
        assert code == 2 and out == "" and loaded == [], line
        assert err.startswith("steincritic: ") and err.count("\n") == 1 and words in err, (line, err)


def _without(call, option):
    words = call.split()
    if option.positional:
        return " ".join([words[0], *words[2:]])
    while option.shown in words:
        k = words.index(option.shown)
        del words[k : k + 2]
    return " ".join(words)


def test_what_stands_in_the_way_needs_no_torch(place):
    Path("there").mkdir()
    Path("there/report.html").write_text("old")
    Path("energy").mkdir()
    Path("energy/model.safetensors").write_text("old")
    check, energy, command_name = fresh(
        [
            f"{CALLS['check']} --out there",
            CALLS["fit-energy"].replace("--overwrite", ""),
            "chekc x.npy --model gm-2d",
        ]
    )
    assert check[0] == 2 and "there holds report.html already" in check[2] and check[3] == []
    assert energy[0] == 2 and "energy holds model.safetensors already" in energy[2] and energy[3] == []
    assert command_name[0] == 2 and "no command 'chekc'; did you mean check?" in command_name[2]


def test_a_mistake_is_an_object_too_where_json_is_asked_for():
    for line in NO_FILE.values():
        code, out, err = fresh([f"{line} --json"])[0][:3]
        assert code == 2 and err.count("\n") == 1
        message = err.removeprefix("steincritic: ").strip()
        assert json.loads(out) == {"schema_version": 1, "error": {"type": "InputError", "message": message}}


def test_importing_the_library_imports_nothing_else():
    source = str(Path(sc.__file__).parents[1])
    script = "import sys, steincritic; print([m for m in sys.argv[1:] if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script, *HEAVY, "tyro"],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["nowhere.npy", "x.parquet", "y.npy", "no/folder/x.npy", "."])
def test_a_missing_file_is_named_as_the_library_names_it(name):
    with pytest.raises(sc.InputError) as caught:
        check_data(Path(name))
    with pytest.raises(sc.InputError) as own:
        sc.data.read_table(name)
    assert str(caught.value) == str(own.value)


# With it.

TABLES = [name for name in CALLS if "x.npy" in CALLS[name] or "x.csv" in CALLS[name]] + ["doctor"]


@pytest.mark.parametrize("name", TABLES)
def test_every_command_that_reads_a_table_reads_some_of_its_columns_and_rows(run, name):
    lines = Path("x.csv").read_text().splitlines()[1:]
    rows = [f"{k},{line},red" for k, line in enumerate(lines)]
    Path("odd.csv").write_text("\n".join(["who,a,b,color", *rows[:3], "x,,1,red", *rows[3:]]) + "\n")
    call = CALLS[name].replace("x.npy", "odd.csv").replace("x.csv", "odd.csv")
    call += " --data odd.csv" if name == "doctor" else ""
    chosen = f"{call} --exclude color --id-column who"
    code, out, err = run(f"{call} --json")
    assert code == 2 and "('red' in line 2)" in err and "--exclude who,color" in err
    code, out, err = run(f"{chosen} --json")
    assert (
        code == 2 and "in row 3 (line 5, id x)" in err.replace("the first is", "in") and "--drop-nan" in err
    )
    assert json.loads(out)["error"]["type"] == "InputError"
    code, out, err = run(f"{chosen} --drop-nan --json")
    told = json.loads(out.splitlines()[-1])
    assert code in (0, 1) and told["dropped"] == 1 and told["command"] == name and told["schema_version"] == 1
    same = run(f"{call} --columns a,b --drop-nan --json")[1].splitlines()[-1]
    unlike = ("seconds", "seconds_expected", "points", "findings", "largest")
    assert {k: v for k, v in json.loads(same).items() if k not in unlike} == {
        k: v for k, v in told.items() if k not in unlike
    }
    assert "did you mean color?" in run(f"{call} --exclude colour")[2]


@pytest.mark.parametrize("name", WITH_JSON)
def test_json_is_one_object_and_nothing_else(run, name):
    """compare loads a model that prints: that goes to standard error."""
    code, out, err = run(f"{CALLS[name]} --json")
    assert code in (0, 1) and out.count("\n") == 1 and err == ("loaded\n" if name == "compare" else "")
    told = json.loads(out)
    assert told["schema_version"] == 1 and told["command"] == name and told["seconds"] > 0
    assert set(told["versions"]) == {"steincritic", "torch", "python"}


@pytest.mark.parametrize("name", COMMANDS)
def test_quiet_prints_nothing_and_the_exit_code_is_the_same(run, name):
    code, out, err = run(f"{CALLS[name]} --quiet")
    assert code in (0, 1) and (out, err) == ("", "")


def test_quiet_keeps_the_object_and_the_errors(run):
    code, out, err = run(f"{CALLS['compare']} --quiet --json")
    assert code == 0 and json.loads(out)["command"] == "compare" and err == ""
    assert run(f"{NO_FILE['compare']} --quiet")[2] == "steincritic: no such data file: nowhere.npy\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_settings_file_sets_an_option_and_the_command_line_wins(name):
    Path("s.toml").write_text("quiet = true\ntraceback = true\n")
    arguments = CALLS[name].split()[1:]
    made = parsed(name, command(name), [*arguments, "--config", "s.toml", "--no-traceback"])
    assert made.quiet and not made.traceback
    options = {option.name for option in options_of(command(name))}
    number = next(n for n in ("level", "chunk", "seed") if n in options)
    Path("s.toml").write_text(f"{number} = 7\n")
    arguments += ["--config=s.toml"]
    assert getattr(parsed(name, command(name), arguments), number) == 7
    assert getattr(parsed(name, command(name), [*arguments, f"--{number}", "3"]), number) == 3


def test_positional_and_repeated_options_may_come_from_the_file_too(run):
    settings = ('data = "x.npy"', 'model = ["gm-2d", "models.py:far"]', 'test = "none"', "json = true")
    Path("s.toml").write_text("\n".join(settings))
    assert json.loads(run("compare --config s.toml")[1])["models"] == ["gm-2d", "models.py:far"]
    line = "compare x.npy --config s.toml --model models.py:far --model gm-2d"
    assert json.loads(run(line)[1])["models"] == ["models.py:far", "gm-2d"]


@pytest.mark.parametrize("name", COMMANDS)
def test_options_have_the_names_that_python_has(name):
    options = {option.name for option in options_of(command(name))}
    assert {"quiet", "config", "traceback"} <= options
    assert not options & {"method", "methods", "B", "random_state", "alpha"}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("columns", ["5", "80", "300"])
def test_the_help_shows_few_options_first_and_the_advanced_ones_apart(name, columns, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    basic, advanced = run(f"{name} --help")[1].split("\nadvanced options:\n")
    basic = basic.split("\noptions:\n")[1]
    for option in options_of(command(name)):
        entry = f"  {option.usage}"
        lines = [line for line in f"{basic}\n{advanced}".splitlines() if f"{line} ".startswith(f"{entry} ")]
        assert len(lines) == 1 and lines[0] in (advanced if option.advanced else basic), option
    assert 3 <= sum(line[2] != " " for line in basic.splitlines() if line) <= 11 and "  --quiet" in advanced


def test_the_defaults_that_the_help_of_fit_energy_names_are_those_of_the_library(run):
    text = " ".join(run("fit-energy --help")[1].replace("│", " ").split())
    usual = Learning()
    for name in ("steps", "learning_rate", "critic_learning_rate", "weight_decay"):
        mlp, rbm = getattr(FOR_PERCEPTRONS, name), getattr(usual, name)
        assert f"by default {mlp:g} (mlp) or {rbm:g} (rbm)" in text, name
    for name, value in {
        "critic_steps": f"model; by default {usual.critic_steps}.",
        "batch_size": f"per step; by default {usual.batch_size}.",
        "held_out": f"measured on; by default {usual.held_out}.",
        "log_every": f"checkpoints; by default {usual.log_every}.",
    }.items():
        assert value in text, name
        assert getattr(FOR_PERCEPTRONS, name) == getattr(usual, name)


def test_names_that_the_command_line_repeats_to_start_quickly_are_those_of_the_library():
    from steincritic.cli import check, tested
    from steincritic.gof import choose
    from steincritic.report import folder

    assert tested.TESTS == tuple(choose.TESTS)
    assert check.CHECK_FILES == folder.FILES
