"""True digits among the draws of learned machines, and how critics find them: [repasky2023] section 6.3.

q is a Gaussian-Bernoulli RBM that a Stein critic taught MNIST in logit space; p is 97 % of its own draws
and 3 % true ones. There are several machines, learned from several seeds, as what holds for one need not hold
for the next. They learn from the training part of the digits, the critics' ones come from it, too; all ones
that critics are measured on come from the test part.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from steincritic import MLP, ScoredPoints, Staged, Training, fit_bank, fixed
from steincritic.critics import Bank
from steincritic.files import plain
from steincritic.models import GaussianBernoulliRBM
from steincritic.models.adapters.outside import require
from steincritic.rng import derive, generator
from steincritic.shapes import PerMember
from steincritic.stein import stein_values
from steincritic.training import FittedBank
from studies.digits.claims import EARLY
from studies.digits.data import Digits, as_pixels, digit_parts
from studies.digits.figures import digits_table, draw_digits
from studies.digits.machine import MachineFit, machine_of
from studies.digits.models import learn
from studies.digits.readings import embedding, gallery, mean_test, power_proxy, ranking
from studies.record import hardware
from studies.study import Context, Outcome, Study

_ROWS = 2000  # points whose witness is taken at a time
_SCHEMES: dict[str, Staged] = {
    **{name: fixed(float(name)) for name in ("1e-3", "1e-2", "1e-1", "1", "2")},
    "staged 0.90": Staged(initial=0.5, floor=1e-3, decay=0.90, every=20),
}


@dataclass(frozen=True, kw_only=True)
class PlantedDigits:
    """The paper's settings where it has one. `schemes` maps names to stagings; the last is looked at."""

    schemes: Mapping[str, Staged] = field(default_factory=lambda: _SCHEMES)
    machine: MachineFit = field(default_factory=MachineFit)
    machines: int = 3
    digits: Literal["mnist", "small"] = "mnist"
    foreign_class: int = 1
    share: float = 0.03  # of foreign digits in p
    replicas: int = 2  # critics per scheme and machine
    trained: int = 2000
    validated: int = 1000  # points of p, and as many draws of q, for the curves
    epochs: int = 25
    width: int = 512
    tested: int = 100  # points of one test
    draws: int = 500
    pool: int = 5000  # model draws for the null, and to compare ranked points with
    judged: int = 6000  # points that are ranked, listed and mapped
    fdr: float = 0.1
    shown: int = 12  # images at either end
    mapped: int = 1500  # points of the map that the record keeps

    def foreign(self, n: int) -> int:
        return round(self.share * n)

    @property
    def model_draws(self) -> int:
        """All chains that are needed; no draw is used twice."""
        mixed = [*[self.trained, self.validated] * self.replicas, self.tested, self.judged]
        alone = self.replicas * self.validated + self.pool
        return sum(n - self.foreign(n) for n in mixed) + alone


@dataclass(frozen=True, kw_only=True)
class MachineCell:
    """A machine with all its critics: a job of a sweep. The first one's points are shown, too."""

    config: PlantedDigits
    number: int
    folder: str  # where its weights are kept
    seed: int
    device: str


def run(config: PlantedDigits, context: Context) -> Outcome:
    require("sklearn", extra="sklearn")  # for the map, which comes last
    digit_parts(config.digits)  # said before any job if they are not there
    alone = replace(config, machines=1)  # more machines may come later: a job does not know how many
    common: dict[str, Any] = {"config": alone, "folder": str(context.jobs), "device": context.device.type}
    cells = [
        MachineCell(number=k, seed=derive(context.seed, "machine", k), **common)
        for k in range(config.machines)
    ]
    parts = context.sweep(run_machine, cells)
    rows = [
        _row(name, config.schemes[name], [part["critics"][name] for part in parts]) for name in config.schemes
    ]
    machines = [part["machine"] for part in parts]
    results = {
        "rows": rows,
        "leads": [_lead(rows[-1], row) for row in rows[:-1]],
        "machines": machines,
        **parts[0]["shown"],
    }
    seconds = {
        "learning": sum(machine["seconds"] for machine in machines),
        "draws, critics, readings": sum(part["seconds"] for part in parts),
    }
    return Outcome(results, seconds, tuple(sorted({part["device"] for part in parts})))


def run_machine(cell: MachineCell) -> dict[str, Any]:
    """Curves and readings of all critics of a machine, by scheme."""
    config, device = cell.config, torch.device(cell.device)
    train, test = digit_parts(config.digits)
    path = Path(cell.folder) / f"machine-{cell.number}.safetensors"
    context = Context(device=device, seed=cell.seed)
    parameters, learning = learn(config.machine, train, test, path, context=context, seed=cell.seed)
    start = time.perf_counter()
    model = machine_of(config.machine, parameters)
    draws = model.sample(config.model_draws, seed=derive(cell.seed, "model draws"))
    points = deal(config, model, draws, train, test, context)
    fitted, curves = _train(config, points, context)
    critics, shown = _read(config, fitted, points, curves, cell)
    machine = {
        "draws": as_pixels(draws[-config.shown :]),
        "image_shape": train.pixels.shape[1:],
        "mean": {"data": float(train.logits(seed=cell.seed).mean()), "draws": float(draws.mean())},
        **learning,
    }
    about = {"seconds": time.perf_counter() - start, "device": hardware(device)}
    return dict(plain({"critics": critics, "machine": machine, "shown": shown, **about}))


def deal(
    config: PlantedDigits,
    model: GaussianBernoulliRBM,
    draws: Tensor,
    train: Digits,
    test: Digits,
    context: Context,
) -> dict[str, ScoredPoints]:
    """Points for each purpose, foreign ones first; no draw of the model and no digit is taken twice."""
    of_model = iter(draws.float())
    foreign = {}
    for name, part in (("train", train), ("test", test)):
        seed, ones = derive(context.seed, name), part.only(config.foreign_class)
        order = torch.randperm(len(ones), generator=generator(seed, "order"))
        foreign[name] = iter(ones[order].logits(seed=derive(seed, "noise")).to(context.device))

    def taken(n: int, name: str | None = None) -> Tensor:
        rows = [next(foreign[name]) for _ in range(config.foreign(n))] if name else []
        return torch.stack([*rows, *(next(of_model) for _ in range(n - len(rows)))])

    replicas = range(config.replicas)
    sets = {  # of critics (replicas, n, d), then of tests and lists (n, d)
        "train": torch.stack([taken(config.trained, "train") for _ in replicas]),
        "validation": torch.stack([taken(config.validated, "test") for _ in replicas]),
        "null": torch.stack([taken(config.validated) for _ in replicas]),
        "tested": taken(config.tested, "test"),
        "judged": taken(config.judged, "test"),
        "pool": taken(config.pool),
    }
    return {name: ScoredPoints(x, model.score(x)) for name, x in sets.items()}


def _train(
    config: PlantedDigits, points: dict[str, ScoredPoints], context: Context
) -> tuple[FittedBank, dict[str, Tensor]]:
    """All critics; by epoch and critic their power proxy and validation Stein discrepancy."""
    curves: dict[str, list[Tensor]] = {"power_proxy": [], "discrepancy": []}

    def watch(epoch: int, bank: Bank, lam: PerMember) -> None:
        schemes = [bank[k : k + config.replicas] for k in range(0, len(bank), config.replicas)]
        data, null = (  # the same points for every scheme
            torch.cat([stein_values(of.score, *critics.field_and_divergence(of.x)) for critics in schemes])
            for of in (points["validation"], points["null"])
        )
        curves["power_proxy"].append(power_proxy(data, null).cpu())
        curves["discrepancy"].append((lam * data.mean(-1)).cpu())

    schemes, replicas = config.schemes.values(), range(config.replicas)
    fitted = fit_bank(  # replica r of every scheme sees the same data and starts from the same weights
        points["train"].map(lambda t: t.repeat(len(schemes), 1, 1)),
        staging=[staging for staging in schemes for _ in replicas],
        seeds=[derive(context.seed, "critic", r) for r in replicas] * len(schemes),
        network=MLP(hidden=(config.width, config.width)),
        training=Training(epochs=config.epochs, batch_size=100, learning_rate=1e-3),
        callbacks=context.callbacks,
        observers=[watch],
    )
    fitted.require_success()
    return fitted, {name: torch.stack(rows).double() for name, rows in curves.items()}


def _read(
    config: PlantedDigits,
    fitted: FittedBank,
    points: dict[str, ScoredPoints],
    curves: dict[str, Tensor],
    cell: MachineCell,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """By scheme what is read off each critic; null, images and map of the last one's first critic."""
    by_scheme: dict[str, Any] = {}
    foreign = torch.arange(config.judged) < config.foreign(config.judged)
    for k, name in enumerate(config.schemes):
        members = slice(k * config.replicas, (k + 1) * config.replicas)
        values = {key: witness(fitted[members], points[key]) for key in ("tested", "judged", "pool")}
        power, discrepancy = (curves[key][:, members] for key in ("power_proxy", "discrepancy"))
        readings: dict[str, list[float]] = {
            "early_power_proxy": power[:EARLY].mean(0).tolist(),
            "early_discrepancy": discrepancy[:EARLY].mean(0).tolist(),
            "last_power_proxy": power[-1].tolist(),
            "mean_discrepancy": discrepancy.mean(0).tolist(),
        }
        nulls = []
        for r in range(config.replicas):
            tested, judged, pool = (of_kind[r] for of_kind in values.values())
            ranks = ranking(judged, foreign, pool, shown=config.shown, fdr=config.fdr)
            test, draws = mean_test(
                tested, judged, pool, draws=config.draws, seed=derive(cell.seed, "reading", r)
            )
            for key, value in (ranks | test).items():
                readings.setdefault(key, []).append(value)
            nulls.append(draws)
        by_scheme[name] = {"readings": readings, "power_proxy": power, "discrepancy": discrepancy}
    if cell.number:
        return by_scheme, {}
    shown, x = values["judged"][0], points["judged"].x.cpu()
    counts, edges = np.histogram(nulls[0].cpu().numpy(), 40)
    null = {"counts": counts.tolist(), "edges": edges.tolist(), "quantile95": float(nulls[0].quantile(0.95))}
    return by_scheme, {
        "null": {**null, "statistic": readings["statistic"][0], "scheme": name},
        "gallery": gallery(x, shown, foreign, config.shown),
        "map": embedding(x, shown, foreign, kept=config.mapped, seed=derive(cell.seed, "map")),
    }


def witness(fitted: FittedBank, points: ScoredPoints) -> Tensor:
    """(critics, n) on the CPU, some thousand points at a time."""
    parts = [fitted.witness(points[i : i + _ROWS]).cpu() for i in range(0, len(points), _ROWS)]
    return torch.cat(parts, dim=1)


def _row(name: str, staging: Staged, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A scheme over all machines."""
    curves = {key: torch.tensor([part[key] for part in parts]) for key in ("power_proxy", "discrepancy")}
    return {
        "scheme": name,
        "staging": staging,
        **{key: _spread([part["readings"][key] for part in parts]) for key in parts[0]["readings"]},
        "curves": {
            key: {"mean": value.mean((0, 2)), "sd": value.std((0, 2))} for key, value in curves.items()
        },
    }


def _spread(values: list[list[float]]) -> dict[str, Any]:
    """Values by machine and critic: the mean, and its error and 95 % interval over machines."""
    from scipy.stats import t

    means = [fmean(critics) for critics in values]
    mean, se = fmean(means), stdev(means) / len(means) ** 0.5
    half = se * float(t.ppf(0.975, len(means) - 1))
    return {
        "mean": mean,
        "se": se,
        "interval": [mean - half, mean + half],
        "machines": means,
        "values": values,
    }


def _lead(staged: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What staging has more than another scheme, critic by critic on the same data from the same weights."""
    keys = ("early_power_proxy", "early_discrepancy", "last_power_proxy")
    more = {
        key: _spread((np.array(staged[key]["values"]) - np.array(other[key]["values"])).tolist())
        for key in keys
    }
    return {"scheme": other["scheme"], **more}


STUDY = Study(
    name="mnist",
    title="True digits among the draws of learned machines",
    takes="half an hour on one core",
    full=PlantedDigits(),
    tiny=PlantedDigits(
        schemes={name: _SCHEMES[name] for name in ("1", "staged 0.90")},
        machine=MachineFit(
            hidden=16, sweeps=100, steps=40, batch_size=64, critic=MLP(hidden=(32, 32)), log_every=20
        ),
        machines=2,
        digits="small",
        share=0.05,
        replicas=2,
        trained=400,
        validated=200,
        epochs=6,
        width=32,
        pool=2000,
        draws=99,
        judged=300,
        mapped=200,
    ),
    run=run,
    table=digits_table,
    figures=draw_digits,
)
