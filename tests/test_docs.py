"""What the pages say holds: their code runs, their links lead somewhere, their references exist.

The ```python blocks of a page run in order, in one namespace and in an empty folder. Names that a page takes
for granted (the reader's model and data) are in `the_readers`. Defaults are made smaller by QUICK, so that a
page takes seconds. A block that needs an outside library, files or minutes has a comment right before it:

    <!-- not run: needs NumPyro -->

Such a block is still parsed, and every name of the package in it must exist.
"""

import ast
import importlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import steincritic as sc
from steincritic.gof import choose

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*) -->")
QUICK = {  # defaults of settings, for a run of seconds; the numbers that come out mean nothing
    "steincritic.CrossFit": {"draws": 19},
    "steincritic.Training": {"epochs": 15},
    "steincritic.MLP": {"hidden": (16,)},
    "steincritic.learning.settings.FOR_PERCEPTRONS": {"steps": 10},
}


@dataclass(frozen=True)
class Block:
    """Code of a page."""

    page: str
    line: int
    code: str
    not_run: str = ""  # the reason, where there is one

    def compiled(self):
        """With the page's own line numbers, so that an error names the line of the page."""
        return compile("\n" * (self.line - 1) + self.code, self.page, "exec")


def blocks(name, text):
    """The ```python blocks of a page, in order."""
    found, lines, before = [], text.splitlines(), ""
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        if line.startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
            if line == "```python":
                reason = NOT_RUN.fullmatch(before)
                code = "\n".join(lines[at + 1 : end]) + "\n"
                found.append(Block(name, at + 2, code, reason["reason"] if reason else ""))
            at, line = end, ""
        before = line or before  # blank lines in between do not matter
        at += 1
    return found


BLOCKS = {name: blocks(name, page.read_text("utf-8")) for name, page in zip(NAMES, PAGES, strict=True)}


class Bowl(torch.nn.Module):
    """An energy."""

    def forward(self, x):
        return x.square().sum(-1)


def the_readers():
    """What a page may take for granted: a model, data that it does not fit, an energy."""
    q = sc.models.GaussianMixture([[0.0, 0.0], [0.5, 0.5]], 1.0)
    x = q.sample(300, seed=1) + torch.tensor([0.5, 0.0])
    return {
        "sc": sc,
        "q": q,
        "model": q,
        "x": x,
        "data": x,
        "fresh": q.sample(100, seed=2),
        "energy": Bowl(),
    }


@pytest.fixture
def quick(monkeypatch):
    for path, smaller in QUICK.items():
        module, _, name = path.rpartition(".")
        thing = getattr(importlib.import_module(module), name)
        defaults = thing.__init__.__kwdefaults__ if isinstance(thing, type) else vars(thing)
        for key, value in smaller.items():
            assert key in defaults, f"QUICK names {path}({key}=...), which is no longer there"
            monkeypatch.setitem(defaults, key, value)
    for name, test in choose.TESTS.items():  # made when the package was imported: once more, smaller
        monkeypatch.setitem(choose.TESTS, name, type(test)())


@pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")  # of runs this short
@pytest.mark.parametrize("name", [name for name in NAMES if any(not b.not_run for b in BLOCKS[name])])
def test_the_code_of_a_page_runs(name, quick, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    namespace = the_readers()
    for block in BLOCKS[name]:
        if not block.not_run:
            exec(block.compiled(), namespace)


def _chain(node):
    """["sc", "models", "GaussianMixture"] for such an expression; [] for others."""
    if isinstance(node, ast.Attribute):
        return [*start, node.attr] if (start := _chain(node.value)) else []
    return [node.id] if isinstance(node, ast.Name) else []


def _missing(block):
    """Names of the package that a block uses and that are not there."""
    for node in ast.walk(ast.parse(block.code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("steincritic"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    yield f"{block.page}:{block.line + node.lineno - 1} {node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and (chain := _chain(node))[:1] == ["sc"]:
            thing = sc
            for part in chain[1:]:
                if not hasattr(thing, part):
                    yield f"{block.page}:{block.line + node.lineno - 1} {'.'.join(chain)}"
                    break
                thing = getattr(thing, part)


def test_names_in_the_code_of_pages_exist():
    missing = sorted({text for name in NAMES for block in BLOCKS[name] for text in _missing(block)})
    assert not missing, "no such names:\n  " + "\n  ".join(missing)


def test_blocks_are_read_as_they_stand():
    text = "a\n```python\nx = 1\n```\n\n<!-- not run: needs zuko -->\n\n```python\ny = 1\n```\n```\nz\n```\n"
    assert blocks("page", text) == [
        Block("page", 3, "x = 1\n"),
        Block("page", 9, "y = 1\n", "needs zuko"),
    ]
    wrong = Block("page", 1, "from steincritic.data import nothing\nsc.models.Nothing()\n")
    assert sorted(_missing(wrong)) == [
        "page:1 steincritic.data.nothing",
        "page:2 sc.models.Nothing",
    ]


# Links


def anchors(page):
    """The #names of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.*?) *$", text, flags=re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        yield slug if not seen[slug] else f"{slug}-{seen[slug]}"


def test_links_within_the_pages_lead_somewhere():
    lost = []
    for name, page in zip(NAMES, PAGES, strict=True):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if re.match(r"[a-z]+:", target):
                continue  # an address outside
            file, _, anchor = target.partition("#")
            place = (page.parent / file).resolve() if file else page
            if not place.exists():
                lost.append(f"{name}: no file {target}")
            elif anchor and anchor not in anchors(place):
                lost.append(f"{name}: no heading {target}")
    assert not lost, "links that lead nowhere:\n  " + "\n  ".join(lost)


# References

KEY = re.compile(r"\[([a-z]+\d{4}[a-z]?)\]")


def test_references_are_in_the_bibliography_and_every_entry_is_cited():
    entries = set(
        re.findall(r"^@\w+\{([^,]+),", (ROOT / "docs/references.bib").read_text("utf-8"), re.MULTILINE)
    )
    cited: dict[str, str] = {}
    for path in [*PAGES, *sorted((ROOT / "src").rglob("*.py"))]:
        for key in KEY.findall(path.read_text("utf-8")):
            cited.setdefault(key, path.relative_to(ROOT).as_posix())
    unknown = sorted(f"{key} in {place}" for key, place in cited.items() if key not in entries)
    assert not unknown, f"not in docs/references.bib: {unknown}"
    assert entries <= cited.keys(), f"cited nowhere: {sorted(entries - cited.keys())}"
