"""What surrounds every command: exit code, errors in one line, where its output goes, the folder it holds."""

import json
import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from steincritic.errors import DivergedError, InputError, WorkerError

if TYPE_CHECKING:
    from steincritic.cli.options import Options

FITS, REJECTED, ERROR = 0, 1, 2
INTERRUPTED, TERMINATED = 130, 143  # as shells have it
_PATIENCE = 1.0  # seconds from an interrupt to one that does not wait for the end
_SILENCE = 30.0  # seconds, at most, where no bar is shown
SCHEMA_VERSION = 2  # of the JSON objects; counts up when a field goes or changes its meaning
_BEGAN: ContextVar[float] = ContextVar("began", default=0.0)
_STDOUT: ContextVar[TextIO | None] = ContextVar("stdout", default=None)


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


class _Standing:
    """A standard stream that stands whatever happens to it.

    What its encoding lacks becomes a question mark. Where nobody reads any more, the rest goes nowhere; what
    went wrong otherwise, such as a full disk, is in `error`.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream or open(os.devnull, "w", encoding="utf-8")  # closed by >&-
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        """From now on the file is nowhere, so that the flush at the end of the process cannot fail either."""
        if not isinstance(error, BrokenPipeError):
            self.error = self.error or error
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def guarded(work: Callable[[Manner], int], manner: Manner) -> int:
    """Run, and turn what is the user's to mend into one line; exit code 2 whatever goes wrong.

    Python's own exit code for an exception is 1, which would pass for a rejected model.
    """
    began = _BEGAN.set(time.perf_counter())
    out, err = _Standing(sys.stdout), _Standing(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)), _terminable():
        try:
            code = work(manner)
        except BaseException as error:
            if progress := sys.modules.get("steincritic.training.progress"):
                progress.take_down()
            code = _answer(error, manner)
        out.flush()
        if out.error is not None:
            print(f"steincritic: standard output cannot be written: {out.error.strerror}", file=sys.stderr)
            code = ERROR
        err.flush()
    _BEGAN.reset(began)
    return code


def perform(command: "Options", manner: Manner) -> int:
    """Check the options of a command, then run it with its output where it belongs."""
    manner.follow(command)
    command.check()
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files; a backend that is not there would cost them
    with _output(manner), alone_in(command.folder), _signs_of_life(needed=not command.tells):
        try:
            return command()
        except SystemExit as exited:  # of a user's model, say; its code would pass for a verdict
            raise InputError(f"the program was ended from within, with exit code {exited.code}") from exited
        except KeyboardInterrupt as interrupt:
            interrupt.args = (command.after_interrupt,)
            raise


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
    from importlib.metadata import version

    versions = {name: version(name) for name in ("steincritic", "torch")}
    return {
        "schema_version": SCHEMA_VERSION,
        "versions": versions | {"python": platform.python_version()},
        **about,
        "seconds": round(time.perf_counter() - _BEGAN.get(), 3),
        **content,
    }


def shown(text: str) -> str:
    """Control characters as their codes, so that a terminal shows them and does not obey."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def prepare(folder: Path, file: Path | None = None) -> None:
    """The folder can be written or made, so that hours of work do not end where nothing can be written."""
    named = file or folder
    try:
        os.lstat(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # a name that is too long, say
        raise InputError(f"cannot write {named}: {getattr(error, 'strerror', error)}") from None
    place = next(p for p in (folder, *folder.absolute().parents) if os.path.lexists(p))
    if not place.is_dir():
        raise InputError(f"cannot write {named}: {place} is not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {named}: {place} is read-only; choose another --out")


@contextmanager
def alone_in(folder: Path | None) -> Iterator[None]:
    """Hold the folder against other processes; if nothing came of the work, it is not left behind empty."""
    if folder is None:
        yield
        return
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {folder}: {getattr(error, 'strerror', error)}") from None
    try:
        with _held(folder):
            yield
    finally:
        with suppress(OSError):  # one that holds something stays
            for place in missing:
                place.rmdir()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """A lock on the folder itself: it needs no file, and the system frees it even after kill -9."""
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems lock no folders
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another process writes into {folder}; wait for it, or choose another --out"
                ) from None
        yield
    finally:
        os.close(handle)


def _answer(error: BaseException, manner: Manner) -> int:
    """Say what went wrong; the exit code."""
    if isinstance(error, KeyboardInterrupt):
        print(f"steincritic: interrupted; {error or 'nothing was written'}", file=sys.stderr)
        return TERMINATED if isinstance(error, _Terminated) else INTERRUPTED
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
    return ERROR


def _line(error: BaseException) -> str | None:
    """One line about what is the user's to mend; none about a defect of ours."""
    text = " ".join(shown(str(error)).split())
    on_gpu = getattr(sys.modules.get("torch"), "OutOfMemoryError", MemoryError)
    if isinstance(error, (MemoryError, on_gpu)) or "allocate memory" in text:
        return f"out of memory ({text or 'of this machine'}); pass fewer rows or columns"
    if isinstance(error, ImportError):
        return f"a package that is needed cannot be imported: {text}"
    return text if isinstance(error, InputError | DivergedError | WorkerError | OSError) else None


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

    heard = [kind for kind in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(kind) != signal.SIG_IGN]
    handlers = {kind: signal.signal(kind, end) for kind in heard}
    try:
        yield
    finally:
        if first:
            os._exit(128 + first[0][0])
        for number, handler in handlers.items():
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


@contextmanager
def _output(manner: Manner) -> Iterator[None]:
    """Keep what others print, such as a user's model, off the standard output of --json; silence --quiet."""

    def warning(message: Warning | str, *_: object, **__: object) -> str:
        return f"steincritic: warning: {' '.join(shown(str(message)).split())}\n"

    with ExitStack() as stack:
        stack.callback(setattr, warnings, "formatwarning", warnings.formatwarning)
        warnings.formatwarning = warning
        if manner.json:
            stack.callback(_STDOUT.reset, _STDOUT.set(sys.stdout))
        if manner.quiet:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        elif manner.json:
            stack.enter_context(redirect_stdout(sys.stderr))
        yield
