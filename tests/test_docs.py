"""What the pages say holds: code and commands run, links lead somewhere, references exist.

The ```python and ```bash blocks of a page run in order, python in one namespace, all in one empty folder.
Lines of ```bash are commands of this package; they run in this process and may end with 0 or 1, never with
an error. A block whose first line is `# model.py` is written to that file. Names that a page takes for
granted (the reader's model and data) are in `the_readers`. Defaults are made smaller by `quick`, so that a
page takes seconds. A block that needs an outside library, files or minutes has a comment right before it:

    <!-- not run: needs NumPyro -->

Such a block is still parsed, and every name of the package in it must exist. What a page needs and need not
show is in a comment that starts with `<!-- runs first`. Blocks of other languages hold output or settings.
"""

import ast
import importlib
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import steincritic as sc
from steincritic import cli
from steincritic.cli.parse import parsed

ROOT = Path(__file__).parent.parent
MADE = ("docs/_build", "docs/generated", "docs/gallery")  # when the site is built


def page_name(page):
    return page.relative_to(ROOT).as_posix()


DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not page_name(page).startswith(MADE)]
PAGES = [ROOT / "README.md", *DOCS]
NAMES = [page_name(page) for page in PAGES]
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.*) -->")
FIRST = re.compile(r"^<!-- runs first\n(.*?)^-->", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.(?:py|toml))")
LANGUAGES = {"python", "bash", "toml", "yaml", "json", "text"}  # or a directive of the site


@dataclass(frozen=True)
class Block:
    """Code of a page."""

    page: str
    line: int
    code: str
    not_run: str = ""  # the reason, where there is one
    language: str = "python"

    @property
    def file(self):
        """Where the block is to be saved, if it says so."""
        named = FILE.fullmatch(self.code.partition("\n")[0])
        return named and named[1]

    @property
    def runs(self):
        return not self.not_run and (self.language in ("python", "bash") or self.file)

    @property
    def commands(self):
        """The arguments of each line; what is after # is for the reader."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]

    def compiled(self):
        """With the page's own line numbers, so that an error names the line of the page."""
        return compile("\n" * (self.line - 1) + self.code, self.page, "exec")

    def run(self, namespace):
        if self.file:
            Path(self.file).write_text(self.code, "utf-8")
        elif self.language == "python":
            exec(self.compiled(), namespace)
        else:
            for program, *arguments in self.commands:
                assert program == "steincritic", f"{self.page}:{self.line} mark it as not run: {program}"
                with pytest.raises(SystemExit) as exited:
                    cli.main(arguments)
                assert exited.value.code in (0, 1), (
                    f"{self.page}:{self.line} {arguments}: {exited.value.code}"
                )


def blocks(name, text):
    """The fenced blocks of a page, in order."""
    found, lines, before = [], text.splitlines(), ""
    at = 0
    while at < len(lines):
        line = lines[at].strip()
        if line.startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
            reason = NOT_RUN.fullmatch(before)
            code = "\n".join(lines[at + 1 : end]) + "\n"
            language = "bash" if line[3:] == "sh" else line[3:]
            found.append(Block(name, at + 2, code, reason["reason"] if reason else "", language))
            at, before = end, ""
        before = line if line and not line.startswith("```") else before  # blank lines do not matter
        at += 1
    return found


BLOCKS = {name: blocks(name, page.read_text("utf-8")) for name, page in zip(NAMES, PAGES, strict=True)}
PYTHON = [block for name in NAMES for block in BLOCKS[name] if block.language == "python"]


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


@pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")  # of runs this short
@pytest.mark.parametrize("name", [name for name in NAMES if any(block.runs for block in BLOCKS[name])])
def test_the_code_of_a_page_runs(name, quick, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    namespace = the_readers()
    for code in FIRST.findall((ROOT / name).read_text("utf-8")):
        exec(compile(code, name, "exec"), namespace)
    for block in BLOCKS[name]:
        if block.runs:
            block.run(namespace)
    for file in tmp_path.glob("*.py"):  # that the page imported
        sys.modules.pop(file.stem, None)


def test_every_block_says_what_it_is():
    strange = [
        f"{block.page}:{block.line} {block.language!r}"
        for name in NAMES
        for block in BLOCKS[name]
        if block.language not in LANGUAGES and not block.language.startswith("{")
    ]
    assert not strange, f"blocks of none of {sorted(LANGUAGES)}:\n  " + "\n  ".join(strange)


def test_no_command_stands_outside_of_a_block_that_runs():
    lost = []
    for name, page in zip(NAMES, PAGES, strict=True):
        text = re.sub(r"^```(?:ba)?sh\n.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        lost += [f"{name}: {line}" for line in re.findall(r"^ *steincritic [a-z].*", text, re.MULTILINE)]
    assert not lost, "commands that no test sees:\n  " + "\n  ".join(lost)


def test_commands_that_are_not_run_have_options_that_exist():
    shell = [block for name in NAMES for block in BLOCKS[name] if block.language == "bash" and block.not_run]
    for program, *arguments in (words for block in shell for words in block.commands):
        if program == "steincritic":
            parsed(arguments[0], cli.command(arguments[0]), arguments[1:])


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
    missing = sorted({text for block in PYTHON for text in _missing(block)})
    assert not missing, "no such names:\n  " + "\n  ".join(missing)


def test_blocks_are_read_as_they_stand():
    text = "a\n```python\nx = 1\n```\n\n<!-- not run: needs zuko -->\n\n```python\ny = 1\n```\n"
    text += "```bash\nz # t\n```\n"
    assert blocks("page", text) == [
        Block("page", 3, "x = 1\n"),
        Block("page", 9, "y = 1\n", "needs zuko"),
        shell := Block("page", 12, "z # t\n", language="bash"),
    ]
    assert shell.commands == [["z"]] and Block("page", 1, "# model.py\nq = 1\n").file == "model.py"
    wrong = Block("page", 1, "from steincritic.data import nothing\nsc.models.Nothing()\n")
    assert sorted(_missing(wrong)) == [
        "page:1 steincritic.data.nothing",
        "page:2 sc.models.Nothing",
    ]


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("api_*.md"))
    shown = {
        name.rpartition(".")[2]
        for name in re.findall(r"^\.\. auto\w+:: steincritic\.(\S+)", pages, re.MULTILINE)
    }
    parts = {name: getattr(sc, name).__all__ for name in ("data", "lenses", "models")}
    public = {*sc.__all__, *(name for names in parts.values() for name in names)} - parts.keys()
    for beside in ("testing", "integrations", "integrations.lightning"):
        public |= {*importlib.import_module(f"steincritic.{beside}").__all__}
    assert not public - shown, f"in no page of docs/reference: {sorted(public - shown)}"


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
    code = sorted(path for folder in ("src", "studies") for path in (ROOT / folder).rglob("*.py"))
    for path in [*PAGES, *code]:
        for key in KEY.findall(path.read_text("utf-8")):
            cited.setdefault(key, path.relative_to(ROOT).as_posix())
    unknown = sorted(f"{key} in {place}" for key, place in cited.items() if key not in entries)
    assert not unknown, f"not in docs/references.bib: {unknown}"
    assert entries <= cited.keys(), f"cited nowhere: {sorted(entries - cited.keys())}"
