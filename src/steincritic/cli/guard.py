"""What surrounds every command: its exit code, errors in one line, and where its output goes."""

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from steincritic.errors import DivergedError, InputError

FITS, REJECTED, ERROR = 0, 1, 2
INTERRUPTED = 130  # as shells have it
SCHEMA_VERSION = 1  # of the JSON objects; counts up when a name in them changes its meaning


class Command(Protocol):
    """Options that can be checked, and the work."""

    def check(self) -> None:
        """Refuse what can be seen to be wrong without torch."""

    def __call__(self) -> int: ...


@dataclass
class Manner:
    """How the answer is given."""

    json: bool = False
    quiet: bool = False
    traceback: bool = False

    @classmethod
    def of(cls, arguments: list[str]) -> "Manner":
        """As far as it can be seen before the arguments are parsed."""
        return cls("--json" in arguments, "--quiet" in arguments, "--traceback" in arguments)

    def follow(self, command: object) -> None:
        """Take over the command's own options, perhaps from a settings file."""
        for name in ("json", "quiet", "traceback"):
            setattr(self, name, getattr(command, name, False))


def perform(command: Command, manner: Manner) -> int:
    """Check the options of a command, then run it with its output where it belongs."""
    manner.follow(command)
    command.check()
    with _output(manner):
        try:
            return command()
        except SystemExit as exited:  # of a user's model, say; its code would pass for a verdict
            raise InputError(f"the program was ended from within, with exit code {exited.code}") from exited


def guarded(work: Callable[[Manner], int], manner: Manner) -> int:
    """Run, and turn what is the user's to mend into one line; exit code 2 whatever goes wrong.

    Python's own exit code for an exception is 1, which would pass for a rejected model.
    """
    began = _BEGAN.set(time.perf_counter())
    try:
        return work(manner)
    except KeyboardInterrupt as interrupt:
        _take_down_bars()
        way_on = str(interrupt) or "nothing half-written is left behind"
        print(f"steincritic: interrupted; {way_on}", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        _take_down_bars()
        line = " ".join(str(error).split())
        if manner.traceback or not isinstance(error, _users()):
            import traceback

            traceback.print_exc()
        else:
            print(f"steincritic: {line}", file=sys.stderr)
        if manner.json:
            about = {"type": type(error).__name__, "message": line or type(error).__name__}
            print_json({"schema_version": SCHEMA_VERSION, "error": about})
        return ERROR
    finally:
        _BEGAN.reset(began)


def print_json(content: dict[str, Any]) -> None:
    """One object on standard output, which --json keeps free of everything else."""
    print(json.dumps(content), file=_STDOUT.get() or sys.stdout, flush=True)


def described(content: dict[str, Any], **about: Any) -> dict[str, Any]:
    """A result with its context: format, versions, what it is about, seconds since the start."""
    return {
        "schema_version": SCHEMA_VERSION,
        "versions": _versions(),
        **about,
        "seconds": round(time.perf_counter() - _BEGAN.get(), 3),
        **content,
    }


_BEGAN: ContextVar[float] = ContextVar("began", default=0.0)
_STDOUT: ContextVar[TextIO | None] = ContextVar("stdout", default=None)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    import steincritic

    return {
        "steincritic": steincritic.__version__,
        "torch": version("torch"),
        "python": platform.python_version(),
    }


def _users() -> tuple[type[BaseException], ...]:
    """Errors that are the user's to mend. Only a loaded torch can run out of memory."""
    torch = sys.modules.get("torch")
    return (InputError, DivergedError, OSError, *([torch.OutOfMemoryError] if torch else []))


def _take_down_bars() -> None:
    progress = sys.modules.get("steincritic.training.progress")
    if progress is not None:
        progress.take_down()


@contextmanager
def _output(manner: Manner) -> Iterator[None]:
    """Keep what others print, such as a user's model, off the standard output of --json; silence --quiet."""
    with ExitStack() as stack:
        if manner.json:
            token = _STDOUT.set(sys.stdout)
            stack.callback(_STDOUT.reset, token)
        if manner.quiet:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        elif manner.json:
            stack.enter_context(redirect_stdout(sys.stderr))
        yield
