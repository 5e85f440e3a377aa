"""Are these draws from this posterior? NUTS and mean-field variational inference, and exact draws, judged.

Draws of chains are thinned until they hardly depend on each other; for chains as they are see the study
level-of-chains.
"""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.draws import Mixing, check_draws, judge_chains
from steincritic.errors import DoubtfulWarning
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.combined import Combined
from steincritic.gof.kernel import Ksd
from steincritic.gof.multiplier import FEWEST
from steincritic.gof.power import Rate, trials_of
from steincritic.gof.serial import slowness_if_any, stein_series
from steincritic.gof.test import GofTest
from steincritic.models.density import PairModel
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from steincritic_studies.posteriors import draws as posterior_draws
from steincritic_studies.posteriors.figures import draw_posteriors, posterior_table
from steincritic_studies.posteriors.models import POSTERIORS, Posterior
from steincritic_studies.study import Context, Outcome, Study

EXACT, MOMENTS, VI = "exact draws", "independent normals", "mean-field VI"
NUTS, RAW, CENTERED = "NUTS, thinned", "NUTS, not thinned", "NUTS, centred, thinned"  # as records have it
TELLING = {"eight schools": ("log tau",), "collinear regression": ("beta[1]", "beta[2]")}
_PAIRS = {"eight schools": ("mu", "log tau"), "collinear regression": ("beta[1]", "beta[2]")}
_CHAINS = 4
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
    warmup: int = 500
    draws: int = 1000  # of a chain
    raw: int = 100  # draws of a chain in a test that does not thin
    diagnosed: str = VI
    diagnoses: int = 10
    diagnosed_size: int = 2000
    tiny: bool = False


def run(config: PosteriorChecks, context: Context) -> Outcome:
    results: dict[str, Any] = {"rows": [], "mixing": {}, "diagnoses": {}}
    seconds = {}
    for name, kind in POSTERIORS.items():
        start = time.perf_counter()
        q = kind()
        seed = derive(context.seed, name)
        results["rows"] += _independent_rows(name, q, config, seed)
        for source, groups in config.chained:
            if source != CENTERED or name == "eight schools":
                rows, mixing = _chained_rows(name, q, source, groups, config, seed)
                results["rows"] += rows
                results["mixing"].setdefault(name, {})[source] = mixing
        results["diagnoses"][name] = _diagnoses(name, q, config, seed)
        seconds[name] = time.perf_counter() - start
    return Outcome(results, seconds)


def _independent_rows(name: str, q: Posterior, config: PosteriorChecks, seed: int) -> list[dict[str, Any]]:
    rows = []
    for source in config.independent:
        x = independent_draws(name, q, source, config.trials * max(config.sizes), seed)
        for n in config.sizes:
            sets = list(x[: config.trials * n].view(config.trials, n, -1))
            rows.append(_row(name, source, q, sets, config, seed))
        if source in config.strict:
            sets = list(x.view(config.trials, -1, x.shape[1])[: config.strict_trials, : _CHAINS * config.raw])
            rows.append(_row(name, source, q, sets, config, seed, strict=True))
    return rows


def _chained_rows(
    name: str, q: Posterior, source: str, groups: int, config: PosteriorChecks, seed: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    drawn = posterior_draws.nuts_centered if source == CENTERED else posterior_draws.nuts
    chains = drawn(name, chains=_CHAINS * groups, warmup=config.warmup, draws=config.draws, seed=seed)
    sets = chains.view(groups, _CHAINS, config.draws, -1)
    if source == RAW:
        sets = sets[:, :, : config.raw]
    steps = [1 if source == RAW else _thinning(q, x, seed) for x in sets]
    judged = [judge_chains(x, q.names, thin=step) for x, step in zip(sets, steps, strict=True)]
    kept = [x[:, :: mixing.thin].flatten(0, 1) for x, mixing in zip(sets, judged, strict=True)]
    rows = [_row(name, source, q, kept, config, seed)]
    if source in config.strict:
        rows.append(_row(name, source, q, kept[: config.strict_trials], config, seed, strict=True))
    return rows, _summary_of(judged)


def _thinning(q: Posterior, x: Tensor, seed: int) -> int:
    """Twice as many draws as are worth one, for Stein values that hardly depend on each other."""
    flat = x.flatten(0, 1).to(torch.float64)
    slowness = slowness_if_any(stein_series(ScoredPoints(flat, q.score(flat)), len(x)), seed=seed)
    return math.ceil(2 * slowness) if slowness > 1 else 1


def independent_draws(name: str, q: Posterior, source: str, n: int, seed: int) -> Points:
    seed = derive(seed, source)
    if source == VI:
        return posterior_draws.mean_field(name, draws=n, seed=seed).to(torch.float64)
    x = q.sample(n, seed=seed)
    if source == EXACT:
        return x
    noise = torch.randn(x.shape, generator=generator(seed, "normals"), dtype=x.dtype)
    return x.mean(0) + x.std(0) * noise


def _row(
    name: str,
    source: str,
    q: Posterior,
    sets: Sequence[Points],
    config: PosteriorChecks,
    seed: int,
    *,
    strict: bool = False,
) -> dict[str, Any]:
    usual = Combined(draws=39, reference=30, critics=None) if config.tiny else Combined()
    rate = Rate(0, 0)
    for n in sorted({len(x) for x in sets}):
        test: GofTest = KsdAgg() if strict else usual if n >= FEWEST else Ksd()  # as `gof_test` chooses
        alike = torch.stack([x for x in sets if len(x) == n]).to(torch.float32)
        found = trials_of(PairModel(q.score), alike, seed=seed, test=test)
        rate += found.rate()
    low, high = rate.interval()
    return {
        "posterior": name,
        "source": source,
        "method": KsdAgg.name if strict else Combined.name,
        "n": int(median(len(x) for x in sets)),
        "rejections": rate.rejections,
        "trials": rate.trials,
        "rate": rate.value,
        "interval": [low, high],
    }


def _summary_of(judged: Sequence[Mixing]) -> dict[str, float]:
    fields = ("effective", "rhat", "thin", "kept")
    return {field: float(median(getattr(mixing, field) for mixing in judged)) for field in fields}


def _diagnoses(name: str, q: Posterior, config: PosteriorChecks, seed: int) -> dict[str, Any]:
    """What is said of the draws of one source, over fresh draws; the first is kept to be shown."""
    n = config.diagnosed_size
    x = independent_draws(name, q, config.diagnosed, config.diagnoses * n, derive(seed, "diagnoses"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # these draws are wrong on purpose
        found = [
            check_draws(q, part.to(torch.float32), seed=derive(seed, "check", k))
            for k, part in enumerate(x.view(config.diagnoses, n, -1))
        ]
    telling = TELLING[name]
    named = [{c.name for c in d.wrong_coordinates} >= set(telling) for d in found]
    ruled = [any(part in r.rule for r in d.regions[:1] for part in telling) for d in found]
    columns = [q.names.index(part) for part in _PAIRS[name]]
    first = found[0]
    return {
        "source": config.diagnosed,
        "n": n,
        "runs": len(found),
        "telling": list(telling),
        "rejected": sum(d.rejected for d in found),
        "named": sum(named),
        "in_first_rule": sum(ruled),
        "summary": first.summary().splitlines(),
        "coordinates": [{"name": c.name, "z": c.z, "pvalue": c.pvalue} for c in first.coordinates],
        "pair": list(_PAIRS[name]),
        "posterior_points": q.sample(_SHOWN, seed=derive(seed, "shown"))[:, columns],
        "draws_points": x[:_SHOWN, columns],
    }


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
