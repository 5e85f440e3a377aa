"""Level and power of the default test on models with bounds, with a control that must fail.

The control tests the very same draws by scores alone in the columns themselves (KSD with its wild bootstrap).
Stein's identity lacks its boundary term there, so it rejects right data.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steincritic.gof.combined import Combined
from steincritic.gof.kernel import Ksd
from steincritic.gof.power import Rate, trials_of
from steincritic.gof.test import GofTest
from steincritic.lenses import Critics
from steincritic.models import BoundedModel, PairModel
from steincritic.models.base import Model
from steincritic.report.style import save, styled
from steincritic.rng import derive
from steincritic.training.fit import Training
from steincritic_studies.bounded.families import FAMILIES, TURNED
from steincritic_studies.record import Record
from steincritic_studies.study import Context, Outcome, Study
from steincritic_studies.tables import LEVEL, band, devices, document, markdown

_NAMED = {family.name: family for family in (*FAMILIES, *TURNED)}
_POWER_ALONE = tuple(family.name for family in TURNED)
_MANY = ("exponential", "Dirichlet, 4 parts")  # with 2,000 runs
_WITHOUT_DRAWS = ("exponential", "bounds= of a pair, 2 columns")
_POOL = 400  # null sets of each part of the tests
DEMANDED = 0.8  # power at a change of 25 %, n = 300


@dataclass(frozen=True, kw_only=True)
class BoundedJob:
    """Tests of own draws, or of draws with a changed parameter."""

    family: str
    n: int
    runs: int
    part: int
    changed: bool
    draws: bool  # whether the test may draw from the model
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class BoundedSupports:
    """Families by name.

    Args:
        runs: of one part of the tests.
        parts: of the families with many tests of own draws.
    """

    families: tuple[str, ...] = tuple(_NAMED)
    sizes: tuple[int, ...] = (100, 300)
    power_at: int = 300
    runs: int = 400
    parts: int = 5
    tiny: bool = False


def run(config: BoundedSupports, context: Context) -> Outcome:
    start = time.perf_counter()
    jobs = [
        BoundedJob(
            family=name,
            n=n,
            runs=config.runs,
            part=part,
            changed=changed,
            draws=draws,
            seed=context.seed,
            tiny=config.tiny,
        )
        for name in config.families
        for draws in (True, False)
        if draws or name in _WITHOUT_DRAWS
        for changed, sizes in ((False, config.sizes), (True, (config.power_at,)))
        if changed or name not in _POWER_ALONE
        for n in sizes
        for part in range(config.parts if name in _MANY and draws and not changed else 1)
    ]
    rows = list(context.sweep(run_bounded_job, jobs))
    seconds = {"total": time.perf_counter() - start, "jobs": float(sum(row["seconds"] for row in rows))}
    changes = {name: _NAMED[name].change for name in config.families}
    return Outcome({"rows": rows, "changes": changes, "demanded": DEMANDED}, seconds)


def run_bounded_job(job: BoundedJob) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    start = time.perf_counter()
    family = _NAMED[job.family]
    model = family.own(device)
    own = derive(job.seed, "bounded", job.family, job.n, job.part, int(job.changed), int(job.draws))
    source = family.other(device) if job.changed else model
    x = source.sample(job.runs * job.n, seed=derive(own, "data")).view(job.runs, job.n, -1)
    tested: Model = model if job.draws else BoundedModel(PairModel(model.score), model.coordinates)
    found = {"combined": trials_of(tested, x, _test(job, own), seed=own, device=device).rate().rejections}
    if not job.changed and job.draws and not job.part:
        raw = trials_of(PairModel(model.score), x, Ksd(draws=199), seed=own, device=device)
        found["control"] = raw.rate().rejections
    return {
        "family": job.family,
        "n": job.n,
        "changed": job.changed,
        "draws": job.draws,
        "tests": job.runs,
        "null_sets": _POOL if job.draws else 0,
        "rejections": found,
        "seconds": time.perf_counter() - start,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
    }


def _test(job: BoundedJob, seed: int) -> GofTest:
    if job.tiny:
        critics = Critics(folds=2, training=Training(epochs=4), look=1) if job.draws else None
        return Combined(draws=19, reference=20, critics=critics, cache=False, null_seed=seed)
    return Combined(null_seed=seed, null_pool=_POOL if job.draws else None, cache=False)


def cells(record: Record) -> list[dict[str, Any]]:
    """The parts of the same tests together."""
    joined: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in record.results["rows"]:
        key = tuple(row[name] for name in ("family", "n", "changed", "draws"))
        cell = joined.setdefault(key, {**row, "tests": 0, "null_sets": 0, "rejections": {}, "of": {}})
        cell["tests"] += row["tests"]
        cell["null_sets"] += row["null_sets"]
        for method, count in row["rejections"].items():
            cell["rejections"][method] = cell["rejections"].get(method, 0) + count
            cell["of"][method] = cell["of"].get(method, 0) + row["tests"]
    return list(joined.values())


def bounded_table(record: Record) -> str:
    found = cells(record)
    level = [_level_row(cell) for cell in found if not cell["changed"]]
    power = [_power_row(cell, record) for cell in found if cell["changed"]]
    return document(
        record,
        markdown(
            [
                "model",
                "how",
                "n",
                "tests",
                "rejected",
                "99.9 % band",
                "inside",
                "control: KSD of raw columns",
            ],
            level,
        ),
        "Share of tests of the model's own draws that reject at level 0.05; the control tests the same draws "
        "by scores alone without the change of variables.",
        markdown(["model", "change", "how", "n", "tests", "power", "95 % interval", "reached"], power),
        f"Power where one parameter is changed by 25 %; demanded: {record.results['demanded']}. "
        f"{devices(record)}",
    )


def _how(cell: dict[str, Any]) -> str:
    return "default" if cell["draws"] else "scores alone"


def _level_row(cell: dict[str, Any]) -> list[str]:
    rate = cell["rejections"]["combined"] / cell["tests"]
    low, high = band(cell["tests"], cell["null_sets"] or 10**9)
    control = "–"
    if "control" in cell["of"]:
        control = f"{cell['rejections']['control'] / cell['of']['control']:.3f}"
    inside = "yes" if low <= rate <= high else "**no**"
    shown = [f"{rate:.4f}", f"{low:.4f} to {high:.4f}", inside, control]
    return [cell["family"], _how(cell), str(cell["n"]), str(cell["tests"]), *shown]


def _power_row(cell: dict[str, Any], record: Record) -> list[str]:
    rate = Rate(cell["rejections"]["combined"], cell["tests"])
    low, high = rate.interval()
    reached = "yes" if rate.value >= record.results["demanded"] else "**no**"
    shown = [f"{rate.value:.3f}", f"{low:.3f} to {high:.3f}", reached if cell["draws"] else "–"]
    change = record.results["changes"][cell["family"]]
    return [cell["family"], change, _how(cell), str(cell["n"]), str(cell["tests"]), *shown]


def draw_bounded(record: Record, folder: Path) -> list[Path]:
    """Level with its band and the control on the left, power on the right."""
    from matplotlib import pyplot

    found = [cell for cell in cells(record) if cell["draws"]]
    names = list(dict.fromkeys(cell["family"] for cell in found))
    with styled():
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 0.4 * len(names) + 1.3), sharey=True)
        for cell in found:
            y = float(names.index(cell["family"]))
            rate = cell["rejections"]["combined"] / cell["tests"]
            if cell["changed"]:
                low, high = Rate(cell["rejections"]["combined"], cell["tests"]).interval()
                right.plot((low, high), (y, y), color="#9aa5b1", linewidth=3)
                right.plot(rate, y, "o", color="#1f6f8b", markersize=5)
                continue
            y += 0.14 if cell["n"] == max(c["n"] for c in found) else -0.14
            left.plot(band(cell["tests"], cell["null_sets"]), (y, y), color="#9aa5b1", linewidth=5, alpha=0.5)
            left.plot(rate, y, "o", color="#1f6f8b", markersize=4)
            if "control" in cell["of"]:
                left.plot(cell["rejections"]["control"] / cell["of"]["control"], y, "^", color="#c0392b")
        left.axvline(LEVEL, color="#9aa5b1", linewidth=0.8)
        right.axvline(record.results["demanded"], color="#9aa5b1", linewidth=0.8, linestyle=":")
        left.set_yticks(range(len(names)), names)
        left.set(xlabel="own draws rejected at 0.05 (red: control)", xlim=(0, 1.05))
        right.set(xlabel="power at a change of 25 %", xlim=(0, 1.05))
        left.invert_yaxis()
        return [save(figure, folder / "bounded.png")]


STUDY = Study(
    name="bounded",
    title="Models on half-lines, in boxes and on simplexes: level and power",
    takes="a few minutes on an H200, about 2 hours on one core",
    full=BoundedSupports(),
    tiny=BoundedSupports(
        families=("exponential", "Dirichlet, 4 parts"), sizes=(20,), power_at=20, runs=6, parts=2, tiny=True
    ),
    run=run,
    table=bounded_table,
    figures=draw_bounded,
)
