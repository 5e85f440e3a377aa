"""The lowest versions of our dependencies that pyproject.toml names, but for torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = {  # with what must be on standard output
    "help": ("--help", "commands:"),
    "check": ("check {data} --model gm-2d --test ksd --json", '"pvalue"'),
    "report": ("check {data} --model gm-2d --test ksd --out {out}", "report.html"),
    "refused": ("check {data} --model gm-1d", ""),
}


@pytest.fixture(scope="module")
def lowest(tmp_path_factory):
    """A folder with the oldest versions, to be found before the installed ones."""
    pins = subprocess.check_output([sys.executable, ROOT / ".ci/lowest.py"], text=True).split()
    folder = tmp_path_factory.mktemp("lowest")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
    made = subprocess.run([*pip, "--target", str(folder), *pins], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"not to be had here: {made.stderr.splitlines()[-1:]}")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_oldest_dependencies_will_do(name, lowest, tmp_path):
    line, said = COMMANDS[name]
    data = tmp_path / "data.csv"
    rows = "\n".join(f"{k % 7 / 3 + k / 100:.4f},{k % 5 / 2 + k / 90:.4f}" for k in range(60))
    data.write_text(f"a,b\n{rows}\n")
    arguments = line.format(data=data, out=tmp_path / "out").split()
    done = subprocess.run(
        [sys.executable, "-m", "steincritic", *arguments],
        capture_output=True,
        text=True,
        env=os.environ
        | {"PYTHONPATH": f"{lowest}{os.pathsep}{ROOT / 'src'}", "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.returncode in ((2,) if name == "refused" else (0, 1)), done.stderr
    assert said in done.stdout and "Traceback" not in done.stderr, done.stderr
    if "--json" in arguments:
        json.loads(done.stdout)
