"""Docstrings for Sphinx: code in single backticks, formulas in dollars, fields with a comment.

Fields of dataclasses are explained by the comment at the end of their line; here these become the text of
the parameter. Types are links to where a class is public, wherever it is defined.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType

from docutils import nodes
from sphinx.application import Sphinx

import steincritic

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_FIELD = re.compile(r"^    (\w+): [^#\n]*?  # (.+)$", re.MULTILINE)


def public() -> Iterator[tuple[str, object]]:
    """Every public thing by the name that a user writes."""
    for name in steincritic.__all__:
        thing = getattr(steincritic, name)
        if isinstance(thing, ModuleType):
            yield from ((f"steincritic.{name}.{inner}", getattr(thing, inner)) for inner in thing.__all__)
        else:
            yield f"steincritic.{name}", thing


PUBLIC = {f"{t.__module__}.{t.__qualname__}": name for name, t in public() if hasattr(t, "__qualname__")}
PUBLIC |= {name.rpartition(".")[2]: name for name in PUBLIC.values()}  # the shortest place comes last


def rewrite(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    text = "\n".join(lines)
    text = re.sub(r"^\$\$(.*?)\$\$$", _formula, text, flags=re.MULTILINE | re.DOTALL)
    lines[:] = [line if ">>>" in line or ".. math" in line else _prose(line) for line in text.split("\n")]
    if what == "class" and is_dataclass(thing) and not any(line.startswith(":param") for line in lines):
        lines += ["", *_fields(thing)]


def _formula(found: re.Match[str]) -> str:
    return f"\n.. math:: {' '.join(found[1].split())}\n"


def _prose(line: str) -> str:
    parts = _CODE.split(line)
    for k, part in enumerate(parts):
        if k % 2:
            parts[k] = f"``{part}``"
        elif not line.lstrip().startswith(":"):
            part = re.sub(r"(?<!\\)\$([^$]+)\$", r":math:`\1`", part)
            part = re.sub(r"(?<![\\`])\|", r"\\|", part)
            parts[k] = re.sub(r"_(?=_*(?:\W|$))", r"\_", part)  # a name such as tau_log__ is no link
    return "".join(parts)


def _fields(kind: type) -> Iterator[str]:
    comments: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        if is_dataclass(base):
            comments |= _FIELD.findall(inspect.getsource(base))
    for field in fields(kind):
        if field.init and not field.name.startswith("_"):
            yield f":param {field.name}: {_prose(comments.get(field.name, ''))}".rstrip()


def resolve(app: Sphinx, env, node, contnode) -> nodes.Node | None:
    """A link to the public name of what a type names; what is not public stays plain text."""
    if node.get("refdomain") != "py":
        return None
    target = PUBLIC.get(node["reftarget"])
    if target:
        domain = env.get_domain("py")
        for kind in ("class", "exc", "func", "data"):
            found = domain.resolve_xref(env, node["refdoc"], app.builder, kind, target, node, contnode)
            if found is not None:
                return found
    return contnode  # of torch, of numpy, or inside the package


def shorten(app: Sphinx, doctree: nodes.document) -> None:
    """A name in a union with literals keeps its path, which autodoc meant to leave out."""
    for text in [*doctree.findall(nodes.Text)]:
        if "~steincritic." in text:
            text.parent.replace(text, nodes.Text(re.sub(r"~(?:\w+\.)+", "", text)))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", rewrite, priority=900)  # after napoleon
    app.connect("missing-reference", resolve)
    app.connect("doctree-read", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
