"""The options that commands share, each defined once, and what they mean in Python.

A command inherits the options it has. Fields come in the order of the bases, the last one first. `check`
of every class refuses what can be seen to be wrong without torch, which only the functions import. The help
shows `Advanced` options after the others.
"""

import csv
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

import tyro

from steincritic.cli.folders import prepare
from steincritic.cli.guard import after, print_json
from steincritic.cli.parsing import ADVANCED
from steincritic.cluster import check_address
from steincritic.errors import InputError, check_count, did_you_mean, missing_file

if TYPE_CHECKING:
    import torch

    from steincritic.data.layout import Columns, Table
    from steincritic.models import base

T = TypeVar("T")
Advanced = Annotated[T, ADVANCED]
Engine = Literal["serial", "local", "dask"]  # of sweeps, whose jobs are whole programs
DataPath = tyro.conf.Positional[Path]

_STDIN = "-"


class Options:
    """The end of every chain of checks, and what the guard asks of every command."""

    tells: ClassVar[bool] = False  # says by itself how far it is

    @property
    def folder(self) -> Path | None:
        """That it writes into, alone."""
        folder: Path | None = getattr(self, "out", None)
        return folder

    @property
    def kept(self) -> str:
        """What an interrupt leaves, and how to go on."""
        return "nothing was written"

    def check(self) -> None:
        """Refuse what can be seen to be wrong without torch."""
        if self.folder is not None:
            prepare(self.folder)

    def place(self) -> AbstractContextManager[None]:
        """Where the work is done."""
        return nullcontext()

    def __call__(self) -> int:
        """The work; the exit code."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Common(Options):
    quiet: Advanced[bool] = False
    """Print nothing but errors, and the object of --json; the exit code tells the verdict."""
    config: Advanced[Path | None] = None
    """TOML file with options by the same names; the command line has the last word."""
    traceback: Advanced[bool] = False
    """Show where an error arose instead of one line."""


@dataclass(frozen=True, kw_only=True)
class AsJson(Options):
    json: bool = False
    """Print one JSON object on standard output and nothing else."""

    def tell(self, content: dict[str, Any], show: Callable[[], None], file: str | None = None) -> None:
        """Show a result, or print its object, which goes to a file in the folder of --out too."""
        from steincritic.files import write_json

        if not self.json:
            show()
        if file is not None and self.folder is not None:
            with after(content):
                write_json(self.folder / file, content)
        if self.json:
            print_json(content)


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """How a table is read."""

    drop_nan: bool = False
    """Leave out rows with NaN or infinite values, and count them."""
    columns: str | None = None
    """Columns to use, in this order, such as a,b,c; by default all."""
    exclude: Advanced[str | None] = None
    """Columns to leave out, such as a,b."""
    id_column: Advanced[str | None] = None
    """Column that names the rows; it may hold text, and is no part of the data."""

    def check(self) -> None:
        super().check()
        if self._keep and self._exclude:
            raise InputError("pass --columns to keep or --exclude to leave out, not both")

    @property
    def _keep(self) -> list[str] | None:
        return None if self.columns is None else _names(self.columns, "columns")

    @property
    def _exclude(self) -> list[str]:
        return [] if self.exclude is None else _names(self.exclude, "exclude")

    def chosen(self) -> "Columns":
        from steincritic.data.layout import Columns

        return Columns(keep=self._keep, exclude=self._exclude, id=self.id_column)

    def read(
        self, data: Path, *models: "base.Model", sample: int | None = None
    ) -> tuple["Table", tuple[str, ...]]:
        """The table, its columns in the order that the models know; and what a reader should know of that.

        Args:
            sample: a seed, where very many rows may be sampled.
        """
        from steincritic.data.points import arranged, reading_notes
        from steincritic.data.source import FileSource
        from steincritic.data.tables import read_table
        from steincritic.gof.large import large_source, some_rows

        source = None if sample is None else large_source(FileSource(data, self.chosen(), self.drop_nan))
        said: list[str] = []
        if source is None or sample is None:
            given = read_table(data, drop_nan=self.drop_nan, columns=self.chosen())
        else:
            given, said = some_rows(source, seed=sample)
        used = arranged(given, *models)
        return used, (*said, *reading_notes(given, used))


@dataclass(frozen=True, kw_only=True)
class Data(TableOptions):
    data: DataPath
    """npy, npz, csv or parquet file, or a folder of parquet files; one point per row."""

    takes_stdin: ClassVar[bool] = False

    def check(self) -> None:
        super().check()
        if not (self.takes_stdin and str(self.data) == _STDIN):
            check_data(self.data)


@dataclass(frozen=True, kw_only=True)
class Model(Options):
    model: str
    """package.module:attr, file.py:attr, FILE.safetensors or a built-in name such as gm-2d."""


@dataclass(frozen=True, kw_only=True)
class Bounded(Options):
    bounds: Advanced[str | None] = None
    """Where the model ends, by column, such as "age 0 inf, share 0 1"; or simplex. Distributions say it."""

    def check(self) -> None:
        super().check()
        parse_bounds(self.bounds)


@dataclass(frozen=True, kw_only=True)
class Target(Options):
    target: str | None = None
    """Column of y, or several such as y1,y2, where the model is that of y given the other columns."""

    @property
    def targets(self) -> "list[str | int] | None":
        """By name; a whole number is a column counted from 0."""
        if self.target is None:
            return None
        return [int(t) if t.lstrip("-").isdigit() else t for t in _names(self.target, "target")]


@dataclass(frozen=True, kw_only=True)
class ModelOfData(Bounded, Target, Model, Data):
    """A model and the data that it is tested on."""

    fitted: Advanced[bool] = False
    """--model names a function or an estimator, which is fitted to the data, and anew to every null set."""

    def check(self) -> None:
        super().check()
        if self.fitted and self.target is not None:
            raise InputError("--fitted is for models of all columns; a model with --target is taken as it is")

    def load(self) -> tuple["base.Model", "Table", tuple[str, ...]]:
        """The model, the data in its order of columns, and what a reader should know of that."""
        from steincritic.data.conditional import at_rows
        from steincritic.gof.fitted import Fitted
        from steincritic.models.base import as_model
        from steincritic.models.conditional import is_conditional

        named = object_named(self.model)
        if self.fitted:
            table, notes = self.read(self.data)
            return Fitted(named, table), table, notes
        seed: int | None = None if getattr(self, "dependent", False) else getattr(self, "seed", None)
        if self.target is None and not is_conditional(named):
            model = as_model(named)
            return model, *self.read(self.data, model, sample=seed)
        table, notes = self.read(self.data, sample=seed)
        at, used = at_rows(named, table, self.targets)
        return at, used, notes


@dataclass(frozen=True, kw_only=True)
class Seeded(Options):
    seed: int = 0
    """Decides every random choice; the null sets of a test stay the same."""

    def check(self) -> None:
        super().check()
        check_count(self.seed, name="seed", least=0)


@dataclass(frozen=True, kw_only=True)
class OnDevice(Options):
    device: Advanced[str] = "auto"
    """cpu, cuda, or auto: a GPU where there is one."""


@dataclass(frozen=True, kw_only=True)
class OnEngine(Options):
    engine: Advanced[Literal["serial", "threads", "local", "dask"] | None] = None
    """Where the work is done: serial (one thread), threads, local (processes) or dask; by default threads on
    a CPU, serial on a GPU. The numbers are the same."""
    address: Advanced[str | None] = None
    """Address of a Dask scheduler, such as tcp://10.0.0.5:8786; without it workers are started on this
    machine."""

    def check(self) -> None:
        super().check()
        if self.address is not None and self.engine != "dask":
            given = f"got --engine {self.engine}" if self.engine else "which is not given"
            raise InputError(f"--address is for --engine dask, {given}")
        if self.address is not None:
            check_address(self.address)

    def place(self) -> AbstractContextManager[None]:
        from steincritic.engine import using

        return using(self.engine, self.address)


def model_named(spec: str) -> "base.Model":
    from steincritic.models.base import as_model

    return as_model(object_named(spec))


def object_named(spec: str) -> Any:
    """What is named, before it is made a model: what `as_model` refuses can still be examined."""
    from steincritic.data.problems import PROBLEM_NAMES, problem
    from steincritic.models.spec import load_object

    if spec in PROBLEM_NAMES:
        return problem(spec).model
    if ":" not in spec and not spec.endswith(".safetensors"):
        known = did_you_mean(spec, PROBLEM_NAMES) or f" (built-in: {', '.join(PROBLEM_NAMES)})"
        raise InputError(f"a model is named package.module:attr or file.py:attr, got {spec!r}{known}")
    return load_object(spec)


def device_named(name: str) -> "torch.device":
    import torch

    from steincritic.devices import resolve_device

    return resolve_device(name, torch.empty(0))


def check_writable(path: Path) -> None:
    """The file can be written where it is named."""
    prepare(path.parent, path)
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder; name a file")


def check_data(path: Path) -> None:
    """There is such a file, or such a folder of parquet files. What is in it is seen when it is read."""
    if not (path.is_file() or (path.is_dir() and any(path.glob("*.parquet")))):
        raise InputError(missing_file(path))


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """28x28 as (28, 28)."""
    if text is None:
        return None
    parts = text.lower().split("x")
    whole = all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts)
    if not whole or not (len(parts) == 2 or (len(parts) == 3 and parts[2] in ("3", "4"))):
        raise InputError(f"image-shape is height x width, for example 28x28, or 32x32x3; got {text!r}")
    return tuple(map(int, parts))


def parse_bounds(text: str | None) -> Any:
    """age 0 inf, share 0 1 as {"age": (0, inf), "share": (0, 1)}."""
    if text is None or text.strip() == "simplex":
        return text and text.strip()
    found = {}
    for part in _names(text, "bounds"):
        try:
            name, low, high = part.rsplit(None, 2)
            found[name] = float(low), float(high)
        except ValueError:
            raise InputError(
                f'bounds are name, low and high, such as "age 0 inf, share 0 1"; got {part!r}'
            ) from None
        if not found[name][0] < found[name][1]:
            raise InputError(f"bounds of {name} need low < high, got {low} and {high}")
    return found


def _names(text: str, option: str) -> list[str]:
    """a,b,c; a name with a comma in quotes."""
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not all(names) or not names:
        example = "names of columns such as a,b,c" if option != "bounds" else '"age 0 inf, share 0 1"'
        raise InputError(f"--{option} must be {example}; got {text!r}")
    return names
