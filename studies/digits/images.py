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

from steincritic import MLP, Combined, CrossFit, Split, Training, check, gof_test
from steincritic.files import read_tensors
from steincritic.gof.power import trials_of
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from studies.cells import MEDIAN, tests
from studies.digits.data import as_pixels, digit_parts
from studies.digits.figures import DIGITS, draw_images, images_table
from studies.digits.machine import SHORT_FIT, MachineFit
from studies.digits.models import FlowFit, LearnedFile, RescaledModel, learn, model_of
from studies.study import Context, Outcome, Study

MACHINE = "RBM"
PUBLISHED = {"aggregated KSD": 0.945, MEDIAN: 0.06}  # another flow on MNIST, n = 500 [schrab2022]
_NULL_RUNS = 299  # which all trials of one n draw theirs from
_POOL = 10  # model draws per tested point, of the split test


@dataclass(frozen=True, kw_only=True)
class ImageModels:
    """Digits are MNIST's, or the small ones of scikit-learn.

    Own draws are tested at n = `level_at`, one of the counts.
    """

    models: tuple[str, ...] = ("flow", MACHINE)
    digits: Literal["mnist", "small"] = "mnist"
    flow: FlowFit = field(default_factory=FlowFit)
    machine: MachineFit = SHORT_FIT
    methods: tuple[str, ...] = ("combined", "crossfit", "split", "aggregated KSD", MEDIAN)
    counts: tuple[int, ...] = (100, 200, 500)
    trials: int = 100
    level_at: int = 200
    diagnosed: int = 5000
    shown: int = 12
    tiny: bool = False

    def fit(self, name: str) -> FlowFit | MachineFit:
        return self.machine if name == MACHINE else self.flow


@dataclass(frozen=True, kw_only=True)
class ImageCell:
    """One method on many subsamples of n digits, and on as many sets of own draws: a job of a sweep."""

    config: ImageModels
    model: str
    weights: str  # the file that learning wrote; null runs are kept beside it
    method: str
    n: int
    seed: int
    device: str


def run(config: ImageModels, context: Context) -> Outcome:
    rows: list[dict[str, Any]] = []
    models: dict[str, Any] = {}
    train, test = digit_parts(config.digits)
    x = _tested(config, context.seed).to(context.device)
    for name in config.models:
        weights, seed = context.jobs / f"{name}.safetensors", derive(context.seed, name)
        tensors, facts = learn(config.fit(name), train, test, weights, context=context, seed=seed)
        common: dict[str, Any] = {"config": config, "model": name, "weights": str(weights)}
        cells = [
            ImageCell(**common, method=method, n=n, seed=context.seed, device=context.device.type)
            for n in config.counts
            for method in config.methods
        ]
        counted = [row for part in context.sweep(run_image_cell, cells) for row in part["rows"]]
        rows += sorted(counted, key=lambda row: bool(row["data"] != DIGITS))
        seen = _seen(model_of(config.fit(name), tensors), x, test.labels, config, context.seed)
        models[name] = {**facts, **seen, "image_shape": train.pixels.shape[1:]}
    return Outcome({"rows": rows, "models": models, "published": PUBLISHED})


def run_image_cell(cell: ImageCell) -> dict[str, Any]:
    """Power on subsamples of the digits, and at one n the level on the model's own draws."""
    model = _model(cell.config.fit(cell.model), cell.weights, cell.device)
    x = _tested(cell.config, cell.seed).to(cell.device)
    source, trials = generator(cell.seed, "subsamples", cell.n), cell.config.trials
    chosen = torch.stack([torch.randperm(len(x), generator=source)[: cell.n] for _ in range(trials)])
    rows = [_rate(cell, DIGITS, model, x[chosen.to(x.device)])]
    if cell.n == cell.config.level_at:
        draws = model.sample(trials * cell.n, seed=derive(cell.seed, "own draws"))
        rows.append(_rate(cell, "the model's own draws", model, draws.to(x).view(trials, cell.n, -1)))
    return {"rows": rows}


@lru_cache(maxsize=1)
def _model(fit: FlowFit | MachineFit, weights: str, device: str) -> RescaledModel:
    return model_of(fit, read_tensors(Path(weights), kind=LearnedFile.kind, device=device)[0])


@lru_cache(maxsize=1)
def _tested(config: ImageModels, seed: int) -> Points:
    return digit_parts(config.digits)[1].logits(seed=derive(seed, "test noise"))


def _rate(cell: ImageCell, data: str, model: RescaledModel, sets: Tensor) -> dict[str, Any]:
    start, test = time.perf_counter(), tests(tiny=cell.config.tiny)[cell.method]
    if isinstance(test, CrossFit | Combined):  # digits and own draws share their null runs
        pool, cache = max(_NULL_RUNS, test.draws or 0), Path(cell.weights).parent / "null runs"
        test = replace(test, cache=cache, null_pool=pool)
    elif isinstance(test, Split):
        test = replace(test, pool=_POOL)
    rate = trials_of(model, sets, test, seed=derive(cell.seed, data, cell.n)).rate()
    return {
        "model": cell.model,
        "data": data,
        "method": cell.method,
        "n": cell.n,
        "rejections": rate.rejections,
        "trials": rate.trials,
        "seconds": time.perf_counter() - start,
    }


def _seen(model: RescaledModel, x: Points, labels: Tensor, config: ImageModels, seed: int) -> dict[str, Any]:
    """What a diagnosis shows: images at both ends of the witness, shares by pixel, digits by class."""
    rows = torch.randperm(len(x), generator=generator(seed, "diagnosed"))[: config.diagnosed]
    points, labels, shown = x[rows.to(x.device)], labels[rows], config.shown
    split = Split(pool=_POOL, threshold="permutation", training=Training())
    test = gof_test(model, points, split, seed=derive(seed, "test"))
    diagnosis = check(model, points, seed=derive(seed, "diagnosis"), test=test)
    witness, missing, halves = diagnosis.points.witness, diagnosis.missing, diagnosis.halves
    assert missing is not None
    pixels = [slice(j, j + 1) for j in range(x.shape[1])]
    shares = halves.gathered([half.critic.shares(half.points, pixels).cpu().double() for half in halves])
    error = (shares.std(0) / len(shares) ** 0.5).clamp(min=1e-300)
    order = witness.argsort(descending=True).to(x.device)
    classes = [(k, witness[labels == k]) for k in labels.unique().tolist()]
    spreads = [of_class.std(correction=min(1, len(of_class) - 1)) for _, of_class in classes]
    return {
        "pvalue": test.pvalue,
        "fisher": diagnosis.fisher.lower,
        "flagged": len(diagnosis.points),
        "missing": [len(missing), len(missing.witness)],
        "diagnosed": len(points),
        "highest": {"images": as_pixels(points[order[:shown]])},
        "lowest": {"images": as_pixels(points[order[-shown:].flip(0)])},
        "draws": as_pixels(model.sample(shown, seed=derive(seed, "shown"))),
        "lacking": as_pixels(missing.points.x[missing.witness.argsort()[:shown].to(x.device)]),
        "by_class": [
            {"class": k, "mean": float(of_class.mean()), "se": float(sd / len(of_class) ** 0.5)}
            for (k, of_class), sd in zip(classes, spreads, strict=True)
        ],
        "pixels": [round(value, 2) for value in (shares.mean(0) / error).tolist()],
    }


MNIST_MODELS = Study(
    name="image-models",
    title="A flow and an RBM of MNIST's digits",
    takes="20 minutes on an H200",
    full=ImageModels(),
    tiny=ImageModels(
        models=(MACHINE,),  # the flow needs zuko
        digits="small",
        machine=replace(SHORT_FIT, hidden=8, sweeps=40, steps=40, critic=MLP(hidden=(32, 32)), log_every=20),
        methods=("split", MEDIAN),
        counts=(40,),
        trials=2,
        level_at=40,
        diagnosed=60,
        shown=4,
        tiny=True,
    ),
    run=run,
    table=images_table,
    figures=draw_images,
)
SMALL_MODELS = replace(
    MNIST_MODELS,
    name="small-images",
    title="A flow and an RBM of digits of 8 x 8",
    takes="6 minutes on an H200, 40 on one core",
    full=ImageModels(
        digits="small",
        flow=FlowFit(hidden=(128, 128), steps=1500, batch_size=128),
        machine=replace(SHORT_FIT, hidden=32, critic=MLP(hidden=(128, 128))),
        counts=(50, 100, 200),
        level_at=100,
        diagnosed=400,
    ),
)
