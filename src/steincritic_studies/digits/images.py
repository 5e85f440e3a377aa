"""Does a model of digits fit, where does it fail, and what does the witness show? A flow and an RBM.

The models learn from one part of the digits; tests see subsamples of the other.
"""

import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.diagnosis.check import check
from steincritic.diagnosis.check_result import CheckResult
from steincritic.files import read_tensors
from steincritic.gof.choose import gof_test
from steincritic.gof.combined import Combined
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.power import trials_of
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from steincritic.training.fit import Training
from steincritic_studies.digits.data import as_pixels, digit_parts
from steincritic_studies.digits.images_figures import draw_images, images_table
from steincritic_studies.digits.models import (
    FOR_DIGITS,
    FlowFit,
    LearnedFile,
    MachineFit,
    RescaledModel,
    learn,
    model_of,
)
from steincritic_studies.power.jobs import MEDIAN, tests_by_name
from steincritic_studies.study import Clock, Context, Outcome, Study

FLOW, MACHINE = "flow", "RBM"
DIGITS, OWN = "digits", "the model's own draws"
TEST_NOISE = "test noise"  # between gray levels of the tested digits
PUBLISHED = {"aggregated KSD": 0.945, MEDIAN: 0.06}  # another flow on MNIST, n = 500 [schrab2022]


@dataclass(frozen=True, kw_only=True)
class ImageModels:
    """Digits are MNIST's, or the small ones of scikit-learn.

    Own draws are tested at n = `level_at`, one of the counts.
    """

    models: tuple[str, ...] = (FLOW, MACHINE)
    digits: Literal["mnist", "small"] = "mnist"
    folder: Path | None = None
    flow: FlowFit = field(default_factory=FlowFit)
    machine: MachineFit = field(default_factory=MachineFit)
    methods: tuple[str, ...] = ("combined", "crossfit", "split", "aggregated KSD", MEDIAN)
    counts: tuple[int, ...] = (100, 200, 500)
    trials: int = 100
    level_at: int = 200
    null_runs: int = 299  # of the cross-fit test, which all trials of one n draw theirs from
    pool: int = 10  # model draws per tested point, of the split test
    diagnosed: int = 5000
    shown: int = 12
    tiny: bool = False

    def fit(self, name: str) -> FlowFit | MachineFit:
        return self.flow if name == FLOW else self.machine


@dataclass(frozen=True, kw_only=True)
class ImageCell:
    """One method on many subsamples of n digits: a job of a sweep."""

    model: str
    fit: FlowFit | MachineFit
    weights: str  # the file that learning wrote; null runs are kept beside it
    digits: Literal["mnist", "small"]
    folder: str  # of MNIST; empty: the usual one
    method: str
    n: int
    with_own: bool  # test sets of the model's own draws as well
    trials: int
    null_runs: int
    pool: int
    seed: int
    device: str
    tiny: bool = False


def run(config: ImageModels, context: Context) -> Outcome:
    clock = Clock(context.device)
    results: dict[str, Any] = {"rows": [], "models": {}, "published": PUBLISHED}
    train, test = digit_parts(config.digits, config.folder)
    x = test.logits(seed=derive(context.seed, TEST_NOISE)).to(context.device)
    for name in config.models:
        weights = context.jobs / f"{name}.safetensors"
        tensors, facts = learn(
            config.fit(name),
            train,
            test,
            weights,
            device=context.device,
            seed=derive(context.seed, name),
            callbacks=context.callbacks,
        )
        clock.lap(f"{name}, learning")
        results["rows"] += _rates(name, weights, config, context)
        clock.lap(f"{name}, tests")
        model = model_of(config.fit(name), tensors)
        results["models"][name] = facts | _seen(model, x, test.labels, config, context.seed)
        results["models"][name]["image_shape"] = train.image_shape
        clock.lap(f"{name}, diagnosis")
    return Outcome(results, clock.seconds)


def _rates(name: str, weights: Path, config: ImageModels, context: Context) -> list[dict[str, Any]]:
    """Power on subsamples of the digits at every n, and the level on the model's own draws at one."""
    cells = [
        ImageCell(
            model=name,
            fit=config.fit(name),
            weights=str(weights),
            digits=config.digits,
            folder=str(config.folder or ""),
            method=method,
            n=n,
            with_own=n == config.level_at,
            trials=config.trials,
            null_runs=config.null_runs,
            pool=config.pool,
            seed=context.seed,
            device=context.device.type,
            tiny=config.tiny,
        )
        for n in config.counts
        for method in config.methods
    ]
    parts = context.sweep(run_image_cell, cells)
    rows = [row for part in parts for row in part["rows"]]
    return sorted(rows, key=lambda row: bool(row["data"] == OWN))


def run_image_cell(cell: ImageCell) -> dict[str, Any]:
    model = _model(cell.fit, cell.weights, cell.device)
    x = _tested_digits(cell.digits, cell.folder, cell.seed).to(cell.device)
    source = generator(cell.seed, "subsamples", cell.n)
    rows = torch.stack([torch.randperm(len(x), generator=source)[: cell.n] for _ in range(cell.trials)])
    found = [_rate(cell, DIGITS, model, x[rows.to(x.device)])]
    if cell.with_own:
        own = model.sample(cell.trials * cell.n, seed=derive(cell.seed, "own draws"))
        found.append(_rate(cell, OWN, model, own.to(x).view(cell.trials, cell.n, -1)))
    return {"rows": found}


@lru_cache(maxsize=1)
def _model(fit: FlowFit | MachineFit, weights: str, device: str) -> RescaledModel:
    return model_of(fit, read_tensors(Path(weights), kind=LearnedFile.kind, device=device)[0])


@lru_cache(maxsize=1)
def _tested_digits(digits: Literal["mnist", "small"], folder: str, seed: int) -> Points:
    return digit_parts(digits, Path(folder) if folder else None)[1].logits(seed=derive(seed, TEST_NOISE))


def _rate(cell: ImageCell, data: str, model: RescaledModel, sets: Tensor) -> dict[str, Any]:
    start = time.perf_counter()
    rate = trials_of(model, sets, _test(cell), seed=derive(cell.seed, data, cell.n)).rate()
    return {
        "model": cell.model,
        "data": data,
        "method": cell.method,
        "n": cell.n,
        "rejections": rate.rejections,
        "trials": rate.trials,
        "power": rate.value,
        "interval": list(rate.interval()),
        "seconds": time.perf_counter() - start,
    }


def _test(cell: ImageCell) -> GofTest:
    test = tests_by_name(tiny=cell.tiny)[cell.method]
    if isinstance(test, CrossFit | Combined):  # digits and own draws share their null runs
        pool = max(cell.null_runs, test.draws or 0)
        return replace(test, cache=Path(cell.weights).parent / "null runs", null_pool=pool)
    return replace(test, pool=cell.pool) if isinstance(test, Split) else test


def _seen(model: RescaledModel, x: Points, labels: Tensor, config: ImageModels, seed: int) -> dict[str, Any]:
    """What a diagnosis shows: images at both ends of the witness, shares by pixel, digits by class."""
    rows = torch.randperm(len(x), generator=generator(seed, "diagnosed"))[: config.diagnosed]
    points, shown = x[rows.to(x.device)], config.shown
    split = Split(pool=config.pool, threshold="permutation", training=Training())
    test = gof_test(model, points, split, seed=derive(seed, "test"))
    d = check(model, points, seed=derive(seed, "diagnosis"), test=test, units="raw")
    assert d.missing is not None
    witness, labels = d.points.witness, labels[rows]
    order = witness.argsort(descending=True)
    lacking = d.missing.witness.argsort()[:shown]
    return {
        "pvalue": test.pvalue,
        "fisher": d.fisher.lower,
        "flagged": len(d.points),
        "missing": [len(d.missing), len(d.missing.witness)],
        "diagnosed": len(points),
        "highest": _gallery(points, order[:shown], labels),
        "lowest": _gallery(points, order[-shown:].flip(0), labels),
        "draws": as_pixels(model.sample(shown, seed=derive(seed, "shown"))),
        "lacking": as_pixels(d.missing.points.x[lacking.to(x.device)]),
        "by_class": _by_class(witness, labels),
        "pixels": _pixel_ratios(d),
    }


def _gallery(x: Points, rows: Tensor, labels: Tensor) -> dict[str, Any]:
    return {"images": as_pixels(x[rows.to(x.device)]), "labels": labels[rows].tolist()}


def _by_class(witness: Tensor, labels: Tensor) -> list[dict[str, Any]]:
    found = []
    for one in labels.unique().tolist():
        own = witness[labels == one]
        error = float(own.std()) / len(own) ** 0.5 if len(own) > 1 else 0.0
        found.append({"class": one, "mean": float(own.mean()), "se": error, "count": len(own)})
    return found


def _pixel_ratios(diagnosis: CheckResult) -> list[float]:
    """Each pixel's share of the witness over its standard error, by critics that have not seen the points."""
    singles = [slice(j, j + 1) for j in range(diagnosis.data.dim)]
    halves = diagnosis.halves
    shares = halves.gathered([half.critic.shares(half.points, singles).cpu().double() for half in halves])
    error = shares.std(0) / len(shares) ** 0.5
    ratios: list[float] = (shares.mean(0) / error.clamp(min=1e-300)).tolist()
    return [round(value, 2) for value in ratios]


_SMALL = ImageModels(
    digits="small",
    flow=FlowFit(hidden=(128, 128), steps=1500, batch_size=128),
    machine=MachineFit(hidden=32, learning=replace(FOR_DIGITS, critic=MLP(hidden=(128, 128)))),
    counts=(50, 100, 200),
    level_at=100,
    diagnosed=400,
)
_TINY = replace(
    _SMALL,
    models=(MACHINE,),  # the flow needs zuko
    machine=MachineFit(
        hidden=8, sweeps=40, learning=replace(FOR_DIGITS, steps=40, critic=MLP(hidden=(32, 32)), log_every=20)
    ),
    methods=("split", MEDIAN),
    counts=(40,),
    trials=2,
    null_runs=19,
    level_at=40,
    diagnosed=60,
    shown=4,
    tiny=True,
)

MNIST_MODELS = Study(
    name="image-models",
    title="A flow and an RBM of MNIST's digits",
    takes="20 minutes on an H200",
    full=ImageModels(),
    tiny=_TINY,
    run=run,
    table=images_table,
    figures=draw_images,
)
SMALL_MODELS = Study(
    name="small-images",
    title="A flow and an RBM of digits of 8 x 8",
    takes="6 minutes on an H200, 40 on one core",
    full=_SMALL,
    tiny=_TINY,
    run=run,
    table=images_table,
    figures=draw_images,
)
