"""A study: a frozen configuration in, a record out, and a table and figures from the record alone.

It is found by its name in `studies.NAMES`. What studies of rates share stands in `cells.py`, what tables and
figures share in `show.py`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from steincritic import InputError
from steincritic.engine import EngineName
from steincritic.files import write_atomically
from steincritic.training import Callback
from studies.record import Record, environment
from studies.sweep import Job, Result, run_sweep


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a study runs and who watches."""

    device: torch.device
    seed: int = 0
    callbacks: Sequence[Callback] = ()
    jobs: Path = Path("out/jobs")  # results of the jobs of a sweep
    engine: EngineName = "serial"
    address: str | None = None

    def sweep(self, function: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """What the function makes of each job, where this study runs."""
        return run_sweep(function, jobs, folder=self.jobs, engine=self.engine, address=self.address)


@dataclass(frozen=True)
class Outcome:
    """Results, and seconds by part; those of the whole run are measured where no part is of kept jobs.

    Args:
        hardware: what the jobs ran on, as they say themselves; that of the run without any.
    """

    results: Mapping[str, Any]
    seconds: Mapping[str, float] = field(default_factory=dict)
    hardware: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """A named study: its full configuration, a tiny one for tests, how to run either and how to show it.

    Args:
        run: takes a configuration and a context.
        table: the table in Markdown, from a record alone.
        figures: draws the figures of a record into a folder, and says which files they are; where there are
            none, the table says it all.
    """

    name: str
    title: str
    takes: str  # how long the full run is, and where
    full: Any
    tiny: Any
    run: Callable[[Any, Context], Outcome]
    table: Callable[[Record], str]
    figures: Callable[[Record, Path], list[Path]] = lambda record, folder: []

    def reproduce(self, folder: Path, context: Context | None, *, tiny: bool = False) -> list[Path]:
        """Leave record, table and figures; without a context, draw the record that is in the folder again."""
        path = folder / "record.json"
        if context is not None:
            self.record(context, tiny=tiny).save(path)
        record = Record.load(path)
        if record.name != self.name:
            raise InputError(f"{path} is a record of {record.name!r}, not of {self.name!r}")
        return [path, *self.show(record, folder)]

    def record(self, context: Context, *, tiny: bool = False) -> Record:
        config, start = self.tiny if tiny else self.full, time.perf_counter()
        outcome = self.run(config, context)
        total = {} if outcome.hardware else {"total": time.perf_counter() - start}
        where = environment(context.device)
        return Record(
            name=self.name,
            command=f"python -m studies {self.name}" + (" --tiny" if tiny else ""),
            config={"type": type(config).__name__, **vars(config)},
            seed=context.seed,
            results=outcome.results,
            seconds={**total, **outcome.seconds},
            environment=where | {"device": ", ".join(outcome.hardware) or where["device"]},
        )

    def show(self, record: Record, folder: Path) -> list[Path]:
        """Write the table and the figures of a record."""
        path = folder / "table.md"
        write_atomically(path, self.table(record).encode())
        return [path, *self.figures(record, folder)]
