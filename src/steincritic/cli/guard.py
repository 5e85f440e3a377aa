"""What surrounds every command: its exit code, errors in one line, and where its output goes."""

import json
import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO, cast

from steincritic.cli.folders import alone_in
from steincritic.cli.streams import Standing, shown
from steincritic.errors import DivergedError, InputError, WorkerError

if TYPE_CHECKING:
    from steincritic.cli.options import Options

FITS, REJECTED, ERROR = 0, 1, 2
INTERRUPTED, TERMINATED = 130, 143  # as shells have it
_PATIENCE = 1.0  # seconds from an interrupt to one that does not wait for the end
_SILENCE = 30.0  # seconds, at most, where no bar is shown
SCHEMA_VERSION = 1  # of the JSON objects; counts up when a name in them changes its meaning


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


class LateError(InputError):
    """The result is there, but something after it failed."""

    def __init__(self, error: Exception, content: dict[str, Any]) -> None:
        p = f" (p = {content['pvalue']:.3g})" if "pvalue" in content else ""
        super().__init__(f"the result stands{p}, but what follows it failed: {_line(error) or repr(error)}")
        self.content = content


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def perform(command: "Options", manner: Manner) -> int:
    """Check the options of a command, then run it with its output where it belongs."""
    manner.follow(command)
    command.check()
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files; a backend that is not there would cost them
    with _output(manner), alone_in(command.folder), _signs_of_life(needed=not command.tells):
        try:
            with command.place():
                return command()
        except SystemExit as exited:  # of a user's model, say; its code would pass for a verdict
            raise InputError(f"the program was ended from within, with exit code {exited.code}") from exited
        except KeyboardInterrupt as interrupt:
            interrupt.args = (command.kept,)
            raise


def guarded(work: Callable[[Manner], int], manner: Manner) -> int:
    """Run, and turn what is the user's to mend into one line; exit code 2 whatever goes wrong.

    Python's own exit code for an exception is 1, which would pass for a rejected model.
    """
    began = _BEGAN.set(time.perf_counter())
    out, err = Standing(sys.stdout), Standing(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)), _terminable():
        try:
            code = work(manner)
        except KeyboardInterrupt as interrupt:
            _take_down_bars()
            print(f"steincritic: interrupted; {interrupt or 'nothing was written'}", file=sys.stderr)
            code = TERMINATED if isinstance(interrupt, _Terminated) else INTERRUPTED
        except BaseException as error:
            _take_down_bars()
            _tell(error, manner)
            code = ERROR
        out.flush()
        if out.lost is not None:
            print(f"steincritic: standard output cannot be written: {out.lost.strerror}", file=sys.stderr)
            code = ERROR
        err.flush()
    _BEGAN.reset(began)
    return code


@contextmanager
def after(content: dict[str, Any]) -> Iterator[None]:
    """What comes after a result: where it fails, the result goes with the error."""
    try:
        yield
    except Exception as error:
        raise LateError(error, content) from error


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


def _tell(error: BaseException, manner: Manner) -> None:
    line = _line(error)
    if manner.traceback or line is None:
        import traceback

        traceback.print_exception(error)
    else:
        print(f"steincritic: {line}", file=sys.stderr)
    if manner.json:
        kind = type(error).__name__
        about = {"type": kind, "message": line or " ".join(str(error).split()) or kind}
        content = error.content if isinstance(error, LateError) else {"schema_version": SCHEMA_VERSION}
        print_json(content | {"error": about})


def _line(error: BaseException) -> str | None:
    """One line about what is the user's to mend; none about a defect of ours."""
    said = " ".join(shown(str(error)).split())
    on_gpu = getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)
    if isinstance(error, (MemoryError, on_gpu)) or "allocate memory" in said:
        return f"out of memory ({said or 'of this machine'}); pass fewer rows or columns"
    if isinstance(error, ImportError):
        return f"a package that is needed cannot be imported: {said}"
    return said if isinstance(error, InputError | DivergedError | WorkerError | OSError) else None


def _warning(message: Warning | str, *_: object, **__: object) -> str:
    return f"steincritic: warning: {' '.join(shown(str(message)).split())}\n"


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM is an interrupt in here, as Ctrl-C is. Only the main thread can be told of signals.

    A second signal does not disturb the end that the first began, or after a while ends the process at once.
    Where there was a signal the process ends here: one that comes while Python takes itself apart kills it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first: list[tuple[int, float]] = []

    def end(number: int, _: object) -> None:
        if not first:
            first.append((number, time.monotonic()))
            raise _Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if time.monotonic() - first[0][1] > _PATIENCE:
            os._exit(128 + first[0][0])

    heard = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, end) for each in heard}
    try:
        yield
    finally:
        if first:
            os._exit(128 + first[0][0])
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signs_of_life(*, needed: bool) -> Iterator[None]:
    """How far the work is, every half minute, where standard error is no terminal that shows a bar."""
    ended = threading.Event()

    def speak() -> None:
        while not ended.wait(_SILENCE):
            progress = sys.modules.get("steincritic.training.progress")
            far = progress.standing() if progress is not None else ""
            seconds = time.perf_counter() - start
            print(f"steincritic: {far or 'at work'} ({seconds:.0f} s so far)", file=sys.stderr, flush=True)

    start, thread = time.perf_counter(), threading.Thread(target=speak, daemon=True)
    if needed and not sys.stderr.isatty():
        thread.start()
    try:
        yield
    finally:
        ended.set()


def _take_down_bars() -> None:
    progress = sys.modules.get("steincritic.training.progress")
    if progress is not None:
        progress.take_down()


@contextmanager
def _output(manner: Manner) -> Iterator[None]:
    """Keep what others print, such as a user's model, off the standard output of --json; silence --quiet."""
    with ExitStack() as stack:
        stack.callback(setattr, warnings, "formatwarning", warnings.formatwarning)
        warnings.formatwarning = _warning
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
