"""Level of the test of chains, whose draws depend on each other; beside it the test that ignores this."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.gof.combined import Combined
from steincritic.gof.power import Rate
from steincritic.gof.serial import slowness_if_any, stein_series
from steincritic.report.style import save, styled
from steincritic.rng import derive, generator
from steincritic_studies.calibration.level import LogGamma
from steincritic_studies.record import Record
from steincritic_studies.study import Context, Outcome, Study
from steincritic_studies.tables import devices, document, markdown, rate_bound

LEVEL = 0.05
_DIM = 5
METHODS = ("by blocks", "as if independent")


@dataclass(frozen=True)
class Kind:
    """Autoregressive chains of a standard normal or a log-gamma law; the shift is for power."""

    chains: int
    steps: int  # before thinning
    keep: float  # correlation with the draw before
    thin: int = 1
    skewed: bool = False
    shift: float = 0.0  # of the first coordinate

    @property
    def worth(self) -> float:
        """Independent draws, for a mean."""
        kept = self.keep**self.thin
        return self.chains * self.steps / self.thin * (1 - kept) / (1 + kept)

    def draw(self, source: torch.Generator) -> Tensor:
        """(chains, steps, d)"""
        noise = torch.randn(self.chains, self.steps, _DIM, generator=source, dtype=torch.float64)
        x = noise.clone()
        for t in range(1, self.steps):
            x[:, t] = self.keep * x[:, t - 1] + math.sqrt(1 - self.keep**2) * noise[:, t]
        x = x[:, :: self.thin]
        if self.skewed:
            x = torch.as_tensor(stats.loggamma.ppf(stats.norm.cdf(x.numpy()), 2))
        x[..., 0] += self.shift
        return x

    def score(self, x: Tensor) -> Tensor:
        return LogGamma(_DIM).score(x) if self.skewed else -x


KINDS = {
    "one short chain": Kind(1, 200, 0.5),
    "one long chain": Kind(1, 1000, 0.9),
    "four short chains": Kind(4, 60, 0.3),
    "four slow chains": Kind(4, 250, 0.9),
    "four long chains": Kind(4, 500, 0.6),
    "eight chains": Kind(8, 500, 0.6),
    "thinned to a tenth": Kind(4, 1000, 0.9, thin=10),
    "hardly dependent": Kind(4, 100, 0.15),
    "alternating": Kind(4, 250, -0.6),
    "skewed": Kind(4, 250, 0.7, skewed=True),
    "independent": Kind(4, 100, 0.0),
    "one long chain, shifted by 0.5": Kind(1, 1000, 0.9, shift=0.5),
    "four long chains, shifted by 0.2": Kind(4, 500, 0.6, shift=0.2),
    "independent, shifted by 0.2": Kind(4, 100, 0.0, shift=0.2),
}


@dataclass(frozen=True, kw_only=True)
class ChainsJob:
    kind: str
    part: int
    runs: int
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class LevelOfChains:
    kinds: tuple[str, ...] = tuple(KINDS)
    parts: int = 2
    each: int = 50
    tiny: bool = False


def run(config: LevelOfChains, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = [
        ChainsJob(kind=kind, part=part, runs=config.each, seed=context.seed, tiny=config.tiny)
        for part in range(config.parts)
        for kind in config.kinds
    ]
    parts = context.sweep(run_job, jobs)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (row for part in parts for row in part["rows"]):
        place = row["kind"], row["method"]
        have = rows.get(place, {"runs": 0, "rejections": 0, "dependent": 0, "seconds": 0.0})
        sums = ("runs", "rejections", "dependent", "seconds")
        rows[place] = row | {key: row[key] + have[key] for key in sums}
    return Outcome({"rows": list(rows.values())}, {"total": time.perf_counter() - start})


def run_job(job: ChainsJob) -> dict[str, Any]:
    """As `check_draws` does it, and by the lenses alone as if draws were independent."""
    kind, seed = KINDS[job.kind], derive(job.seed, job.kind, job.part)
    usual = Combined(draws=39, reference=30, critics=None) if job.tiny else Combined()
    counts = dict.fromkeys(METHODS, 0)
    start, dependent = time.perf_counter(), 0
    for k in range(job.runs):
        x = kind.draw(generator(seed, "chains", k)).flatten(0, 1)
        points = ScoredPoints(x, kind.score(x))
        slowness = slowness_if_any(stein_series(points, kind.chains), seed=derive(seed, "dependence", k))
        dependent += slowness > 1
        tests = replace(usual, slowness=slowness, chains=kind.chains), replace(usual, critics=None)
        for method, test in zip(METHODS, tests, strict=True):
            (result,) = test.run(None, points.alone(), level=LEVEL, seeds=[derive(seed, "test", k)])
            counts[method] += result.rejected
    common = {
        "kind": job.kind,
        "runs": job.runs,
        "n": len(points),
        "chains": kind.chains,
        "worth": kind.worth,
        "dependent": dependent,
        "seconds": time.perf_counter() - start,
        "device": "CPU",
    }
    return {"rows": [{"method": method, "rejections": count} | common for method, count in counts.items()]}


def chains_table(record: Record) -> str:
    rows = {(row["kind"], row["method"]): row for row in record.results["rows"]}
    body = []
    for kind in dict.fromkeys(kind for kind, _ in rows):
        row = rows[kind, METHODS[0]]
        body.append(
            [
                kind,
                str(row["chains"]),
                str(row["n"]),
                f"{row['worth']:.0f}",
                f"{row['dependent'] / row['runs']:.2f}",
                *(_cell(rows[kind, method]) for method in METHODS),
            ]
        )
    head = ["draws", "chains", "n", "worth", "found dependent", *METHODS]
    return document(
        record,
        "Rejections at level 0.05, and runs, of autoregressive chains in five dimensions:",
        markdown(head, body),
        "Worth: independent draws, for a mean; alternating chains are worth more than they have. By blocks: "
        "as `check_draws` tests. As if independent: the same lenses with a sign per draw, without a critic. "
        f"Rates of right draws are bold where an exact test would lie below in 99.9 %. {devices(record)}",
    )


def _cell(row: dict[str, Any]) -> str:
    rate = Rate(row["rejections"], row["runs"]).value
    high = "shifted" not in row["kind"] and rate > rate_bound(LEVEL, row["runs"])
    return f"{f'**{rate:.3f}**' if high else f'{rate:.3f}'} ({row['runs']})"


def draw_chains(record: Record, folder: Path) -> list[Path]:
    """Rates by kind of chains and method."""
    from matplotlib import pyplot

    rows = record.results["rows"]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    with styled():
        figure, ax = pyplot.subplots(figsize=(5.5, 0.3 * len(kinds) + 1.2))
        for method in METHODS:
            own = [row for row in rows if row["method"] == method]
            places = [kinds.index(row["kind"]) for row in own]
            ax.plot([row["rejections"] / row["runs"] for row in own], places, "o", label=method)
        ax.axvline(LEVEL, linewidth=1, color="#9aa5b1")
        ax.set_yticks(range(len(kinds)), kinds)
        ax.set(xlabel="rejected at level 0.05", xlim=(-0.03, 1.03))
        ax.invert_yaxis()
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        return [save(figure, folder / "rates.png")]


STUDY = Study(
    name="level-of-chains",
    title="Draws that depend on each other: level and power",
    takes="15 minutes on one core",
    full=LevelOfChains(),
    tiny=LevelOfChains(kinds=("four short chains",), parts=1, each=2, tiny=True),
    run=run,
    table=chains_table,
    figures=draw_chains,
)
