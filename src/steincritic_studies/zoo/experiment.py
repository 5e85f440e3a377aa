"""Power of every test on every fault of the zoo, and the regret of the default test.

Strengths, sample sizes and tests are tuned on seed `TUNING` alone; the numbers that we report come from seed
`REPORTED`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.combined import Combined
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.kernel import Ksd
from steincritic.gof.power import trials_of
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.lenses import Cells, Critics, Dependence, Kernels, Modes, Moments
from steincritic.lenses.lens import Lens
from steincritic.rng import derive
from steincritic.training.fit import Training
from steincritic_studies.study import Context, Outcome, Study
from steincritic_studies.zoo.faults import ZOO
from steincritic_studies.zoo.figures import draw_zoo, zoo_table

TUNING, REPORTED = 1, 0  # `--seed 1` while tuning; 0 is the default of `steincritic reproduce`
DEFAULT = "combined"  # among the methods, the one that `gof_test` takes by itself
_SLOW = ("critics", "crossfit", "split", "KSD, median", "aggregated KSD")
_FAULTS = {fault.name: fault for fault in ZOO}


def methods(*, tiny: bool) -> dict[str, GofTest]:
    """The columns of the table; a further test is one more line."""
    if tiny:
        return {
            "combined": Combined(draws=19, reference=20, critics=None),
            "crossfit": CrossFit(draws=19, training=Training(epochs=6), look=1),
            "KSD, median": Ksd(draws=19),
        }
    lenses: tuple[Lens, ...] = (Moments(), Modes(), Dependence(), Cells(), Kernels(), Critics())
    return {
        "combined": Combined(),
        **{lens.name: _alone(lens) for lens in lenses},
        "crossfit": CrossFit(draws=199, null_pool=199),
        "split": Split(draws=499, threshold="permutation"),
        "KSD, median": Ksd(draws=499),
        "aggregated KSD": KsdAgg(draws=499),
    }


def _alone(lens: Lens) -> Combined:
    trained = lens.name == Critics.name
    return Combined(lenses=(lens,), critics=None, draws=199, reference=40 if trained else 400)


@dataclass(frozen=True, kw_only=True)
class FaultZoo:
    """Faults by name, each at its own n unless that is above `most`.

    Args:
        few: methods that are slow, with the trials that they get instead.
    """

    faults: tuple[str, ...] = tuple(_FAULTS)
    trials: int = 400
    few: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(_SLOW, 100))
    most: int = 10_000
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class ZooJob:
    """One test on many datasets of one fault."""

    fault: str
    method: str
    test: GofTest  # so that a test with other settings is another job
    n: int
    trials: int
    seed: int


def run(config: FaultZoo, context: Context) -> Outcome:
    start, tests = time.perf_counter(), methods(tiny=config.tiny)
    jobs = [
        ZooJob(
            fault=name,
            method=method,
            test=test,
            n=min(_FAULTS[name].n, config.most),
            trials=min(config.trials, config.few.get(method, config.trials)),
            seed=context.seed,
        )
        for name in config.faults
        for method, test in tests.items()
    ]
    rows = context.sweep(run_zoo_job, jobs)
    seconds = {"total": time.perf_counter() - start, "jobs": float(sum(row["seconds"] for row in rows))}
    settings = {method: repr(test) for method, test in tests.items()}
    return Outcome({"rows": rows, "default": DEFAULT, "tests": settings}, seconds)


def run_zoo_job(job: ZooJob) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    fault = _FAULTS[job.fault]
    x = fault.datasets(job.trials, n=job.n, seed=job.seed, device=device)
    seed = derive(job.seed, "trials", fault.pattern)
    rate = trials_of(fault.model.to(device), x, job.test, seed=seed).rate()
    return {
        "kind": fault.kind,
        "fault": fault.name,
        "d": fault.model.dim,
        "n": job.n,
        "method": job.method,
        "rejections": rate.rejections,
        "trials": rate.trials,
        "power": rate.value,
        "interval": list(rate.interval()),
        "seconds": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }


STUDY = Study(
    name="fault-zoo",
    title="Power of every test on a zoo of faults, and the regret of the default",
    takes="20 minutes on an H200, hours on two cores",
    full=FaultZoo(),
    tiny=FaultZoo(faults=tuple(_FAULTS)[::15], trials=6, most=30, tiny=True),
    run=run,
    table=zoo_table,
    figures=draw_zoo,
)
