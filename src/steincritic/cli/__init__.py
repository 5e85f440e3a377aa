"""The command line: arguments to configurations, one call, exit code 0, 1 or 2."""

import sys
from collections.abc import Callable
from typing import Annotated

import tyro

from steincritic.cli.check import Check
from steincritic.cli.common import guarded
from steincritic.cli.demo import Demo
from steincritic.cli.reproduce import Reproduce

Command = (
    Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `steincritic` command."""
    command: Callable[[], int] = tyro.cli(
        Command,
        prog="steincritic",
        description="Does my model fit my data, how sure can I be, and where does it fail?",
        args=arguments,
    )
    sys.exit(guarded(command))
