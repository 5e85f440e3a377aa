"""What surrounds a command: signs of life, what an interrupt keeps, files relative to their settings."""

import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc
from processes import PATIENCE, started
from steincritic.cli import check, guard
from steincritic.cli.folders import alone_in
from steincritic.cli.parsing import parsed
from steincritic.cli.reproduce import Reproduce
from steincritic.errors import InputError
from steincritic.training.progress import StepBar, standing


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.save("x.npy", sc.data.problem("gm-2d").model.sample(60, seed=1).numpy())
    return tmp_path


def test_a_bar_estimates_by_the_pace_since_the_first_move(monkeypatch):
    clock = iter([0.0, 10.0, 20.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
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


def test_sigterm_says_what_was_kept_and_how_to_go_on(place):
    settings = "--steps 100000 --batch-size 20 --log-every 2 --hidden 4 --critic-steps 1 --device cpu"
    process = started(f"fit-energy x.npy --out out {settings}", place)
    end = time.monotonic() + PATIENCE
    while not (place / "out/checkpoint.safetensors").exists() and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    told = "out/checkpoint.safetensors is kept: the same command with --resume goes on from there"
    assert err == f"steincritic: interrupted; {told}\n"


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


def test_outside_the_main_thread_signals_are_left_alone():
    codes = []
    work = lambda: codes.append(guard.guarded(lambda manner: 0, guard.Manner()))  # noqa: E731
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert codes == [0]


def test_an_error_after_the_verdict_does_not_lose_it(run, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("no such font")

    monkeypatch.setattr("steincritic.report.folder.save_report", fails)
    code, out, err = run("check x.npy --model gm-2d --test ksd --out seen")
    assert code == 2 and "No evidence against the model" in out and not Path("seen").exists()
    assert err.startswith("steincritic: the result stands (p = ") and "no such font" in err


def test_files_in_settings_are_relative_to_them(place):
    (place / "below").mkdir()
    (place / "below/s.toml").write_text('data = "../x.npy"\nmodel = "m.py:q"\nout = "seen"\nseed = 3\n')
    made = parsed("check", check.Check, ["--config", "below/s.toml"])
    assert (str(made.data), made.model, str(made.out)) == ("below/../x.npy", "below/m.py:q", "below/seen")
    for model, seen in {
        "gm-2d": "gm-2d",
        "package.module:q": "package.module:q",
        "energy.safetensors": "below/energy.safetensors",
        "rbm:energy": "rbm:below/energy",
        "package.rbm:q": "package.rbm:q",
        "/abs/m.py:q": "/abs/m.py:q",
    }.items():
        (place / "below/s.toml").write_text(f'model = "{model}"\n')
        assert parsed("check", check.Check, ["x.npy", "--config", "below/s.toml"]).model == seen


def test_a_record_is_replaced_only_on_request(run):
    line = "reproduce gm-1d --tiny --device cpu --out record"
    assert run(line)[0] == 0
    code, _, err = run(line)
    assert code == 2 and "record.json is there already" in err and "--overwrite" in err
    assert run(f"{line} --overwrite")[0] == 0


def test_the_list_of_studies_says_how_long_they_take(run):
    code, out, err = run("reproduce list")
    assert code == 0 and err == "" and "20 minutes on two cores" in out
    Reproduce(name="list").check()


def test_a_full_run_says_beforehand_how_long_it_takes(run, monkeypatch):
    from steincritic_studies.study import Study

    def refuses(*_, **__):
        raise InputError("enough")

    monkeypatch.setattr(Study, "reproduce", refuses)
    err = run("reproduce gm-2d --out record")[2]
    assert err.splitlines() == [
        "steincritic: gm-2d takes 4 seconds on an H200, 20 minutes on two cores",
        "steincritic: enough",
    ]


def test_a_folder_that_holds_something_stays():
    with pytest.raises(ZeroDivisionError), alone_in(Path("deep/down")):
        Path("deep/note").write_text("kept")
        raise ZeroDivisionError
    assert Path("deep/note").exists() and not Path("deep/down").exists()
