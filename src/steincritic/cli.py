"""The command line: arguments to configurations, one call, exit code 0, 1 or 2."""

import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from steincritic.data import problem
from steincritic.data.problems import PROBLEM_NAMES
from steincritic.engine import EngineName
from steincritic.errors import DivergedError, InputError
from steincritic.experiments import EXPERIMENTS, Context
from steincritic.files import write_atomically
from steincritic.gof import GofResult, gof_test
from steincritic.models.base import ScoreModel
from steincritic.models.spec import load_model
from steincritic.records import Record
from steincritic.report import PAGES, present
from steincritic.training.progress import ProgressBar

FITS, REJECTED, ERROR = 0, 1, 2
Device = Annotated[str, tyro.conf.arg(help="cpu, cuda, or auto: a GPU where there is one")]
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
]


@dataclass(frozen=True, kw_only=True)
class Common:
    traceback: bool = False
    """Show where an error arose instead of one line."""


@dataclass(frozen=True, kw_only=True)
class Check(Common):
    """Test whether data could come from a model. Exit code 0: not rejected, 1: rejected, 2: error."""

    data: tyro.conf.Positional[Path]
    """npy, npz, csv or parquet, one row a point."""
    model: str
    """package.module:attr, file.py:attr, or a built-in name such as gm-2d."""
    method: str = "auto"
    level: float = 0.05
    seed: int = 0
    out: Path | None = None
    """Folder for result.json."""
    json: bool = False
    """Print one JSON object on standard output and nothing else."""

    def __call__(self) -> int:
        result = gof_test(_model(self.model), self.data, self.method, self.level, self.seed)
        if self.out is not None:
            _write_json(result, self.out / "result.json")
        if self.json:
            print(json.dumps(result.to_dict()))
        else:
            _print_verdict(result, title=f"{self.data.name} against {self.model}")
        return REJECTED if result.rejected else FITS


@dataclass(frozen=True, kw_only=True)
class Demo(Common):
    """Test the 2-D mixture of the paper: data from p against the model q, and q's own draws against q."""

    out: Path = Path("out/demo")
    """Folder for the results."""
    n: int = 300
    seed: int = 0

    def __call__(self) -> int:
        _prepare(self.out)
        pair = problem("gm-2d")
        for name, title, x in (
            ("data", "Data from p: the model misses a correlation", pair.data.sample(self.n, seed=1)),
            ("control", "Control: the model's own draws", pair.model.sample(self.n, seed=2)),
        ):
            result = gof_test(pair.model, x, seed=self.seed)
            _print_verdict(result, title=title)
            _write_json(result, self.out / f"{name}.json")
            _write_null_figure(result, self.out / f"{name}.png")
        Console().print(f"Files: {self.out}/data.json, data.png, control.json, control.png")
        return FITS


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
            _prepare(folder)
            context = Context(
                device=_device(self.device),
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


Command = (
    Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `steincritic` command."""
    command: Callable[[], int] = tyro.cli(
        Command,
        prog="steincritic",
        description="Does my model fit my data, how sure can I be, and where does it fail?",
        args=arguments,
    )
    sys.exit(_guarded(command))


def _guarded(command: Callable[[], int]) -> int:
    """Run, and turn what is the user's to mend into one line; exit code 2 whatever goes wrong.

    Python's own exit code for an exception is 1, which would pass for a rejected model.
    """
    try:
        return command()
    except KeyboardInterrupt:
        print("steincritic: interrupted; nothing half-written is left behind", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(command, "traceback", False) or not isinstance(error, _USERS):
            traceback.print_exc()
        else:
            print(f"steincritic: {' '.join(str(error).split())}", file=sys.stderr)
        return ERROR


_USERS = (InputError, DivergedError, OSError, torch.OutOfMemoryError)  # theirs to mend


def _model(spec: str) -> ScoreModel:
    return problem(spec).model if spec in PROBLEM_NAMES else load_model(spec)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device


def _prepare(folder: Path) -> None:
    """Make the folder before the work, so that hours of it do not end where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}") from None


def _print_verdict(result: GofResult, *, title: str) -> None:
    colour = "red" if result.rejected else "green"
    Console().print(Panel(Text(result.summary()), title=Text(title), border_style=colour, expand=False))


def _write_json(result: GofResult, path: Path) -> None:
    write_atomically(path, (json.dumps(result.to_dict(), indent=1) + "\n").encode())


def _write_null_figure(result: GofResult, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from steincritic.report.style import save, styled

    with styled():
        save(result.plot().figure, path)


if __name__ == "__main__":
    main()
