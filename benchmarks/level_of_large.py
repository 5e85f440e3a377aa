"""Level of the test in one pass, at sizes so small that what is approximate about it shows.

    python benchmarks/level_of_large.py --out results/benchmarks/level-of-large.json

Quick lenses, 40,000 rows beside 399 null sets of 201 rows, each run with null sets of its own. The negative
control takes the very same numbers as if null sets together held infinitely many rows. 400 runs of three
models take about a quarter of an hour on two cores.
"""

import argparse
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from torch.distributions import Independent, StudentT

import steincritic as sc
from steincritic.data.points import sample_points
from steincritic.engine import spread
from steincritic.gof import streamed
from steincritic.gof.one_pass import blocks_of, one_pass
from steincritic.models.base import SamplingModel
from studies.record import Record, environment

ROWS, LEVEL = 40_000, 0.05
SEEDS = {"data": 5_000_000, "null sets": 1000}  # those of a run are this and its number


class Certain(streamed.Sizes):
    """What the model says is taken as known: the control."""

    @property
    def in_all(self) -> int:
        return 10**15


def model(name: str) -> SamplingModel:
    if name == "normal, 5-D":
        return sc.models.GaussianMixture(torch.zeros(1, 5))
    if name == "two modes 12 standard deviations apart, 3-D":
        return sc.models.GaussianMixture([[0.0] * 3, [12.0, 0.0, 0.0]], 1.0, [0.7, 0.3])
    return sc.as_model(Independent(StudentT(torch.full((3,), 3.0)), 1))


MODELS = (
    "normal, 5-D",
    "two modes 12 standard deviations apart, 3-D",
    "Student t with 3 degrees of freedom, 3-D",
)


def rejected(name: str, run: int) -> tuple[bool, bool]:
    """By the test, and by the control."""
    streamed._ROWS = (200, streamed._ROWS[1])  # smaller null sets than a test ever has
    q = model(name)
    config = sc.Combined(critics=None, cache=False, draws=399, null_seed=SEEDS["null sets"] + run)
    points = sample_points(q, ROWS, seed=SEEDS["data"] + run)
    test = streamed.Streamed(config, q, points.x[:0], level=LEVEL, seed=run)
    own = streamed.Judged(test, one_pass(test.summing, blocks_of(points)))
    control = streamed.Judged(test, own.passed)
    control.sizes, control.null_means = Certain(**asdict(own.sizes)), own.null_means
    return own.ranked.pvalue <= LEVEL, control.ranked.pvalue <= LEVEL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--out", type=Path, default=Path("out/level-of-large.json"))
    settings = parser.parse_args()
    found, began = {}, time.perf_counter()
    for name in MODELS:
        pairs = [pair for _, pair in spread(partial(rejected, name), range(settings.runs), "local")]
        found[name] = {"rejected": sum(a for a, _ in pairs), "control": sum(b for _, b in pairs)}
        print(f"{name}: {found[name]} of {settings.runs}", flush=True)
    Record(
        name="benchmark-level-of-large",
        command=f"python benchmarks/level_of_large.py --runs {settings.runs}",
        config={"runs": settings.runs, "rows": ROWS, "level": LEVEL, "seeds": SEEDS},
        seed=SEEDS["data"],
        results=found,
        seconds={"total": time.perf_counter() - began},
        environment=environment(torch.device("cpu")),
    ).save(settings.out)


if __name__ == "__main__":
    main()
