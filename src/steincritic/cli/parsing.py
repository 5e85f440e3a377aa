"""From arguments and a settings file to a command; what tyro would refuse with a box is refused in one line.

tyro makes the command's object; the options, and so the names and types that are checked here, are the fields
of the command's dataclass, and the help is made of their docstrings.
"""

import inspect
import io
import re
import shutil
import textwrap
import tomllib
import types
import typing
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

from steincritic.errors import FileFormatError, InputError, did_you_mean

C = TypeVar("C", bound=Callable[[], int])

_POSITIONAL = typing.get_args(tyro.conf.Positional[int])[1]
ADVANCED = "advanced"  # in the type of an option
_EXPLAINED = re.compile(r'^    (\w+): [^\n]*\n    """(.*?)"""', re.M | re.S)  # a field and its docstring
_VALUES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
_NARROWEST, _WIDEST = 20, 80  # columns of text in the help
_BOX = re.compile(r"[─-╿]+")  # the characters of which boxes are drawn


@dataclass(frozen=True)
class Option:
    """One field of a command, as the command line has it."""

    name: str
    kind: type  # bool, int, float, str or Path
    choices: tuple[str, ...]
    many: bool  # may be given more than once
    positional: bool
    advanced: bool
    default: Any  # MISSING where a value is required

    @property
    def shown(self) -> str:
        return self.name.upper() if self.positional else f"--{self.name.replace('_', '-')}"

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def usage(self) -> str:
        """With its value."""
        if self.positional:
            return self.shown
        if self.kind is bool:
            return f"{self.shown}, --no-{self.shown[2:]}" if self.default else self.shown
        return f"{self.shown} {'|'.join(self.choices) or _VALUES[self.kind]}"

    def check(self, value: str) -> None:
        if self.choices and value not in self.choices:
            hint = did_you_mean(value, self.choices)
            raise InputError(f"{self.shown} must be one of {', '.join(self.choices)}; got {value!r}{hint}")
        if self.kind in (int, float):
            try:
                self.kind(value)
            except ValueError:
                wanted = "a whole number" if self.kind is int else "a number"
                raise InputError(f"{self.shown} must be {wanted}, got {value!r}") from None


def parsed(name: str, command: type[C], arguments: list[str]) -> C:
    """The command with its options, those of its `--config` file included."""
    prog = f"steincritic {name}"
    options = {option.name: option for option in options_of(command)}
    given = _given(arguments, options, prog)
    if "config" in given:
        arguments = [*arguments, *_from_file(Path(given["config"][-1]), options, given)]
        given = _given(arguments, options, prog)
    missing = [option for option in options.values() if option.required and option.name not in given]
    if missing:
        raise InputError(f"{missing[0].shown} is missing; see {prog} --help")
    refused = io.StringIO()
    try:
        with redirect_stderr(refused):
            return tyro.cli(command, prog=prog, args=arguments)
    except SystemExit:
        raise InputError(" ".join(_BOX.sub(" ", refused.getvalue()).split())) from None


def print_help(name: str, command: type[C]) -> None:
    """What is required, what most users need, and the advanced options apart."""
    options = sorted(options_of(command), key=lambda option: (not option.positional, not option.required))
    required = " ".join(option.usage for option in options if option.required)
    explained = explanations(command)
    print(" ".join(f"usage: steincritic {name} {required} [options]".split()))
    print(f"\n{inspect.getdoc(command)}")
    for title, advanced in {"options": False, "advanced options": True}.items():
        print(f"\n{title}:")
        for option in options:
            if option.advanced == advanced:
                print(_entry(option, explained[option.name]))


def explanations(command: type) -> dict[str, str]:
    """What each option does, with its default: for the help, and for the page in the documentation."""
    texts: dict[str, str] = {}
    for base in reversed(command.__mro__[:-1]):
        texts |= _EXPLAINED.findall(inspect.getsource(base))
    return {option.name: _explained(option, texts[option.name]) for option in options_of(command)}


def _explained(option: Option, text: str) -> str:
    if option.required:
        text += " (required)"
    elif option.default not in (None, ()) and option.default is not False:
        text += f" (default: {option.default})"
    return " ".join(text.split())


def _entry(option: Option, text: str) -> str:
    """The option, and what it does beside it; below it if it is long."""
    width, indent = shutil.get_terminal_size().columns, " " * 22
    width = min(max(width - len(indent), _NARROWEST), _WIDEST)
    filled = textwrap.wrap(text, width, break_on_hyphens=False)
    lines = "\n".join(indent + line for line in filled)
    start = f"  {option.usage}"
    return start + lines[len(start) :] if len(start) < len(indent) - 1 else f"{start}\n{lines}"


def options_of(command: type) -> Iterator[Option]:
    hints = typing.get_type_hints(command, include_extras=True)
    for field in fields(command):
        kind, extras = hints[field.name], []
        if typing.get_origin(kind) is typing.Annotated:
            kind, *extras = typing.get_args(kind)
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        many = typing.get_origin(kind) is tuple
        if many:
            kind = typing.get_args(kind)[0]
        choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
        yield Option(
            field.name,
            str if choices else kind,
            choices,
            many,
            _POSITIONAL in extras,
            ADVANCED in extras,
            field.default,
        )


def _given(arguments: list[str], options: dict[str, Option], prog: str) -> dict[str, list[str]]:
    """The values of each option that the arguments set; none for a switch such as --json."""
    places = [option for option in options.values() if option.positional]
    given: dict[str, list[str]] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "-" or not argument.startswith("-"):
            if not places:
                raise InputError(f"{argument!r} is one argument too many; see {prog} --help")
            option, value = places.pop(0), argument
        else:
            flag, assigned, value = argument.partition("=")
            option = _named(flag, options, prog)
            if option.kind is bool:
                if assigned:
                    raise InputError(f"{flag} is a switch without a value, got {argument!r}")
                given[option.name] = []
                continue
            value = value if assigned else next(rest, "--")
            if value.startswith("--"):
                raise InputError(f"{flag} needs a value; see {prog} --help")
        option.check(value)
        given.setdefault(option.name, []).append(value)
    return given


def _named(flag: str, options: dict[str, Option], prog: str) -> Option:
    name = flag.removeprefix("--").replace("-", "_")
    named = {option.name: option for option in options.values() if not option.positional}
    switches = {f"no_{option.name}": option for option in named.values() if option.kind is bool}
    known = named | switches
    if not flag.startswith("--") or name not in known:
        near = did_you_mean(
            flag.lstrip("-"), [option.shown.lstrip("-") for option in named.values()], dashes="--"
        )
        raise InputError(f"no option {flag}{near} (see {prog} --help)")
    return known[name]


def _from_file(path: Path, options: Mapping[str, Option], given: Container[str]) -> list[str]:
    """The settings of a file as arguments, less those given on the command line, which has the last word."""
    return [
        argument
        for name, value in _settings(path, options).items()
        if name not in given
        for argument in _as_arguments(options[name], value, path.parent)
    ]


def _settings(path: Path, options: Mapping[str, Option]) -> dict[str, Any]:
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
    for name in settings:
        if name.replace("-", "_") not in known:
            hint = did_you_mean(name, known) or f", which is none of {', '.join(known)}"
            raise InputError(f"{path} sets {name!r}{hint}")
    return {name.replace("-", "_"): value for name, value in settings.items()}


def _as_arguments(option: Option, value: Any, folder: Path) -> list[str]:
    if isinstance(value, dict) or (isinstance(value, list) and not option.many):
        raise InputError(f"{option.name} in the settings file must be one value, got {value!r}")
    if option.kind is bool:
        if not isinstance(value, bool):
            raise InputError(f"{option.name} in the settings file must be true or false, got {value!r}")
        return [option.shown if value else f"--no-{option.name.replace('_', '-')}"]
    values = [_placed(option, str(one), folder) for one in (value if isinstance(value, list) else [value])]
    if option.positional:
        return values
    return [f"{option.shown}={one}" for one in values]


def _placed(option: Option, value: str, folder: Path) -> str:
    """Files are named as seen from the settings file: a path, or the file in the name of a model."""
    if option.kind is Path and value != "-":
        return str(folder / value)
    kind = "rbm:" if value.startswith("rbm:") else ""
    file = value.removeprefix(kind)
    if option.name == "model" and (kind or file.endswith(".safetensors") or ".py:" in file):
        return f"{kind}{folder / file}"
    return value
