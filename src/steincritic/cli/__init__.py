"""The command line: arguments to configurations, one call, exit code 0, 1 or 2."""

import sys
from collections.abc import Callable
from typing import Annotated

import tyro

from steincritic.cli.check import Check
from steincritic.cli.compare import Compare
from steincritic.cli.config_file import with_settings
from steincritic.cli.demo import Demo
from steincritic.cli.doctor import Doctor
from steincritic.cli.fit_energy import FitEbm
from steincritic.cli.options import guarded
from steincritic.cli.reproduce import Reproduce
from steincritic.cli.watch import Watch
from steincritic.cli.witness import Score

Command = (
    Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[FitEbm, tyro.conf.subcommand("fit-ebm")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Score, tyro.conf.subcommand("score")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `steincritic` command."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(guarded(lambda: _parsed(given)(), show_traceback="--traceback" in given))


def _parsed(arguments: list[str]) -> Callable[[], int]:
    if arguments[:1] == ["check"]:
        arguments = ["check", *with_settings(arguments[1:], Check)]
    command: Callable[[], int] = tyro.cli(
        Command,
        prog="steincritic",
        description="Does my model fit my data, how sure can I be, and where does it fail?",
        args=arguments,
    )
    return command
