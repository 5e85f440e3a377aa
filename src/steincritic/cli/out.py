"""What a person reads, boxes and colors on a terminal, plain lines elsewhere; and JUnit XML."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from steincritic.cli.guard import shown

_PROPERTIES = ("model", "data", "pvalue", "level", "test", "n", "seed")


def print_verdict(lines: Iterable[str], *, title: str, rejected: bool | None) -> None:
    """In red or green; in yellow where there is no verdict."""
    if not sys.stdout.isatty():
        print_lines(title, *lines)
        return
    color = "yellow" if rejected is None else "red" if rejected else "green"
    text = Text(shown("\n".join(lines)))
    Console().print(Panel(text, title=Text(shown(title)), border_style=color, expand=False))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str, left: bool = False
) -> None:
    cells = [[cell if isinstance(cell, Text) else Text(shown(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        table = Table(*columns, title=Text(shown(title)), title_justify="left" if left else "center")
        for row in cells:
            table.add_row(*row)
        Console().print(table)
        return
    plain = [list(columns), *([cell.plain for cell in row] for row in cells)]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    print_lines(title, *("  ".join(map(str.ljust, row, widths)).rstrip() for row in plain))


def print_lines(*lines: str) -> None:
    for line in lines:
        if sys.stdout.isatty():
            Console().print(Text(shown(line)))
        else:
            print(shown(line))


def print_files(files: Iterable[Path]) -> None:
    print_lines("Files:", *(f"  {file}" for file in files))


def junit(lines: Sequence[str], content: Mapping[str, Any], *, title: str) -> bytes:
    """The XML of a check, which CI servers show: one case, which fails if the model is rejected.

    Args:
        lines: what a person reads, the verdict first.
        content: the JSON object of the command.
    """
    failed, seconds, text = int(content["rejected"]), f"{content['seconds']:.3f}", shown("\n".join(lines))
    about = {"name": "steincritic", "tests": "1", "failures": str(failed), "errors": "0", "skipped": "0"}
    about |= {"time": seconds, "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")}
    suite = ElementTree.Element("testsuite", about | {"hostname": "localhost"})
    properties = ElementTree.SubElement(suite, "properties")
    for name in _PROPERTIES:
        ElementTree.SubElement(properties, "property", name=name, value=shown(str(content[name])))
    case = ElementTree.SubElement(
        suite, "testcase", classname=f"steincritic.{content['command']}", name=shown(title), time=seconds
    )
    if failed:
        message = text.partition("\n")[0]
        ElementTree.SubElement(case, "failure", message=message, type="rejected").text = text
    ElementTree.SubElement(suite, "system-out").text = text
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(suite)
    xml: bytes = ElementTree.tostring(suite, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + xml + b"\n"
