"""What holds for every command: quick help, mistakes in one line, one object as the schema says, silence."""

import json
import os
import subprocess
import sys
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import steincritic as sc
from processes import environment
from steincritic.cli import COMMANDS, command
from steincritic.cli.guard import SCHEMA_VERSION
from steincritic.cli.options import check_data
from steincritic.cli.parse import options_of, parsed

HEAVY = ("torch", "numpy", "matplotlib", "scipy", "rich", "jinja2")
CALLS = {  # one good call of each command, quick
    "check": "check x.npy --model gm-2d --test ksd",
    "test": "test x.npy --model gm-2d --test ksd",
    "doctor": "doctor --model gm-2d --n 500",
    "compare": "compare x.npy --model gm-2d --model prints.py:far --test ksd",
    "watch": "watch x.csv --model gm-2d --batch 20",
    "witness": "witness x.npy --critic critic --model models.py:normal",
    "demo": "demo --n 20 --test ksd --out shown",
}
MORE = {  # objects of other shapes
    "check, rejected": "check ids.csv --model models.py:far --draws 39 --id-column who --out report",
    "check, few points": "check few.npy --model gm-2d --test ksd",
    "check, tolerance": "check x.npy --model models.py:far --tolerance 0.05",
    "check, target": "check x.csv --model models.py:given --target b --draws 39",
    "doctor, data": "doctor --model gm-2d --n 500 --data x.npy",
    "compare, no test": "compare x.npy --model gm-2d --model models.py:far --test none",
    "witness, ids": "witness ids.csv --critic critic --model models.py:normal --id-column who",
    "error": "check nowhere.npy --model gm-2d",
}
NO_FILE = {
    name: line.replace("x.npy", "nowhere.npy").replace("x.csv", "nowhere.csv")
    for name, line in CALLS.items()
    if " x." in line
} | {"doctor": "doctor --model gm-2d --data nowhere.npy"}
TABLES = [*NO_FILE]


@pytest.fixture(autouse=True)
def more_files(place):
    rows = "".join(
        f"{line},person {k}\n" for k, line in enumerate(Path("x.csv").read_text().split("\n")[1:-1])
    )
    Path("ids.csv").write_text(f"a,b,who\n{rows}")
    Path("prints.py").write_text("print('loaded')\nfrom models import far\n")


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


def fresh(lines, *flags):
    """Code, standard output, standard error and heavy modules after each line, in one new process."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", f"HEAVY = {HEAVY!r}\n{SCRIPT}", json.dumps(lines)],
        env=environment("."),
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


@pytest.mark.parametrize("name", COMMANDS)
def test_help_and_plain_mistakes_need_no_torch(name):
    call, options = CALLS[name], options_of(command(name))
    lines = {
        f"{call} --no-such-option 3": "no option --no-such-option",
        f"{call} --quite": "did you mean --quiet?",
        f"{call} --dry-run": "--dry-run is gone: ",
        f"{call} --config nowhere.toml": "no such settings file: nowhere.toml",
        f"{call} more.npy": "one argument too many",
    }
    of_options = {
        "seed": ("half", "--seed must be a whole number, got 'half'"),
        "level": ("2", "level must lie in (0, 1)"),
        "draws": ("0", "draws must be a whole number of at least 1"),
        "out": ("x.npy/below", "cannot write"),
    }
    for option in options:
        if option.name in of_options:
            value, words = of_options[option.name]
            lines[f"{call} {option.flag} {value}"] = words
        if option.required:
            lines[_without(call, option)] = f"{option.flag} is missing"
    if name in NO_FILE:
        lines[NO_FILE[name]] = "no such data file: nowhere"
    help_text, *answers = fresh([f"{name} --help", *lines])
    assert help_text[0] == 0 and help_text[2:] == ["", []] and f"usage: steincritic {name}" in help_text[1]
    for (line, words), (code, out, err, loaded) in zip(lines.items(), answers, strict=True):
        assert code == 2 and out == "" and loaded == [], line
        assert err.startswith("steincritic: ") and err.count("\n") == 1 and words in err, (line, err)


def _without(call, option):
    words = call.split()
    if option.positional:
        return " ".join([words[0], *words[2:]])
    while option.flag in words:
        k = words.index(option.flag)
        del words[k : k + 2]
    return " ".join(words)


def test_the_help_needs_neither_docstrings_nor_a_terminal_of_any_width(run, monkeypatch):
    for name in COMMANDS:
        for columns in ("5", "80", "300"):
            monkeypatch.setenv("COLUMNS", columns)
            basic, advanced = run(f"{name} --help")[1].split("\nadvanced options:\n")
            basic = basic.split("\noptions:\n")[1]
            for option in options_of(command(name)):
                entries = (advanced if option.advanced else basic).splitlines()
                assert sum(f"{line} ".startswith(f"  {option.usage} ") for line in entries) == 1, option
            shown = sum(line[2] != " " for line in basic.splitlines() if line)
            assert 3 <= shown <= 12 and "  --quiet" in advanced
    ((code, out, _, _),) = fresh(["check --help"], "-OO")
    assert code == 0 and "show where the model fails" in out and "(self" not in out


def test_a_report_in_the_way_is_kept_and_needs_no_torch(place):
    Path("there").mkdir()
    Path("there/report.html").write_text("old")
    ((code, _, err, loaded),) = fresh([f"{CALLS['check']} --out there"])
    assert code == 2 and loaded == [] and "there holds report.html already" in err and "--overwrite" in err


def test_importing_the_library_imports_nothing_else():
    script = "import sys, steincritic; print([m for m in sys.argv[1:] if m in sys.modules])"
    line = [sys.executable, "-c", script, *HEAVY, "argparse"]
    assert subprocess.check_output(line, env=os.environ | environment("."), text=True) == "[]\n"


@pytest.mark.parametrize("name", ["nowhere.npy", "x.parquet", "y.npy", "no/folder/x.npy", "."])
def test_a_missing_file_is_named_as_the_library_names_it(name):
    with pytest.raises(sc.InputError) as by_command_line:
        check_data(Path(name))
    with pytest.raises(sc.InputError) as by_library:
        sc.data.read_table(name)
    assert str(by_command_line.value) == str(by_library.value)


def test_names_that_the_command_line_repeats_to_start_quickly_are_those_of_the_library():
    from steincritic.cli.verdicts import CHECK_FILES
    from steincritic.gof.choose import TESTS
    from steincritic.report import folder

    assert folder.FILES == CHECK_FILES
    for name in ("check", "compare"):
        (text,) = (option.text for option in options_of(command(name)) if option.name == "test")
        assert text.startswith(f"{', '.join(list(TESTS)[:-1])} or {list(TESTS)[-1]}; ")


# With torch.


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
    code, out, err = run(f"{chosen} --drop-nan --json")
    told = json.loads(out.splitlines()[-1])
    assert code in (0, 1) and told["dropped"] == 1 and told["command"] == name
    same = json.loads(run(f"{call} --columns a,b --drop-nan --json")[1].splitlines()[-1])
    unlike = ("seconds", "points", "findings", "largest")
    assert {k: v for k, v in same.items() if k not in unlike} == {
        k: v for k, v in told.items() if k not in unlike
    }
    assert "did you mean color?" in run(f"{call} --exclude colour")[2]


def closed(schema):
    """Nothing beside what is named, at the top and in the objects that are written in one piece."""
    made = deepcopy(schema) | {"unevaluatedProperties": False}
    for name in ("error", "caveat", "tolerance", "finding_about_the_model", "seen", "region"):
        made["$defs"][name]["additionalProperties"] = False
    for name in ("points", "missing"):
        made["$defs"]["checked"]["properties"][name]["additionalProperties"] = False
    return made


@pytest.mark.parametrize("name", CALLS | MORE)
def test_json_is_one_object_as_the_schema_says_and_nothing_else(run, name):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((files("steincritic") / f"schema/output-{SCHEMA_VERSION}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$defs"]["answer"]["properties"]["command"]["enum"] == list(COMMANDS)
    validator = jsonschema.Draft202012Validator(closed(schema))
    code, out, err = run(f"{(CALLS | MORE)[name]} --json")
    assert code == 2 if name == "error" else code in (0, 1), err
    assert out.count("\n") == 1 or name == "watch"  # one object per batch
    for told in map(json.loads, out.splitlines()):
        validator.validate(told)
        assert ("error" in told) == (name == "error")
        if name != "error":  # compare loads a model that prints: that goes to standard error
            assert err == ("loaded\n" if name == "compare" else "")
            assert told["command"] == name.partition(",")[0] and told["seconds"] > 0
            assert set(told["versions"]) == {"steincritic", "torch", "python"}
        if "rejected" in told:
            broken = told | {"pvalue": "small"}
            broken.pop("rejected")
            assert list(validator.iter_errors(broken))
    for file in (Path(f) for f in told.get("files", ()) if f.endswith("result.json")):
        validator.validate(json.loads(file.read_text()))


@pytest.mark.parametrize("name", COMMANDS)
def test_quiet_prints_nothing_and_the_exit_code_is_the_same(run, name):
    code, out, err = run(f"{CALLS[name]} --quiet")
    assert code in (0, 1) and (out, err) == ("", "")


def test_quiet_keeps_the_object_and_the_errors(run):
    code, out, err = run(f"{CALLS['compare']} --quiet --json")
    assert code == 0 and json.loads(out)["command"] == "compare" and err == ""
    assert run(f"{NO_FILE['compare']} --quiet")[2].startswith("steincritic: no such data file: nowhere.npy")


# Settings.


@pytest.mark.parametrize("name", COMMANDS)
def test_a_settings_file_sets_an_option_and_the_command_line_wins(name):
    Path("s.toml").write_text("quiet = true\ntraceback = true\n")
    arguments = CALLS[name].split()[1:]
    made = parsed(name, command(name), [*arguments, "--config", "s.toml", "--no-traceback"])
    assert made.quiet and not made.traceback
    options = {option.name for option in options_of(command(name))}
    assert {"quiet", "config", "traceback"} <= options
    assert not options & {"method", "methods", "B", "random_state", "alpha"}  # names as Python has them
    number = next(n for n in ("level", "chunk", "seed") if n in options)
    Path("s.toml").write_text(f"{number} = 7\n")
    arguments += ["--config=s.toml"]
    assert getattr(parsed(name, command(name), arguments), number) == 7
    assert getattr(parsed(name, command(name), [*arguments, f"--{number}", "3"]), number) == 3


def test_positional_and_repeated_options_may_come_from_the_file_too(run):
    settings = ('data = "x.npy"', 'model = ["gm-2d", "models.py:far"]', 'test = "none"', "drop-nan = true")
    Path("s.toml").write_text("\n".join(settings))
    assert json.loads(run("compare --config s.toml --json")[1])["models"] == ["gm-2d", "models.py:far"]
    line = "compare x.npy --config s.toml --model models.py:far --model gm-2d --json"
    assert json.loads(run(line)[1])["models"] == ["models.py:far", "gm-2d"]


def test_files_in_settings_are_relative_to_them(place):
    (place / "below").mkdir()
    (place / "below/s.toml").write_text('data = "../x.npy"\nmodel = "m.py:q"\nout = "seen"\nseed = 3\n')
    made = parsed("check", command("check"), ["--config", "below/s.toml"])
    assert (str(made.data), made.model, str(made.out)) == ("below/../x.npy", "below/m.py:q", "below/seen")
    for model in ("gm-2d", "package.module:q", "/abs/m.py:q"):
        (place / "below/s.toml").write_text(f'model = "{model}"\n')
        assert parsed("check", command("check"), ["x.npy", "--config", "below/s.toml"]).model == model


# JUnit, as the schema of Jenkins has it.

ATTRIBUTES = {
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
    "property": {"name", "value"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
}


@pytest.mark.parametrize(("model", "fails"), [("gm-2d", 0), ("models.py:far", 1)])
def test_the_verdict_is_a_case_of_junit(model, fails, run):
    code, out, _ = run(f"check x.npy --model {model} --test ksd --junit ci/junit.xml")
    assert code == fails and "ci/junit.xml" in out
    suite = ElementTree.parse("ci/junit.xml").getroot()
    assert all(set(node.attrib) == ATTRIBUTES.get(node.tag, set()) for node in suite.iter())
    assert [node.tag for node in suite] == ["properties", "testcase", "system-out", "system-err"]
    assert (suite.get("tests"), suite.get("failures")) == ("1", str(fails))
    case = suite.find("testcase")
    assert case.get("name") == f"x.npy against {model}" and case.get("classname") == "steincritic.check"
    failure = case.find("failure")
    assert (failure is not None) == bool(fails)
    if fails:
        assert failure.get("message").startswith("The data do not look like draws from the model")
        assert failure.text.count("\n") > 3 and failure.text == suite.findtext("system-out")


def test_a_file_of_numbers_alone_is_read_too(run):
    np.savez("x.npz", np.load("x.npy"))
    told = [json.loads(run(f"test {name} --model gm-2d --test ksd --json")[1]) for name in ("x.npy", "x.npz")]
    assert told[0]["pvalue"] == told[1]["pvalue"]
