"""Every script of the gallery runs, prints and draws; what it needs is said in its first lines."""

import ast
import importlib.util
import json
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from matplotlib import pyplot

import steincritic

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted((EXAMPLES / "gallery").glob("*.py"))
SLOW = {"eight_schools", "flow_on_digits", "label_switching", "pymc_bioassay", "three_models"}  # above 15 s
OPTIONAL = {"openmm"}  # used if it is there, not needed
OURS = {"steincritic", "torch", "numpy", "scipy", "matplotlib"}  # installed with the library


def needs(script):
    """Import names on the line `# needs:`, among the first five."""
    first = "\n".join(script.read_text("utf-8").splitlines()[:5])
    found = re.search(r"^# needs: (.+)$", first, re.MULTILINE)
    return {name.strip() for name in found[1].split(",")} if found else set()


def imported(script):
    """First names of all modules that a script imports."""
    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def marked(script):
    return pytest.param(script, id=script.stem, marks=[pytest.mark.slow] if script.stem in SLOW else [])


@pytest.mark.filterwarnings("error::steincritic.errors.DoubtfulWarning")  # the upper one goes first
@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize("script", [marked(script) for script in SCRIPTS])
def test_a_script_runs_prints_and_draws(script, quick, tmp_path, monkeypatch, capsys):
    if missing := [name for name in sorted(needs(script)) if importlib.util.find_spec(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pyplot.close("all")
    with torch.random.fork_rng():  # a script may set torch's seed, as readers do
        runpy.run_path(str(script), run_name="__main__")
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    axes = [ax for figure in figures for ax in figure.axes if ax.get_label() != "<colorbar>"]
    assert 1 <= len(figures) <= 2 and all(ax.get_xlabel() for ax in axes)
    assert "p = " in (told := capsys.readouterr().out) or "p <= " in told
    pyplot.close("all")


def test_there_are_scripts_enough_and_each_has_a_title_a_question_and_a_next_step():
    assert len(SCRIPTS) >= 13
    for script in SCRIPTS:
        text = script.read_text("utf-8")
        title, rule, empty, *question = ast.get_docstring(ast.parse(text)).split("\n")
        assert rule == "=" * len(title) and not empty and "?" in " ".join(question), script.name
        assert text.count("\n# %%\n") >= 3 and "\n# Next: " in text, script.name


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_line_of_needs_tells_the_imports_and_the_rest_is_public(script):
    others = set(imported(script)) - OURS - OPTIONAL - set(sys.stdlib_module_names)
    assert needs(script) - others == set()
    assert others - needs(script) <= {"jax"}  # comes with NumPyro
    used = {n.attr for n in ast.walk(ast.parse(script.read_text("utf-8"))) if _of_sc(n)}
    assert used and used <= set(steincritic.__all__)


def test_the_extra_gallery_brings_what_scripts_need():
    project = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text("utf-8"))["project"]
    (extra,) = project["optional-dependencies"]["gallery"]
    assert set(re.search(r"\[(.+)\]", extra)[1].split(",")) == set().union(*map(needs, SCRIPTS))


def _of_sc(node):
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sc"


@pytest.mark.parametrize("script", [s for s in SCRIPTS if needs(s)], ids=lambda script: script.stem)
def test_without_its_library_a_script_says_in_a_line_what_to_install(script, monkeypatch):
    for name in needs(script):  # parts that were imported already are gone too
        for part in [name, *(m for m in sys.modules if m.startswith(f"{name}."))]:
            monkeypatch.setitem(sys.modules, part, None)
    with pytest.raises(SystemExit, match=r"needs .*: pip install 'steincritic\[") as stopped:
        runpy.run_path(str(script), run_name="__main__")
    assert "\n" not in str(stopped.value)


def test_the_tutorial_is_the_script_it_is_made_of():
    making = runpy.run_path(str(EXAMPLES / "make_tutorial.py"))
    script, made = making["SCRIPT"].read_text("utf-8"), making["NOTEBOOK"].read_text("utf-8")
    assert made == making["notebook"](script), "python examples/make_tutorial.py"
    code = ["".join(c["source"]) for c in json.loads(made)["cells"] if c["cell_type"] == "code"]
    assert "\n".join(ast.unparse(ast.parse(part)) for part in code) == _without_docstring(script)
    assert len(made) < 10_000


def _without_docstring(source):
    tree = ast.parse(source)
    return "\n".join(ast.unparse(node) for node in tree.body[1:])
