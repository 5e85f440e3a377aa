"""A model named on the command line: `package.module:attr` or `file.py:attr`."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from steincritic.engine import FILE_MODULE
from steincritic.errors import InputError, ModelError, did_you_mean, first_line, listed

_NAMED = 6  # names of a file that a message tells


def load_attribute(spec: str) -> Any:
    """The object that `package.module:attr` or `file.py:attr` names. Runs that code: the user named it."""
    place, _, attribute = spec.rpartition(":")
    if not place or not attribute:
        raise InputError(f"a model is named package.module:attr or file.py:attr, got {spec!r}")
    path = Path(place) if place.endswith(".py") else None
    if path is not None and not path.is_file():
        near = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise InputError(f"no such model file: {path}{did_you_mean(path.name, near)}")
    try:
        module = importlib.import_module(place) if path is None else _of_file(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit in there would pass for a verdict
        if path is None and isinstance(error, ModuleNotFoundError):
            hint = "name a file as path/to/file.py:attr"
            raise InputError(f"cannot import {place!r} ({error}); {hint}") from error
        raise ModelError(f"{place} raised {type(error).__name__}: {first_line(error)}") from error
    if not hasattr(module, attribute):
        names = [
            n for n, v in vars(module).items() if not n.startswith("_") and not isinstance(v, ModuleType)
        ]
        hint = did_you_mean(attribute, names) or (f"; it has {listed(names, _NAMED)}" if names else "")
        raise InputError(f"{place} has no attribute {attribute!r}{hint}")
    return getattr(module, attribute)


def load_object(spec: str) -> Any:
    """What is named, before `as_model`."""
    named = load_attribute(spec)
    if isinstance(named, type):
        raise InputError(f"{spec} is a class: name an object that was made of it")
    return named


def _of_file(path: Path) -> ModuleType:
    name = f"{FILE_MODULE}{path.stem}"  # so that a file called json.py replaces nothing
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.append(folder)  # files beside it can be imported; at the end, so they replace nothing
    spec.loader.exec_module(module)
    return module
