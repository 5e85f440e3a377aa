"""Does the suggested staging earn its place? Power of the split test by staging, on four problems."""

import time
from dataclasses import dataclass

from steincritic_studies.power.figures import draw_stagings, staging_table
from steincritic_studies.power.jobs import STAGINGS, PowerJob, run_power_job
from steincritic_studies.study import Context, Outcome, Study


@dataclass(frozen=True, kw_only=True)
class StagingPower:
    """The same datasets for every staging; sizes at which power is neither nought nor one.

    Args:
        cells: problem, n and, for the RBM, the perturbation of its weights.
        stagings: names in `STAGINGS`: the suggestion, the paper's choices by hand, fixed weights.
    """

    cells: tuple[tuple[str, int, float], ...] = (
        ("gm-10d", 500, 0.0),
        ("gm-10d", 800, 0.0),
        ("gm-25d", 1000, 0.0),
        ("gm-50d", 600, 0.0),
        ("gm-50d", 800, 0.0),
        ("rbm", 1000, 0.02),
    )
    stagings: tuple[str, ...] = tuple(STAGINGS)
    trials: int = 400
    rbm_stagings: tuple[str, ...] = tuple(STAGINGS)
    rbm_trials: int = 200  # its draws take most of the time
    tiny: bool = False


def run(config: StagingPower, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = [
        PowerJob(
            problem=problem,
            method=f"split with {staging}",
            n=n,
            sigma=sigma,
            trials=config.rbm_trials if problem == "rbm" else config.trials,
            seed=context.seed,
            tiny=config.tiny,
        )
        for problem, n, sigma in config.cells
        for staging in (config.rbm_stagings if problem == "rbm" else config.stagings)
    ]
    rows = context.sweep(run_power_job, jobs)
    return Outcome({"rows": list(rows)}, {"total": time.perf_counter() - start})


STUDY = Study(
    name="auto-staging",
    title="Power of the split test by staging: suggested, by hand, fixed",
    takes="13 minutes on an H200",
    full=StagingPower(),
    tiny=StagingPower(cells=(("gm-10d", 30, 0.0),), stagings=("auto", "fixed 0.1"), trials=6, tiny=True),
    run=run,
    table=staging_table,
    figures=draw_stagings,
)
