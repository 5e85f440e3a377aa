"""The command line: one command, its options, exit code 0, 1 or 2.

Starting is quick because little is imported: this module names the commands, the chosen one is loaded, and
its module imports torch only after everything that can be checked without it has been checked.
"""

import sys
from importlib import import_module
from typing import Any

from steincritic.cli.guard import FITS, Manner, guarded, perform
from steincritic.errors import InputError, did_you_mean

_HELP = ("-h", "--help")
COMMANDS = {  # name on the command line: class, and what it does in one line
    "check": ("verdicts:Check", "test whether data could come from a model, and show where the model fails"),
    "test": ("verdicts:Test", "the test alone: verdict and p-value"),
    "doctor": ("verdicts:Doctor", "check a model's score and sampler before you trust a test"),
    "compare": ("verdicts:Compare", "rank several models on the same data"),
    "watch": ("watch:Watch", "test rows as they arrive, and stop when they do not fit"),
    "witness": ("witness:Witness", "apply a saved critic to new data: one witness value per row"),
    "demo": ("verdicts:Demo", "check a model on built-in data"),
}
_GONE = {  # commands that went, and what to do instead; for one release
    "fit-energy": "train the energy with torch, then check it; the gallery shows how",
    "reproduce": "studies are run from a clone, by python -m studies NAME",
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `steincritic` command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.exit(guarded(lambda manner: _answer(arguments, manner), Manner.of(arguments)))


def _answer(arguments: list[str], manner: Manner) -> int:
    name = arguments[0] if arguments else ""
    if name in _HELP:
        print(_overview())
        return FITS
    if name == "--version":
        print(f"steincritic {import_module('steincritic').__version__}")
        return FITS
    if name not in COMMANDS:
        raise InputError(_no_command(name))
    from steincritic.cli.parse import parsed, print_help

    if any(argument in _HELP for argument in arguments):
        print_help(name, command(name), COMMANDS[name][1])
        return FITS
    return perform(parsed(name, command(name), arguments[1:]), manner)


def command(name: str) -> Any:
    """The class of a command; its module is loaded now."""
    module, _, kind = COMMANDS[name][0].partition(":")
    return getattr(import_module(f"steincritic.cli.{module}"), kind)


def _no_command(name: str) -> str:
    if not name:
        return f"name a command: {', '.join(COMMANDS)}; see steincritic --help"
    if name in _GONE:
        return f"the command {name} is gone: {_GONE[name]}"
    kind = "option" if name.startswith("-") else "command"
    return f"no {kind} {name!r}{did_you_mean(name, COMMANDS)} (see steincritic --help)"


def _overview() -> str:
    width = max(map(len, COMMANDS)) + 2
    commands = "\n".join(f"  {name:{width}}{summary}" for name, (_, summary) in COMMANDS.items())
    return f"""usage: steincritic COMMAND ...

Does my model fit my data, how sure can I be, and where does it fail?

commands:
{commands}

steincritic COMMAND --help shows the options of a command, steincritic --version the version.

exit codes:
  0  the model is not rejected, or the work is done
  1  the model is rejected (doctor: a check failed; compare: all models are rejected)
  2  error; one line on standard error says what was wrong
  130, 143  ended by Ctrl-C or SIGTERM; the line says what was kept"""
