"""Power of conditional tests in the published cells, and the level of ours; with a control that must fail.

Repetitions come in groups with one x each, so that a group shares its null sets: y drawn anew at that x.
"""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.gof.combined import Combined
from steincritic.gof.power import trial_seeds
from steincritic.gof.result import GofResult
from steincritic.lenses import Critics
from steincritic.models.conditional import AtRows, ConditionalModel, as_conditional
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from steincritic.training.fit import Training
from steincritic_studies.conditional.figures import conditional_table, draw_conditional
from steincritic_studies.conditional.peers import fscd_pvalue, kcsd_pvalue, ratio_pvalues
from steincritic_studies.conditional.problems import Problem, problems
from steincritic_studies.study import Context, Outcome, Study

LEVEL = 0.05
_RATIO_DRAWS = 399
_TRAINED_EVERY, _PERMUTED_EVERY = 3, 10  # groups: with the slow peer, with the slow control


@dataclass(frozen=True, kw_only=True)
class CellJob:
    """Groups of repetitions at one sample size."""

    kind: str  # power: all tests on data of the truth; critics: ours in full; level: on draws of the model
    problem: str
    n: int
    first: int  # group
    groups: int
    together: int  # repetitions of a group, at one x
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class Conditional:
    """Cells by kind: problems and sizes, with the groups of each, their repetitions and groups per job."""

    problems: tuple[str, ...] = tuple(problems())
    power: tuple[int, int, int] = (60, 5, 10)
    critics: tuple[tuple[str, int], ...] = (
        ("quad_vs_lin_d1", 100),
        ("quad_vs_lin_d1", 500),
    )
    with_critics: tuple[int, int, int] = (16, 10, 2)
    nulls: tuple[tuple[str, int], ...] = (
        *(("quad_vs_lin_d1", 100), ("quad_vs_lin_d1", 500)),
        *(("g_het_dx3", 300), ("g_het_dx3", 700)),
    )
    level: tuple[int, int, int] = (40, 50, 10)
    nulls_with_critics: tuple[tuple[str, int], ...] = (("quad_vs_lin_d1", 100), ("g_het_dx3", 300))
    level_with_critics: tuple[int, int, int] = (6, 100, 1)
    tiny: bool = False

    def jobs(self, seed: int) -> list[CellJob]:
        sizes = {name: problem.sizes for name, problem in problems().items()}
        published = [(name, n) for name in self.problems for n in sizes[name][: 1 if self.tiny else None]]
        kinds = {
            "power": (published, self.power),
            "critics": (self.critics, self.with_critics),
            "level": (self.nulls, self.level),
            "level with critics": (self.nulls_with_critics, self.level_with_critics),
        }
        return [
            CellJob(
                kind=kind,
                problem=name,
                n=n,
                first=k,
                groups=step,
                together=together,
                seed=seed,
                tiny=self.tiny,
            )
            for kind, (cells, (groups, together, step)) in kinds.items()
            for name, n in cells
            for k in range(0, groups, step)
        ]


def run(config: Conditional, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = config.jobs(context.seed)
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for job, part in zip(jobs, context.sweep(run_cell_job, jobs), strict=True):
        found.setdefault((job.kind, job.problem, job.n), []).append(part)
    rows = [
        {
            "kind": kind,
            "problem": problem,
            "n": n,
            "rejections": _sum(part["rejections"] for part in parts),
            "tests": _sum(part["tests"] for part in parts),
            "null_sets": sum(part["null_sets"] for part in parts),
            "seconds": sum(part["seconds"] for part in parts),
            "device": parts[0]["device"],
        }
        for (kind, problem, n), parts in found.items()
    ]
    return Outcome({"rows": rows, "level": LEVEL}, {"total": time.perf_counter() - start})


def _sum(counts: Any) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)  # keeps zeros
    return dict(total)


def run_cell_job(job: CellJob) -> dict[str, Any]:
    start = time.perf_counter()
    parts = [_group(job, group) for group in range(job.first, job.first + job.groups)]
    return {
        "rejections": _sum({name: sum(values) for name, values in part.items()} for part, _ in parts),
        "tests": _sum({name: len(values) for name, values in part.items()} for part, _ in parts),
        "null_sets": sum(draws for _, draws in parts),
        "seconds": time.perf_counter() - start,
        "device": "CPU",
    }


def _group(job: CellJob, group: int) -> tuple[dict[str, list[bool]], int]:
    """Whether each test rejected in each repetition at one x, and how many null sets they shared."""
    problem, seed = problems()[job.problem], derive(job.seed, job.kind, job.problem, job.n, group)
    x = problem.covariates(job.n, seed=derive(seed, "x"))
    true = problem.model if job.kind.startswith("level") else problem.truth
    ys = true.sample(x.repeat(job.together, 1), seed=derive(seed, "y")).view(job.together, job.n)
    results = _ours(job, as_conditional(problem.model), x, ys, seed)
    found = {"combined": [result.rejected for result in results]}
    if job.kind.startswith("level"):
        found["any lens"] = [min(r.pvalue for r in result.readings) <= LEVEL for result in results]
        if group % _PERMUTED_EVERY == 0:
            permuted = _ours(job, _permuted(problem, seed), x, ys, seed)
            found["permuted x"] = [result.rejected for result in permuted]
    if job.kind in ("power", "level"):
        found |= _peers(
            job, problem, x, ys, seed, trained=job.kind == "power" and group % _TRAINED_EVERY == 0
        )
    return found, max(len(result.null_distribution) for result in results)  # fewer where it stops early


def _ours(job: CellJob, model: ConditionalModel, x: Points, ys: Tensor, seed: int) -> list[GofResult]:
    x, ys = x.float(), ys.float()
    at = AtRows(model, x)
    stacked = torch.cat((x.expand(len(ys), -1, -1), ys[..., None]), 2)
    score = at.score(stacked.flatten(0, 1)).view_as(stacked)
    test = _test(job, derive(seed, "null"))
    return test.run(at, ScoredPoints(stacked, score), level=LEVEL, seeds=trial_seeds(seed, len(ys)))


def _test(job: CellJob, seed: int) -> Combined:
    critics = Critics() if job.kind.endswith("critics") else None
    if job.tiny:
        critics = critics and Critics(folds=2, training=Training(epochs=4), look=1)
        return Combined(draws=39, reference=20, critics=critics, cache=False, null_seed=seed)
    return Combined(critics=critics, cache=False, null_seed=seed, engine="serial")


def _permuted(problem: Problem, seed: int) -> ConditionalModel:
    """Draws of y at other rows: null sets that are none."""

    def sample(x: Points, seed_of_draws: int) -> Points:
        order = torch.randperm(len(x), generator=generator(seed, "order"))
        return problem.model.sample(x[order], seed=seed_of_draws)

    return ConditionalModel(problem.model.score, sample)


def _peers(
    job: CellJob, problem: Problem, x: Points, ys: Tensor, seed: int, *, trained: bool
) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {}
    for k, y in enumerate(ys[..., None]):
        own, score = derive(seed, "peers", k), problem.model.score(x, y)
        pvalues = {"KCSD": kcsd_pvalue(x, y, score, seed=own)}
        if trained:
            pvalues["FSCD, trained"] = fscd_pvalue(x, y, score, seed=own)
        rejected = {name: pvalue < LEVEL for name, pvalue in pvalues.items()}  # as published
        if job.kind == "power":
            ratios = ratio_pvalues(problem, x, y, draws=_RATIO_DRAWS, seed=own)
            rejected |= {f"likelihood ratio, {name}": pvalue <= LEVEL for name, pvalue in ratios.items()}
        for name, value in rejected.items():
            found.setdefault(name, []).append(value)
    return found


STUDY = Study(
    name="conditional",
    title="Conditional models, beside the published kernel tests and likelihood ratios",
    takes="2 hours on one core",
    full=Conditional(),
    tiny=Conditional(
        problems=("quad_vs_lin_d1", "g_het_dx3"),
        power=(2, 2, 1),
        critics=(("quad_vs_lin_d1", 40),),
        with_critics=(1, 2, 1),
        nulls=(("g_het_dx3", 40),),
        level=(1, 4, 1),
        nulls_with_critics=(("quad_vs_lin_d1", 40),),
        level_with_critics=(1, 2, 1),
        tiny=True,
    ),
    run=run,
    table=conditional_table,
    figures=draw_conditional,
)
