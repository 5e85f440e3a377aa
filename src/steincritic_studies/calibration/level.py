"""The level of the default test: six null problems, small and large samples, and controls that must fail.

The tests come in parts, each with null sets of its own, which its tests choose theirs from as they would
from the cache; early stopping is on, as by default.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from steincritic.data.points import ScoredPoints
from steincritic.data.problems import problem
from steincritic.gof.combined import Combined
from steincritic.gof.power import Rate, trial_seeds
from steincritic.gof.result import GofResult
from steincritic.lenses import Critics
from steincritic.report.style import save, styled
from steincritic.rng import Source, derive
from steincritic.shapes import Points
from steincritic.training.fit import Training
from steincritic_studies.calibration.experiment import null_model
from steincritic_studies.record import Record
from steincritic_studies.study import Context, Outcome, Study
from steincritic_studies.tables import LEVEL, band, devices, document, markdown
from steincritic_studies.zoo.models import Student, normal

_POOL = 400  # null sets of each part of the tests
_CONTROLS: dict[str, Callable[[GofResult], bool]] = {
    "any lens below the level": lambda r: min(reading.pvalue for reading in r.readings) <= LEVEL,
    "the level twice": lambda r: r.pvalue - r.spent <= LEVEL or r.settings["quick_pvalue"] <= LEVEL,
}


@dataclass(frozen=True)
class LogGamma:
    """Independent logarithms of Gamma(2) variables: skewed to the left, score 2 - e^x."""

    dim: int
    device: torch.device | str = "cpu"

    def to(self, device: Any, dtype: Any = None, /) -> "LogGamma":
        return replace(self, device=device)

    def score(self, x: Points) -> Points:
        return 2 - x.exp()

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, "log gamma", device=self.device)
        u = 1 - source.uniforms(2, n, self.dim)
        return (-u.log()).sum(0).log()


def null_models() -> dict[str, Any]:
    return {
        "gm-2d": problem("gm-2d").model,
        "gm-10d": problem("gm-10d").model,
        "skewed-1d": null_model("skewed-1d"),
        "skewed 5-D": LogGamma(5),
        "heavy-tailed 5-D": Student(5, 5),
        "normal 30-D": normal(30),
    }


@dataclass(frozen=True, kw_only=True)
class LevelJob:
    problem: str
    n: int
    runs: int
    parts: int
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class Level:
    """Tests of the model's own draws: sizes, each with its tests and their parts."""

    problems: tuple[str, ...] = tuple(null_models())
    sizes: tuple[tuple[int, int, int], ...] = ((40, 400, 1), (200, 1000, 2), (1000, 400, 1))
    tiny: bool = False


def run(config: Level, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = [
        LevelJob(problem=name, n=n, runs=runs, parts=parts, seed=context.seed, tiny=config.tiny)
        for name in config.problems
        for n, runs, parts in config.sizes
    ]
    rows = context.sweep(run_level_job, jobs)
    return Outcome({"rows": list(rows)}, {"total": time.perf_counter() - start})


def run_level_job(job: LevelJob) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    model = null_models()[job.problem].to(device)
    results: list[GofResult] = []
    each = job.runs // job.parts
    for part in range(job.parts):
        own = derive(job.seed, job.problem, job.n, part)
        x = model.sample(each * job.n, seed=derive(own, "data")).to(torch.float32)
        points = ScoredPoints(x, model.score(x).to(x)).cut(job.n)
        results += _test(job, own).run(model, points, level=LEVEL, seeds=trial_seeds(own, each))
    found = {"combined": [result.rejected for result in results]}
    found |= {name: [fails(result) for result in results] for name, fails in _CONTROLS.items()}
    return {
        "problem": job.problem,
        "n": job.n,
        "trained": sum(result.spent > 0 for result in results),
        "tests": len(results),
        "null_sets": job.parts * _POOL,
        "rejections": {name: sum(map(bool, rejected)) for name, rejected in found.items()},
        "seconds": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }


def _test(job: LevelJob, seed: int) -> Combined:
    if job.tiny:
        critics = Critics(folds=2, training=Training(epochs=4), look=1)
        return Combined(draws=19, reference=20, critics=critics, cache=False, null_seed=seed)
    return Combined(null_seed=seed, null_pool=_POOL, cache=False)


def level_table(record: Record) -> str:
    rows = record.results["rows"]
    methods = list(rows[0]["rejections"])
    body = []
    for row in rows:
        low, high = band(row["tests"], row["null_sets"])
        rates = [Rate(row["rejections"][method], row["tests"]).value for method in methods]
        inside = "yes" if low <= rates[0] <= high else "no"
        body.append(
            [
                row["problem"],
                str(row["n"]),
                str(row["tests"]),
                *(f"{rate:.4f}" for rate in rates),
                f"{low:.4f} to {high:.4f}",
                inside,
            ]
        )
    header = ["model", "n", "tests", *methods, "99.9 % band", "inside"]
    return document(
        record,
        markdown(header, body),
        "Share of tests of the model's own draws that reject at level 0.05, early stopping on, null sets "
        "chosen from shared ones as from the cache. The first control takes the smallest p-value of any "
        "lens and must lie above the band; the second gives the whole level to both steps. "
        f"{devices(record)}",
    )


def draw_level(record: Record, folder: Path) -> list[Path]:
    """Rates of the test and of the controls, with the band where the test belongs."""
    from matplotlib import pyplot

    rows = record.results["rows"]
    with styled():
        figure, ax = pyplot.subplots(figsize=(5.5, 0.28 * len(rows) + 1.2))
        for k, row in enumerate(rows):
            ax.plot(band(row["tests"], row["null_sets"]), (k, k), color="#9aa5b1", linewidth=5, alpha=0.5)
        for method, marker in zip(rows[0]["rejections"], "o^s", strict=True):
            rates = [row["rejections"][method] / row["tests"] for row in rows]
            ax.plot(rates, range(len(rows)), marker, markersize=4, label=method)
        ax.set_yticks(range(len(rows)), [f"{row['problem']}, n = {row['n']}" for row in rows])
        ax.set(xlabel="rejected at level 0.05; gray: 99.9 % band", xlim=(0, None))
        ax.invert_yaxis()
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=7)
        return [save(figure, folder / "level.png")]


STUDY = Study(
    name="level",
    title="The level of the default test on six null problems",
    takes="2 minutes on an H200",
    full=Level(),
    tiny=Level(problems=("gm-2d", "skewed 5-D"), sizes=((20, 10, 2),), tiny=True),
    run=run,
    table=level_table,
    figures=draw_level,
)
