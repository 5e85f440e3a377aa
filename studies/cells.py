"""What studies of rates share: cells, the job that counts rejections, the sum of its parts, tests by name.

A study of rates is a declaration. Its configuration yields cells; a job draws and tests the datasets of one
cell, and says how many were rejected:

    @dataclass(frozen=True, kw_only=True)
    class Level(Plan):
        problems: tuple[str, ...] = ("gm-2d", "gm-10d")
        runs: int = 400

        def cells(self) -> Iterator[Cell]:
            for problem in self.problems:
                yield Cell(problem=problem, n=200, runs=self.runs)

    @counted
    def count(cell: Cell) -> Row:  # or several rows
        ...
        return {"problem": cell.problem, "runs": cell.runs, "rejections": rejections}

    STUDY = Study(..., full=Level(), tiny=Level(problems=("gm-2d",), tiny=True), run=rates(count), ...)

`rates(count, by=("problem",))` adds up rows that agree in these fields. A cell is a job of the sweep: it is
kept in a file and never counted twice; seed and device are those of the run.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

from steincritic import IMQ, RBF, Combined, CrossFit, GofTest, Ksd, KsdAgg, Rate, Split, Training
from steincritic.lenses import Critics
from studies.record import hardware
from studies.study import Context, Outcome

Row = dict[str, Any]
MEDIAN, SELECTED = "KSD, median", "KSD, δ = 2^-4"
_SUMMED = ("trained", "rates", "runs", "tests", "rejections", "rejected", "null_sets", "dependent", "seconds")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Runs of one test on one problem; or a part of them, with data of its own.

    Args:
        kind: what the runs are for, or where their data come from.
        size: of a fault, where it has one.
        gpu: on the device of the run; on a CPU if not, whatever it has.
    """

    problem: str
    method: str = ""
    kind: str = ""
    n: int = 0
    size: float = 0.0
    runs: int
    part: int = 0
    gpu: bool = False
    seed: int = 0
    device: str = "cpu"
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The configuration of a study of rates: fields of its own, and the cells that they stand for."""

    tiny: bool = False

    def cells(self) -> Iterable[Cell]:
        raise NotImplementedError


P = TypeVar("P", bound=Plan)
C = TypeVar("C", bound=Cell)


def counted(count: Callable[[C], Row | list[Row]]) -> Callable[[C], Row]:
    """A job from a function of a cell: its rows, with the seconds they took and the device they ran on."""

    @wraps(count)
    def job(cell: C) -> Row:
        start = time.perf_counter()
        counts = count(cell)
        rows = counts if isinstance(counts, list) else [counts]
        seconds = (time.perf_counter() - start) / len(rows)
        common = {"seconds": seconds, "device": hardware(cell.device)}
        return {"rows": [row | common for row in rows]}

    return job


def swept(count: Callable[[C], Row], config: Plan, context: Context) -> list[Row]:
    """The rows of all cells of a configuration, in their order."""
    cells: list[Any] = [
        replace(
            cell,
            seed=context.seed,
            device=str(context.device) if cell.gpu else "cpu",
            tiny=config.tiny,
        )
        for cell in config.cells()
    ]
    return [row for part in context.sweep(count, cells) for row in part["rows"]]


def rates(
    count: Callable[[C], Row], *, by: Sequence[str] = (), more: Callable[[P], Row] | None = None
) -> Callable[[P, Context], Outcome]:
    """How a study of rates runs.

    Args:
        by: fields of rows that belong together; every row stays if there are none.
        more: further results, from the configuration.
    """

    def run(config: P, context: Context) -> Outcome:
        rows = swept(count, config, context)
        return of_jobs({"rows": joined(rows, by) if by else rows} | (more(config) if more else {}), rows)

    return run


def of_jobs(results: Row, rows: Sequence[Row]) -> Outcome:
    """Results with the seconds and the hardware of the jobs that gave these rows, also of kept ones."""
    seconds, hardware = sum(row["seconds"] for row in rows), {row["device"] for row in rows}
    return Outcome(results, {"jobs": seconds}, tuple(sorted(hardware)))


def joined(rows: Iterable[Row], by: Sequence[str]) -> list[Row]:
    """Rows that agree in some fields as one: counts and seconds added up, alone or by name."""
    cells: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[field] for field in by)
        before = cells.get(key, {})
        cells[key] = row | {name: _sum(before[name], row[name]) for name in _SUMMED if name in before}
    return list(cells.values())


def _sum(a: Any, b: Any) -> Any:
    if isinstance(a, Mapping):
        return {**a, **{name: a[name] + value if name in a else value for name, value in b.items()}}
    return a + b


def measured(rate: Rate) -> Row:
    """What a row of a record says of a rate."""
    ends = list(rate.interval())
    return {"rejections": rate.rejections, "trials": rate.trials, "power": rate.value, "interval": ends}


def spread(values: Iterable[float] | Tensor) -> Row:
    """Mean over replicas with standard deviation and standard error, and the values themselves."""
    numbers = (
        values.double().cpu() if isinstance(values, Tensor) else torch.tensor([*values], dtype=torch.float64)
    )
    sd = float(numbers.std())
    return {
        "mean": float(numbers.mean()),
        "sd": sd,
        "se": sd / len(numbers) ** 0.5,
        "values": numbers.tolist(),
    }


def tests(*, tiny: bool = False, draws: int = 499) -> dict[str, GofTest]:
    """What the names in tables of power and level stand for, where models can be sampled."""
    training = Training(epochs=6) if tiny else Training()
    draws = 19 if tiny else draws
    return {
        "combined": Combined(draws=19, reference=20, critics=None) if tiny else Combined(),
        "crossfit": CrossFit(draws=19, training=training, look=1) if tiny else CrossFit(draws=199),
        "split": Split(draws=draws, threshold="permutation", training=training),
        MEDIAN: Ksd(draws=draws),
        SELECTED: Ksd(kernel=RBF(factor=2**-4), draws=draws),
        "KSD, IMQ median": Ksd(kernel=IMQ(scale="median"), draws=draws),
        "aggregated KSD": KsdAgg(draws=draws),
    }


def tests_by_scores(*, tiny: bool = False) -> dict[str, GofTest]:
    """The same where they cannot."""
    return {
        "combined": Combined(draws=39, reference=30) if tiny else Combined(),
        "split": Split(threshold="bootstrap-t", training=Training(epochs=2) if tiny else None),
        "ksd": Ksd(),
        "ksdagg": KsdAgg(),
    }


def tiny_default(seed: int, *, critics: bool = True) -> Combined:
    """The default test with a few null sets of its own."""
    few = Critics(folds=2, training=Training(epochs=4), look=1) if critics else None
    return Combined(draws=19, reference=20, critics=few, cache=False, null_seed=seed)
