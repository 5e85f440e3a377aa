"""Ended at any time by a signal or two: no half of a file, and the same command works again."""

import json
import random
import signal
import time

import numpy as np
import pytest

import steincritic as sc
from processes import PATIENCE, files, finished, started

SETTINGS = "--steps 200 --batch-size 20 --log-every 2 --hidden 8 --critic-steps 1 --pictures 1 --device cpu"
LINES = {  # a command that writes, and what it leaves
    "check": ("check x.npy --model gm-2d --test split --draws 99 --out out", 4),
    "test": ("test x.npy --model gm-2d --test split --draws 99 --out out", 1),
    "compare": ("compare x.npy --model gm-2d --model gm-2d --name a --name b --test ksd --out out", 1),
    "doctor": ("doctor --model gm-2d --n 5000 --out out", 1),
    "demo": ("demo --n 60 --test ksd --out out", 8),
    "witness": ("witness long.csv --critic critic --model gm-2d --chunk 1000 --out out/w.csv", 1),
    "watch": ("watch long.csv --model gm-2d --batch 100 --state out/state", 1),
    "fit-energy": (f"fit-energy x.npy --out out {SETTINGS}", 4),
    "reproduce": ("reproduce gm-2d --tiny --device cpu --out out", 5),
}
ENDS = {"SIGTERM": 143, "SIGKILL": -9}
SECONDS = (0.2, 8.0)  # from before the first import to after the end


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    q = sc.data.problem("gm-2d").model
    np.save(folder / "x.npy", q.sample(100, seed=1).numpy())
    np.savetxt(folder / "long.csv", q.sample(5_000, seed=2).numpy(), delimiter=",")
    training = sc.Training(epochs=2)
    sc.fit_critic(q, q.sample(60, seed=3), training=training, callbacks=()).save(folder / "critic")
    return folder


@pytest.fixture
def place(data, tmp_path):
    for file in data.iterdir():
        (tmp_path / file.name).symlink_to(file)
    return tmp_path


@pytest.mark.parametrize("time_of_death", range(2))
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", LINES)
def test_a_kill_leaves_no_half_of_a_file_and_a_rerun_works(place, name, end, time_of_death):
    line, count = LINES[name]
    process = started(line, place)
    time.sleep(random.Random(f"{name} {end} {time_of_death}").uniform(*SECONDS))
    process.send_signal(getattr(signal, end))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 1, ENDS[end], -getattr(signal, end)), err
    if process.returncode == ENDS[end] > 0:
        told = [each for each in err.splitlines() if each.startswith("steincritic: interrupted; ")]
        assert len(told) == 1 and "Traceback" not in err
    for file in place.rglob("out/*.json"):
        json.loads(file.read_text())
    again = _again(line, place, done=process.returncode in (0, 1))
    code, _, err = finished(again, place)
    assert code in (0, 1), err
    left = [file for file in files(place / "out") if not file.startswith("jobs")]
    assert len([file for file in left if "/." not in f"/{file}"]) >= count or name == "reproduce"
    assert not any("unfinished" in file for file in left)


@pytest.mark.parametrize("gap", [0.0, 0.005, 0.05])
@pytest.mark.parametrize("seconds", [3.0, 4.5, 6.0])
def test_a_second_interrupt_does_not_disturb_the_end(place, seconds, gap):
    process = started(
        "test x.npy --model gm-2d --test crossfit --no-cache --out out", place, OMP_NUM_THREADS="2"
    )
    time.sleep(seconds)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(gap)
    _, err = process.communicate(timeout=PATIENCE)
    if process.returncode in (0, 1):
        pytest.skip("done before the interrupt")
    assert process.returncode == 130 and not files(place / "out")
    assert err.splitlines()[-1].startswith("steincritic: interrupted; ") and err.count("interrupted") == 1


def _again(line, place, *, done):
    """The command that the message, or a user, would try next."""
    if line.startswith("fit-energy"):
        waits = (place / "out/checkpoint.safetensors").exists() and not done
        return f"{line} --resume" if waits else f"{line} --overwrite"
    takes = ("check", "reproduce") if files(place / "out") else ()
    return f"{line} --overwrite" if line.startswith(takes or ("nothing",)) else line
