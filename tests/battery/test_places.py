"""Where files are read and written: read-only, full, pipes and devices, shared with another process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from processes import PATIENCE, environment, files, finished, started
from steincritic.cli.folders import alone_in
from steincritic.errors import InputError

LINES = {
    "check": "check x.npy --model gm-2d --test ksd --out out",
    "test": "test x.npy --model gm-2d --test ksd --out out",
    "compare": "compare x.npy --model gm-2d --model gm-2d --name a --name b --test ksd --out out",
    "doctor": "doctor --model gm-2d --n 500 --out out",
    "demo": "demo --n 20 --test ksd --out out",
    "fit-energy": "fit-energy x.npy --out out --steps 4 --batch-size 20 --log-every 2 --hidden 4",
    "reproduce": "reproduce gm-1d --tiny --device cpu --out out",
}
VERDICTS = ("check", "test", "compare", "doctor", "demo")
LIMITED = """
import resource, sys
from steincritic.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
main()
"""


@pytest.fixture(autouse=True)
def place(tmp_path, x):
    np.save("x.npy", x)
    np.savetxt("x.csv", x, delimiter=",")
    return tmp_path


def one_line(err):
    return err.startswith("steincritic: ") and err.count("\n") == 1


# Files that are none.


@pytest.fixture
def special(place):
    os.mkfifo("pipe.csv")
    os.mkfifo("pipe.npy")
    os.mkfifo("pipe.toml")
    os.symlink("/dev/zero", "zero.csv")
    os.symlink("/dev/zero", "zero.npy")
    os.symlink("loop.csv", "loop.csv")
    os.symlink("nowhere", "dangling.csv")
    os.mkdir("folder.csv")


@pytest.mark.parametrize(
    "file", ["pipe.csv", "pipe.npy", "zero.csv", "zero.npy", "loop.csv", "dangling.csv", "folder.csv"]
)
@pytest.mark.parametrize(
    "line",
    [
        "check {} --model gm-2d",
        "test {} --model gm-2d",
        "compare {} --model gm-2d --model gm-1d",
        "doctor --model gm-2d --data {}",
        "watch {} --model gm-2d",
        "witness {} --model gm-2d --critic x.npy",
        "fit-energy {} --out out",
    ],
)
def test_data_that_are_no_file_are_refused(run, special, line, file):
    code, out, err = run(line.format(file))
    assert code == 2 and out == "" and one_line(err) and file in err
    assert not Path("out").exists()


@pytest.mark.parametrize("file", ["pipe.toml", "/dev/zero", "/dev/stdin", "folder.csv", "loop.csv", "x.npy"])
def test_settings_that_are_no_file_are_refused(run, special, file):
    code, out, err = run(f"test x.npy --model gm-2d --config {file}")
    assert code == 2 and out == "" and one_line(err) and file in err


@pytest.mark.parametrize("line", ["--critic pipe.npy", "--critic /dev/zero", "--critic folder.csv"])
def test_critics_that_are_no_file_are_refused(run, special, line):
    code, _, err = run(f"witness x.npy --model gm-2d {line}")
    assert code == 2 and one_line(err)


@pytest.mark.parametrize("model", ["pipe.npy:q", "/dev/zero:q", "folder.csv:q", "rbm:pipe.npy", "zero.npy"])
def test_models_that_are_no_file_are_refused(run, special, model):
    code, _, err = run(f"test x.npy --model {model}")
    assert code == 2 and one_line(err)


# Folders that cannot be written.


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("out", ["x.npy", "x.npy/below", "/proc/nowhere", "/dev/null/x", "a" * 300])
def test_a_folder_that_cannot_be_made_is_refused_at_the_door(run, name, out):
    code, said, err = run(LINES[name].replace("--out out", f"--out {out}"))
    assert code == 2 and said == "" and one_line(err) and "cannot write" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
@pytest.mark.parametrize("name", LINES)
def test_a_read_only_folder_is_refused_at_the_door(run, name):
    os.mkdir("out", 0o555)
    code, said, err = run(LINES[name])
    assert code == 2 and said == "" and one_line(err) and "read-only" in err


@pytest.mark.parametrize("name", LINES)
def test_a_folder_that_access_denies_is_refused_at_the_door(run, monkeypatch, name):
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, said, err = run(LINES[name])
    assert code == 2 and said == "" and one_line(err) and "is read-only" in err
    assert not Path("out").exists()


@pytest.mark.parametrize("name", LINES)
def test_a_refused_run_leaves_no_folder(run, name):
    line = LINES[name].replace("x.npy", "nowhere.npy").replace("gm-2d", "gm-3d").replace("gm-1d", "gm-1")
    code, *_ = run(line.replace("--n 20", "--n 0").replace("--out out", "--out deep/down/out"))
    assert code == 2 and not Path("deep").exists()


@pytest.mark.parametrize("size", [100, 20_000])
@pytest.mark.parametrize("name", LINES)
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
    whole = {"check": 4, "demo": 8}.get(name)
    if done.returncode == 2:
        assert "Traceback" not in done.stderr and "cannot write" in done.stderr
        assert not any(file.split("/")[-1].startswith(".") for file in files(place / "out"))
        if name in VERDICTS:
            assert "the result stands" in done.stderr and done.stdout
        if whole:
            assert len(files(place / "out")) in (0, 4)  # the first case of a demo may be whole
    else:
        assert done.returncode in (0, 1) and (not whole or len(files(place / "out")) == whole)


@pytest.mark.parametrize("name", VERDICTS)
def test_with_json_the_result_goes_with_the_error(run, name, monkeypatch):
    def full(path, content):
        raise InputError(f"cannot write {path}: no space")

    monkeypatch.setattr("steincritic.report.folder.write_json", full)  # first, as it imports the other
    monkeypatch.setattr("steincritic.files.write_json", full)
    code, out, err = run(f"{LINES[name]} --json")
    told = json.loads(out)
    assert code == 2 and one_line(err) and "no space" in told["error"]["message"] and told["command"] == name
    assert not Path("out").exists() or files("out") == []


# Two at one place.


@pytest.mark.parametrize("name", LINES)
def test_a_folder_that_another_process_writes_into_is_refused(run, name):
    with alone_in(Path("out")):
        code, said, err = run(LINES[name])
        assert code == 2 and said == "" and one_line(err) and "another process writes into out" in err
    assert not Path("out").exists()
    code, _, err = run(LINES[name])
    assert code in (0, 1), err


def test_of_two_processes_at_one_folder_one_is_refused_or_comes_later(place):
    pair = [started(LINES["check"], place) for _ in range(2)]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in pair]
    codes = sorted(process.returncode for process in pair)
    assert codes == [0, 2] and sum("another process" in e or "holds report" in e for e in errors) == 1
    assert len(files(place / "out")) == 4


@pytest.mark.parametrize("count", [2, 4])
def test_processes_at_one_cache_agree(place, count):
    line = "test x.npy --model gm-2d --test crossfit --json"
    group = [started(line, place) for _ in range(count)]
    told = [process.communicate(timeout=PATIENCE)[0] for process in group]
    told.append(finished(line, place)[1])
    results = [
        [json.loads(text)[name] for name in ("statistic", "pvalue", "null_distribution")] for text in told
    ]
    assert all(result == results[0] for result in results)


# Figures, whatever matplotlib was told.


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        ({"MPLBACKEND": "inline"}, ""),
        ({"MPLBACKEND": "module://nowhere.backend"}, ""),
        ({"MPLBACKEND": "TkAgg"}, ""),
        ({}, "text.usetex: True"),
        ({}, "backend: nonsense"),
        ({}, "image.origin: lower\nfont.family: no such font\nsvg.fonttype: path"),
        ({"MPLCONFIGDIR": "/proc/nowhere"}, ""),
    ],
)
@pytest.mark.parametrize("name", ["check", "reproduce"])
def test_figures_do_not_hang_on_a_users_matplotlib(place, name, variables, settings):
    (place / "matplotlibrc").write_text(settings)
    code, _, err = finished(LINES[name], place, **variables)
    assert code == 0 and "Traceback" not in err
