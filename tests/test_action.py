"""The GitHub Action: its script is run as a runner would run it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


@pytest.fixture
def place(tmp_path):
    """A folder with data, a model, and `steincritic` and `python` as commands."""
    q = sc.data.problem("gm-2d").model
    np.save(tmp_path / "my data.npy", q.sample(60, seed=1).numpy())
    (tmp_path / "bin").mkdir()
    for name, more in {"steincritic": " -m steincritic", "python": ""}.items():
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{more} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "far.py").write_text(
        "import steincritic as sc\nq = sc.models.GaussianMixture([[3.0, 0.0]])\n"
    )
    return tmp_path


def perform(place, **inputs):
    """The step `Check`: done, what it put out, and its summary."""
    usual = {name: given.get("default", "") for name, given in ACTION["inputs"].items()}
    values = usual | {"data": "my data.npy", "arguments": "--test ksd --quiet"} | inputs
    step = STEPS["Check"]
    told = {name: text.removeprefix("${{ inputs.").removesuffix(" }}") for name, text in step["env"].items()}
    files = {name: place / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    env = os.environ | {name: values[source] for name, source in told.items()}
    env |= {name: str(path) for name, path in files.items()}
    env |= {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    shell = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]  # as runners have it
    done = subprocess.run([*shell, step["run"]], cwd=place, env=env, capture_output=True, text=True)
    texts = [path.read_text() if path.exists() else "" for path in files.values()]
    return done, dict(line.split("=", 1) for line in texts[0].splitlines()), texts[1]


@pytest.mark.parametrize(("model", "code"), [("gm-2d", 0), ("far.py:q", 1)])
def test_the_exit_code_is_the_verdict_and_the_report_is_left(model, code, place):
    done, output, summary = perform(place, model=model, arguments="--test ksd")
    assert done.returncode == code, done.stderr
    assert output["rejected"] == str(bool(code)).lower() and 0 < float(output["pvalue"]) <= 1
    assert "### steincritic" in summary and f"my data.npy against {model}" in summary
    left = {path.name for path in (place / "steincritic-report").iterdir()}
    assert left == {"report.html", "result.json", "witness.csv", "critic.safetensors", "junit.xml"}


def test_an_error_fails_with_its_own_code_and_an_input_is_no_command(place):
    done, output, _ = perform(place, model="$(touch bad); touch bad", data="nowhere.npy")
    assert done.returncode == 2 and output == {} and "no such data file" in done.stderr
    assert not (place / "bad").exists()


@pytest.mark.parametrize("name", [name for name, step in STEPS.items() if "run" in step])
def test_scripts_are_bash_and_take_inputs_by_the_environment_alone(name):
    step = STEPS[name]
    subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
    assert "${{" not in step["run"] and step["shell"] == "bash"
    used = {text.split(".")[1].split(" ")[0] for text in step["env"].values() if "inputs." in text}
    assert used <= set(ACTION["inputs"])
