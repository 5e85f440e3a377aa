"""Settings from a TOML file, under the names that the command line has for them."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from steincritic.errors import FileFormatError, InputError


def with_settings(arguments: list[str], command: type) -> list[str]:
    """The arguments of a command with those of its `--config` file put before them.

    What comes later on a command line wins, so the command line has the last word. Data come first:
    a path in the file counts where the first argument is an option.
    """
    path = _config_path(arguments)
    if path is None:
        return arguments
    settings = _read(path, {field.name for field in dataclasses.fields(command)} - {"config"})
    data = settings.pop("data", None)
    positional = [str(data)] if data is not None and arguments[0].startswith("-") else []
    if not positional and arguments and not arguments[0].startswith("-"):
        positional, arguments = arguments[:1], arguments[1:]
    options = [part for name, value in settings.items() for part in _option(name, value)]
    return [*positional, *options, *arguments]


def _config_path(arguments: list[str]) -> Path | None:
    for k, argument in enumerate(arguments):
        if argument == "--config" and k + 1 < len(arguments):
            return Path(arguments[k + 1])
        if argument.startswith("--config="):
            return Path(argument.removeprefix("--config="))
    return None


def _read(path: Path, known: set[str]) -> dict[str, Any]:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no such settings file: {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is no TOML file: {error}") from None
    settings = {name.replace("-", "_"): value for name, value in settings.items()}
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise InputError(f"{path} sets {unknown[0]!r}, which is none of {', '.join(sorted(known))}")
    return settings


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, list | dict):
        raise InputError(f"{name} in the settings file must be one value, got {value!r}")
    return [f"--{flag}", str(value)]
