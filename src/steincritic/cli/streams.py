"""Text on its way out: nothing that is printed may cost a result, or command the terminal."""

import os
import sys
from contextlib import suppress
from typing import Any, TextIO


class Standing:
    """A standard stream that stands whatever happens to it.

    What its encoding lacks becomes a question mark. Where nobody reads any more, the rest goes nowhere; what
    went wrong otherwise, such as a full disk, is in `lost`.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream or open(os.devnull, "w", encoding="utf-8")  # closed by >&-
        self.lost: OSError | None = None

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
            self.lost = self.lost or error
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def shown(text: str) -> str:
    """Control characters as their codes, so that a terminal shows them and does not obey."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def on_terminal() -> bool:
    return sys.stdout.isatty()
