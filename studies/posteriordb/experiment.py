"""Reference draws of posteriordb must pass, and fits that are not the posterior must be found.

The database is not part of this package: name the folder of a clone in STEINCRITIC_POSTERIORDB. Densities are
those of `densities.py`; no test draws from them.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic import Combined, ScoredPoints, check_draws
from steincritic.errors import DoubtfulWarning
from steincritic.gof.power import trial_seeds
from steincritic.report.style import ACCENT, GRAY, INK
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from studies import show
from studies.cells import Cell, Plan, Row, counted, joined, of_jobs, swept, tests_by_scores
from studies.laws import stein_z
from studies.posteriordb.database import FOLDER_VARIABLE, Posterior, posteriordb
from studies.posteriordb.densities import DatabasePosterior, density, numbered, reference_points
from studies.posteriordb.fits import FAMILIES, FULL_RANK, LAPLACE, MEAN_FIELD, early_draws, fit, sample
from studies.posteriors.models import EFFECTS, ERRORS, EightSchools
from studies.record import Record
from studies.show import LEVEL
from studies.study import Context, Outcome, Study

REFERENCE, EARLY = "reference draws", "stopped early"
MADE = "eight schools, made here"  # exact draws instead of files
CORRELATED = 0.3  # of the two coordinates that are most so
_CORRELATED = f"{MEAN_FIELD}, correlated"
_ROWS = 2000  # whose scores are taken at a time
_SHOWN = 500  # draws, in the rows by posterior

JUDGED = (
    *("kidiq-kidscore_momhsiq", "kidiq-kidscore_interaction", "kidiq_with_mom_work-kidscore_interaction_z"),
    *("earnings-earn_height", "earnings-logearn_interaction", "mesquite-logmesquite", "mesquite-mesquite"),
    *("nes1980-nes", "sblri-blr", "sblrc-blr", "kilpisjarvi_mod-kilpisjarvi", "diamonds-diamonds", "arK-arK"),
    *("arma-arma11", "garch-garch11", "eight_schools-eight_schools_noncentered"),
    *("low_dim_gauss_mix-low_dim_gauss_mix", "gp_pois_regr-gp_regr", "gp_pois_regr-gp_pois_regr"),
    "hmm_example-hmm_example",
)
PASSED = (
    *JUDGED,
    *(f"kidiq-kidscore_{name}" for name in ("momhs", "momiq")),
    *(f"kidiq_with_mom_work-kidscore_{name}" for name in ("interaction_c", "interaction_c2", "mom_work")),
    *(f"earnings-log{name}" for name in ("10earn_height", "earn_height", "earn_height_male")),
    *(f"earnings-logearn_{name}" for name in ("interaction_z", "logheight_male")),
    *(f"mesquite-logmesquite_{name}" for name in ("logva", "logvas", "logvash", "logvolume")),
    *(f"nes{year}-nes" for year in (1972, 1976, 1984, 1988, 1992, 1996, 2000)),
    *(f"bball_drive_event_{k}-hmm_drive_{k}" for k in (0, 1)),
    "eight_schools-eight_schools_centered",
)
PLANTED: dict[str, Callable[[Tensor], Tensor]] = {  # in standard deviations from the mean
    "place + 0.3 sd": lambda z: z + 0.3,
    "spread x 1.3": lambda z: z * 1.3,
    "spread / 1.3": lambda z: z / 1.3,
}


@dataclass(frozen=True, kw_only=True)
class Database(Plan):
    """Which posteriors, what is drawn, and how many sets of each size a test gets.

    Args:
        passed: posteriors whose reference draws the default test sees, `subsets` of each size.
        judged: those that every test sees, with fits and early stops too: `sets` by test, one per size.
        planted: coordinates that get each fault, in draws of `planted_size`.
    """

    passed: tuple[str, ...] = PASSED
    judged: tuple[str, ...] = JUDGED
    sizes: tuple[int, ...] = (200, 500, 2000)
    subsets: int = 10
    sources: tuple[str, ...] = (*FAMILIES, EARLY)
    sets: tuple[tuple[str, tuple[int, ...]], ...] = (
        ("combined", (10, 10, 0)),
        ("split", (0, 5, 0)),
        ("ksd", (5, 5, 0)),
        ("ksdagg", (0, 3, 0)),
    )
    planted: int = 2
    planted_size: int = 500

    def cells(self) -> Iterator[Cell]:
        default = self.sets[0][0]
        for n in self.sizes:
            for name in self.passed:
                yield Cell(problem=name, kind=REFERENCE, method=default, n=n, runs=self.subsets)
        for method, by_size in self.sets:
            for n, sets in zip(self.sizes, by_size, strict=True):
                for source in (REFERENCE, *self.sources):
                    for name in self.judged:
                        if sets and (source, method) != (REFERENCE, default):
                            yield Cell(problem=name, kind=source, method=method, n=n, runs=sets)


def run(config: Database, context: Context) -> Outcome:
    rows = swept(count, config, context)
    faults = [
        Cell(problem=name, kind=fault, part=k + 3 * j, n=config.planted_size, runs=1, seed=context.seed)
        for name in config.judged
        for k, fault in enumerate(PLANTED)
        for j in range(config.planted)
    ]
    posteriors = [Cell(problem=name, runs=1) for name in config.passed]
    results = {"planted": context.sweep(planted, faults), "posteriors": context.sweep(moments, posteriors)}
    return of_jobs({"rows": rows, **results}, rows)


@counted
def count(cell: Cell) -> Row:
    q, reference = load(cell.problem)
    seed = derive(cell.seed, cell.problem, cell.kind, cell.n)  # the same for every method
    n, drawn = cell.runs * cell.n, derive(seed, "draws")
    if cell.kind == REFERENCE:
        x = subsets(reference, cell.n, cell.runs, drawn)
    elif cell.kind == EARLY:
        x = early_draws(q, reference, n, seed=drawn)
    else:
        x = sample(fit(q, cell.kind, reference), n, seed=drawn)
    x = x.view(cell.runs, cell.n, -1)
    points = ScoredPoints(x, torch.cat([q.score(part) for part in x.flatten(0, 1).split(_ROWS)]).view_as(x))
    tests = tests_by_scores(tiny=cell.tiny)
    if cell.tiny:
        tests["combined"] = Combined(draws=39, reference=30, critics=None)
    seeds = trial_seeds(derive(seed, "tests"), cell.runs)
    results = tests[cell.method].run(q, points, level=LEVEL, seeds=seeds)
    return {
        "posterior": cell.problem,
        "source": cell.kind,
        "method": cell.method,
        "n": cell.n,
        "runs": cell.runs,
        "rejections": sum(result.rejected for result in results),
    }


def planted(cell: Cell) -> Row:
    """One coordinate of reference draws is made wrong: is it the first that is named?"""
    q, reference = load(cell.problem)
    place = cell.part % len(q.names)
    seed = derive(cell.seed, cell.problem, cell.kind, cell.part)
    every = len(reference) // cell.n
    x = reference[seed % every :: every][: cell.n].clone()
    mean, sd = reference[:, place].mean(), reference[:, place].std()
    x[:, place] = mean + sd * PLANTED[cell.kind]((x[:, place] - mean) / sd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # these draws are wrong on purpose
        result = check_draws(q, x, thin=1, seed=derive(seed, "check"))
    named = [finding.names for finding in result.seen]
    return {
        "posterior": cell.problem,
        "fault": cell.kind,
        "coordinate": q.names[place],
        "rejected": result.rejected,
        "first": named[:1] == [(q.names[place],)],
        "named": any(q.names[place] in names for names in named),
        "sentence": str(result.seen[0]) if named else "",
    }


def moments(cell: Cell) -> Row:
    """Whether the density is right: Stein moments at all reference draws, in standard errors."""
    q, x = load(cell.problem)
    d = len(q.names)
    z = stein_z(x, torch.cat([q.score(part) for part in x.split(_ROWS)]))[: d + d * d]
    return {
        "posterior": cell.problem,
        "dim": d,
        "draws": len(x),
        "correlation": float(torch.corrcoef(x.T).fill_diagonal_(0).abs().max()),
        "moments": len(z),
        "largest": float(z.abs().max()),
    }


def subsets(points: Points, n: int, sets: int, seed: int) -> Tensor:
    """Every k-th draw, so that sets are disjoint; if more are asked for, sets of random partitions follow."""
    k = len(points) // n
    parts = [points[j::k][:n] for j in range(k)]
    while len(parts) < sets:
        order = torch.randperm(len(points), generator=generator(derive(seed, len(parts)), "partition"))
        parts += list(points[order][: k * n].view(k, n, -1))
    return torch.stack(parts[:sets])


@lru_cache(maxsize=2)
def load(name: str) -> tuple[DatabasePosterior, Points]:
    """The density, and all reference draws in its coordinates, (n, d), chain after chain."""
    folder = os.environ.get(FOLDER_VARIABLE) or "data/posteriordb"
    posterior = _made() if name == MADE else posteriordb(folder, name)
    q = density(posterior)
    return q, reference_points(posterior, q).flatten(0, 1)


def _made() -> Posterior:
    mu, log_tau, base = EightSchools().sample(1000, seed=0).split([1, 1, len(EFFECTS)], 1)
    values = torch.cat([mu + log_tau.exp() * base, mu, log_tau.exp()], 1)[None]
    names = (*numbered("theta", len(EFFECTS)), "mu", "tau")
    return Posterior(MADE, "eight_schools_noncentered", names, values, {"y": EFFECTS, "sigma": ERRORS})


def database_table(record: Record) -> str:
    results, size = record.results, _size(record.results["rows"])
    return show.document(
        record,
        "Rejected at level 0.05, over all posteriors, and sets tested:",
        _pooled(results),
        f"By posterior, default test; fits with {size} draws, reference draws of all sizes. "
        "The last two columns: one coordinate made wrong, rejected and named first; the largest of the Stein "
        "moments at all reference draws, in standard errors, by which the density is known to be right.",
        _by_posterior(results),
        "One coordinate of reference draws made wrong:",
        _planted(results["planted"]),
        f"A posterior is correlated if two of its coordinates are so by {CORRELATED} or more. "
        "Rates of reference draws are bold where an exact test would lie below in 99.9 %. Sets of "
        "reference draws are disjoint where the database has enough; the others are of random partitions. "
        f"Laplace and full-rank fits of nearly normal posteriors are nearly right. {show.devices(record)}",
    )


def _size(rows: list[Row]) -> int:
    sizes = show.unique(rows, "n")
    return _SHOWN if _SHOWN in sizes else min(sizes)


def _pooled(results: Any) -> str:
    mixed = {row["posterior"] for row in results["posteriors"] if row["correlation"] >= CORRELATED}
    rows = [*results["rows"]]
    rows += [
        row | {"source": _CORRELATED}
        for row in rows
        if row["source"] == MEAN_FIELD and row["posterior"] in mixed
    ]
    order = [REFERENCE, LAPLACE, MEAN_FIELD, _CORRELATED, FULL_RANK, EARLY]
    in_order = sorted(rows, key=lambda row: (order.index(row["source"]), row["n"]))
    return show.pivot(
        joined(in_order, by=("source", "n", "method")),
        {"draws": "source", "n": "n"},
        "method",
        lambda row: show.high(show.rate_of(row), is_null=row["source"] == REFERENCE),
        columns=show.unique(rows, "method"),
        missing="",
    )


def _default(rows: list[Row]) -> list[Row]:
    """The default test by posterior and source: of fits with as many draws as are shown."""
    size, default = _size(rows), rows[0]["method"]
    kept = [
        row for row in rows if row["method"] == default and (row["source"] == REFERENCE or row["n"] == size)
    ]
    return joined(kept, by=("posterior", "source"))


def _by_posterior(results: Any) -> str:
    rows = {(row["posterior"], row["source"]): row for row in _default(results["rows"])}
    sources = list(dict.fromkeys(source for _, source in rows))
    body = []
    for row in results["posteriors"]:
        counts = [rows.get((row["posterior"], source)) for source in sources]
        rates = [f"{count['rejections']} of {count['runs']}" if count else "" for count in counts]
        faults = [fault for fault in results["planted"] if fault["posterior"] == row["posterior"]]
        rejected, first = (sum(fault[key] for fault in faults) for key in ("rejected", "first"))
        body.append(
            [
                row["posterior"],
                str(row["dim"]),
                f"{row['correlation']:.2f}",
                *rates,
                f"{rejected}, {first} of {len(faults)}" if faults else "",
                f"{row['largest']:.1f} of {row['moments']}",
            ]
        )
    header = ["posterior", "d", "largest correlation", *sources, "coordinate", "moments"]
    return show.markdown(header, body)


def _planted(rows: list[Row]) -> str:
    body = []
    for fault in show.unique(rows, "fault"):
        of_fault = [row for row in rows if row["fault"] == fault]
        counts = [sum(row[key] for row in of_fault) for key in ("rejected", "first", "named")]
        body.append([fault, str(len(of_fault)), *map(str, counts)])
    return show.markdown(["fault", "checks", "rejected", "named first", "named"], body)


def draw_database(record: Record, folder: Path) -> list[Path]:
    """Rates of the default test by posterior."""
    rows, path = _default(record.results["rows"]), folder / "rates.png"
    rates = {(row["posterior"], row["source"]): show.rate_of(row).value for row in rows}
    names = show.unique([row for row in rows if row["source"] != REFERENCE], "posterior")
    sources = show.unique(rows, "source")
    width, height = 2.0 * len(sources) + 2.2, 0.24 * len(names) + 1.3
    with show.picture(path, width, height, ncols=len(sources), sharey=True, layout="constrained") as axes:
        for ax, source in zip(axes, sources, strict=True):
            color = show.PALE if source == REFERENCE else ACCENT
            ax.barh(range(len(names)), [rates[name, source] for name in names], color=color)
            ax.axvline(LEVEL, color=GRAY, linewidth=0.8)
            ax.set(title=source, xlim=(0, 1.02))
        show.name_lines(axes[0], names)
        label = f"{_size(record.results['rows'])} draws; reference draws: all sizes"
        axes[0].figure.supxlabel(f"rejected at level 0.05 (fits: {label})", color=INK)
    return [path]


STUDY = Study(
    name="posteriordb",
    title="Posteriors of posteriordb: reference draws, normal fits, early stops",
    takes="an hour on one core; needs a clone of posteriordb, named in STEINCRITIC_POSTERIORDB",
    full=Database(),
    tiny=Database(
        passed=(MADE,),
        judged=(MADE,),
        sizes=(100,),
        subsets=2,
        sources=("mean field",),
        sets=(("combined", (2,)), ("ksd", (2,))),
        planted=1,
        planted_size=100,
        tiny=True,
    ),
    run=run,
    table=database_table,
    figures=draw_database,
)
