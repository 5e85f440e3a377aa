"""reproduce: a study of the paper or of the library, run or drawn again from its record.

Studies are found by entry points, so this file knows none of them, and other packages can bring theirs.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

import tyro

from steincritic.cli.options import FITS, Common, Device, device_named, prepare
from steincritic.errors import InputError

if TYPE_CHECKING:
    import torch

GROUP = "steincritic.studies"
Engine = Literal["serial", "local", "dask"]


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
class Reproduce(Common):
    """Run a study of the paper: record, table beside the paper's numbers, figures."""

    name: tyro.conf.Positional[str]
    """Of an installed study, for example gm-2d; an unknown name lists them all."""
    tiny: bool = False
    """A run of seconds that shows the machinery, not the numbers."""
    device: Device = "auto"
    seed: int = 0
    out: Path | None = None
    """Folder for record, table and figures; results/NAME by default (out/NAME when tiny)."""
    resume: Path | None = None
    """Checkpoint file: kept up to date while training, continued from if it is there."""
    engine: Engine = "serial"
    """Where the jobs of a sweep run: serial (this process, right for a GPU), local (processes) or dask."""
    address: str | None = None
    """Of a Dask scheduler; without it a cluster is started on this machine."""
    redraw: bool = False
    """Draw table and figures again from the record in the folder, without running anything."""

    def __call__(self) -> int:
        from rich.console import Console
        from rich.markdown import Markdown

        study = study_named(self.name)
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
        console = Console()
        console.print(Markdown(found.table))
        console.print("Files:", *(str(file) for file in found.files), sep="\n  ")
        return FITS


def study_named(name: str) -> Study:
    """The study that an installed package registers under this name."""
    known = {point.name: point for point in entry_points(group=GROUP)}
    if not known:
        raise InputError(
            "no studies are installed: they are found by the entry points of an installed package, so pip "
            "install steincritic (in a source tree: pip install -e .)"
        )
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise InputError(f"no study {name!r}{hint}; the studies are {', '.join(sorted(known))}")
    return cast(Study, known[name].load())
