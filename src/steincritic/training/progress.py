"""Callbacks that watch training; a bar on a terminal, silence elsewhere."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from rich.progress import Progress


class Callback(Protocol):
    """Called after every epoch with the epoch's row of the history; may raise to stop training."""

    def __call__(self, epoch: int, epochs: int, row: Mapping[str, Tensor]) -> None: ...


class StepBar:
    """Steps of long work done and time left, on standard error when it is a terminal."""

    def __init__(self, title: str, total: int, *, unit: str = "steps") -> None:
        self._title, self._total, self._unit = title, total, unit
        self._progress: Progress | None = None

    def __enter__(self) -> "StepBar":
        if sys.stderr.isatty() and self._total > 1:
            self._progress = _bar(self._unit)
            self._task = self._progress.add_task(self._title, total=self._total)
            _shown.append(self._progress)  # before it starts, as an interrupt may come at any time
            self._progress.start()
        return self

    def advance(self, steps: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, steps)

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            _end(self._progress)


class ProgressBar:
    """Epochs done and time left: a bar for training."""

    def __init__(self, title: str = "training") -> None:
        self._title = title
        self._bar: StepBar | None = None

    def __call__(self, epoch: int, epochs: int, row: Mapping[str, Tensor]) -> None:
        if self._bar is None:
            self._bar, self._done = StepBar(self._title, epochs, unit="epochs").__enter__(), 0
        self._bar.advance(epoch + 1 - self._done)
        self._done = epoch + 1
        if self._done == epochs:
            self._bar.__exit__()


_shown: "list[Progress]" = []


def take_down() -> None:
    """Stop the bars of work that ended before its time, so that the terminal has its cursor back."""
    for bar in list(_shown):
        _end(bar)


def _end(bar: "Progress") -> None:
    bar.stop()
    if bar in _shown:
        _shown.remove(bar)


def _bar(unit: str) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed}}/{{task.total}} {unit}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
