"""Rejections of draws of neural posteriors, by scores alone, beside what L-C2ST found in the same draws."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.combined import Combined
from steincritic.gof.kernel import Ksd
from steincritic.gof.power import trial_seeds
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.models.density import PairModel
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from steincritic.training.fit import Training
from steincritic_studies.lc2st.data import OBSERVATIONS, npe_draws, posterior, reference_draws
from steincritic_studies.lc2st.figures import draw_lc2st, lc2st_table
from steincritic_studies.lc2st.tasks import GaussianLinearUniform, TaskPosterior
from steincritic_studies.study import Context, Outcome, Study

LEVEL = 0.05
OUTSIDE = "a draw outside"
TASKS = ("bernoulli_glm", "slcp", "two_moons", "gaussian_linear_uniform")


@dataclass(frozen=True, kw_only=True)
class Lc2stJob:
    """Some subsets of n of the draws for one observation, by one test."""

    task: str
    simulations: int  # that the neural posterior was trained on; 0 for reference draws
    observation: int
    n: int
    method: str
    part: int
    subsets: int
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class Lc2st:
    """Tasks by training simulations, with reference draws for the level; subsets of n draws are disjoint.

    parts: for draws of neural posteriors; tests, n, parts of `subsets` each, and the least simulations from
    which on. null_parts: the same for reference draws, and tasks. n: of the figure.
    """

    tasks: tuple[str, ...] = TASKS
    simulations: tuple[int, ...] = (100, 1000, 10_000, 100_000)
    observations: tuple[int, ...] = tuple(OBSERVATIONS)
    n: int = 500
    subsets: int = 10
    parts: tuple[tuple[str, int, int, int], ...] = (
        (OUTSIDE, 500, 2, 0),
        ("combined", 500, 1, 0),
        ("ksd", 500, 1, 0),
        ("split", 500, 1, 100_000),
        ("ksdagg", 500, 1, 100_000),
        ("combined", 2000, 1, 100_000),
    )
    null_parts: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
        ("combined", 500, 2, TASKS),
        ("ksd", 500, 2, TASKS),
        ("combined", 2000, 1, TASKS),
        ("combined", 250, 4, TASKS[:1]),
        ("ksd", 250, 4, TASKS[:1]),
    )
    tiny: bool = False


def run(config: Lc2st, context: Context) -> Outcome:
    jobs = list(_jobs(config, context.seed))
    found = context.sweep(run_job, jobs)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for part in found:
        for row in part["rows"]:
            place = tuple(row[key] for key in ("task", "simulations", "n", "method"))
            have = rows.setdefault(
                place, {**row, "rejections": {}, "runs": {}, "seconds": 0.0, "loudest": {}}
            )
            name = str(part["observation"])
            for key in ("rejections", "runs"):
                have[key][name] = have[key].get(name, 0) + row[key]
            have["seconds"] += row["seconds"]
            have["loudest"] = dict(Counter(have["loudest"]) + Counter(row["loudest"]))
    seconds = sum(row["seconds"] for row in rows.values())
    return Outcome({"rows": list(rows.values()), "moments": _moments(config, context)}, {"jobs": seconds})


def _moments(config: Lc2st, context: Context) -> dict[str, Any]:
    """How far reference draws are from the densities, by task, in standard errors."""
    found = {}
    for task in config.tasks:
        asked: dict[str, Any] = {
            "task": task,
            "simulations": 0,
            "n": 0,
            "method": "moments",
            "part": 0,
            "subsets": 0,
        }
        jobs = [
            Lc2stJob(**asked, observation=k, seed=context.seed, tiny=config.tiny) for k in config.observations
        ]
        parts = context.sweep(density_job, jobs)
        z = torch.tensor([value for part in parts for value in part["z"]])
        rms = float(z.square().mean().sqrt())
        found[task] = {"count": len(z), "rms": rms, "largest": float(z.abs().max())}
    return found


def _jobs(config: Lc2st, seed: int) -> Iterator[Lc2stJob]:
    asked = [
        (method, simulations, n, parts, config.tasks)
        for method, n, parts, least in config.parts
        for simulations in reversed(config.simulations)
        if simulations >= least
    ]
    asked += [(method, 0, n, parts, tasks) for method, n, parts, tasks in config.null_parts]
    for method, simulations, n, parts, tasks in asked:
        for task, observation, part in itertools.product(tasks, config.observations, range(parts)):
            yield Lc2stJob(
                task=task,
                simulations=simulations,
                observation=observation,
                n=n,
                method=method,
                part=part,
                subsets=config.subsets,
                seed=seed,
                tiny=config.tiny,
            )


def run_job(job: Lc2stJob) -> dict[str, Any]:
    start = time.perf_counter()
    q, theta = made_up(job) if job.tiny else given(job)
    if job.method == OUTSIDE:
        sets = q.inside(theta)[_rows(job, len(theta))]
        rejections, runs = {OUTSIDE: int((~sets).any(1).sum())}, len(sets)
        loudest: Counter[str] = Counter()
    else:
        y = q.unconstrain(theta[q.inside(theta)])
        y = y[_rows(job, len(y))]  # (t, n, d)
        rejections, loudest = _rejections(job, q, y)
        runs = len(y)
    common = {
        "task": job.task,
        "simulations": job.simulations,
        "n": job.n,
        "runs": runs,
        "seconds": time.perf_counter() - start,
        "loudest": dict(loudest),
        "device": "CPU",
    }
    rows = [{**common, "method": name, "rejections": count} for name, count in rejections.items()]
    return {"observation": job.observation, "rows": rows}


def density_job(job: Lc2stJob) -> dict[str, Any]:
    """Stein moments of all reference draws over their standard errors: shifts, spreads, pairs and a bend."""
    q, theta = made_up(job) if job.tiny else given(job)
    y = q.unconstrain(theta)
    sd = y.std(0)
    x, score = (y - y.mean(0)) / sd, q.score(y) * sd
    pairs = score[:, :, None] * x[:, None] + torch.eye(y.shape[1], dtype=y.dtype)
    bend = x.tanh()
    values = torch.cat([score, pairs.flatten(1), score * bend + 1 - bend.square()], 1)
    z = values.mean(0) / values.std(0) * len(y) ** 0.5
    return {"z": z.tolist()}


def _rows(job: Lc2stJob, total: int) -> Tensor:
    """(t, n): which draws are in the subsets of this part; fewer than asked for where draws run out."""
    first = job.part * job.subsets
    last = min(first + job.subsets, total // job.n)
    return torch.arange(first * job.n, max(first, last) * job.n).view(-1, job.n)


def _rejections(job: Lc2stJob, q: TaskPosterior, y: Tensor) -> tuple[dict[str, int], Counter[str]]:
    """By test; and which number of which lens was the loudest where the combined test rejected."""
    if not len(y):
        return {job.method: 0}, Counter()
    seed = derive(job.seed, job.task, job.simulations, job.observation, job.n, job.part)
    points = ScoredPoints(y, q.score(y.flatten(0, 1)).view_as(y))
    test = tests(tiny=job.tiny)[job.method]
    found = test.run(PairModel(q.score), points, level=LEVEL, seeds=trial_seeds(seed, len(y)))
    rejections = {job.method: sum(result.rejected for result in found)}
    first = [result.readings[0] for result in found if result.readings and result.rejected]
    return rejections, Counter(f"{reading.lens}: {reading.number}" for reading in first)


def given(job: Lc2stJob) -> tuple[TaskPosterior, Points]:
    """A posterior and draws, right or wrong."""
    q = posterior(job.task, job.observation)
    if not job.simulations:
        return q, reference_draws(job.task, job.observation)
    return q, npe_draws(job.task, job.simulations, job.observation)


def made_up(job: Lc2stJob) -> tuple[TaskPosterior, Points]:
    """A normal mean near the edge of a box; wrong draws are too wide and know nothing of the edge."""
    q = GaussianLinearUniform(torch.tensor([0.8, 0.0]))
    source = generator(derive(job.seed, job.task, job.simulations, job.observation), "made up")
    noise = torch.randn(1000, 2, generator=source, dtype=torch.float64)
    theta = q.observation + (1.5 if job.simulations else 1.0) * q.variance**0.5 * noise
    return q, theta if job.simulations else theta[q.inside(theta)]


def tests(*, tiny: bool) -> dict[str, GofTest]:
    return {
        "combined": Combined(draws=39, reference=30) if tiny else Combined(),
        "split": Split(threshold="bootstrap-t", training=Training(epochs=2) if tiny else None),
        "ksd": Ksd(),
        "ksdagg": KsdAgg(),
    }


STUDY = Study(
    name="lc2st",
    title="Draws of neural posteriors, beside L-C2ST",
    takes="an hour on one core; needs clones of JuliaLinhart/lc2st and sbi-benchmark/sbibm",
    full=Lc2st(),
    tiny=Lc2st(
        tasks=("gaussian_linear_uniform",),
        simulations=(100, 1000),
        observations=(1,),
        n=100,
        subsets=2,
        parts=((OUTSIDE, 100, 1, 0), ("combined", 100, 1, 0), ("split", 100, 1, 0)),
        null_parts=(("combined", 100, 1, ("gaussian_linear_uniform",)),),
        tiny=True,
    ),
    run=run,
    table=lc2st_table,
    figures=draw_lc2st,
)
