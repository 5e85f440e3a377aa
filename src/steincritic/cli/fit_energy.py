"""fit-ebm: learn an energy model from data by its Stein discrepancy."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import tyro
from rich.console import Console
from rich.panel import Panel
from rich.text import Text
from torch import Tensor

from steincritic.cli.check import parse_shape
from steincritic.cli.options import FITS, Common, Device, device_named, prepare
from steincritic.data.tables import read_table
from steincritic.errors import InputError, ModelError, check_choice, check_count
from steincritic.files import plain, write_atomically
from steincritic.learning import (
    FOR_PERCEPTRONS,
    EnergyMLP,
    FittedEnergy,
    Learning,
    check_rows,
    first_machine,
    fit_energy,
)
from steincritic.learning.fit import Observer
from steincritic.learning.state import LearningCheckpoint
from steincritic.models import GaussianBernoulliRBM
from steincritic.models.base import SamplingModel
from steincritic.models.saved import save_model
from steincritic.report.page import check_shape
from steincritic.report.samples import draw_samples
from steincritic.training.progress import StepBar
from steincritic.training.staging import Staged

FILES = ("model.safetensors", "history.json", "samples.png")
_STATE = "checkpoint.safetensors"
_SHOWN = 500  # draws in the picture
_SECONDS = 20.0  # between two checkpoints
_DEFAULTS = Learning()
_PASSED_ON = (
    "steps",
    "critic_steps",
    "batch_size",
    "learning_rate",
    "critic_learning_rate",
    "weight_decay",
    "critic_weight_decay",
    "held_out",
    "log_every",
)


@dataclass(frozen=True, kw_only=True)
class FitEbm(Common):
    """Learn an energy model: a critic looks for what is wrong with the model, the model mends it.

    Exit code 0: learned, 2: error. Test the model on rows that it was not learned from.
    """

    data: tyro.conf.Positional[Path]
    """npy, npz, csv or parquet, one row a point."""
    energy: str = "mlp"
    """mlp: a Gaussian energy plus a perceptron; rbm: a Gaussian-Bernoulli restricted Boltzmann machine."""
    hidden: str | None = None
    """Widths of the perceptron's layers, by default 128x128, or number of hidden units, by default 100."""
    out: Path
    """Folder for model.safetensors, history.json, samples.png and the checkpoint."""
    steps: int | None = None
    """Of the model; by default 1200 (mlp) or 2000 (rbm)."""
    critic_steps: int = _DEFAULTS.critic_steps
    """Of the critic, before each step of the model."""
    batch_size: int = _DEFAULTS.batch_size
    learning_rate: float | None = None
    """By default 0.003 (mlp) or 0.001 (rbm)."""
    critic_learning_rate: float | None = None
    """By default 0.005 (mlp) or 0.001 (rbm)."""
    lam: float | None = None
    """Weight of the critic's L2 penalty, to begin with; by default 3 (mlp) or 1 (rbm)."""
    lam_floor: float | None = None
    """Where a staged weight ends; without it the weight is fixed."""
    lam_decay: float = 0.85
    """Factor of a staged weight at each stage."""
    lam_every: int | None = None
    """Steps of the model in a stage; one pass over the data by default."""
    weight_decay: float | None = None
    """Of the model; by default 0.1 (mlp) or 0 (rbm)."""
    critic_weight_decay: float = 0.0
    """Keeps the critic from learning few rows by heart; 0.1, say."""
    held_out: float = _DEFAULTS.held_out
    """Share of the rows that is only measured on."""
    log_every: int = _DEFAULTS.log_every
    """Steps between two rows of the history and two checkpoints."""
    pictures: int = 4
    """How often samples are drawn to be watched, the end included."""
    image_shape: str | None = None
    """Rows are images of this size, for example 28x28."""
    drop_nan: bool = False
    """Leave out rows with NaN or infinite values."""
    device: Device = "auto"
    seed: int = 0
    resume: bool = False
    """Go on from the checkpoint in the folder; the result is that of a run without a break."""
    overwrite: bool = False
    """Replace what an earlier run left in the folder."""

    def __call__(self) -> int:
        check_choice(self.energy, name="energy", choices=("mlp", "rbm"))
        check_count(self.pictures, name="pictures")
        config, shape = self._config(), parse_shape(self.image_shape)
        x = self._rows()
        check_shape(shape, x.shape[1])
        check_rows(x, config)
        start = self._start(x)
        self._claim_folder()

        def draw(model: SamplingModel) -> None:
            draws = model.sample(_SHOWN, seed=self.seed)
            draw_samples(x, draws, self.out / "samples.png", image_shape=shape)

        def watch(step: int, model: SamplingModel) -> None:
            if step + 1 < config.steps and self._is_due(step + 1, config.steps):
                with suppress(ModelError):  # what is half learned may not be fit to be drawn from
                    draw(model)

        fitted = self._learned(start, x, config, watch)
        self._write(fitted, config)  # first of all: drawing may take long, or fail
        draw(fitted.model)
        self._show(fitted)
        return FITS

    def _learned(
        self, start: EnergyMLP | GaussianBernoulliRBM, x: Tensor, config: Learning, watch: Observer
    ) -> FittedEnergy:
        state = self.out / _STATE
        try:
            with StepBar("learning", config.steps) as bar:
                return fit_energy(
                    start,
                    x,
                    config=config,
                    seed=self.seed,
                    callbacks=[_Advance(bar)],
                    observers=[watch],
                    checkpoint=LearningCheckpoint(state, _SECONDS),
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("go on with --resume" if state.exists() else "") from None

    def _config(self) -> Learning:
        usual = FOR_PERCEPTRONS if self.energy == "mlp" else Learning()
        lam = usual.staging.begin().lam if self.lam is None else self.lam
        floor, decay = (lam, 1.0) if self.lam_floor is None else (self.lam_floor, self.lam_decay)
        chosen = {name: getattr(self, name) for name in _PASSED_ON if getattr(self, name) is not None}
        staging = Staged(initial=lam, floor=floor, decay=decay, every=self.lam_every)
        return replace(usual, staging=staging, **chosen)

    def _rows(self) -> Tensor:
        x = torch.as_tensor(read_table(self.data, drop_nan=self.drop_nan).x)
        return x.to(device_named(self.device))

    def _start(self, x: Tensor) -> EnergyMLP | GaussianBernoulliRBM:
        if self.energy == "mlp":
            return EnergyMLP(hidden=_widths(self.hidden or "128x128"))
        (units, *more) = _widths(self.hidden or "100")
        if more:
            raise InputError(f"a machine has one layer of hidden units, got {self.hidden!r}")
        return first_machine(x, units, seed=self.seed)

    def _claim_folder(self) -> None:
        """The folder can be written, and no earlier run would be lost."""
        prepare(self.out)
        if self.resume:
            if not (self.out / _STATE).exists():
                raise InputError(f"{self.out} holds no {_STATE} to go on from; leave out --resume")
            return
        there = [name for name in (*FILES, _STATE) if (self.out / name).exists()]
        if there and not self.overwrite:
            raise InputError(
                f"{self.out} holds {there[0]} already; go on with --resume, choose another --out, or pass "
                "--overwrite"
            )
        (self.out / _STATE).unlink(missing_ok=True)  # the others are replaced when there is something new

    def _is_due(self, done: int, steps: int) -> bool:
        """Is this the first look after another part of the steps?"""
        before = max(0, done - self.log_every)
        return done * self.pictures // steps > before * self.pictures // steps

    def _write(self, fitted: FittedEnergy, config: Learning) -> None:
        save_model(fitted.model, self.out / "model.safetensors")
        content = {
            "command": "fit-ebm",
            "energy": self.energy,
            "seed": self.seed,
            "learning": asdict(config),
            "history": dict(fitted.history),
        }
        write_atomically(self.out / "history.json", (json.dumps(plain(content), indent=1) + "\n").encode())

    def _show(self, fitted: FittedEnergy) -> None:
        files = [str(self.out / name) for name in FILES]
        console = Console()
        console.print(Panel(Text(_verdict(fitted)), title=Text(str(self.data)), expand=False))
        console.print("Files:", *files, sep="\n  ", markup=False, highlight=False)
        console.print(
            f"Test it on other rows: steincritic check OTHER_ROWS --model {files[0]}",
            markup=False,
            highlight=False,
        )


class _Advance:
    """Moves a bar to the step that learning has come to."""

    def __init__(self, bar: StepBar) -> None:
        self._bar, self._done = bar, 0

    def __call__(self, epoch: int, epochs: int, row: Mapping[str, Tensor]) -> None:
        self._bar.advance(epoch + 1 - self._done)
        self._done = epoch + 1


def _verdict(fitted: FittedEnergy) -> str:
    history = fitted.history
    name = "fisher_held_out" if "fisher_held_out" in history else "fisher"
    first, last = float(history[name][0]), float(history[name][-1])
    where = "held-out rows" if name == "fisher_held_out" else "rows that were trained on"
    return (
        f"Learned in {fitted.seconds:.0f} s. Fisher divergence that the critic could show on {where} (in "
        f"learning's coordinates): {first:.3g} at step {float(history['step'][0]):.0f}, "
        + (f"{last:.3g} at last." if last > 0 else f"none at last ({last:.3g}).")
    )


def _widths(text: str) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"hidden is a width or several, for example 100 or 128x128; got {text!r}")
    return tuple(map(int, parts))
