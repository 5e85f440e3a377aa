"""The code has one direction: a module imports only from the layers before its own."""

import ast
from pathlib import Path

import pytest

import steincritic

ROOT = Path(steincritic.__file__).parent
LAYERS = (
    "shapes errors rng files devices models data stein critics training gof diagnosis learning "
    "engine report public cli __main__"
).split()
SOURCES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")
MODULES = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def layer_of(name):
    return Path(name).parts[0].removesuffix(".py")


def imported(tree):
    """Dotted names of everything a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inner_layers(tree):
    """Layers of the package that a module imports from."""
    return {name.split(".")[1] for name in imported(tree) if name.startswith("steincritic.")}


def dotted(node):
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls(tree):
    return [(dotted(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_there_is_something_to_check():
    assert {"models", "data", "stein", "critics", "training", "gof"} <= {layer_of(name) for name in MODULES}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_from_earlier_layers(name):
    assert layer_of(name) in LAYERS, "a new part of the package needs its place among the layers"
    place = LAYERS.index(layer_of(name))
    for layer in inner_layers(MODULES[name]):
        assert layer in LAYERS and LAYERS.index(layer) <= place, f"{name} imports from {layer}"


@pytest.mark.parametrize("name", MODULES)
def test_experiments_and_report_do_not_know_each_other(name):
    other = {"experiments": "report", "report": "experiments"}.get(layer_of(name))
    assert other not in inner_layers(MODULES[name])


@pytest.mark.parametrize("name", MODULES)
def test_the_argument_parser_is_known_to_the_command_line_alone(name):
    uses = any(part.split(".")[0] == "tyro" for part in imported(MODULES[name]))
    assert not uses or layer_of(name) == "cli"


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_unpickled(name):
    tree = MODULES[name]
    roots = {part.split(".")[0] for part in imported(tree)}
    assert not roots & {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
    for called, node in calls(tree):
        assert called not in {"torch.load", "torch.save", "eval", "exec"}
        for keyword in node.keywords:
            allowed = keyword.arg != "allow_pickle" or ast.literal_eval(keyword.value) is False
            assert allowed, f"{name} allows pickles"


@pytest.mark.parametrize("name", MODULES)
def test_no_global_generator_is_seeded(name):
    """One exception: torch's distributions draw from the global generator, so it is lent and restored."""
    tree = MODULES[name]
    lent = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and any(dotted(getattr(item.context_expr, "func", None)).endswith("fork_rng") for item in node.items)
        for inner in ast.walk(node)
    }
    for called, node in calls(tree):
        assert called not in {"torch.manual_seed", "np.random.seed", "numpy.random.seed", "random.seed"}
        assert called != "torch.random.manual_seed" or id(node) in lent
        assert called not in {"torch.set_default_dtype", "torch.set_default_device"}


@pytest.mark.parametrize(
    "name", [n for n in MODULES if layer_of(n) in {"models", "stein", "critics", "training"}]
)
def test_mathematics_neither_plots_nor_prints(name):
    assert not {part.split(".")[0] for part in imported(MODULES[name])} & {"matplotlib", "jinja2"}
    assert not any(called == "print" for called, _ in calls(MODULES[name]))
