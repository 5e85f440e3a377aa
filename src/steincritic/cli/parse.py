"""From arguments and a settings file to a command: argparse, made of the fields of its dataclass."""

import re
import shutil
import sys
import types
import typing
from argparse import (
    SUPPRESS,
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    RawDescriptionHelpFormatter,
    _ArgumentGroup,
)
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from inspect import cleandoc
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from steincritic.errors import FileFormatError, InputError, did_you_mean

C = TypeVar("C")

ADVANCED, POSITIONAL = object(), object()  # marks of a field: see `options_of`
GONE = {  # options that went, and what to do instead; for one release
    "--dry-run": "the default takes seconds; a bar shows how far long work is",
    "--precision": "pass --draws: a p-value is at least 1/(draws + 1)",
    "--units": "the Fisher divergence is in standard deviations of the columns",
    "demo --problem": "the demo has one problem",
    "witness --engine": "rows are looked at on this machine, in chunks",
    "witness --address": "rows are looked at on this machine, in chunks",
}
_VALUES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
_WIDEST = 100  # columns of the help


@dataclass(frozen=True)
class Option:
    """One field of a command, as the command line has it."""

    name: str
    kind: type  # bool, int, float, str or Path
    choices: tuple[str, ...]
    many: bool  # may be given more than once
    default: Any  # MISSING where a value is required
    text: str
    advanced: bool
    positional: bool

    @property
    def flag(self) -> str:
        return self.name.upper() if self.positional else f"--{self.name.replace('_', '-')}"

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def metavar(self) -> str:
        return "|".join(self.choices) or _VALUES[self.kind]

    @property
    def usage(self) -> str:
        """With its value."""
        if self.positional:
            return self.flag
        if self.kind is bool:
            return f"{self.flag}, --no-{self.flag[2:]}" if self.default else self.flag
        return f"{self.flag} {self.metavar}"

    @property
    def help(self) -> str:
        """What it does, with its default."""
        if self.required:
            return f"{self.text} (required)"
        return self.text if self.default in (None, (), False) else f"{self.text} (default: {self.default})"

    def read(self, value: str) -> Any:
        """The value that such a text stands for."""
        if self.choices and value not in self.choices:
            hint = did_you_mean(value, self.choices)
            raise ArgumentTypeError(f"must be one of {', '.join(self.choices)}; got {value!r}{hint}")
        try:
            return self.kind(value)
        except ValueError:
            expected = "a whole number" if self.kind is int else "a number"
            raise ArgumentTypeError(f"must be {expected}, got {value!r}") from None

    def add_to(self, group: "ArgumentParser | _ArgumentGroup") -> None:
        about: dict[str, Any] = {"help": self.help.replace("%", "%%")}
        if self.positional:
            group.add_argument(self.name, metavar=self.flag, **about)
        elif self.kind is not bool:
            action = "append" if self.many else "store"
            group.add_argument(self.flag, type=self.read, metavar=self.metavar, action=action, **about)
        elif self.default:
            group.add_argument(self.flag, action=BooleanOptionalAction, **about)
        else:
            group.add_argument(self.flag, action="store_true", **about)
            group.add_argument(f"--no-{self.flag[2:]}", dest=self.name, action="store_false", help=SUPPRESS)


def options_of(command: type) -> list[Option]:
    """The fields of a command, `Annotated` with marks and help text; what is required comes first."""
    hints, options = typing.get_type_hints(command, include_extras=True), []
    for entry in fields(command):
        kind, *marks, text = typing.get_args(hints[entry.name])
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        many = typing.get_origin(kind) is tuple
        kind = typing.get_args(kind)[0] if many else kind
        choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
        kind = str if choices else kind
        marks = [ADVANCED in marks, POSITIONAL in marks]
        options.append(Option(entry.name, kind, choices, many, entry.default, text, *marks))
    return sorted(options, key=lambda option: (not option.positional, not option.required))


def parsed(name: str, command: type[C], arguments: Sequence[str]) -> C:
    """The command with its options; the arguments have the last word over a `--config` file."""
    options = {option.name: option for option in options_of(command)}
    parser = _Parser(
        prog=f"steincritic {name}", add_help=False, allow_abbrev=False, argument_default=SUPPRESS
    )
    for option in options.values():
        if not option.positional:
            option.add_to(parser)
    namespace, rest = parser.parse_known_args(arguments)
    for argument in rest:
        if argument.startswith("-") and argument != "-":
            raise InputError(_no_option(argument.partition("=")[0], options, parser.prog))
    places = [option for option in options.values() if option.positional]
    if len(rest) > len(places):
        raise InputError(f"{rest[len(places)]!r} is one argument too many; see {parser.prog} --help")
    placed = zip(places, rest, strict=False)
    values = vars(namespace) | {place.name: place.kind(value) for place, value in placed}
    if "config" in values:
        values = _settings(values["config"], options) | values
    for option in options.values():
        if option.required and option.name not in values:
            raise InputError(f"{option.flag} is missing; see {parser.prog} --help")
        if option.many and option.name in values:
            values[option.name] = tuple(values[option.name])
    return command(**values)


def print_help(name: str, command: type, summary: str) -> None:
    """What is required, what most users need, and the advanced options apart."""
    options = options_of(command)
    usage = " ".join(["steincritic", name, *(o.usage for o in options if o.required), "[options]"])
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    parser = ArgumentParser(
        usage=usage.replace("%", "%%"),
        # without docstrings (python -OO) a dataclass shows its signature there
        description=summary if sys.flags.optimize > 1 else cleandoc(command.__doc__ or summary),
        formatter_class=lambda prog: RawDescriptionHelpFormatter(prog, max_help_position=22, width=width),
        add_help=False,
    )
    for title, advanced in {"options": False, "advanced options": True}.items():
        group = parser.add_argument_group(title)
        for option in options:
            if option.advanced == advanced:
                option.add_to(group)
    parser.print_help()


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """In one line, and without an exit from within."""
        text = re.sub(r"^argument ([^ :]+): ", r"\1 ", message)
        text = text.replace("expected one argument", "needs a value")
        text = text.replace("ignored explicit argument", "is a switch without a value, got")
        raise InputError(f"{text} (see {self.prog} --help)")


def _no_option(flag: str, options: dict[str, Option], prog: str) -> str:
    name = flag.replace("--no-", "--")
    for gone in (name, f"{prog.partition(' ')[2]} {name}"):
        if gone in GONE:
            return f"{name} is gone: {GONE[gone]}"
    known = [option.flag[2:] for option in options.values() if not option.positional]
    return f"no option {flag}{did_you_mean(flag.lstrip('-'), known, dashes='--')} (see {prog} --help)"


def _settings(path: Path, options: dict[str, Option]) -> dict[str, Any]:
    """The options that a TOML file sets."""
    import tomllib

    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"settings file {path} is a pipe or a device; write the settings to a file")
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no such settings file: {path}") from None
    except OSError as error:
        raise InputError(f"settings file {path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise FileFormatError(f"{path} nests its values too deeply for settings") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is no TOML file: {error}") from None
    known = sorted(set(options) - {"config"})
    values = {}
    for name, value in settings.items():
        option = options.get(name.replace("-", "_"))
        if option is None or option.name == "config":
            if (gone := f"--{name.replace('_', '-')}") in GONE:
                raise InputError(f"{path} sets {name!r}, which is gone: {GONE[gone]}")
            hint = did_you_mean(name, known) or f", which is none of {', '.join(known)}"
            raise InputError(f"{path} sets {name!r}{hint}")
        values[option.name] = _setting(option, value, path.parent)
    return values


def _setting(option: Option, value: Any, folder: Path) -> Any:
    """The value of an option from a file in this folder, as the command line would have it."""
    if isinstance(value, dict) or (isinstance(value, list) and not option.many):
        raise InputError(f"{option.name} in the settings file must be one value, got {value!r}")
    if option.kind is bool:
        if not isinstance(value, bool):
            raise InputError(f"{option.name} in the settings file must be true or false, got {value!r}")
        return value
    values = []
    for text in map(str, value if isinstance(value, list) else [value]):
        # Files are named as seen from the settings file: paths, and the file in the name of a model.
        is_file = ".py:" in text if option.name == "model" else option.kind is Path and text != "-"
        try:
            values.append(option.read(str(folder / text) if is_file else text))
        except ArgumentTypeError as error:
            raise InputError(f"{option.flag} {error}") from None
    return values if option.many else values[0]
