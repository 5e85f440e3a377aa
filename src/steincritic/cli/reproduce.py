"""reproduce: a study of the paper or of the library, run or drawn again from its record.

Studies are found by entry points, so this file knows none of them, and other packages can bring theirs.
"""

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import tyro

from steincritic.cli.guard import FITS, described
from steincritic.cli.options import (
    Advanced,
    AsJson,
    Common,
    Engine,
    OnDevice,
    Seeded,
    check_writable,
    device_named,
)
from steincritic.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import torch

GROUP = "steincritic.studies"
_LIST = "list"


class Reproduced(Protocol):
    """What a study leaves: a table in Markdown, and files."""

    @property
    def table(self) -> str: ...
    @property
    def files(self) -> list[Path]: ...


class Study(Protocol):
    """What an entry point of the group gives."""

    @property
    def title(self) -> str: ...
    @property
    def takes(self) -> str:
        """How long, and where."""

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
    """Of an installed study, for example gm-2d; list shows them all, with how long they take."""
    tiny: bool = False
    """A run of seconds that shows the machinery, not the numbers."""
    out: Path | None = None
    """Folder for record, table and figures; results/NAME by default (out/NAME when tiny)."""
    resume: Path | None = None
    """Checkpoint file: kept up to date while training, continued from if it is there."""
    engine: Advanced[Engine] = "serial"
    """Where the jobs of a sweep run: serial (this process, right for a GPU), local (processes) or dask."""
    address: Advanced[str | None] = None
    """Of a Dask scheduler; without it a cluster is started on this machine."""
    redraw: bool = False
    """Draw table and figures again from the record in the folder, without running anything."""
    overwrite: bool = False
    """Replace a record that is there."""

    @property
    def folder(self) -> Path | None:
        return None if self.name == _LIST else self._folder

    @property
    def _folder(self) -> Path:
        return self.out or Path("out" if self.tiny else "results") / self.name

    @property
    def kept(self) -> str:
        if self.resume is not None and self.resume.exists():
            return f"{self.resume} is kept: the same command goes on from there"
        if (self._folder / "jobs").exists():
            return f"jobs that were done stay in {self._folder / 'jobs'}: the same command goes on from there"
        return super().kept

    def check(self) -> None:
        super().check()
        if self.address is not None and self.engine != "dask":
            raise InputError(f"--address is for --engine dask, got --engine {self.engine}")
        if self.resume is not None:
            check_writable(self.resume)
        if self.name == _LIST:
            return
        study_point(self.name)
        record = self._folder / "record.json"
        if record.exists() and not (self.redraw or self.overwrite):
            raise InputError(
                f"{record} is there already: draw it with --redraw, choose another --out, or pass --overwrite"
            )

    def __call__(self) -> int:
        from steincritic.cli.printing import print_files, print_markdown

        if self.name == _LIST:
            return self._list()
        study = cast(Study, study_point(self.name).load())
        if not (self.tiny or self.redraw):
            print(f"steincritic: {self.name} takes {study.takes}", file=sys.stderr)
        if self.resume is not None and self.resume.exists():
            print(f"steincritic: going on from {self.resume}", file=sys.stderr)
        found = study.reproduce(
            self._folder,
            tiny=self.tiny,
            device=device_named("cpu" if self.redraw else self.device),
            seed=self.seed,
            resume=self.resume,
            engine=self.engine,
            address=self.address,
            redraw=self.redraw,
        )

        def show() -> None:
            print_markdown(found.table)
            print_files(found.files)

        content = {"table": found.table, "files": [str(file) for file in found.files]}
        self.tell(described(content, command="reproduce", study=self.name), show)
        return FITS

    def _list(self) -> int:
        from steincritic.cli.printing import print_table

        studies = {point.name: cast(Study, point.load()) for point in entry_points(group=GROUP)}
        rows = [(name, study.title, study.takes) for name, study in sorted(studies.items())]
        content = described({"studies": rows}, command="reproduce")
        self.tell(content, lambda: print_table(("study", "what it is", "takes"), rows, title="Studies"))
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
