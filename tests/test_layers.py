"""The code has one direction: a module imports only from the layers before its own.

Each rule goes over all modules and names every offender at once.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import steincritic
import studies

LAYERS = (
    "shapes errors rng files display devices engine models data stein critics training lenses gof "
    "diagnosis report public testing integrations cli __main__"
).split()
MATHEMATICS = {"models", "stein", "critics", "training"}

UPWARD = {  # (module, layer): why it may import that later layer, inside a function only
    ("diagnosis/check_result.py", "report"): "results save themselves as a page, and draw themselves",
    ("training/fitted.py", "report"): "a history draws itself",
    ("training/critic.py", "report"): "a critic draws itself",
    ("gof/moment_box.py", "diagnosis"): "means and spreads by scores alone",
}
SHARED = set("__main__ study record sweep cells show laws baselines".split())  # every study may import
BETWEEN_STUDIES = {  # (study, other): what for
    ("calibration", "posteriors"): "a posterior as a null model",
    ("posteriordb", "posteriors"): "eight schools with exact draws, where there is no database",
    ("paper", "digits"): "what the paper says of its digits",
}


@dataclass(frozen=True)
class Import:
    name: str  # dotted
    line: int
    inside: bool  # of a function, so done when that is called

    @property
    def root(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Module:
    package: str
    name: str  # path within the package
    tree: ast.Module

    @property
    def part(self) -> str:
        """The layer of the library, or the study: first folder or file of the path."""
        return Path(self.name).parts[0].removesuffix(".py")

    @property
    def imports(self) -> list[Import]:
        return list(_imports(self.tree, inside=False))

    @property
    def calls(self) -> list[tuple[str, ast.Call]]:
        return [(_dotted(node.func), node) for node in ast.walk(self.tree) if isinstance(node, ast.Call)]

    def at(self, line: int) -> str:
        return f"{self.package}/{self.name}:{line}"


def _imports(node: ast.AST, *, inside: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, inside) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            start = "." * child.level + (child.module or "")
            yield from (Import(f"{start}.{alias.name}", child.lineno, inside) for alias in child.names)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, inside=inside or function)


def _dotted(node: ast.AST | None) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _modules(package) -> list[Module]:
    root = Path(package.__file__).parent
    return [
        Module(package.__name__, path.relative_to(root).as_posix(), ast.parse(path.read_text("utf-8")))
        for path in sorted(root.rglob("*.py"))
        if path != root / "__init__.py"
    ]


LIBRARY, STUDIES = _modules(steincritic), _modules(studies)
BOTH = LIBRARY + STUDIES
PICKLES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "shelve",
    "marshal",
    "torch.load",
    "torch.save",
    "eval",
    "exec",
}
GLOBAL_STATE = {
    "torch.manual_seed",
    "np.random.seed",
    "numpy.random.seed",
    "random.seed",
    "torch.set_default_dtype",
    "torch.set_default_device",
}


def layers_are_listed(modules):
    """A new part of the library needs its place in LAYERS."""
    return (f"{module.at(1)} is of no layer" for module in modules if module.part not in LAYERS)


def imports_go_down(modules):
    """A module imports only from earlier layers, save what UPWARD lists."""
    for module in modules:
        for found in module.imports:
            parts = found.name.split(".")
            if parts[0] != "steincritic" or module.part not in LAYERS:
                continue
            layer = parts[1] if len(parts) > 1 else "public"  # `import steincritic` is for its public names
            if layer not in LAYERS:
                yield f"{module.at(found.line)} imports {layer}, which is no layer"
            elif LAYERS.index(layer) > LAYERS.index(module.part) and not (
                found.inside and (module.name, layer) in UPWARD
            ):
                yield f"{module.at(found.line)} is of {module.part} and imports {found.name}"


def imports_are_absolute(modules):
    """No import counts dots."""
    for module in modules:
        yield from (f"{module.at(i.line)} imports {i.name}" for i in module.imports if i.name[0] == ".")


def library_knows_no_study(modules):
    """Nothing of the library imports a study; they register themselves."""
    for module in modules:
        for found in module.imports:
            if found.root == "studies":
                yield f"{module.at(found.line)} imports {found.name}"


def studies_stand_alone(modules):
    """A study knows the library, what all studies share, and the others that BETWEEN_STUDIES lists."""
    for module in modules:
        part = module.part
        if "/" not in module.name and part not in SHARED:
            yield f"{module.at(1)} is no study: list it in SHARED"
        for found in module.imports:
            if found.root != "studies":
                continue
            other = found.name.split(".")[1]
            if other not in SHARED | {part, "NAMES", "load_study"} and (part, other) not in BETWEEN_STUDIES:
                yield f"{module.at(found.line)} imports {found.name}"


def command_line_alone_parses(modules):
    """The argument parser is known to cli/ alone."""
    for module in modules:
        for found in module.imports:
            if found.root == "argparse" and module.part != "cli":
                yield f"{module.at(found.line)} imports {found.name}"


def nothing_is_unpickled(modules):
    """A file of someone else must not run code; what travels between our processes is ours."""
    for module in modules:
        pickles = PICKLES - ({"cloudpickle"} if module.name == "engine.py" else set())
        yield from (f"{module.at(i.line)} imports {i.name}" for i in module.imports if i.root in pickles)
        for called, node in module.calls:
            if called in PICKLES:
                yield f"{module.at(node.lineno)} calls {called}"
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and ast.literal_eval(keyword.value) is not False:
                    yield f"{module.at(node.lineno)} allows pickles"


def no_global_generator_is_seeded(modules):
    """One exception: torch's distributions draw from the global generator, so it is lent and restored."""
    for module in modules:
        lent = {
            id(inner)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.With)
            and any(
                _dotted(getattr(item.context_expr, "func", None)).endswith("fork_rng") for item in node.items
            )
            for inner in ast.walk(node)
        }
        for called, node in module.calls:
            if called in GLOBAL_STATE or (called == "torch.random.manual_seed" and id(node) not in lent):
                yield f"{module.at(node.lineno)} calls {called}"


def mathematics_neither_plots_nor_prints(modules):
    """What computes returns numbers; drawing and printing come later."""
    for module in modules:
        if module.part in MATHEMATICS:
            for found in module.imports:
                if found.root in {"matplotlib", "jinja2"}:
                    yield f"{module.at(found.line)} imports {found.name}"
            yield from (f"{module.at(n.lineno)} prints" for called, n in module.calls if called == "print")


BAD = """
import matplotlib.pyplot
import argparse
import pickle
import steincritic.report
import studies.power.curves
from . import near
def f():
    torch.random.manual_seed(0)
    print(np.load("x.npy", allow_pickle=True))
"""
RULES = [  # rule, the modules it is for, and where BAD breaks it
    (layers_are_listed, LIBRARY, "news/bad.py"),
    (imports_go_down, LIBRARY, "stein/bad.py"),
    (imports_are_absolute, BOTH, "stein/bad.py"),
    (library_knows_no_study, LIBRARY, "stein/bad.py"),
    (studies_stand_alone, STUDIES, "paper/bad.py"),
    (command_line_alone_parses, LIBRARY, "gof/bad.py"),
    (nothing_is_unpickled, BOTH, "gof/bad.py"),
    (no_global_generator_is_seeded, BOTH, "gof/bad.py"),
    (mathematics_neither_plots_nor_prints, LIBRARY, "models/bad.py"),
]


def test_there_is_something_to_check():
    assert {"models", "data", "stein", "critics", "training", "gof"} <= {m.part for m in LIBRARY}
    assert {"paper", "power"} <= {m.part for m in STUDIES}


@pytest.mark.parametrize(("rule", "modules", "place"), RULES, ids=[rule.__name__ for rule, _, _ in RULES])
def test_all_modules_keep_the_rule_and_one_that_breaks_it_is_seen(rule, modules, place):
    offenders = list(rule(modules))
    assert not offenders, f"{rule.__doc__} {len(offenders)} to mend:\n  " + "\n  ".join(offenders)
    assert list(rule([Module(modules[-1].package, place, ast.parse(BAD))]))


def test_an_import_upward_is_allowed_inside_a_function_alone():
    for (name, layer), reason in UPWARD.items():
        assert reason and LAYERS.index(layer) > LAYERS.index(name.split("/")[0])
        line = f"import steincritic.{layer}"
        for text, allowed in ((line, False), (f"def f():\n    {line}", True)):
            assert (not list(imports_go_down([Module("steincritic", name, ast.parse(text))]))) == allowed


def test_public_names_load_neither_plotting_nor_other_slow_libraries():
    code = (
        "import sys, steincritic as sc\n"
        "for name in sc.__all__: getattr(sc, name)\n"
        "slow = 'matplotlib jinja2 rich scipy.stats studies'.split()\n"
        "print(*[name for name in slow if name in sys.modules])"
    )
    seen = subprocess.check_output(
        [sys.executable, "-c", code], text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert not seen.strip(), f"`import steincritic` loads {seen}"
