"""Reference draws of posteriordb must pass, and fits that are not the posterior must be found.

The database is not part of this package: name the folder of a clone in STEINCRITIC_POSTERIORDB. Densities are
those of `densities.py`; no test draws from them.
"""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.data.posteriordb import Posterior, posteriordb
from steincritic.diagnosis.draws import check_draws
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.combined import Combined
from steincritic.gof.kernel import Ksd
from steincritic.gof.power import trial_seeds
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from steincritic.training.fit import Training
from steincritic_studies.posteriordb.densities import density, reference_points
from steincritic_studies.posteriordb.density import DatabasePosterior
from steincritic_studies.posteriordb.figures import database_table, draw_database
from steincritic_studies.posteriordb.fits import FAMILIES, early_draws, fit
from steincritic_studies.posteriors.models import EFFECTS, ERRORS, EightSchools
from steincritic_studies.study import Context, Outcome, Study

FOLDER_VARIABLE, DEFAULT_FOLDER = "STEINCRITIC_POSTERIORDB", Path("data/posteriordb")
LEVEL = 0.05
REFERENCE, EARLY = "reference draws", "stopped early"
MADE = "eight schools, made here"  # exact draws instead of files
_ROWS = 2000  # whose scores are taken at a time

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
class RateJob:
    posterior: str
    source: str
    method: str
    n: int
    sets: int
    seed: int
    tiny: bool


@dataclass(frozen=True, kw_only=True)
class PlantedJob:
    posterior: str
    fault: str
    coordinate: int  # modulo their number
    n: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class MomentsJob:
    posterior: str


@dataclass(frozen=True, kw_only=True)
class Database:
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
    tiny: bool = False


def run(config: Database, context: Context) -> Outcome:
    results = {
        "rows": context.sweep(run_rates, rate_jobs(config, context.seed)),
        "planted": context.sweep(run_planted, planted_jobs(config, context.seed)),
        "posteriors": context.sweep(run_moments, [MomentsJob(posterior=name) for name in config.passed]),
    }
    return Outcome(results, {"jobs": sum(row["seconds"] for row in results["rows"])})


def rate_jobs(config: Database, seed: int) -> list[RateJob]:
    default = config.sets[0][0]
    asked = [(name, REFERENCE, default, n, config.subsets) for n in config.sizes for name in config.passed]
    asked += [
        (name, source, method, n, sets)
        for method, by_size in config.sets
        for n, sets in zip(config.sizes, by_size, strict=True)
        for source in (REFERENCE, *config.sources)
        for name in config.judged
        if sets and (source, method) != (REFERENCE, default)
    ]
    return [
        RateJob(posterior=name, source=source, method=method, n=n, sets=sets, seed=seed, tiny=config.tiny)
        for name, source, method, n, sets in asked
    ]


def planted_jobs(config: Database, seed: int) -> list[PlantedJob]:
    return [
        PlantedJob(posterior=name, fault=fault, coordinate=k + 3 * j, n=config.planted_size, seed=seed)
        for name in config.judged
        for k, fault in enumerate(PLANTED)
        for j in range(config.planted)
    ]


def run_rates(job: RateJob) -> dict[str, Any]:
    q, reference = load(job.posterior)
    seed = derive(job.seed, job.posterior, job.source, job.n)  # the same for every method
    x = draws(q, reference, job.source, job.n, job.sets, derive(seed, "draws"))
    start = time.perf_counter()
    points = ScoredPoints(x, torch.cat([q.score(part) for part in x.flatten(0, 1).split(_ROWS)]).view_as(x))
    seeds = trial_seeds(derive(seed, "tests"), job.sets)
    found = _tests(tiny=job.tiny)[job.method].run(q, points, level=LEVEL, seeds=seeds)
    return {
        **{name: getattr(job, name) for name in ("posterior", "source", "method", "n")},
        "runs": job.sets,
        "rejections": sum(result.rejected for result in found),
        "seconds": time.perf_counter() - start,
        "device": "CPU",
    }


def run_planted(job: PlantedJob) -> dict[str, Any]:
    """One coordinate of reference draws is made wrong: is it the first that is named?"""
    q, reference = load(job.posterior)
    place, name = job.coordinate % len(q.names), q.names[job.coordinate % len(q.names)]
    seed = derive(job.seed, job.posterior, job.fault, job.coordinate)
    every = len(reference) // job.n
    x = reference[seed % every :: every][: job.n].clone()
    mean, sd = reference[:, place].mean(), reference[:, place].std()
    x[:, place] = mean + sd * PLANTED[job.fault]((x[:, place] - mean) / sd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # these draws are wrong on purpose
        found = check_draws(q, x, thin=1, seed=derive(seed, "check"))
    first = found.seen[0] if found.seen else None
    return {
        "posterior": job.posterior,
        "fault": job.fault,
        "coordinate": name,
        "rejected": found.rejected,
        "first": first is not None and first.names == (name,),
        "named": any(name in one.names for one in found.seen),
        "sentence": str(first or ""),
    }


def run_moments(job: MomentsJob) -> dict[str, Any]:
    """Whether the density is right: Stein moments at all reference draws, in standard errors."""
    q, x = load(job.posterior)
    score = torch.cat([q.score(part) for part in x.split(_ROWS)]) * x.std(0)
    y = (x - x.mean(0)) / x.std(0)
    values = torch.cat([score, (y[:, :, None] * score[:, None] + torch.eye(len(q.names))).flatten(1)], 1)
    z = values.mean(0) / values.std(0) * len(x) ** 0.5
    between = torch.corrcoef(y.T).fill_diagonal_(0)
    return {
        "posterior": job.posterior,
        "dim": len(q.names),
        "draws": len(x),
        "correlation": float(between.abs().max()),
        "moments": len(z),
        "largest": float(z.abs().max()),
    }


def draws(q: DatabasePosterior, reference: Points, source: str, n: int, sets: int, seed: int) -> Tensor:
    """(sets, n, d)"""
    if source == REFERENCE:
        return subsets(reference, n, sets, seed)
    if source == EARLY:
        return early_draws(q, reference, sets * n, seed=seed).view(sets, n, -1)
    return fit(q, source, reference).sample(sets * n, seed=seed).view(sets, n, -1)


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
    held = _made() if name == MADE else _read(name)
    q = density(held)
    return q, reference_points(held, q).flatten(0, 1)


def _read(name: str) -> Posterior:
    folder = Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)
    try:
        return posteriordb(folder, name)
    except InputError as error:
        raise InputError(f"{error}; name its folder in {FOLDER_VARIABLE}") from None


def _made() -> Posterior:
    mu, log_tau, base = EightSchools().sample(1000, seed=0).split([1, 1, len(EFFECTS)], 1)
    theta, names = mu + log_tau.exp() * base, [f"theta[{j}]" for j in range(1, len(EFFECTS) + 1)]
    values = torch.cat([theta, mu, log_tau.exp()], 1)[None]
    data = {"y": list(EFFECTS), "sigma": list(ERRORS)}
    return Posterior(MADE, "eight_schools_noncentered", (*names, "mu", "tau"), values, data)


def _tests(*, tiny: bool) -> dict[str, GofTest]:
    return {
        "combined": Combined(draws=39, reference=30, critics=None) if tiny else Combined(),
        "split": Split(threshold="bootstrap-t", training=Training(epochs=2) if tiny else None),
        "ksd": Ksd(),
        "ksdagg": KsdAgg(),
    }


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
