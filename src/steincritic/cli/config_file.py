"""Settings from a TOML file, under the names that the command line has for them."""

import tomllib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steincritic.errors import FileFormatError, InputError, did_you_mean

if TYPE_CHECKING:
    from steincritic.cli.parsing import Option


def arguments_from(path: Path, options: Mapping[str, "Option"], given: Container[str]) -> list[str]:
    """The settings of a file as arguments, less those given on the command line, which has the last word."""
    settings = _read(path, options)
    parts = [
        _arguments(options[name], value, path.parent) for name, value in settings.items() if name not in given
    ]
    return [argument for part in parts for argument in part]


def _read(path: Path, options: Mapping[str, "Option"]) -> dict[str, Any]:
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


def _arguments(option: "Option", value: Any, folder: Path) -> list[str]:
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


def _placed(option: "Option", value: str, folder: Path) -> str:
    """Files are named as seen from the settings file: a path, or the file in the name of a model."""
    if option.kind is Path and value != "-":
        return str(folder / value)
    kind = "rbm:" if value.startswith("rbm:") else ""
    file = value.removeprefix(kind)
    if option.name == "model" and (kind or file.endswith(".safetensors") or ".py:" in file):
        return f"{kind}{folder / file}"
    return value
