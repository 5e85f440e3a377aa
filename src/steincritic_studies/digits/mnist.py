"""True digits among the draws of a learned machine, and how critics find them: [repasky2023] section 6.3.

q is a Gaussian-Bernoulli RBM that a Stein critic taught MNIST in logit space; p is 97 % of its own draws
and 3 % true ones. The machine learns from the training part of the digits, the critics' ones come from
it, too; all ones that critics are measured on come from the test part.
"""

from dataclasses import replace
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.models.rbm import GaussianBernoulliRBM
from steincritic.rng import derive
from steincritic.shapes import PerMember
from steincritic.stein.operator import stein_values
from steincritic.training.fit import fit_bank
from steincritic.training.fitted import FittedBank
from steincritic.training.staging import Staged, fixed
from steincritic_studies.digits import readings
from steincritic_studies.digits.data import as_pixels, digit_parts
from steincritic_studies.digits.mnist_figures import digits_table, draw_digits
from steincritic_studies.digits.models import FOR_DIGITS, learn_machine
from steincritic_studies.digits.planted import PlantedDigits, PointSets, deal, foreign_rows
from steincritic_studies.study import Clock, Context, Outcome, Study

_ROWS = 2000  # points whose witness is taken at a time
_EARLY = 5  # epochs


def run(config: PlantedDigits, context: Context) -> Outcome:
    clock = Clock(context.device)
    train, test = digit_parts(config.digits, config.folder)
    learned = learn_machine(
        train,
        hidden=config.hidden,
        sweeps=config.sweeps,
        learning=config.learning,
        seed=context.seed,
        device=context.device,
        callbacks=context.callbacks,
        checkpoint=context.checkpoint,
    )
    model = learned.model
    assert isinstance(model, GaussianBernoulliRBM)
    clock.lap("learning the machine")
    draws = model.sample(config.model_draws, seed=derive(context.seed, "model draws"))
    clock.lap("Gibbs sampling")
    points = deal(config, model, draws, train, test, context)
    curves = Curves(points, config)
    fitted = _fit(config, points.train, curves, context)
    clock.lap("training the critics")
    results = _read(config, fitted, points, curves, context.seed)
    clock.lap("witnesses and readings")
    results |= _pictures(config, fitted, points.judged, context.seed)
    clock.lap("t-SNE")
    results["machine"] = {
        "draws": as_pixels(draws[-config.shown :]),
        "image_shape": train.image_shape,
        "mean": {"data": float(train.logits(seed=context.seed).mean()), "draws": float(draws.mean())},
        "step": learned.history["step"],
        "fisher_held_out": learned.history["fisher_held_out"],
    }
    return Outcome(results, clock.seconds)


def _pictures(config: PlantedDigits, fitted: FittedBank, judged: ScoredPoints, seed: int) -> dict[str, Any]:
    """The ends of the ranking and the map, by the first staged critic."""
    values = witness(fitted[_shown_member(config)], judged)[0]
    foreign = foreign_rows(config, len(judged))
    kept, seed = config.mapped, derive(seed, "map")
    return {
        "gallery": readings.gallery(judged.x.cpu(), values, foreign, config.shown),
        "map": readings.embedding(judged.x, values, foreign, kept=kept, seed=seed),
    }


class Curves:
    """Looks at all critics after every epoch: the power proxy and the validation Stein discrepancy."""

    def __init__(self, points: PointSets, config: PlantedDigits) -> None:
        self._points, self._replicas = points, config.replicas
        self._rows: dict[str, list[Tensor]] = {"power_proxy": [], "discrepancy": [], "lam": []}

    def __call__(self, epoch: int, bank: Bank, lam: PerMember) -> None:
        proxy, discrepancy = [], []
        for start in range(0, len(bank), self._replicas):
            scheme = bank[start : start + self._replicas]
            data = _values(scheme, self._points.validation)
            proxy.append(readings.power_proxy(data, _values(scheme, self._points.null)))
            discrepancy.append(data.mean(-1))
        self._rows["power_proxy"].append(torch.cat(proxy).cpu())
        self._rows["discrepancy"].append((lam * torch.cat(discrepancy)).cpu())
        self._rows["lam"].append(lam.cpu())

    def of(self, members: slice) -> dict[str, Tensor]:
        """(epochs, replicas) each."""
        return {name: torch.stack(rows)[:, members].double() for name, rows in self._rows.items()}


def _values(bank: Bank, points: ScoredPoints) -> Tensor:
    f, div_f = bank.field_and_divergence(points.x)
    return stein_values(points.score, f, div_f)


def _fit(config: PlantedDigits, train: ScoredPoints, curves: Curves, context: Context) -> FittedBank:
    """Replica r of every scheme sees the same data and starts from the same weights."""
    schemes = len(config.schemes)
    fitted = fit_bank(
        ScoredPoints(*(t.repeat(schemes, 1, 1) for t in (train.x, train.score))),
        staging=[staging for staging in config.schemes.values() for _ in range(config.replicas)],
        seeds=[derive(context.seed, "critic", r) for r in range(config.replicas)] * schemes,
        network=MLP(hidden=(config.width, config.width)),
        training=config.training,
        callbacks=context.callbacks,
        observers=[curves],
    )
    fitted.require_success()
    return fitted


def _read(
    config: PlantedDigits, fitted: FittedBank, points: PointSets, curves: Curves, seed: int
) -> dict[str, Any]:
    rows, shown = [], _shown_member(config)
    null: dict[str, Any] = {}
    for k, (name, staging) in enumerate(config.schemes.items()):
        members = slice(k * config.replicas, (k + 1) * config.replicas)
        read = [
            _read_critic(config, points, one, derive(seed, "reading", r))
            for r, one in enumerate(_by_critic(fitted[members], points))
        ]
        numbers = {key: _spread([one[0][key] for one in read]) for key in read[0][0]}
        of_scheme = curves.of(members)
        early = {key: of_scheme[key][:_EARLY].mean(0).tolist() for key in ("power_proxy", "discrepancy")}
        rows.append(
            {
                "scheme": name,
                "staging": staging,
                "early_power_proxy": _spread(early["power_proxy"]),
                "early_discrepancy": _spread(early["discrepancy"]),
                "last_power_proxy": _spread(of_scheme["power_proxy"][-1].tolist()),
                **numbers,
                "curves": {
                    key: {"mean": value.mean(1), "sd": value.std(1, correction=min(1, config.replicas - 1))}
                    for key, value in of_scheme.items()
                },
            }
        )
        if members.start == shown.start:
            null = readings.histogram(read[0][1], read[0][0]["statistic"]) | {"scheme": name}
    return {"rows": rows, "null": null}


def _by_critic(fitted: FittedBank, points: PointSets) -> list[dict[str, Tensor]]:
    """The witness of every critic on every set; on the CPU."""
    sets = {
        name: witness(fitted, getattr(points, name)) for name in ("tested", "judged", "pool", "reference")
    }
    return [{name: values[r] for name, values in sets.items()} for r in range(len(fitted))]


def _read_critic(
    config: PlantedDigits, points: PointSets, values: dict[str, Tensor], seed: int
) -> tuple[dict[str, float], Tensor]:
    foreign = foreign_rows(config, len(points.judged))
    judged = values["judged"]
    test, null = readings.mean_test(values["tested"], judged, values["pool"], draws=config.draws, seed=seed)
    return {
        "roc_area": readings.roc_area(judged, foreign),
        "highest": int(foreign[judged.topk(config.shown).indices].sum()),
        **readings.listed(judged, foreign, values["reference"], config.fdr),
        **test,
    }, null


def witness(fitted: FittedBank, points: ScoredPoints) -> Tensor:
    """(critics, n) on the CPU, some thousand points at a time."""
    parts = [fitted.witness(points[i : i + _ROWS]).cpu() for i in range(0, len(points), _ROWS)]
    return torch.cat(parts, dim=1)


def _shown_member(config: PlantedDigits) -> slice:
    """The first critic of the last scheme, the staged one."""
    start = (len(config.schemes) - 1) * config.replicas
    return slice(start, start + 1)


def _spread(values: list[float]) -> dict[str, Any]:
    se = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {"mean": mean(values), "se": se, "values": values}


_FULL = PlantedDigits(
    schemes={name: fixed(float(name)) for name in ("1e-3", "1e-2", "1e-1", "1", "2")}
    | {"staged 0.90": Staged(initial=0.5, floor=1e-3, decay=0.90, every=20)},
    learning=FOR_DIGITS,
)
_TINY = replace(
    _FULL,
    schemes={name: _FULL.schemes[name] for name in ("1", "staged 0.90")},
    learning=replace(_FULL.learning, steps=60, critic=MLP(hidden=(32, 32)), log_every=20),
    digits="small",
    hidden=16,
    sweeps=100,
    share=0.05,
    replicas=2,
    trained=400,
    validated=200,
    epochs=6,
    width=32,
    pool=500,
    draws=99,
    judged=300,
    reference=2000,
    mapped=200,
)

STUDY = Study(
    name="mnist",
    title="True digits among the draws of a machine",
    takes="2 minutes on an H200, 12 on two cores",
    resumes=True,
    full=_FULL,
    tiny=_TINY,
    run=run,
    table=digits_table,
    figures=draw_digits,
)
