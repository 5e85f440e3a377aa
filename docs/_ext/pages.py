"""Pages that are made when the site is built: commands and options, records of studies, literature.

Sources link to files of the repository, so that they read well on GitHub; `relink` leads such links here.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

from steincritic.cli import COMMANDS, command
from steincritic.cli.parse import Option, options_of

DOCS = Path(__file__).parent.parent
RESULTS = DOCS.parent / "results"
GENERATED = DOCS / "generated"
KEY = re.compile(r"(?<![\w`(])\[([a-z]+\d{4}[a-z]?)\](?!\()")

FIELD = re.compile(r"(\w+) = \{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")  # of a bib entry; braces in braces


def commands() -> str:
    """The command line as the parser has it."""
    return "\n".join(line for name in COMMANDS for line in _command(name))


def _command(name: str) -> Iterator[str]:
    options = options_of(command(name))
    usage = " ".join([name, *(option.usage for option in options if option.required)])
    yield f"## {name}\n\n`steincritic {usage} [options]`: {COMMANDS[name][1]}.\n"
    for title, advanced in (("options", False), ("advanced options", True)):
        rows = [_row(option) for option in options if option.advanced == advanced]
        if rows:
            yield "\n".join([f"| {title} | |", "|---|---|", *rows, ""])


def _row(option: Option) -> str:
    usage, text = (part.replace("|", r"\|").replace("<", "&lt;") for part in (option.usage, option.help))
    return f"| `{usage}` | {text} |"


def record(folder: Path) -> str:
    """One study: its table and its figures."""
    name = folder.name
    figures = "\n\n".join(
        f"![{name}: {figure.stem}](../../../results/{name}/{figure.name})"
        for figure in sorted(folder.glob("*.png"))
    )
    table = (folder / "table.md").read_text("utf-8")
    return f"# {name}\n\n`python -m studies {name}`\n\n{table}\n\n{figures}\n"


def literature() -> str:
    """The bibliography, one entry per heading, so that it can be linked."""
    text = (DOCS / "references.bib").read_text("utf-8")
    lines = ["# Literature", ""]
    for key, body in re.findall(r"^@\w+\{([^,]+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = {k: _plain(v) for k, v in FIELD.findall(body)}
        where = ", ".join(
            fields[k] for k in ("journal", "booktitle", "publisher", "year", "note") if k in fields
        )
        lines += [f"## {key}", "", f"{fields['author']}: *{fields['title']}*. {where}.", ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    for tex, letter in (("$L^2$", "L²"), ("\\c{c}", "ç"), ("\\c c", "ç"), ("\\aa", "å"), ("\\`o", "ò")):
        text = text.replace(tex, letter)
    text = re.sub(r"\\'(\w)", "\\1\u0301", re.sub(r'\\"(\w)', "\\1\u0308", text))
    return re.sub(r"[{}]", "", text).replace(" and ", "; ").replace("--", "–")


def write(app: Sphinx) -> None:
    pages = {"commands.md": commands(), "literature.md": literature()}
    for folder in sorted(RESULTS.iterdir()):
        if (folder / "table.md").is_file():
            pages[f"records/{folder.name}.md"] = record(folder)
    for name, text in pages.items():
        place = GENERATED / name
        if not place.is_file() or place.read_text("utf-8") != text:  # unchanged pages are not built again
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8")


def relink(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname.startswith("gallery/"):
        return
    text = re.sub(r"\]\((?:\.\./)+results/([\w-]+)/table\.md\)", r"](/generated/records/\1.md)", source[0])
    text = re.sub(r"\[([^]]*)\]\((?:\.\./)+examples\)", r"{doc}`\1 </gallery/index>`", text)
    text = re.sub(r"\]\((?:\.\./)+CONTRIBUTING\.md", r"](/reference/contributing.md", text)
    if docname != "generated/literature":
        text = KEY.sub(r"[[\1]](/generated/literature.md#\1)", text)
    source[0] = text


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    app.connect("source-read", relink)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
