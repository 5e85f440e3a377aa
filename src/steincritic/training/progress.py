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


class ProgressBar:
    """Epochs done and time left, on standard error when it is a terminal."""

    def __init__(self, title: str = "training") -> None:
        self._title = title
        self._visible = sys.stderr.isatty()
        self._bar: Progress | None = None

    def __call__(self, epoch: int, epochs: int, row: Mapping[str, Tensor]) -> None:
        if not self._visible:
            return
        if self._bar is None:
            self._bar = _bar("epochs")
            self._task = self._bar.add_task(self._title, total=epochs)
            self._bar.start()
        self._bar.update(self._task, completed=epoch + 1)
        if epoch + 1 == epochs:
            self._bar.stop()


class StepBar:
    """Steps of long work done and time left, on standard error when it is a terminal."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total = title, total
        self._progress: Progress | None = None

    def __enter__(self) -> "StepBar":
        if sys.stderr.isatty() and self._total > 1:
            self._progress = _bar("steps")
            self._task = self._progress.add_task(self._title, total=self._total)
            self._progress.start()
        return self

    def advance(self, steps: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, steps)

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


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
