"""How often a monitored stream ever raises an alarm; with a control that must fail."""

import math
import time
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor

from steincritic.data.points import scored
from steincritic.data.problems import problem
from steincritic.gof.betting import Sequential, log_evalues, train_bettor, wealth_path
from steincritic.gof.power import Rate
from steincritic.gof.sequential import watch
from steincritic.models.base import SamplingModel
from steincritic.rng import derive
from steincritic.training.fit import Training
from steincritic_studies.streams.figures import draw_streams, streams_table
from steincritic_studies.study import Context, Outcome, Study

LEVEL = 0.05
Bets = Literal["soft-rank", "truncated"]


@dataclass(frozen=True, kw_only=True)
class StreamJob:
    problem: str
    method: Bets
    kind: str
    start: int
    stop: int
    length: int
    batch: int
    epochs: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Streams watched to their end, critics retrained on the past of each as it grows."""

    problem: str = "gm-10d"
    methods: tuple[Bets, ...] = ("soft-rank", "truncated")
    # kinds: model draws; draws of the problem's data; model draws bet on by a critic trained on them
    counts: tuple[tuple[str, int], ...] = (("null", 2000), ("data", 200), ("control", 200))
    length: int = 300
    batch: int = 50
    epochs: int = 60
    together: int = 25  # streams per job


def run(config: Streams, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = [
        StreamJob(
            problem=config.problem,
            method=method,
            kind=kind,
            start=first,
            stop=min(first + config.together, count),
            length=config.length,
            batch=config.batch,
            epochs=config.epochs,
            seed=context.seed,
        )
        for method in config.methods
        for kind, count in config.counts
        for first in range(0, count, config.together)
    ]
    parts = context.sweep(run_stream_job, jobs)
    found: dict[tuple[str, str], list[int | None]] = {}
    for job, part in zip(jobs, parts, strict=True):
        found.setdefault((job.method, job.kind), []).extend(part["alarms"])
    rows = [_row(method, kind, alarms) for (method, kind), alarms in found.items()]
    return Outcome({"rows": rows, "level": LEVEL}, {"total": time.perf_counter() - start})


def _row(method: str, kind: str, alarms: list[int | None]) -> dict[str, Any]:
    raised = [alarm for alarm in alarms if alarm is not None]
    rate = Rate(rejections=len(raised), trials=len(alarms))
    return {
        "method": method,
        "kind": kind,
        "streams": rate.trials,
        "alarms": rate.rejections,
        "rate": rate.value,
        "interval": rate.interval(),
        "median_delay": median(raised) if raised else None,
    }


def run_stream_job(job: StreamJob) -> dict[str, Any]:
    """For each stream the number of points seen at its alarm, or None."""
    pair = problem(job.problem)
    model, data = (m.to(torch.float32) for m in (pair.model, pair.data))
    config = Sequential(bets=job.method, training=Training(epochs=job.epochs))
    alarms = []
    for k in range(job.start, job.stop):
        seed = derive(job.seed, "stream", job.kind, k)
        x = (data if job.kind == "data" else model).sample(job.length, seed=derive(seed, "points"))
        watch = _control if job.kind == "control" else _watched
        alarms.append(watch(model, x, job.batch, config, seed))
    return {"alarms": alarms}


def _watched(model: SamplingModel, x: Tensor, batch: int, config: Sequential, seed: int) -> int | None:
    for state in watch(model, x.split(batch), level=LEVEL, seed=seed, test=config):
        if state.rejected:
            return state.rejected_at
    return None


def _control(model: SamplingModel, x: Tensor, batch: int, config: Sequential, seed: int) -> int | None:
    """Bets by a critic that was trained on the very points."""
    points = scored(model, x)
    bettor, _ = train_bettor(model, points, config, number=1, level=LEVEL, seed=seed)
    bets = log_evalues(bettor, model, points, config, seed=derive(seed, "bets"))
    start = torch.full((config.accounts,), math.log(config.start), dtype=torch.float64)
    _, wealth = wealth_path(start, bets)
    crossed = (wealth >= -math.log(LEVEL)).nonzero()
    return int(crossed[0]) + 1 if len(crossed) else None


STUDY = Study(
    name="streams",
    title="Alarms of monitored streams",
    takes="8 minutes on one core",
    full=Streams(),
    tiny=Streams(
        methods=("soft-rank",),
        counts=(("null", 2), ("data", 2), ("control", 2)),
        length=120,
        epochs=6,
        together=2,
    ),
    run=run,
    table=streams_table,
    figures=draw_streams,
)
