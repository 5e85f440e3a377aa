"""What a person reads on a terminal: a panel with the verdict, then the files."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text


def print_panel(lines: Iterable[str], *, title: str, color: str = "none") -> None:
    Console().print(Panel(Text("\n".join(lines)), title=Text(title), border_style=color, expand=False))


def print_verdict(lines: Iterable[str], *, title: str, rejected: bool) -> None:
    print_panel(lines, title=title, color="red" if rejected else "green")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, title: str, left: bool = False
) -> None:
    table = Table(*columns, title=Text(title), title_justify="left" if left else "center")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    Console().print(table)


def print_lines(*lines: str) -> None:
    for line in lines:
        Console().print(Text(line))


def print_files(files: Iterable[Path]) -> None:
    Console().print("Files:", *map(str, files), sep="\n  ", markup=False, highlight=False)
