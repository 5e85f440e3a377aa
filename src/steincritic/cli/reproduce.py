"""reproduce: a study of the paper or of the library, run or drawn again from its record.

Studies are found by entry points, so this file knows none of them, and other packages can bring theirs.
"""

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import tyro

from steincritic.cli.guard import FITS, described, print_json
from steincritic.cli.options import (
    AsJson,
    Common,
    Engine,
    OnDevice,
    OptionalPath,
    OptionalText,
    Seeded,
    device_named,
    prepare,
)
from steincritic.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import torch

GROUP = "steincritic.studies"


class Reproduced(Protocol):
    """What a study leaves: a table in Markdown, and files."""

    @property
    def table(self) -> str: ...
    @property
    def files(self) -> list[Path]: ...


class Study(Protocol):
    """What an entry point of the group gives."""

    def reproduce(
        self,
        folder: Path,
        *,
        tiny: bool,
        device: "torch.device",
        seed: int,
        resume: Path | None,
        engine: Engine,
        address: str | None,
        redraw: bool,
    ) -> Reproduced: ...


@dataclass(frozen=True, kw_only=True)
class Reproduce(Common, AsJson, OnDevice, Seeded):
    """Run a study of the paper: record, table beside the paper's numbers, figures."""

    name: tyro.conf.Positional[str]
    """Of an installed study, for example gm-2d; an unknown name lists them all."""
    tiny: bool = False
    """A run of seconds that shows the machinery, not the numbers."""
    out: OptionalPath = None
    """Folder for record, table and figures; results/NAME by default (out/NAME when tiny)."""
    resume: OptionalPath = None
    """Checkpoint file: kept up to date while training, continued from if it is there."""
    engine: Engine = "serial"
    """Where the jobs of a sweep run: serial (this process, right for a GPU), local (processes) or dask."""
    address: OptionalText = None
    """Of a Dask scheduler; without it a cluster is started on this machine."""
    redraw: bool = False
    """Draw table and figures again from the record in the folder, without running anything."""

    def check(self) -> None:
        super().check()
        if self.address is not None and self.engine != "dask":
            raise InputError(f"--address is for --engine dask, got --engine {self.engine}")
        study_point(self.name)

    def __call__(self) -> int:
        from rich.console import Console
        from rich.markdown import Markdown

        study = cast(Study, study_point(self.name).load())
        folder = self.out or Path("out" if self.tiny else "results") / self.name
        if not self.redraw:
            prepare(folder)
        found = study.reproduce(
            folder,
            tiny=self.tiny,
            device=device_named("cpu" if self.redraw else self.device),
            seed=self.seed,
            resume=self.resume,
            engine=self.engine,
            address=self.address,
            redraw=self.redraw,
        )
        if self.json:
            files = [str(file) for file in found.files]
            print_json(
                described({"table": found.table, "files": files}, command="reproduce", study=self.name)
            )
            return FITS
        console = Console()
        console.print(Markdown(found.table))
        console.print("Files:", *(str(file) for file in found.files), sep="\n  ")
        return FITS


def study_point(name: str) -> EntryPoint:
    """Where an installed package keeps the study of this name."""
    known = {point.name: point for point in entry_points(group=GROUP)}
    if not known:
        raise InputError(
            "no studies are installed: they are found by the entry points of an installed package, so pip "
            "install steincritic (in a source tree: pip install -e .)"
        )
    if name not in known:
        raise InputError(
            f"no study {name!r}{did_you_mean(name, known)} (the studies: {', '.join(sorted(known))})"
        )
    return known[name]
