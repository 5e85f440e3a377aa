"""Inputs that are wrong: one line that says what was expected, exit code 2, no traceback."""

import pytest

CASES = {  # arguments with {folder} for a folder that holds data.csv (20 x 2): what the line must say
    "no command": ("", "name a command"),
    "command with a slip": ("chek {folder}/data.csv --model gm-2d", "did you mean check"),
    "no model": ("check {folder}/data.csv", "--model is missing"),
    "no data": ("check --model gm-2d", "DATA is missing"),
    "no such file": ("check {folder}/date.csv --model gm-2d", "did you mean data.csv"),
    "level": ("check {folder}/data.csv --model gm-2d --level 2", "level must lie in (0, 1)"),
    "seed": ("check {folder}/data.csv --model gm-2d --seed=-1", "seed must be a whole number"),
    "other dimension": ("check {folder}/data.csv --model gm-1d", "2 columns"),
}


@pytest.fixture
def folder(tmp_path):
    rows = "\n".join(f"{k / 7:.3f},{(k * k) % 5 / 3:.3f}" for k in range(20))
    (tmp_path / "data.csv").write_text(f"a,b\n{rows}\n")
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_exit_code_2(case, folder, run):
    arguments, said = CASES[case]
    code, out, error = run(arguments.format(folder=folder))
    assert code == 2
    assert out == ""
    assert said in error
    assert len(error.splitlines()) == 1
