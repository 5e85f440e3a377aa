"""watch: a verdict as soon as there is one, and an interrupted watch that goes on as if it never was."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import steincritic
from steincritic.critics.mlp import MLP
from steincritic.files import read_tensors
from steincritic.gof.betting import Sequential
from steincritic.gof.sequential import watch
from steincritic.gof.watch_state import load_watch
from steincritic.models import GaussianMixture
from steincritic.training.fit import Training

Q = GaussianMixture([[0.0, 0.0]])
GOOD = Q.sample(150, seed=1).numpy()
WATCH = "--model models.py:normal --batch 20"
QUICK = Sequential(first=40, draws=4, network=MLP(hidden=(16,)), training=Training(epochs=3))


@pytest.fixture(autouse=True)
def streams(place):
    write("good.csv", GOOD)
    write("wrong.csv", GOOD + 1.5)


@pytest.fixture
def quick(monkeypatch):
    """Smaller critics; where a process takes part, the usual ones do."""
    monkeypatch.setattr("steincritic.gof.sequential.watch", partial(watch, test=QUICK))


def text_of(x):
    return "".join(",".join(map(repr, row)) + "\n" for row in x.tolist())


def write(path, x):
    Path(path).write_text("a,b\n" + text_of(x))


def objects(out):
    """What was printed, but for what differs between runs of the same."""
    told = [json.loads(line) for line in out.splitlines()]
    return [{name: one[name] for name in one if name not in ("data", "seconds")} for one in told]


def start(line, **options):
    source = str(Path(steincritic.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "steincritic", *line.split()],
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_line_a_batch_and_the_verdict_at_the_end(run, quick):
    code, out, err = run(f"watch good.csv {WATCH}")
    lines = out.splitlines()
    assert code == 0 and err == "" and len(lines) == 9
    assert "20 points   wealth          1 of 20   p 1" in lines[0] and "150 points" in lines[7]
    assert lines[8] == "Not rejected at level 0.05 after 150 points."


def test_a_rejection_ends_the_watch_at_once(run, quick):
    code, out, _ = run(f"watch wrong.csv {WATCH} --json")
    states = objects(out)
    assert code == 1 and [state["rejected"] for state in states] == [False] * (len(states) - 1) + [True]
    last = states[-1]
    assert last["points"] < 150 and last["wealth"] >= last["threshold"] == 20 and last["pvalue"] <= 0.05
    assert last["points"] - 20 < last["rejected_at"] <= last["points"]
    assert "Rejected at point" in run(f"watch wrong.csv {WATCH}")[1].splitlines()[-1]


def test_the_watch_is_the_watch(run, quick):
    out = run(f"watch good.csv {WATCH} --seed 3 --level 0.01 --json")[1]
    batches = [GOOD[k : k + 20] for k in range(0, 150, 20)]
    wanted = [state.log_wealth for state in watch(Q, batches, seed=3, level=0.01, test=QUICK)]
    assert [state["log_wealth"] for state in objects(out)] == wanted


def test_a_state_brings_its_own_level_and_seed_and_what_was_seen_is_not_seen_again(run, quick):
    write("grows.csv", GOOD[:60])
    first = run(f"watch grows.csv {WATCH} --seed 3 --level 0.01 --state state --json")[1]
    write("grows.csv", GOOD)
    second = run(f"watch grows.csv {WATCH} --state state --json")[1]
    whole = run(f"watch good.csv {WATCH} --seed 3 --level 0.01 --json")[1]
    assert objects(first + second) == objects(whole)
    code, out, _ = run(f"watch grows.csv {WATCH} --state state --json")
    assert code == 0 and out == ""  # nothing new
    code, _, err = run(f"watch grows.csv {WATCH} --state state --level 0.2")
    assert code == 2 and "begun with level=0.01" in err


def test_a_rejected_state_stays_rejected(run, quick):
    assert run(f"watch wrong.csv {WATCH} --state state")[0] == 1
    code, out, _ = run(f"watch wrong.csv {WATCH} --state state")
    assert code == 1 and out.startswith("Rejected at point") and out.count("\n") == 1


def test_a_state_of_other_rows_or_another_model_is_refused(run, quick):
    assert run(f"watch good.csv {WATCH} --state state")[0] == 0
    for name, content in (("other.csv", GOOD + 0.1), ("short.csv", GOOD[:50])):
        write(name, content)
        code, out, err = run(f"watch {name} {WATCH} --state state")
        assert code == 2 and out == "" and "does not begin with the 150 rows that state has seen" in err
    code, _, err = run("watch good.csv --model models.py:moved --state state")
    assert code == 2 and "begun with another model than models.py:moved" in err


def test_the_batches_before_a_bad_row_are_told_and_kept(run, quick):
    Path("late.csv").write_text("a,b\n" + text_of(GOOD[:50]) + "oops,1\n" + text_of(GOOD[50:]))
    code, out, err = run(f"watch late.csv {WATCH} --state state --json")
    *states, last = objects(out)
    assert (
        code == 2 and [state["points"] for state in states] == [20, 40] and "oops" in last["error"]["message"]
    )
    assert "('oops' in line 52)" in err and load_watch("state").points == 40
    code, out, _ = run(f"watch good.csv {WATCH} --state state --json")  # the row removed
    assert code == 0 and objects(out)[-1]["points"] == 150


def test_a_pipe_is_watched_until_it_is_closed():
    watching = start(
        "watch - --model models.py:normal --batch 30 --json --state state", stdin=subprocess.PIPE
    )
    out, err = watching.communicate("a,b\n" + text_of(GOOD[:40]), timeout=60)
    assert watching.returncode == 0 and err == ""
    assert [state["points"] for state in objects(out)] == [30, 40]
    assert load_watch("state").points == 40
    np.testing.assert_array_equal(load_watch("state").past.x.numpy(), GOOD[:40])


def test_an_interrupted_watch_of_a_growing_file_goes_on_exactly(run):
    """Header first, half lines in between, an interrupt while waiting, and the same end as without it."""
    rows = text_of(GOOD[:120])
    half = len(text_of(GOOD[:90])) - 7  # in the middle of a number
    grows = Path("grows.csv")
    grows.write_text("a,b\n")
    watching = start(f"watch grows.csv {WATCH} --follow --state state --json")
    with grows.open("a") as file:
        file.write(rows[: half // 2])
        file.flush()
        seen = objects(watching.stdout.readline())
        file.write(rows[half // 2 : half])
        file.flush()
        while seen[-1]["points"] < 80:
            seen += objects(watching.stdout.readline())
        time.sleep(0.3)  # it waits for the rest of the half line now
        assert watching.poll() is None
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=60)
        assert watching.returncode == 130 and out == "" and err.count("\n") == 1
        assert load_watch("state").points == 80
        file.write(rows[half:])
    code, out, _ = run(f"watch grows.csv {WATCH} --follow --idle 0.2 --state state --json")
    assert code == 0
    write("whole.csv", GOOD[:120])
    wanted = run(f"watch whole.csv {WATCH} --state wanted --json")[1]
    assert seen + objects(out) == objects(wanted) and seen[-1]["log_wealth"] != 0
    (left, about), (right, about_right) = (
        read_tensors(Path(name), kind="watch state") for name in ("state", "wanted")
    )
    assert about == about_right and left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_rows_with_gaps_are_skipped_and_counted_and_a_state_goes_on_over_them(run, quick):
    lines = text_of(GOOD).splitlines()
    gaps = ["a,b,who", *(f"{line},x{k}" for k, line in enumerate(lines))]
    for k in (2, 30, 75):
        gaps.insert(k, ",1,gap")
    Path("gaps.csv").write_text("\n".join(gaps) + "\n")
    code, _, err = run(f"watch gaps.csv {WATCH} --exclude who")
    assert code == 2 and "row 1 (line 3)" in err and "--drop-nan" in err
    line = f"watch gaps.csv {WATCH} --id-column who --drop-nan"
    told = objects(run(f"{line} --json")[1])
    assert told[-1]["points"] == 150 and told[-1]["dropped"] == 3 and told[0]["schema_version"] == 2
    wanted = [one["log_wealth"] for one in objects(run(f"watch good.csv {WATCH} --json")[1])]
    assert [one["log_wealth"] for one in told] == wanted
    Path("gaps.csv").write_text("\n".join(gaps[:60]) + "\n")
    assert run(f"{line} --state state")[0] == 0
    Path("gaps.csv").write_text("\n".join(gaps) + "\n")
    code, out, _ = run(f"{line} --state state")
    assert (
        code == 0 and out.splitlines()[-1] == "Not rejected at level 0.05 after 150 points. 3 rows left out."
    )
