"""Results in the encodings that terminals and logs have: nothing is lost to a letter that they lack."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

from processes import finished
from steincritic import cli

ENCODINGS = ["ascii", "cp1252", "latin-1", "cp437", "koi8-r", "shift_jis", "utf-8"]
HEADER = "größe,身長 ∇"
LINES = {
    "check": "check x.csv --model gm-2d --test ksd --out größe",
    "check --json": "check x.csv --model gm-2d --test ksd --json",
    "test": "test x.csv --model gm-2d --test ksd",
    "doctor": "doctor --model gm-2d --n 500",
    "compare": "compare x.csv --model gm-2d --model gm-2d --name ∇ --name 身長 --test ksd",
    "no file": "check 身長.csv --model gm-2d",
    "help": "check --help",
    "reproduce": "reproduce lazy-training --tiny --device cpu --out record",
}


@pytest.fixture(autouse=True)
def place(tmp_path, x):
    np.savetxt("x.csv", x, delimiter=",", header=HEADER, comments="", encoding="utf-8")
    return tmp_path


def told(line, encoding):
    """Exit code and the bytes on both streams."""
    out, err = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(raw, encoding=encoding, errors="strict") for raw in (out, err)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        with pytest.raises(SystemExit) as exited:
            cli.main(line.split())
        for stream in streams:
            stream.flush()
    return exited.value.code, out.getvalue().decode(encoding), err.getvalue().decode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", LINES)
def test_no_result_is_lost_to_its_printing(name, encoding):
    code, out, err = told(LINES[name], encoding)
    assert code == (2 if name == "no file" else 0), err
    assert "Traceback" not in err and (out or err)
    if name == "check --json":
        assert json.loads(out)["columns"] == HEADER.split(",")
    if name == "check":
        assert Path("größe/report.html").exists()


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "cp1252"},
        {"PYTHONIOENCODING": "ascii"},
        {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8"},
        {"LC_ALL": "POSIX"},
    ],
)
def test_a_process_in_another_locale_gives_its_verdict(place, variables):
    code, out, err = finished("check x.csv --model gm-2d --test ksd --out seen", place, **variables)
    assert code == 0 and "No evidence against the model" in out and err == ""
    assert (place / "seen/report.html").exists()


def test_a_name_that_is_no_text_is_shown_with_question_marks(place):
    """File names are bytes; those that no encoding has come to Python as lone surrogates."""
    (place / "\udce9.csv").write_bytes((place / "x.csv").read_bytes())
    code, out, _ = finished("test \udce9.csv --model gm-2d --test ksd", place)
    assert code == 0 and "\\udce9.csv against gm-2d" in out
