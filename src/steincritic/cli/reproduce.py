"""reproduce: the experiments of the paper and ours."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.markdown import Markdown

from steincritic.cli.options import FITS, Common, Device, device_named, prepare
from steincritic.engine import EngineName
from steincritic.errors import InputError
from steincritic.training.progress import ProgressBar
from steincritic_studies.pages import PAGES, present
from steincritic_studies.record import Record
from steincritic_studies.registry import EXPERIMENTS, Context

Name = Literal[
    "gm-1d",
    "gm-2d",
    "gm-10d",
    "gm-25d",
    "adaptive",
    "ksd-50d",
    "ksd-50d-easy",
    "ksd-bandwidth",
    "splits",
    "rbm-benchmark",
    "calibration",
    "streams",
    "planted-faults",
    "lazy-training",
    "posterior-checks",
    "image-models",
    "small-images",
    "learn-ebm",
    "auto-staging",
    "mnist",
]


@dataclass(frozen=True, kw_only=True)
class Reproduce(Common):
    """Run an experiment of the paper: record, table beside the paper's numbers, figures."""

    name: tyro.conf.Positional[Name]
    tiny: bool = False
    """A run of seconds that shows the machinery, not the numbers."""
    device: Device = "auto"
    seed: int = 0
    out: Path | None = None
    """Folder for record, table and figures; results/NAME by default (out/NAME when tiny)."""
    resume: Path | None = None
    """Checkpoint file: kept up to date while training, continued from if it is there."""
    engine: EngineName = "serial"
    """Where the jobs of a sweep run: serial (this process, right for a GPU), local (processes) or dask."""
    address: str | None = None
    """Of a Dask scheduler; without it a cluster is started on this machine."""
    redraw: bool = False
    """Draw table and figures again from the record in the folder, without running anything."""

    def __call__(self) -> int:
        folder = self.out or Path("out" if self.tiny else "results") / self.name
        path = folder / "record.json"
        if not self.redraw:
            prepare(folder)
            context = Context(
                device=device_named(self.device),
                seed=self.seed,
                callbacks=[ProgressBar(f"training, {self.name}")],
                checkpoint=self.resume,
                jobs=folder / "jobs",
                engine=self.engine,
                address=self.address,
            )
            EXPERIMENTS[self.name].record(context, tiny=self.tiny).save(path)
        record = Record.load(path)
        if record.name != self.name:
            raise InputError(f"{path} is a record of {record.name!r}, not of {self.name!r}")
        files = present(record, folder)
        console = Console()
        console.print(Markdown(PAGES[self.name].table(record)))
        console.print("Files:", *(str(file) for file in (path, *files)), sep="\n  ")
        return FITS
