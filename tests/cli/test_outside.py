"""What may go wrong outside: readers that are gone, encodings, full disks, models that exit, broken packages.

The laws are the guard's, not a command's, so they are tried on `check` and on one other command.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from processes import PATIENCE, environment, files, finished, started
from steincritic import cli
from steincritic.cli.guard import alone_in

KSD = "--model gm-2d --test ksd"
LINES = {
    "check": f"check x.npy {KSD} --out out",
    "compare": f"compare x.npy {KSD} --model gm-2d --name a --name b --out out",
}


def one_line(err):
    return err.startswith("steincritic: ") and err.count("\n") == 1


# Nobody reads what is printed, or not in our letters.

READ = {  # command line: its exit code
    "--help": 0,
    f"check x.npy {KSD}": 0,
    f"check wrong.npy {KSD} --out seen": 1,
    "watch x.csv --model gm-2d --batch 20": 0,
    "check nowhere.npy --model gm-2d": 2,
    f"check wrong.npy {KSD} --json": 1,
    "check nowhere.npy --model gm-2d --json": 2,
}


@pytest.mark.parametrize("line", READ)
def test_a_reader_that_is_gone_changes_no_exit_code(line):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as nobody, contextlib.redirect_stdout(nobody), pytest.raises(SystemExit) as exited:
        cli.main(line.split())
    assert exited.value.code == READ[line]
    if "--out seen" in line:
        assert Path("seen/report.html").exists()


@pytest.mark.parametrize("rest", ["| head -1 >/dev/null", ">&- 2>&-"])
def test_a_pipe_of_the_shell_or_a_closed_stream_changes_no_exit_code(rest, place):
    script = f"{sys.executable} -m steincritic check wrong.npy {KSD} {rest}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=environment(place), capture_output=True, check=False)
    assert done.returncode == 1 and b"Traceback" not in done.stderr


def test_an_output_that_is_full_is_an_error_in_one_line(capfd):
    with (
        open("/dev/full", "w") as full,
        contextlib.redirect_stdout(full),
        pytest.raises(SystemExit) as exited,
    ):
        cli.main(f"check x.npy {KSD}".split())
    assert exited.value.code == 2
    assert capfd.readouterr().err == (
        "steincritic: standard output cannot be written: No space left on device\n"
    )


HEADER = "größe,身長 ∇"
NAMED = {
    "check": f"check named.csv {KSD} --out größe",
    "check --json": f"check named.csv {KSD} --json",
    "compare": f"compare named.csv {KSD} --model gm-2d --name ∇ --name 身長",
    "no file": "check 身長.csv --model gm-2d",
}


@pytest.fixture
def named(place):
    np.savetxt("named.csv", np.load("x.npy"), delimiter=",", header=HEADER, comments="", encoding="utf-8")


@pytest.mark.parametrize("encoding", ["ascii", "shift_jis"])
@pytest.mark.parametrize("name", NAMED)
def test_no_result_is_lost_to_its_printing(named, name, encoding):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        with pytest.raises(SystemExit) as exited:
            cli.main(NAMED[name].split())
        for stream in streams:
            stream.flush()
    out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)
    assert exited.value.code == (2 if name == "no file" else 0), err
    assert "Traceback" not in err and (out or err)
    if name == "check --json":
        assert json.loads(out)["columns"] == HEADER.split(",")
    if name == "check":
        assert Path("größe/report.html").exists()


def test_a_process_in_another_locale_with_odd_settings_gives_its_verdict(named, place):
    (place / "matplotlibrc").write_text("backend: nonsense\nfont.family: no such font")
    locale = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    settings = {"MPLBACKEND": "module://nowhere.backend", "MPLCONFIGDIR": "/proc/nowhere"}
    code, out, err = finished(f"check named.csv {KSD} --out seen", place, **locale, **settings)
    assert code == 0 and "No evidence against the model" in out and "Traceback" not in err
    assert (place / "seen/report.html").exists()


def test_a_name_that_is_no_text_is_shown_with_question_marks(run, named):
    """File names are bytes; those that no encoding has come to Python as lone surrogates."""
    Path("\udce9.csv").write_bytes(Path("named.csv").read_bytes())
    code, out, err = run(f"check \udce9.csv {KSD} --out seen")
    assert code == 0 and "\\udce9.csv against gm-2d" in out and err == ""
    assert "<title>?.csv against gm-2d</title>" in Path("seen/report.html").read_text("utf-8")


# Whatever a model does, or a package lacks: 0 and 1 are verdicts, everything else is 2.

WAYS = {
    "exits with 0": "sys.exit(0)",
    "exits with text": "sys.exit('bye')",
    "is cancelled": "raise asyncio.CancelledError",
    "raises outside Exception": "raise GeneratorExit",
    "recurses": "recurse()",
    "lacks memory": "raise MemoryError",
    "ends an iteration": "raise StopIteration",
    "asserts": "raise AssertionError",
    "colors": "raise ValueError('\\x1b[31m red \\u2207')",
    "allocates": "torch.empty(10**15)",
    "lacks a package": "import no_such_package",
    "lacks a name": "from math import no_such_name",
}
MODEL = """
import asyncio, sys, torch
from steincritic.models import GaussianMixture
normal = GaussianMixture([[0.0, 0.0]])
def recurse(): recurse()
class Model:
    dim = 2
    def score(self, x):
        {score}
        return normal.score(x)
    def sample(self, n, *, seed=0):
        {sample}
        return normal.sample(n, seed=seed)
{loading}
model = Model()
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("part", "command"),
    [
        ("score", "check x.npy --test ksd"),
        ("sample", "check x.npy --test split --draws 99"),
        ("loading", "compare x.npy --model gm-2d --test ksd"),
    ],
)
def test_a_model_that_ends_or_raises_is_no_verdict(run, command, part, way):
    parts = {"score": "pass", "sample": "pass", "loading": ""} | {part: WAYS[way]}
    Path("ends.py").write_text(MODEL.format(**parts))
    code, out, err = run(f"{command} --model ends.py:model")
    assert code == 2 and out == "" and one_line(err) and "\x1b" not in err


@pytest.mark.parametrize(
    ("package", "error"),
    [("torch", "OSError('libcuda.so is missing')"), ("safetensors", "ImportError('no such symbol')")],
)
def test_a_dependency_that_cannot_be_imported_is_no_verdict(place, package, error):
    (place / "broken").mkdir()
    (place / f"broken/{package}.py").write_text(f"raise {error}")
    path = os.pathsep.join([str(place / "broken"), environment(place)["PYTHONPATH"]])
    code, out, err = finished(f"check x.npy {KSD}", place, PYTHONPATH=path)
    assert code == 2 and out == "" and one_line(err)


def test_a_defect_of_ours_is_no_verdict(run, monkeypatch):
    def fail(*arguments, **options):
        raise AttributeError("a defect")

    monkeypatch.setattr("steincritic.gof.choose.tested", fail)
    code, out, err = run(f"check x.npy {KSD}")
    assert code == 2 and out == "" and "AttributeError: a defect" in err


def test_a_score_that_writes_into_its_argument_changes_nothing(run):
    Path("writes.py").write_text("def score(x):\n    x.mul_(-1)\n    return x\n\nq = (score, None)\n")
    Path("plain.py").write_text("q = (lambda x: -x, None)\n")
    found = [
        json.loads(run(f"test x.npy --test ksd --json --model {name}.py:q")[1])
        for name in ("writes", "plain")
    ]
    assert found[0]["statistic"] == found[1]["statistic"] and found[0]["pvalue"] == found[1]["pvalue"]


# Files that are none, folders that cannot be written.


@pytest.mark.parametrize("file", ["pipe.csv", "zero.npy", "loop.csv", "dangling.csv", "folder.csv"])
@pytest.mark.parametrize(
    "line",
    [
        "check {} --model gm-2d",
        "watch {} --model gm-2d",
        "witness x.npy --model gm-2d --critic {}",
        "test x.npy --model gm-2d --config {}",
        "test x.npy --model {}:q",
    ],
)
def test_what_is_no_file_is_refused(run, line, file):
    os.mkfifo("pipe.csv")
    os.symlink("/dev/zero", "zero.npy")
    os.symlink("loop.csv", "loop.csv")
    os.symlink("nowhere", "dangling.csv")
    os.mkdir("folder.csv")
    code, out, err = run(line.format(file))
    assert code == 2 and out == "" and one_line(err) and file in err


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("out", ["x.npy", "x.npy/below", "/proc/nowhere", "/dev/null/x", "a" * 300])
def test_a_folder_that_cannot_be_made_is_refused_at_the_door(run, name, out):
    code, said, err = run(LINES[name].replace("--out out", f"--out {out}"))
    assert code == 2 and said == "" and one_line(err) and "cannot write" in err


@pytest.mark.parametrize("name", LINES)
def test_a_folder_that_access_denies_is_refused_at_the_door(run, monkeypatch, name):
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, said, err = run(LINES[name])
    assert code == 2 and said == "" and one_line(err) and "is read-only" in err
    assert not Path("out").exists()


@pytest.mark.parametrize("name", LINES)
def test_a_refused_run_leaves_no_folder(run, name):
    line = LINES[name].replace("gm-2d", "gm-3d").replace("--out out", "--out deep/down/out")
    assert run(line)[0] == 2 and not Path("deep").exists()


def test_a_folder_that_holds_something_stays():
    with pytest.raises(ZeroDivisionError), alone_in(Path("deep/down")):
        Path("deep/note").write_text("kept")
        raise ZeroDivisionError
    assert Path("deep/note").exists() and not Path("deep/down").exists()


LIMITED = """
import resource, sys
from steincritic.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
main()
"""


@pytest.mark.parametrize(("name", "size"), [("check", 100), ("check", 20_000), ("compare", 100)])
def test_a_full_disk_costs_no_verdict_and_leaves_no_part_of_a_set(place, name, size):
    """A bound on the size of files, as a disk that is full beyond it."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(size), *LINES[name].split()],
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode == 2:
        assert "Traceback" not in done.stderr and "cannot write" in done.stderr
        assert files(place / "out") == [] and "the result stands" in done.stderr and done.stdout
    else:
        assert done.returncode in (0, 1) and len(files(place / "out")) == (4 if name == "check" else 1)


@pytest.mark.parametrize("what", ["save_report", "write_json"])
def test_an_error_after_the_verdict_does_not_lose_it(run, monkeypatch, what):
    def fails(*_, **__):
        raise RuntimeError("no such font")

    monkeypatch.setattr(f"steincritic.report.folder.{what}", fails)
    code, out, err = run(LINES["check"])
    assert code == 2 and "No evidence against the model" in out and not Path("out").exists()
    assert err.startswith("steincritic: the result stands (p = ") and "no such font" in err
    code, out, err = run(f"{LINES['check']} --json")
    told = json.loads(out)
    assert code == 2 and one_line(err) and told["pvalue"] > 0 and "no such font" in told["error"]["message"]


# Two at one place.


@pytest.mark.parametrize("name", LINES)
def test_a_folder_that_another_process_writes_into_is_refused(run, name):
    with alone_in(Path("out")):
        code, said, err = run(LINES[name])
        assert code == 2 and said == "" and one_line(err) and "another process writes into out" in err
    assert not Path("out").exists() and run(LINES[name])[0] == 0


def test_of_two_processes_at_one_folder_one_is_refused_or_comes_later(place):
    pair = [started(LINES["check"], place) for _ in range(2)]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in pair]
    codes = sorted(process.returncode for process in pair)
    assert codes == [0, 2] and sum("another process" in e or "holds report" in e for e in errors) == 1
    assert len(files(place / "out")) == 4


def test_processes_at_one_cache_agree(run, place):
    line = "test few.npy --model gm-2d --draws 39 --json"
    group = [started(line, place) for _ in range(2)]
    told = [process.communicate(timeout=PATIENCE)[0] for process in group]
    told.append(run(line)[1])
    results = [
        [json.loads(text)[name] for name in ("statistic", "pvalue", "null_distribution")] for text in told
    ]
    assert all(result == results[0] for result in results)
