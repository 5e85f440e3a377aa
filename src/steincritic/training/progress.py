"""Callbacks that watch training; a bar on a terminal, silence elsewhere unless somebody asks."""

import sys
import time
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
        self._done = 0
        self._first: tuple[int, float] | None = None  # the first move, which may be that of an earlier run
        self._progress: Progress | None = None

    def __enter__(self) -> "StepBar":
        _under_way.append(self)  # before it starts, as an interrupt may come at any time
        if sys.stderr.isatty() and self._total > 1:
            self._progress = _bar(self._unit)
            self._task = self._progress.add_task(self._title, total=self._total)
            self._progress.start()
        return self

    def advance(self, steps: int) -> None:
        self.move(self._done + steps)

    def move(self, done: int) -> None:
        """So many steps are done, whoever did them."""
        self._first = self._first or (done, time.monotonic())
        self._done = done
        if self._progress is not None:
            self._progress.update(self._task, completed=done)

    @property
    def standing(self) -> str:
        """How far it is, and how long the rest takes at the pace since the first move."""
        text = f"{self._title}: {self._done} of {self._total} {self._unit}"
        done, when = self._first or (0, 0.0)
        if self._done <= done:
            return text
        seconds = (time.monotonic() - when) / (self._done - done) * (self._total - self._done)
        return f"{text}, about {seconds:.0f} s left of this part"

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
        if self in _under_way:
            _under_way.remove(self)


class ProgressBar:
    """Epochs done and time left: a bar for training."""

    def __init__(self, title: str = "training") -> None:
        self._title = title
        self._bar: StepBar | None = None

    def __call__(self, epoch: int, epochs: int, row: Mapping[str, Tensor]) -> None:
        if self._bar is None:
            self._bar = StepBar(self._title, epochs, unit="epochs").__enter__()
        self._bar.move(epoch + 1)
        if epoch + 1 == epochs:
            self._bar.__exit__()


_under_way: list[StepBar] = []


def standing() -> str:
    """How far the innermost work is; empty where nobody counts."""
    return _under_way[-1].standing if _under_way else ""


def take_down() -> None:
    """Stop the bars of work that ended before its time, so that the terminal has its cursor back."""
    for bar in reversed(_under_way.copy()):
        bar.__exit__()


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
