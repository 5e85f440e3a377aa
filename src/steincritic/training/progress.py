"""Callbacks that watch training; a bar on a terminal, silence elsewhere."""

import sys
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor


class Callback(Protocol):
    """Called after every epoch with the epoch's row of the history; may raise to stop training."""

    def __call__(self, epoch: int, epochs: int, row: Mapping[str, Tensor]) -> None: ...


class ProgressBar:
    """Epochs done and time left, on standard error when it is a terminal."""

    def __init__(self, title: str = "training") -> None:
        self._title = title
        self._visible = sys.stderr.isatty()
        self._bar: object | None = None

    def __call__(self, epoch: int, epochs: int, row: Mapping[str, Tensor]) -> None:
        if not self._visible:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if not isinstance(self._bar, Progress):
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total} epochs"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(self._title, total=epochs)
            self._bar.start()
        self._bar.update(self._task, completed=epoch + 1)
        if epoch + 1 == epochs:
            self._bar.stop()
