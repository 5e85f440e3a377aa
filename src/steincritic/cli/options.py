"""The options that commands share, each defined once, and what they mean in Python.

A command inherits the options it has. `check` of every class refuses what can be seen to be wrong without
torch, which only the functions import.
"""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from steincritic.cli.guard import after, prepare, print_json
from steincritic.cli.parse import ADVANCED, POSITIONAL
from steincritic.errors import (
    DoubtfulWarning,
    InputError,
    check_address,
    check_count,
    check_level,
    did_you_mean,
    missing_file,
)

if TYPE_CHECKING:
    from steincritic.data.layout import Columns, Table
    from steincritic.gof.choose import Asked
    from steincritic.models import base

_STDIN = "-"
_TABLE = "npy, npz, csv or parquet file, or a folder of parquet files; one point per row."
MODEL = "package.module:attr, file.py:attr or a built-in name such as gm-2d."


class Options:
    """The end of every chain of checks, and what the guard asks of every command."""

    tells: ClassVar[bool] = False  # says by itself how far it is

    @property
    def folder(self) -> Path | None:
        """That it writes into, alone."""
        folder: Path | None = getattr(self, "out", None)
        return folder

    @property
    def after_interrupt(self) -> str:
        """What an interrupt leaves, and how to go on."""
        return "nothing was written"

    def check(self) -> None:
        """Refuse what can be seen to be wrong without torch."""
        if self.folder is not None:
            prepare(self.folder)

    def __call__(self) -> int:
        """The work; the exit code."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Common(Options):
    quiet: Annotated[
        bool, ADVANCED, "Print nothing but errors, and the object of --json; the exit code tells the verdict."
    ] = False
    config: Annotated[
        Path | None, ADVANCED, "TOML file with options by the same names; the command line has the last word."
    ] = None
    traceback: Annotated[bool, ADVANCED, "Show where an error arose instead of one line."] = False
    json: Annotated[bool, "Print one JSON object on standard output and nothing else."] = False

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

    drop_nan: Annotated[bool, "Leave out rows with NaN or infinite values, and count them."] = False
    columns: Annotated[str | None, "Columns to use, in this order, such as a,b,c; by default all."] = None
    exclude: Annotated[str | None, ADVANCED, "Columns to leave out, such as a,b."] = None
    id_column: Annotated[
        str | None, ADVANCED, "Column that names the rows; it may hold text, and is no part of the data."
    ] = None

    def check(self) -> None:
        super().check()
        keep, exclude = _names(self.columns, "columns"), _names(self.exclude, "exclude")
        if keep and exclude:
            raise InputError("pass --columns to keep or --exclude to leave out, not both")

    @property
    def chosen(self) -> "Columns":
        from steincritic.data.layout import Columns

        keep, exclude = _names(self.columns, "columns"), _names(self.exclude, "exclude")
        return Columns(keep=keep, exclude=exclude or [], id=self.id_column)

    def read(self, data: Path) -> "Table":
        from steincritic.data.tables import read_table

        return read_table(data, drop_nan=self.drop_nan, columns=self.chosen)


@dataclass(frozen=True, kw_only=True)
class Data(TableOptions):
    data: Annotated[Path, POSITIONAL, _TABLE]

    takes_stdin: ClassVar[bool] = False

    def check(self) -> None:
        super().check()
        if not (self.takes_stdin and str(self.data) == _STDIN):
            check_data(self.data)


@dataclass(frozen=True, kw_only=True)
class Model(Options):
    model: Annotated[str, MODEL]


@dataclass(frozen=True, kw_only=True)
class Bounded(Options):
    bounds: Annotated[
        str | None,
        ADVANCED,
        'Where the model ends, by column, such as "age 0 inf, share 0 1"; or simplex. Distributions say it.',
    ] = None

    def check(self) -> None:
        super().check()
        parse_bounds(self.bounds)


@dataclass(frozen=True, kw_only=True)
class Target(Options):
    target: Annotated[
        str | None, "Column of y, or several such as y1,y2, where the model is that of y given the others."
    ] = None

    @property
    def targets(self) -> Any:
        """By name; a whole number is a column counted from 0."""
        names = _names(self.target, "target")
        return names and [int(t) if t.lstrip("-").isdigit() else t for t in names]


@dataclass(frozen=True, kw_only=True)
class Seeded(Options):
    seed: Annotated[int, "Decides every random choice; the null sets of a test stay the same."] = 0

    def check(self) -> None:
        super().check()
        check_count(self.seed, name="seed", least=0)


@dataclass(frozen=True, kw_only=True)
class OnDevice(Options):
    device: Annotated[str, ADVANCED, "cpu, cuda, or auto: a GPU where there is one."] = "auto"


@dataclass(frozen=True, kw_only=True)
class TestOptions(OnDevice, Seeded):
    """Which test, and its settings."""

    __test__: ClassVar[bool] = False  # not one for pytest

    engine: Annotated[
        Literal["serial", "threads", "local", "dask"] | None,
        ADVANCED,
        "Where the work is done: serial (one thread), threads, local (processes) or dask; by default threads "
        "on a CPU, serial on a GPU. The numbers are the same.",
    ] = None
    address: Annotated[
        str | None,
        ADVANCED,
        "Address of a Dask scheduler, such as tcp://10.0.0.5:8786; without it workers are started on this "
        "machine.",
    ] = None
    test: Annotated[
        str | None, "combined, crossfit, split, ksd or ksdagg; by default the program decides and says why."
    ] = None
    level: Annotated[float, "Accepted probability of a false alarm."] = 0.05
    tolerance: Annotated[
        str | None, ADVANCED, 'Ask "wrong by more than this?": 0.05 for means and spreads, or fisher:0.1.'
    ] = None
    draws: Annotated[int | None, ADVANCED, "Number of null draws B; by default that of the test."] = None
    early_stopping: Annotated[
        bool,
        ADVANCED,
        "Of --test split: take the critic of the epoch with the lowest error on a fifth of the rows that "
        "train it, held out.",
    ] = False
    dependent: Annotated[
        bool,
        ADVANCED,
        "Rows are in time order and depend on each other: test by scores alone, with a random sign "
        "per block.",
    ] = False
    cache: Annotated[bool, ADVANCED, "Keep null runs on disk and use them again."] = True

    @property
    def after_interrupt(self) -> str:
        if not self.cache:
            return super().after_interrupt
        return "no result was written; null runs that are in the cache by now are used by the next run"

    def check(self) -> None:
        super().check()
        if self.address is not None and self.engine != "dask":
            engine = f"got --engine {self.engine}" if self.engine else "which is not given"
            raise InputError(f"--address is for --engine dask, {engine}")
        if self.address is not None:
            check_address(self.address)
        check_level(self.level)
        if self.tolerance is not None and self.test is not None:
            raise InputError("pass --test or --tolerance, not both: a tolerance has a test of its own")
        if self.draws is not None:
            check_count(self.draws, name="draws")
        if self.early_stopping and self.test != "split":
            raise InputError("--early-stopping is for --test split, whose one critic it stops")

    @property
    def asked(self) -> "Asked":
        from steincritic.gof.choose import Asked, as_tolerance

        test = self.test if self.tolerance is None else as_tolerance(self.tolerance)
        return Asked(test, self.draws, self.cache, self.early_stopping)

    @property
    def settings(self) -> dict[str, Any]:
        """As every function that tests takes them."""
        names = ("level", "seed", "device", "engine", "address")
        return {name: getattr(self, name) for name in names}


@contextmanager
def doubts_in_the_result() -> Iterator[None]:
    """What is printed with a result is not warned of as well."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)
        yield


def model_named(spec: str) -> "base.Model":
    from steincritic.models.base import as_model

    return as_model(object_named(spec))


def object_named(spec: str) -> Any:
    """What is named, before it is made a model: what `as_model` refuses can still be examined."""
    from steincritic.data.problems import PROBLEM_NAMES, problem
    from steincritic.models.spec import load_object

    if spec in PROBLEM_NAMES:
        return problem(spec).model
    if ":" not in spec:
        known = did_you_mean(spec, PROBLEM_NAMES) or f" (built-in: {', '.join(PROBLEM_NAMES)})"
        raise InputError(f"a model is named package.module:attr or file.py:attr, got {spec!r}{known}")
    return load_object(spec)


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
    bounds = {}
    for part in _names(text, "bounds") or []:
        try:
            name, low, high = part.rsplit(None, 2)
            bounds[name] = float(low), float(high)
        except ValueError:
            raise InputError(
                f'bounds are name, low and high, such as "age 0 inf, share 0 1"; got {part!r}'
            ) from None
        if not bounds[name][0] < bounds[name][1]:
            raise InputError(f"bounds of {name} need low < high, got {low} and {high}")
    return bounds


def _names(text: str | None, option: str) -> list[str] | None:
    """a,b,c; a name with a comma in quotes."""
    if text is None:
        return None
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not all(names) or not names:
        example = "names of columns such as a,b,c" if option != "bounds" else '"age 0 inf, share 0 1"'
        raise InputError(f"--{option} must be {example}; got {text!r}")
    return names
