"""The command line at a terminal, as a person sees it: progress, colors, width, Ctrl-C."""

import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import numpy as np
import pytest
from rich.cells import cell_len

import processes
from processes import files
from steincritic.models import GaussianMixture

WIDTH = 80
PATIENCE = 120.0  # seconds, on a busy machine
# The terminal becomes the process's own, so that Ctrl-C reaches it as it would from a keyboard.
RUN = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from steincritic.cli import main; main()"
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
COLORS = re.compile(r"\x1b\[[0-9;]*\b(3[0-8]|4[0-8]|9[0-7])[0-9;]*m")
MODELS = """
from steincritic.models import GaussianMixture

normal = GaussianMixture([[0.0, 0.0]])
"""
KSD = "--model models.py:normal --test ksd"


@dataclass(frozen=True)
class Shown:
    code: int
    raw: str  # as it was sent to the terminal

    @property
    def text(self) -> str:
        return ESCAPE.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        return re.split(r"[\r\n]+", self.text)


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    """A folder to work in, with data and a model."""
    folder = tmp_path_factory.mktemp("terminal")
    x = GaussianMixture([[0.0, 0.0]]).sample(2000, seed=1).numpy()
    np.save(folder / "good.npy", x[:60])
    np.save(folder / "wrong.npy", x[:60] + 1.0)
    np.save(folder / "long.npy", x)
    (folder / "models.py").write_text(MODELS)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def rejected(place):
    return terminal(f"check wrong.npy {KSD} --out seen")


def environment(**changes):
    kept = processes.environment(Path.cwd(), TERM="xterm-256color", **changes)
    return {k: v for k, v in kept.items() if k in changes or k not in ("COLUMNS", "LINES", "NO_COLOR")}


def terminal(line, *, until="", keys=b"", pause=0.0, width=WIDTH, **changes):
    """Run the command line in a terminal of its own; once `until` is shown, pause and type the keys."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *line.split()],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**changes),
        start_new_session=True,
    )
    os.close(theirs)
    raw, typed, end = b"", False, time.monotonic() + PATIENCE
    try:
        while data := _read(ours, end):
            raw += data
            if keys and not typed and until in ESCAPE.sub("", raw.decode(errors="replace")):
                time.sleep(pause)
                os.write(ours, keys)
                typed = True
        return Shown(process.wait(PATIENCE), raw.decode())
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read(end_of_terminal, end):
    ready, _, _ = select.select([end_of_terminal], [], [], max(0.0, end - time.monotonic()))
    assert ready, "the command did not end in time"
    try:
        return os.read(end_of_terminal, 1 << 16)
    except OSError:  # Linux says so where the other end is closed
        return b""


def test_a_terminal_shows_progress_and_wipes_it_away(rejected):
    assert "training critics of both halves" in rejected.text and "/60 epochs" in rejected.text
    before, after = rejected.raw.split("╭", 1)
    assert "epochs" in before and "epochs" not in after
    assert before.rstrip().endswith("\x1b[31m") and "\x1b[2K" in before  # the line was cleared
    assert rejected.raw.count("\x1b[?25l") == rejected.raw.count("\x1b[?25h") > 0  # so is the cursor shown


def test_a_terminal_shows_the_verdict_in_its_width_and_in_color(rejected, place):
    assert rejected.code == 1
    assert "The data do not look like draws from the model" in rejected.text
    assert max(map(cell_len, rejected.lines)) <= WIDTH
    assert {line[-1] for line in rejected.lines if line.startswith("│")} == {"│"}  # no line was broken
    assert "\x1b[31m" in rejected.raw  # red
    assert files(place / "seen") == ["critic.safetensors", "report.html", "result.json", "witness.csv"]
    for name in files(place / "seen"):
        assert f"seen/{name}" in rejected.text


def test_a_pipe_shows_neither_progress_nor_color_and_says_the_same(rejected, run):
    code, out, err = run(f"check wrong.npy {KSD}")
    assert code == 1 and err == "" and "For the report pass --out DIR." in out
    assert not {"\x1b", "\r", "│"} & set(out) and "epochs" not in out
    panel = rejected.text[rejected.text.index("╭") : rejected.text.index("Files:")]
    words = re.sub(r"[─-╿]", " ", panel).split()
    assert out.split()[: len(words)] == words


def test_a_narrow_terminal_without_color(place):
    shown = terminal(f"check good.npy {KSD}", width=50, NO_COLOR="1")
    assert shown.code == 0 and "No evidence against the model" in shown.text
    assert not COLORS.search(shown.raw)
    assert max(map(cell_len, shown.lines)) <= 50
    assert {line[-1] for line in shown.lines if line.startswith("│")} == {"│"}


def test_an_error_is_one_line_at_a_terminal_too():
    shown = terminal("check nowhere.npy --model models.py:normal")
    assert shown.code == 2
    assert shown.raw.startswith("steincritic: no such data file: nowhere.npy") and shown.raw.count("\n") == 1


def test_standard_output_of_json_stays_pure_where_progress_is_shown():
    """Standard error is the terminal, standard output a file, as in `steincritic check ... --json > file`."""
    ours, theirs = pty.openpty()
    with open("result.json", "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "steincritic", *f"check good.npy {KSD} --json".split()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=theirs,
            env=environment(),
        )
    os.close(theirs)
    shown, end = b"", time.monotonic() + PATIENCE
    while data := _read(ours, end):
        shown += data
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    assert b"epochs" in shown
    assert json.loads(Path("result.json").read_text())["rejected"] is False


@pytest.mark.parametrize(
    ("line", "until"),
    [("demo --n 300 --out stopped", "null sets"), (f"check long.npy {KSD} --out stopped", "epochs")],
)
def test_ctrl_c_ends_with_one_line_and_leaves_no_half_of_a_file(place, line, until):
    shown = terminal(line, until=until, keys=b"\x03", pause=0.2)
    assert shown.code == 130 and not (place / "stopped").exists()
    assert shown.text.count("steincritic: interrupted") == 1 and "Traceback" not in shown.text
    assert not any(name.startswith(".") for name in files(place / "cache"))  # as unfinished files are named
    assert shown.raw.count("\x1b[?25l") == shown.raw.count("\x1b[?25h") > 0
    assert "steincritic: interrupted; no result was written; null runs that are in the cache" in shown.text
