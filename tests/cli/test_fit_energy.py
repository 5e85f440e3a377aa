"""fit-energy: a model that check reads back, the same with and without a break, and errors in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from steincritic.files import read_tensors
from steincritic.learning import run as learning_run
from steincritic.models import GaussianMixture
from steincritic.models.saved import load_saved

QUICK = "--steps 6 --batch-size 50 --log-every 2 --hidden 6 --device cpu --critic-steps 1 --pictures 1"
MLP, RBM = f"fit-energy x.npy --energy mlp {QUICK}", f"fit-energy x.npy --energy rbm {QUICK}"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    x = GaussianMixture([[0.0, 1.0]]).sample(200, seed=1).numpy()
    np.save("x.npy", x)
    np.save("short.npy", x[:40])
    np.save("few.npy", x[:12])
    x[3, 0] = np.nan
    np.save("nan.npy", x)
    np.save("cube.npy", x.reshape(50, 4, 2))


@pytest.mark.parametrize("line", [MLP, RBM])
def test_a_model_is_learned_and_check_reads_it_back(run, line):
    code, out, err = run(f"{line} --out o")
    assert code == 0 and err == "" and "Fisher divergence" in out
    history = json.loads(Path("o/history.json").read_text())
    assert history["history"]["step"] == [2.0, 4.0, 6.0] and history["learning"]["steps"] == 6
    assert Path("o/samples.png").read_bytes().startswith(b"\x89PNG")
    assert load_saved("o/model.safetensors").dim == 2
    code, out, err = run("check few.npy --model o/model.safetensors --test ksd --json")
    assert code in (0, 1) and err == "" and json.loads(out)


def test_a_resumed_run_leaves_the_same_model(run, monkeypatch):
    assert run(f"{MLP} --out whole --lam 2 --lam-floor 0.5 --lam-every 1")[0] == 0
    step = learning_run.Run._step

    def interrupted(self, number):
        if number == 5:
            raise KeyboardInterrupt
        step(self, number)

    broken = f"{MLP} --out broken --lam 2 --lam-floor 0.5 --lam-every 1"
    monkeypatch.setattr(learning_run.Run, "_step", interrupted)
    monkeypatch.setattr("steincritic.cli.fit_energy._SECONDS", 0.0)
    code, _, err = run(broken)
    assert code == 130 and "interrupted" in err and not Path("broken/model.safetensors").exists()
    monkeypatch.setattr(learning_run.Run, "_step", step)
    assert run(f"{broken} --resume")[0] == 0
    whole, again = (
        read_tensors(Path(folder) / "model.safetensors", kind="model")[0] for folder in ("whole", "broken")
    )
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert Path("whole/history.json").read_text() == Path("broken/history.json").read_text()


def test_an_earlier_run_is_not_lost_by_accident(run):
    assert run(f"{MLP} --out o")[0] == 0
    code, _, err = run(f"{MLP} --out o")
    assert code == 2 and "--resume" in err and "--overwrite" in err
    assert run(f"{MLP} --out o --seed 1 --overwrite")[0] == 0
    code, _, err = run(f"{MLP} --out o --resume")  # of seed 1, not 0
    assert code == 2 and "other data or settings" in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (MLP.replace("x.npy", "short.npy"), "40 rows, fewer than one batch of 50"),
        (MLP.replace("x.npy", "nan.npy"), "NaN"),
        (MLP.replace("x.npy", "cube.npy"), "(50, 4, 2)"),
        (MLP.replace("x.npy", "none.npy"), "none.npy"),
        (MLP.replace("mlp", "flow"), "energy must be one of mlp, rbm"),
        (MLP.replace("--hidden 6", "--hidden 6x"), "hidden is a width"),
        (RBM.replace("--hidden 6", "--hidden 6x6"), "one layer of hidden units"),
        (f"{MLP} --lam 0", "lambda"),
        (f"{MLP} --image-shape 3x3", "3"),
        (f"{MLP} --learning-rate 1e30", "diverged"),
    ],
)
def test_errors_are_one_line_and_exit_code_two(run, line, words):
    code, out, err = run(f"{line} --out o")
    assert code == 2 and out == ""
    assert err.startswith("steincritic: ") and err.count("\n") == 1 and words in err
