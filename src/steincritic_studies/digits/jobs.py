"""One cell of the study of digits: one method on many subsamples of n digits, a job of a sweep."""

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from steincritic.files import read_tensors
from steincritic.gof.panel import CrossFit
from steincritic.gof.split import Split
from steincritic.gof.trials import trials_of
from steincritic.rng import derive, generator
from steincritic.shapes import Points
from steincritic_studies.digits.fits import FlowFit, InParts, MachineFit, model_of
from steincritic_studies.digits.planted import digit_parts
from steincritic_studies.power.jobs import method_of

DIGITS, OWN = "digits", "the model's own draws"
TEST_NOISE = "test noise"  # between gray levels of the tested digits


@dataclass(frozen=True, kw_only=True)
class ImageCell:
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
def _model(fit: FlowFit | MachineFit, weights: str, device: str) -> InParts:
    return model_of(fit, read_tensors(Path(weights), device=device)[0])


@lru_cache(maxsize=1)
def _tested_digits(digits: Literal["mnist", "small"], folder: str, seed: int) -> Points:
    return digit_parts(digits, Path(folder) if folder else None)[1].logits(seed=derive(seed, TEST_NOISE))


def _rate(cell: ImageCell, data: str, model: InParts, sets: Tensor) -> dict[str, Any]:
    start = time.perf_counter()
    method, settings = _method(cell)
    seed = derive(cell.seed, data, cell.n)
    found = trials_of(model, sets, method=method, seed=seed, config=settings, null_pool=cell.null_runs)
    rate = found.rate()
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


def _method(cell: ImageCell) -> tuple[str, Any]:
    method, settings = method_of(cell.method, tiny=cell.tiny)
    if isinstance(settings, CrossFit):
        settings = replace(
            settings, cache=Path(cell.weights).parent / "null runs"
        )  # digits and own draws share
    if isinstance(settings, Split):
        settings = replace(settings, pool=cell.pool)
    return method, settings
