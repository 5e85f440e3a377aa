"""What all studies share: a frozen configuration in, a record out, and a table and figures from the record.

A study is found by its name in the entry-point group `steincritic.studies`; any installed package can add
its own there.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steincritic.engine import EngineName
from steincritic.errors import InputError
from steincritic.files import write_atomically
from steincritic.training.progress import Callback, ProgressBar
from steincritic_studies.record import Record, environment
from steincritic_studies.sweep import Job, Result, run_sweep


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a study runs and who watches."""

    device: torch.device
    seed: int = 0
    callbacks: Sequence[Callback] = ()
    checkpoint: Path | None = None
    jobs: Path = Path("out/jobs")  # results of the jobs of a sweep
    engine: EngineName = "serial"
    address: str | None = None

    def sweep(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """What the function makes of each job, where this study runs."""
        return run_sweep(function, jobs, folder=self.jobs, engine=self.engine, address=self.address)


@dataclass(frozen=True)
class Outcome:
    results: Mapping[str, Any]
    seconds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Reproduced:
    """What a study leaves for its reader."""

    table: str  # Markdown
    files: list[Path]  # record, table and figures


@dataclass(frozen=True, kw_only=True)
class Study:
    """A named study: its full configuration, a tiny one for tests, how to run either and how to show it.

    Args:
        resumes: whether the run keeps a checkpoint of its training.
        run: takes a configuration and a context.
        table: the table in Markdown, from a record alone.
        figures: draws the figures of a record into a folder, and says which files they are.
    """

    name: str
    title: str
    takes: str  # how long the full run is, and where
    full: Any
    tiny: Any
    run: Callable[[Any, Context], Outcome]
    table: Callable[[Record], str]
    figures: Callable[[Record, Path], list[Path]]
    resumes: bool = False

    def reproduce(
        self,
        folder: Path,
        *,
        tiny: bool,
        device: torch.device,
        seed: int,
        resume: Path | None,
        engine: EngineName,
        address: str | None,
        redraw: bool,
    ) -> Reproduced:
        """Run, unless the record in the folder is only to be drawn again; leave record, table and figures.

        Args:
            resume: a checkpoint, kept up to date while training and continued from if it is there.
            address: of a Dask scheduler.
        """
        path = folder / "record.json"
        if resume is not None and not self.resumes:
            raise InputError(
                f"{self.name} keeps no checkpoint, so there is nothing for --resume; leave it out (jobs of a "
                f"sweep stay in {folder / 'jobs'} and are never run again)"
            )
        if not redraw:
            context = Context(
                device=device,
                seed=seed,
                callbacks=[ProgressBar(f"training, {self.name}")],
                checkpoint=resume,
                jobs=folder / "jobs",
                engine=engine,
                address=address,
            )
            self.record(context, tiny=tiny).save(path)
        record = Record.load(path)
        if record.name != self.name:
            raise InputError(f"{path} is a record of {record.name!r}, not of {self.name!r}")
        shown = self.show(record, folder)
        return Reproduced(table=shown.table, files=[path, *shown.files])

    def record(self, context: Context, *, tiny: bool = False) -> Record:
        config = self.tiny if tiny else self.full
        outcome = self.run(config, context)
        return Record(
            name=self.name,
            command=f"steincritic reproduce {self.name}" + (" --tiny" if tiny else ""),
            config={"type": type(config).__name__, **vars(config)},
            seed=context.seed,
            results=outcome.results,
            seconds=outcome.seconds,
            environment=environment(context.device),
        )

    def show(self, record: Record, folder: Path) -> Reproduced:
        """Write the table and the figures of a record."""
        text, path = self.table(record), folder / "table.md"
        write_atomically(path, text.encode())
        return Reproduced(table=text, files=[path, *self.figures(record, folder)])


class Clock:
    """Seconds by part, the device's work waited for."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._last = device, time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds[name], self._last = now - self._last, now
