"""A callback of Lightning: check an energy model while it is trained."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from steincritic.data.points import PointsLike
from steincritic.diagnosis.check import check
from steincritic.diagnosis.check_result import CheckResult
from steincritic.errors import InputError, check_count
from steincritic.gof.choose import TestName
from steincritic.gof.combined import Combined
from steincritic.gof.test import GofTest
from steincritic.integrations.tracking import Logger, numbers

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning import Callback
    except ModuleNotFoundError:
        Callback = object

__all__ = ["CheckCallback"]


class CheckCallback(Callback):  # type: ignore[misc]
    """Checks the model on rows that it is not trained on, every few epochs.

    Logged are `name/pvalue`, `name/fisher_estimate` and so on, which early stopping and checkpoints can
    watch; `results` keeps each check by its epoch.

    Args:
        x: rows held out from training.
        every: epochs between two checks.
        model: from the LightningModule to the model, anything `sc.as_model` takes; by default the module
            itself, an energy.
        test: by default quick lenses alone.
        level, seed: as for `sc.check`.
        name: of the metrics.
        loggers: also told every result, such as `to_mlflow`.
    """

    def __init__(
        self,
        x: PointsLike,
        *,
        every: int = 10,
        model: Callable[[Any], Any] | None = None,
        test: GofTest | TestName | None = None,
        level: float = 0.05,
        seed: int = 0,
        name: str = "check",
        loggers: Sequence[Logger] = (),
    ) -> None:
        if Callback is object:
            raise InputError("CheckCallback needs Lightning: pip install lightning")
        super().__init__()
        check_count(every, name="every")
        self.x, self.every, self.model, self.level, self.seed = x, every, model, level, seed
        self.test = Combined(critics=None) if test is None else test
        self.name, self.loggers = name, tuple(loggers)
        self.results: dict[int, CheckResult] = {}

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        epoch = int(trainer.current_epoch)
        if (epoch + 1) % self.every or not trainer.is_global_zero:
            return
        modes = [(part, part.training) for part in pl_module.modules()]
        pl_module.eval()
        try:
            with torch.inference_mode(False), torch.enable_grad():
                result = check(
                    pl_module if self.model is None else self.model(pl_module),
                    self.x,
                    test=self.test,
                    level=self.level,
                    seed=self.seed,
                    device=pl_module.device,
                )
        finally:
            for part, training in modes:
                part.training = training
        self.results[epoch] = result
        metrics = {f"{self.name}/{key}": value for key, value in numbers(result).items()}
        pl_module.log_dict(metrics, rank_zero_only=True)
        for log in self.loggers:
            log(self.name, result, step=int(trainer.global_step))
