"""What surrounds a command: signs of life, and signals, which leave no half of a file."""

import json
import random
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import steincritic as sc
from processes import PATIENCE, files, started
from steincritic.cli import guard
from steincritic.training import progress
from steincritic.training.progress import StepBar, standing


def test_a_bar_estimates_by_the_pace_since_the_first_move(monkeypatch):
    clock = iter([0.0, 10.0, 20.0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with StepBar("training", 100, unit="epochs") as bar:
        assert standing() == "training: 0 of 100 epochs"
        bar.move(60)  # of an earlier run
        assert standing() == "training: 60 of 100 epochs"
        bar.advance(10)
        assert standing() == "training: 70 of 100 epochs, about 30 s left of this part"
    assert standing() == ""


def test_where_no_bar_is_shown_long_work_says_how_far_it_is(run, monkeypatch):
    monkeypatch.setattr(guard, "_SILENCE", 0.05)
    err = run("check x.npy --model gm-2d --test ksd")[2]
    lines = err.splitlines()
    assert lines and all(line.startswith("steincritic: ") and line.endswith(" s so far)") for line in lines)


def test_an_interrupt_has_the_shells_exit_code(run, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("steincritic.gof.choose.tested", interrupt)
    code, _, err = run("check x.npy --model gm-2d")
    assert code == 130 and err.count("\n") == 1


def test_outside_the_main_thread_signals_are_left_alone():
    codes = []
    work = lambda: codes.append(guard.guarded(lambda manner: 0, guard.Manner()))  # noqa: E731
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert codes == [0]


_STUBBORN = """
import pathlib, time

def score(x):
    pathlib.Path("begun").touch()
    while True:
        try:
            time.sleep(100)
        except KeyboardInterrupt:
            pathlib.Path("ignored").touch()
"""


def test_a_later_interrupt_ends_what_the_first_did_not(place):
    (place / "m.py").write_text(_STUBBORN)
    process = started("test x.npy --model m.py:score", place)
    for mark in ("begun", "ignored"):
        end = time.monotonic() + PATIENCE
        while not (place / mark).exists() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1.2 * guard._PATIENCE)
        process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    process.communicate()


def test_a_second_interrupt_does_not_disturb_the_end(place):
    (place / "m.py").write_text(
        "import pathlib, time\ndef score(x):\n    pathlib.Path('begun').touch()\n    time.sleep(100)\n"
    )
    process = started("test x.npy --model m.py:score --out out", place)
    while not (place / "begun").exists():
        time.sleep(0.05)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and not files(place / "out")
    assert err.splitlines()[-1].startswith("steincritic: interrupted; ") and err.count("interrupted") == 1


LINES = {  # a command that writes, and how many files it leaves
    "check": ("check x.npy --model gm-2d --test split --draws 99 --out out", 4),
    "witness": ("witness long.csv --critic critic --model models.py:normal --chunk 500 --out out/w.csv", 1),
    "watch": ("watch long.csv --model gm-2d --batch 100 --state out/state", 1),
}
ENDS = {"SIGTERM": 143, "SIGKILL": -9}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", LINES)
def test_a_kill_leaves_no_half_of_a_file_and_a_rerun_works(run, place, name, end):
    """At a time between the first import and the end of a quiet machine, the same in each run."""
    x = sc.data.problem("gm-2d").model.sample(3000, seed=2)
    np.savetxt("long.csv", x.numpy(), delimiter=",")
    line, count = LINES[name]
    process = started(line, place)
    time.sleep(random.Random(f"{name} {end}").uniform(1.0, 6.0))
    process.send_signal(getattr(signal, end))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 1, ENDS[end], -getattr(signal, end)), err
    if process.returncode == ENDS[end] > 0:
        told = [text for text in err.splitlines() if text.startswith("steincritic: interrupted; ")]
        assert len(told) == 1 and "Traceback" not in err
    for file in place.rglob("out/*.json"):
        json.loads(file.read_text())
    code, _, err = run(f"{line} --overwrite" if name == "check" else line)
    assert code in (0, 1), err
    left = files(place / "out")
    assert len([file for file in left if "/." not in f"/{file}"]) >= count
    assert not any("unfinished" in file for file in left)
