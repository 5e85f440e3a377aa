"""A model named on the command line: `package.module:attr`, `file.py:attr`, or the file of a saved one."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from steincritic.cluster import FILE_MODULE
from steincritic.errors import InputError, ModelError, did_you_mean, first_line, listed
from steincritic.models.saved import load_saved

_NAMED = 6  # names of a file that a message tells


def load_attribute(spec: str) -> Any:
    """The object that `package.module:attr` or `file.py:attr` names. Runs that code: the user named it."""
    place, _, attribute = spec.rpartition(":")
    if not place or not attribute:
        raise InputError(f"a model is named package.module:attr or file.py:attr, got {spec!r}")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    if not hasattr(module, attribute):
        names = [
            n for n, v in vars(module).items() if not n.startswith("_") and not isinstance(v, ModuleType)
        ]
        hint = did_you_mean(attribute, names) or (f"; it has {listed(names, _NAMED)}" if names else "")
        raise InputError(f"{place} has no attribute {attribute!r}{hint}")
    return getattr(module, attribute)


def load_object(spec: str) -> Any:
    """What is named, before `as_model`; `FILE.safetensors` and `rbm:FILE` are saved energy models."""
    if spec.startswith("rbm:") or spec.endswith(".safetensors"):
        return load_saved(spec.removeprefix("rbm:"))
    named = load_attribute(spec)
    if isinstance(named, type):
        raise InputError(f"{spec} is a class: name an object that was made of it")
    return named


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"cannot import {name!r} ({error}); name a file as path/to/file.py:attr") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit in there would pass for a verdict
        raise _raised(name, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        near = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise InputError(f"no such model file: {path}{did_you_mean(path.name, near)}")
    name = f"{FILE_MODULE}{path.stem}"  # so that a file called json.py replaces nothing
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.append(folder)  # files beside it can be imported; at the end, so they replace nothing
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _raised(path, error) from error
    return module


def _raised(place: object, error: BaseException) -> ModelError:
    return ModelError(f"{place} raised {type(error).__name__}: {first_line(error)}")
