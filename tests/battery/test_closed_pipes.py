"""Nobody reads what is printed: the verdict decides the exit code all the same."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from processes import environment
from steincritic import cli

LINES = {  # command line: its exit code
    "--help": 0,
    "--version": 0,
    "check --help": 0,
    "check good.npy --model gm-2d --test ksd": 0,
    "check wrong.npy --model gm-2d --test ksd": 1,
    "check wrong.npy --model gm-2d --test ksd --out seen": 1,
    "test good.npy --model gm-2d --test ksd": 0,
    "test wrong.npy --model gm-2d --test ksd": 1,
    "compare good.npy --model gm-2d --model gm-2d --name a --name b --test ksd": 0,
    "compare wrong.npy --model gm-2d --model gm-2d --name a --name b --test ksd": 1,
    "doctor --model gm-2d --n 500": 0,
    "watch good.csv --model gm-2d --batch 20": 0,
    "demo --n 20 --test ksd --out shown": 0,
    "reproduce gm-1d --tiny --device cpu --out record": 0,
    "check nowhere.npy --model gm-2d": 2,
}
WITH_JSON = {f"{line} --json": code for line, code in LINES.items() if "--test" in line or "nowhere" in line}


@pytest.fixture(autouse=True)
def place(tmp_path, x):
    np.save("good.npy", x)
    np.save("wrong.npy", x + 2.0)
    np.savetxt("good.csv", x, delimiter=",")
    return tmp_path


@pytest.mark.parametrize("line", LINES | WITH_JSON)
def test_a_reader_that_is_gone_changes_no_exit_code(line):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as nobody, contextlib.redirect_stdout(nobody), pytest.raises(SystemExit) as exited:
        cli.main(line.split())
    assert exited.value.code == (LINES | WITH_JSON)[line]
    if "--out seen" in line:
        assert Path("seen/report.html").exists()


@pytest.mark.parametrize("line", list(LINES)[3:8])
@pytest.mark.parametrize("reader", ["head -1", "true", "grep -q x"])
def test_a_pipe_of_the_shell_changes_no_exit_code(line, reader, place):
    script = f"{sys.executable} -m steincritic.cli {line} 2>&1 | {reader} >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=environment(place), capture_output=True, check=False)
    assert done.returncode == LINES[line] and done.stderr == b""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_change_no_exit_code(closed, place):
    script = f"{sys.executable} -m steincritic.cli check wrong.npy --model gm-2d --test ksd {closed}"
    done = subprocess.run(["bash", "-c", script], env=environment(place), capture_output=True, check=False)
    assert done.returncode == 1 and b"Traceback" not in done.stderr


@pytest.mark.parametrize("line", list(LINES)[3:5])
def test_an_output_that_is_full_is_an_error_in_one_line(line, place, capfd):
    with (
        open("/dev/full", "w") as full,
        contextlib.redirect_stdout(full),
        pytest.raises(SystemExit) as exited,
    ):
        cli.main(line.split())
    assert exited.value.code == 2
    assert capfd.readouterr().err == (
        "steincritic: standard output cannot be written: No space left on device\n"
    )
