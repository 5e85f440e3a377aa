"""Adaptive staging in 25 dimensions against fixed weights and the plain schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.data.problems import Problem, problem
from steincritic.rng import derive
from steincritic.training.checkpoint import Checkpoint
from steincritic.training.fit import Training, Yardsticks, fit_bank
from steincritic.training.fitted import FittedBank
from steincritic.training.objective import Gap
from steincritic.training.staging import Adaptive, Staged, Staging, fixed
from steincritic_studies.paper.figures import adaptive_table, draw_adaptive
from steincritic_studies.study import Context, Outcome, Study


@dataclass(frozen=True, kw_only=True)
class AdaptiveStaging:
    """[repasky2023] appendix B.5; validation points are drawn afresh at every look."""

    schemes: Mapping[str, Staged | Adaptive]
    training: Training
    problem: str = "gm-25d"
    replicas: int = 10
    trained: int = 4000
    measured: int = 20_000  # points for the monitor, MSE_p and MSE_q
    width: int = 512


def run(config: AdaptiveStaging, context: Context) -> Outcome:
    pair = problem(config.problem).to(context.device, torch.float32)
    seeds = [derive(context.seed, "replica", r) for r in range(config.replicas)]
    x = torch.stack([pair.data.sample(config.trained, seed=derive(s, "train")) for s in seeds])
    x = x.repeat(len(config.schemes), 1, 1)
    stagings: list[Staging] = [s for s in config.schemes.values() for _ in seeds]
    fitted = fit_bank(
        ScoredPoints(x, pair.model.score(x)),
        staging=stagings,
        seeds=[derive(s, "critic") for s in seeds] * len(config.schemes),
        network=MLP(hidden=(config.width, config.width)),
        training=config.training,
        yardsticks=_yardsticks(config, pair, context.seed),
        callbacks=context.callbacks,
        checkpoint=Checkpoint(context.checkpoint, 60.0) if context.checkpoint else None,
    )
    rows = [_row(config, k, name, fitted) for k, name in enumerate(config.schemes)]
    return Outcome({"rows": rows}, fitted.seconds)


def _yardsticks(config: AdaptiveStaging, pair: Problem, seed: int) -> Yardsticks:
    def draw(step: int) -> torch.Tensor:
        return pair.data.sample(config.measured, seed=derive(seed, "validation", step))

    def validation(step: int) -> ScoredPoints:
        x = draw(step)
        return ScoredPoints(x, pair.model.score(x))

    def gap_p(step: int) -> Gap:
        x = draw(step)
        return Gap(x, pair.gap(x))

    x = pair.model.sample(config.measured, seed=derive(seed, "mse"))
    return Yardsticks(validation=validation, gap_p=gap_p, gap_q=Gap(x, pair.gap(x)))


def _row(config: AdaptiveStaging, k: int, name: str, fitted: FittedBank) -> dict[str, Any]:
    members = slice(k * config.replicas, (k + 1) * config.replicas)
    curves = {key: fitted.history[key][:, members] for key in ("mse_p", "mse_q", "lam")}
    lowest = {key: curves[key].min(0).values for key in ("mse_p", "mse_q")}
    return {
        "scheme": name,
        "staging": config.schemes[name],
        "curves": {key: {"mean": v.mean(1), "sd": v.std(1)} for key, v in curves.items()},
        "lowest": {
            key: {"mean": float(v.mean()), "se": float(v.std()) / len(v) ** 0.5} for key, v in lowest.items()
        },
    }


_FULL = AdaptiveStaging(
    training=Training(epochs=60, batch_size=200, learning_rate=1e-3),
    schemes={
        **{name: fixed(float(name)) for name in ("1e-3", "4e-3", "1.6e-2")},
        "staged 0.85": Staged(initial=0.3, floor=5e-4, decay=0.85, every=10),
        "adaptive, monitor": Adaptive(initial=0.3, floor=5e-4, decay=0.70, every=10),
        "adaptive, true MSE_p": Adaptive(initial=0.3, floor=5e-4, decay=0.70, every=10, on="mse_p"),
    },
)

STUDY = Study(
    name="adaptive",
    title="Adaptive staging in 25 dimensions",
    takes="13 seconds on an H200, much longer on two cores",
    resumes=True,
    full=_FULL,
    tiny=replace(
        _FULL,
        replicas=2,
        trained=100,
        measured=200,
        width=8,
        training=Training(epochs=4, batch_size=20, learning_rate=1e-3),
    ),
    run=run,
    table=adaptive_table,
    figures=draw_adaptive,
)
