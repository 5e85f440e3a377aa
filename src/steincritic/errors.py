"""The few error and warning kinds, and the checks done at the public doors."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_TABLES = (".npy", ".npz", ".csv", ".parquet")  # endings of data files


class InputError(ValueError):
    """Something the caller gave cannot be used; one line: what was expected, what came, the way out."""


class ModelError(InputError):
    """The model's score or sampler raised, or returned something that is no score or sample."""


class DivergedError(RuntimeError):
    """Training of a critic met a non-finite loss; nothing may be concluded from that critic."""


class WorkerError(RuntimeError):
    """A worker was lost; `index` is the item it worked on, where that is known."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class FileFormatError(InputError):
    """A file is not what its name or its place says."""


class DoubtfulWarning(UserWarning):
    """The result stands, but a reader should know why it may be weaker than it looks."""


def first_line(error: BaseException) -> str:
    """What an error of other code says, short enough for a message of ours."""
    return str(error).splitlines()[0].rstrip(" :.") if str(error) else "no message"


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def did_you_mean(name: str, known: Iterable[str], *, dashes: str = "") -> str:
    """A hint at the nearest name, to be put after what was wrong; empty where none is near."""
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {dashes}{near[0]}?" if near else ""


def missing_file(path: Path) -> str:
    """Why a path is not that of a data file."""
    if path.is_dir():
        return f"no such data file: {path} is a folder without parquet files; name a file in it"
    if path.exists():
        return f"no such data file: {path} is a pipe or a device; write its rows to a file"
    if not path.parent.is_dir():
        return f"no such data file: {path}; there is no folder {path.parent}"
    names = [p.name for p in path.parent.iterdir() if p.suffix.lower() in _TABLES]
    near = [n for n in names if Path(n).stem == path.stem] or get_close_matches(path.name, names)
    return f"no such data file: {path}" + (f"; did you mean {', '.join(near)}?" if near else "")


def check_level(level: float) -> None:
    if not (isinstance(level, int | float) and 0 < level < 1):
        raise InputError(f"level must lie in (0, 1), for example 0.05: got {level!r}")


def check_count(value: int, *, name: str, least: int = 1, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if value > most:
        raise InputError(f"{name} must be a whole number of at most {most}, got {value!r}")


def check_positive(value: float, *, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(f"{name} must be a positive finite number, got {value!r}")


def check_choice(value: str, *, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise InputError(f"{name} must be one of {', '.join(choices)}; got {value!r}{hint}")


def check_address(address: str) -> str:
    """The address of a scheduler with its protocol, which is tcp where none is named."""
    parts = re.fullmatch(r"((?:tcp|tls)://)?[^\s/]+:\d+", address)
    if parts is None or int(address.rpartition(":")[2]) > 65535:
        raise InputError(f"address is that of a Dask scheduler, such as tcp://10.0.0.5:8786; got {address!r}")
    return address if parts[1] else f"tcp://{address}"


def without(**ways: str) -> Callable[[F], F]:
    """Answer arguments that are gone from a function or a dataclass by what to do instead, for one release.

    >>> @without(before="leave it out; a bar shows how far the work is")
    ... def test(level=0.05): ...
    >>> test(before=print)
    Traceback (most recent call last):
    steincritic.errors.InputError: before= is gone: leave it out; a bar shows how far the work is
    """

    def decorate(function: Any) -> Any:
        called = vars(function)["__init__"] if isinstance(function, type) else function

        @wraps(called)
        def answer(*arguments: Any, **options: Any) -> Any:
            for name in ways.keys() & options.keys():
                raise InputError(f"{name}= is gone: {ways[name]}")
            return called(*arguments, **options)

        if not isinstance(function, type):
            return answer
        function.__init__ = answer  # type: ignore[misc]
        return function

    return decorate
