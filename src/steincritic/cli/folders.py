"""The folder that a command writes into: it can be written, nobody else writes there, none is left empty."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from steincritic.errors import InputError


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
