"""What a person reads: boxes and colors on a terminal, plain lines in pipes and files."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from steincritic.cli.streams import on_terminal, shown


def print_panel(lines: Iterable[str], *, title: str, color: str = "none") -> None:
    if not on_terminal():
        print_lines(title, *lines)
        return
    text = Text(shown("\n".join(lines)))
    Console().print(Panel(text, title=Text(shown(title)), border_style=color, expand=False))


def print_verdict(lines: Iterable[str], *, title: str, rejected: bool | None) -> None:
    print_panel(lines, title=title, color="yellow" if rejected is None else "red" if rejected else "green")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str, left: bool = False
) -> None:
    cells = [[cell if isinstance(cell, Text) else Text(shown(cell)) for cell in row] for row in rows]
    if not on_terminal():
        _print_columns([list(columns), *([cell.plain for cell in row] for row in cells)], title)
        return
    table = Table(*columns, title=Text(shown(title)), title_justify="left" if left else "center")
    for row in cells:
        table.add_row(*row)
    Console().print(table)


def print_lines(*lines: str) -> None:
    for line in lines:
        if on_terminal():
            Console().print(Text(shown(line)))
        else:
            print(shown(line))


def print_files(files: Iterable[Path]) -> None:
    print_lines("Files:", *(f"  {file}" for file in files))


def print_markdown(text: str) -> None:
    if on_terminal():
        Console().print(Markdown(shown(text)))
    else:
        print_lines(text)


def _print_columns(rows: list[list[str]], title: str) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print_lines(title, *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows))
