"""Are these draws from this posterior? NUTS and mean-field variational inference, and exact draws, judged.

Draws of chains are thinned until they hardly depend on each other; for chains as they are see the study
level-of-chains.
"""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic import Combined, GofTest, Ksd, KsdAgg, Rate, ScoredPoints, check_draws
from steincritic.diagnosis.draws import judge_chains
from steincritic.errors import DoubtfulWarning
from steincritic.gof.multiplier import FEWEST
from steincritic.gof.power import trials_of
from steincritic.gof.serial import slowness_if_any, stein_series
from steincritic.models import PairModel
from steincritic.report.style import ACCENT, GRAY, INK
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from studies import show
from studies.cells import Row
from studies.posteriors.draws import mean_field, nuts
from studies.posteriors.models import POSTERIORS, Posterior
from studies.record import Record
from studies.show import LEVEL
from studies.study import Context, Outcome, Study

EXACT, MOMENTS, VI = "exact draws", "independent normals", "mean-field VI"
NUTS, RAW, CENTERED = "NUTS, thinned", "NUTS, not thinned", "NUTS, centred, thinned"  # as records have it
TELLING = {"eight schools": ("log tau",), "collinear regression": ("beta[1]", "beta[2]")}
_PAIRS = {"eight schools": ("mu", "log tau"), "collinear regression": ("beta[1]", "beta[2]")}
_CHAINS, _DRAWS = 4, 1000  # of a group, of a chain
_SHOWN = 500  # points of a figure


@dataclass(frozen=True, kw_only=True)
class PosteriorChecks:
    """Rates of rejection, by where the draws come from; and what is said of variational inference.

    independent: sources of independent draws, each tested at every n of `sizes`. chained: sources of
    chains, groups of four tested after thinning. strict: those that aggregated KSD tests as well.
    """

    independent: tuple[str, ...] = (EXACT, VI)
    sizes: tuple[int, ...] = (200, 400, 800)
    trials: int = 100
    chained: tuple[tuple[str, int], ...] = ((NUTS, 100), (RAW, 100), (CENTERED, 20))  # and groups
    strict: tuple[str, ...] = (EXACT, NUTS, RAW)
    strict_trials: int = 20
    raw: int = 100  # draws of a chain in a test that does not thin
    diagnosed: str = VI
    diagnoses: int = 10
    diagnosed_size: int = 2000
    tiny: bool = False


def run(config: PosteriorChecks, context: Context) -> Outcome:
    results: dict[str, Any] = {"rows": [], "mixing": {}, "diagnoses": {}}
    seconds = {}
    for name, kind in POSTERIORS.items():
        start, q, seed = time.perf_counter(), kind(), derive(context.seed, name)
        samples: list[tuple[str, Sequence[Points], bool]] = []
        for source in config.independent:
            x = independent_draws(name, q, source, config.trials * max(config.sizes), seed)
            for n in config.sizes:
                samples.append((source, x[: config.trials * n].view(config.trials, n, -1).unbind(), False))
            if source in config.strict:
                sets = x.view(config.trials, -1, x.shape[1])[: config.strict_trials, : _CHAINS * config.raw]
                samples.append((source, sets.unbind(), True))
        for source, groups in config.chained:
            if source != CENTERED or name == "eight schools":
                kept, worth = chained_draws(name, q, source, groups, config, seed)
                samples.append((source, kept, False))
                if source in config.strict:
                    samples.append((source, kept[: config.strict_trials], True))
                results["mixing"].setdefault(name, {})[source] = worth
        results["rows"] += [
            {"posterior": name, "source": source} | tested(q, sets, seed, strict=strict, tiny=config.tiny)
            for source, sets, strict in samples
        ]
        results["diagnoses"][name] = diagnoses(name, q, config, seed)
        seconds[name] = time.perf_counter() - start
    return Outcome(results, seconds)


def tested(q: Posterior, sets: Sequence[Points], seed: int, *, strict: bool, tiny: bool) -> Row:
    """Rejections among sets that may differ in size, by the test that `gof_test` chooses or a strict one."""
    usual = Combined(draws=39, reference=30, critics=None) if tiny else Combined()
    rate = Rate(0, 0)
    for n in sorted({len(x) for x in sets}):
        test: GofTest = KsdAgg() if strict else usual if n >= FEWEST else Ksd()
        alike = torch.stack([x for x in sets if len(x) == n]).to(torch.float32)
        rate += trials_of(PairModel(q.score), alike, seed=seed, test=test).rate()
    return {
        "method": KsdAgg.name if strict else Combined.name,
        "n": int(median(len(x) for x in sets)),
        "rejections": rate.rejections,
        "trials": rate.trials,
        "rate": rate.value,
        "interval": rate.interval(),
    }


def independent_draws(name: str, q: Posterior, source: str, n: int, seed: int) -> Points:
    seed = derive(seed, source)
    if source == VI:
        return mean_field(name, draws=n, seed=seed).to(torch.float64)
    x = q.sample(n, seed=seed)
    if source == EXACT:
        return x
    noise = torch.randn(x.shape, generator=generator(seed, "normals"), dtype=x.dtype)
    return x.mean(0) + x.std(0) * noise


def chained_draws(
    name: str, q: Posterior, source: str, groups: int, config: PosteriorChecks, seed: int
) -> tuple[list[Points], dict[str, float]]:
    """What is kept of each group of chains, and medians of what the chains are worth."""
    chains = nuts(name, chains=_CHAINS * groups, draws=_DRAWS, seed=seed, centered=source == CENTERED)
    sets = chains.view(groups, _CHAINS, _DRAWS, -1)
    if source == RAW:
        sets = sets[:, :, : config.raw]
    judged = [judge_chains(x, q.names, thin=1 if source == RAW else _thinning(q, x, seed)) for x in sets]
    kept = [x[:, :: mixing.thin].flatten(0, 1) for x, mixing in zip(sets, judged, strict=True)]
    fields = ("effective", "rhat", "thin", "kept")
    return kept, {field: float(median(getattr(mixing, field) for mixing in judged)) for field in fields}


def _thinning(q: Posterior, x: Tensor, seed: int) -> int:
    """Twice as many draws as are worth one, for Stein values that hardly depend on each other."""
    flat = x.flatten(0, 1).to(torch.float64)
    slowness = slowness_if_any(stein_series(ScoredPoints(flat, q.score(flat)), len(x)), seed=seed)
    return math.ceil(2 * slowness) if slowness > 1 else 1


def diagnoses(name: str, q: Posterior, config: PosteriorChecks, seed: int) -> dict[str, Any]:
    """What is said of the draws of one source, over fresh draws; the first is kept to be shown."""
    n, telling = config.diagnosed_size, TELLING[name]
    x = independent_draws(name, q, config.diagnosed, config.diagnoses * n, derive(seed, "diagnoses"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # these draws are wrong on purpose
        checks = [
            check_draws(q, part.to(torch.float32), seed=derive(seed, "check", k))
            for k, part in enumerate(x.view(config.diagnoses, n, -1))
        ]
    columns = [q.names.index(part) for part in _PAIRS[name]]
    return {
        "source": config.diagnosed,
        "n": n,
        "runs": len(checks),
        "telling": telling,
        "rejected": sum(check.rejected for check in checks),
        "named": sum({c.name for c in check.wrong_coordinates} >= {*telling} for check in checks),
        "in_first_rule": sum(
            any(part in region.rule for region in check.regions[:1] for part in telling) for check in checks
        ),
        "summary": checks[0].summary().splitlines(),
        "coordinates": [{"name": c.name, "z": c.z, "pvalue": c.pvalue} for c in checks[0].coordinates],
        "pair": _PAIRS[name],
        "posterior_points": q.sample(_SHOWN, seed=derive(seed, "shown"))[:, columns],
        "draws_points": x[:_SHOWN, columns],
    }


def posterior_table(record: Record) -> str:
    tests = {"combined": "combined", "ksdagg": "aggregated KSD, wild bootstrap"}
    rows = [
        [
            *(row["posterior"], row["source"], tests[row["method"]], str(row["n"])),
            f"{show.BRACKETS.format(row['rate'], *row['interval'])}, {row['trials']} runs",
        ]
        for row in record.results["rows"]
    ]
    parts = [show.markdown(["posterior", "draws", "test", "n", "rejected, 95 % interval"], rows)]
    mixing = [
        [name, source, f"{worth['effective']:.0f}", f"{worth['rhat']:.3f}", f"{worth['kept']:g}"]
        for name, sources in record.results["mixing"].items()
        for source, worth in sources.items()
    ]
    if mixing:
        header = ["posterior", "draws", "effective draws, slowest coordinate", "R-hat", "tested"]
        parts.append("What four chains are worth, medians:\n\n" + show.markdown(header, mixing))
    return show.document(
        record,
        *parts,
        "Level 0.05. Rates above it are false alarms for exact draws and for NUTS, and what is wanted for "
        "variational inference. n is the median number of draws tested.",
        *(_said(name, checks) for name, checks in record.results["diagnoses"].items()),
    )


def _said(name: str, checks: Row) -> str:
    lines = "\n".join(f"> {line}  " for line in checks["summary"])
    return (
        f"{name}, {checks['source']}, {checks['n']} draws, {checks['runs']} repetitions: rejected "
        f"{checks['rejected']} times, {' and '.join(checks['telling'])} named among the coordinates "
        f"{checks['named']} times, in the first rule {checks['in_first_rule']} times. The first of them:\n\n"
        f"{lines}"
    )


def draw_posteriors(record: Record, folder: Path) -> list[Path]:
    """Rates by posterior; of each, draws in the telling plane and the coordinates' share of the evidence."""
    rows, checks = record.results["rows"], record.results["diagnoses"]
    names, rates, draws = show.unique(rows, "posterior"), folder / "rates.png", folder / "draws.png"
    groups = [[row for row in rows if row["posterior"] == name] for name in names]
    height = 0.24 * max(map(len, groups)) + 1.1
    with show.picture(rates, 10.5, height, ncols=len(names), layout="constrained") as axes:
        for ax, name, group in zip(axes, names, groups, strict=True):
            for k, row in enumerate(group):
                color = INK if row["method"] == "combined" else show.PALE
                show.interval(ax, k, row["rate"], row["interval"], color)
            ax.axvline(LEVEL, color=GRAY, linewidth=0.8)
            show.name_lines(ax, [f"{row['source']}, n = {row['n']}" for row in group])
            ax.set(title=name, xlim=(-0.02, 1.02), xlabel="rejected at level 0.05 (blue: aggregated KSD)")
    height = 3.2 * len(checks)
    with show.picture(draws, 8.4, height, nrows=len(checks), ncols=2, layout="constrained") as axes:
        for (plane, bars), (name, check) in zip(axes, checks.items(), strict=True):
            for field, color, label in (
                ("posterior_points", GRAY, "posterior"),
                ("draws_points", ACCENT, check["source"]),
            ):
                plane.plot(*np.array(check[field]).T, ".", color=color, markersize=2.5, label=label)
            plane.set(xlabel=check["pair"][0], ylabel=check["pair"][1], title=name)
            plane.legend(markerscale=3, loc="best")
            coordinates = check["coordinates"]
            colors = [ACCENT if c["pvalue"] <= LEVEL else GRAY for c in coordinates]
            bars.barh(range(len(coordinates)), [c["z"] for c in coordinates], color=colors)
            show.name_lines(bars, [c["name"] for c in coordinates])
            bars.set(xlabel="z of the coordinate's share of the witness (red: adjusted p ≤ 0.05)")
    return [rates, draws]


STUDY = Study(
    name="posterior-checks",
    title="Draws of posteriors: NUTS and variational inference",
    takes="11 minutes on one core",
    full=PosteriorChecks(),
    tiny=PosteriorChecks(
        independent=(EXACT, MOMENTS),
        sizes=(60,),
        trials=3,
        chained=(),
        strict=(),
        raw=10,
        diagnosed=MOMENTS,
        diagnoses=1,
        diagnosed_size=120,
        tiny=True,
    ),
    run=run,
    table=posterior_table,
    figures=draw_posteriors,
)
