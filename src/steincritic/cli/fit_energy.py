"""fit-energy: learn an energy model from data by its Stein discrepancy."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from steincritic.cli.guard import FITS, after, described
from steincritic.cli.options import (
    Advanced,
    AsJson,
    Common,
    Data,
    OnDevice,
    Seeded,
    device_named,
    parse_shape,
)
from steincritic.errors import InputError, ModelError, check_count

if TYPE_CHECKING:
    from torch import Tensor

    from steincritic.learning import EnergyMLP, FittedEnergy, Learning
    from steincritic.models import GaussianBernoulliRBM
    from steincritic.models.base import SamplingModel

FILES = ("model.safetensors", "history.json", "samples.png")
_STATE = "checkpoint.safetensors"
_SHOWN = 500  # draws in the picture
_SECONDS = 20.0  # between two checkpoints


@dataclass(frozen=True, kw_only=True)
class FitEnergy(Common, AsJson, OnDevice, Seeded, Data):
    """Learn an energy model: a critic looks for what is wrong with the model, the model corrects it.

    Exit code 0: learned, 2: error. Test the model on rows that it was not learned from.
    """

    out: Path
    """Folder for model.safetensors, history.json, samples.png and the checkpoint."""
    energy: Literal["mlp", "rbm"] = "mlp"
    """mlp: a Gaussian energy plus a perceptron; rbm: a Gaussian-Bernoulli restricted Boltzmann machine."""
    hidden: Advanced[str | None] = None
    """Widths of the mlp's layers, by default 128x128; number of the rbm's hidden units, by default 100."""
    steps: int | None = None
    """Steps of the model; by default 1200 (mlp) or 2000 (rbm)."""
    critic_steps: Advanced[int | None] = None
    """Steps of the critic before each step of the model; by default 5."""
    batch_size: Advanced[int | None] = None
    """Rows per step; by default 256."""
    learning_rate: Advanced[float | None] = None
    """Of the model; by default 0.003 (mlp) or 0.001 (rbm)."""
    critic_learning_rate: Advanced[float | None] = None
    """Of the critic; by default 0.005 (mlp) or 0.001 (rbm)."""
    lam: Advanced[float | None] = None
    """First weight of the critic's L2 penalty; by default 3 (mlp) or 1 (rbm)."""
    lam_floor: Advanced[float | None] = None
    """Last weight, if it is staged; without this option the weight is fixed."""
    lam_decay: Advanced[float] = 0.85
    """Factor of a staged weight per stage."""
    lam_every: Advanced[int | None] = None
    """Steps of the model per stage; by default one pass over the data."""
    weight_decay: Advanced[float | None] = None
    """Of the model; by default 0.1 (mlp) or 0 (rbm)."""
    critic_weight_decay: Advanced[float | None] = None
    """Of the critic; by default 0. A value such as 0.1 keeps it from learning few rows by heart."""
    held_out: Advanced[float | None] = None
    """Share of the rows that is only measured on; by default 0.1."""
    log_every: Advanced[int | None] = None
    """Steps between two rows of the history and two checkpoints; by default 50."""
    pictures: Advanced[int] = 4
    """How often the picture of samples is drawn, the end included."""
    image_shape: Advanced[str | None] = None
    """Rows are images of this size, for example 28x28."""
    resume: bool = False
    """Continue from the checkpoint in the folder; the result is that of a run without a break."""
    overwrite: bool = False
    """Replace what an earlier run left in the folder."""

    @property
    def kept(self) -> str:
        if not (self.out / _STATE).exists():
            return super().kept
        return f"{self.out / _STATE} is kept: the same command with --resume goes on from there"

    def check(self) -> None:
        super().check()
        for name in ("steps", "critic_steps", "batch_size", "lam_every", "log_every", "pictures"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name=name)
        parse_shape(self.image_shape)
        self._hidden()
        self._check_folder()

    def __call__(self) -> int:
        import torch

        from steincritic.files import read_tensors
        from steincritic.learning import check_rows
        from steincritic.learning.state import LearningCheckpoint
        from steincritic.report.page import check_shape
        from steincritic.report.samples import draw_samples

        config, shape = self._config(), parse_shape(self.image_shape)
        table, notes = self.read(self.data)
        x = torch.as_tensor(table.x).to(device_named(self.device))
        check_shape(shape, x.shape[1])
        check_rows(x, config)
        start = self._start(x)
        if self.resume:
            step = read_tensors(self.out / _STATE, kind=LearningCheckpoint.kind)[1].get("step")
            print(f"steincritic: going on after step {step} of {config.steps}", file=sys.stderr)
        else:
            (self.out / _STATE).unlink(missing_ok=True)  # the others are replaced when there is something new

        def draw(model: "SamplingModel") -> None:
            draws = model.sample(_SHOWN, seed=self.seed)
            draw_samples(x, draws, self.out / "samples.png", image_shape=shape)

        def watch(step: int, model: "SamplingModel") -> None:
            if step + 1 < config.steps and self._is_due(step + 1, config):
                with suppress(ModelError):  # what is half learned may not be fit to be drawn from
                    draw(model)

        fitted = self._learned(start, x, config, watch)
        self._write(fitted, config)  # first of all: drawing may take long, or fail
        with after(described({}, command="fit-energy")):
            draw(fitted.model)
        self._show(fitted, table.dropped, notes)
        return FITS

    def _learned(
        self,
        start: "EnergyMLP | GaussianBernoulliRBM",
        x: "Tensor",
        config: "Learning",
        watch: "Callable[[int, SamplingModel], None]",
    ) -> "FittedEnergy":
        from steincritic.learning import fit_energy
        from steincritic.learning.state import LearningCheckpoint
        from steincritic.training.progress import StepBar

        with StepBar("learning", config.steps) as bar:
            return fit_energy(
                start,
                x,
                learning=config,
                seed=self.seed,
                callbacks=[lambda step, steps, row: bar.move(step + 1)],
                observers=[watch],
                checkpoint=LearningCheckpoint(self.out / _STATE, _SECONDS),
            )

    def _config(self) -> "Learning":
        from steincritic.learning import FOR_PERCEPTRONS, Learning
        from steincritic.training.staging import Staged

        usual = FOR_PERCEPTRONS if self.energy == "mlp" else Learning()
        lam = usual.staging.begin().lam if self.lam is None else self.lam
        floor, decay = (lam, 1.0) if self.lam_floor is None else (self.lam_floor, self.lam_decay)
        given = {field.name: getattr(self, field.name, None) for field in fields(usual)}
        chosen = {name: value for name, value in given.items() if value is not None}
        staging = Staged(initial=lam, floor=floor, decay=decay, every=self.lam_every)
        return replace(usual, staging=staging, **chosen)

    def _start(self, x: "Tensor") -> "EnergyMLP | GaussianBernoulliRBM":
        from steincritic.learning import EnergyMLP, first_machine

        if self.energy == "mlp":
            return EnergyMLP(hidden=self._hidden())
        return first_machine(x, self._hidden()[0], seed=self.seed)

    def _hidden(self) -> tuple[int, ...]:
        widths = _widths(self.hidden or ("128x128" if self.energy == "mlp" else "100"))
        if self.energy == "rbm" and len(widths) > 1:
            raise InputError(f"a machine has one layer of hidden units, got {self.hidden!r}")
        return widths

    def _check_folder(self) -> None:
        """No earlier run would be lost."""
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

    def _is_due(self, done: int, config: "Learning") -> bool:
        """Is this the first look after another part of the steps?"""
        before = max(0, done - config.log_every)
        return done * self.pictures // config.steps > before * self.pictures // config.steps

    def _write(self, fitted: "FittedEnergy", config: "Learning") -> None:
        from steincritic.files import plain, write_json
        from steincritic.models.saved import save_model

        save_model(fitted.model, self.out / "model.safetensors")
        content = {
            "command": "fit-energy",
            "energy": self.energy,
            "seed": self.seed,
            "learning": asdict(config),
            "history": plain(dict(fitted.history)),
        }
        write_json(self.out / "history.json", content)

    def _show(self, fitted: "FittedEnergy", dropped: int, notes: tuple[str, ...]) -> None:
        from steincritic.cli.printing import print_files, print_lines, print_panel
        from steincritic.files import plain

        def show() -> None:
            print_panel([_verdict(fitted), *notes], title=str(self.data))
            print_files(files)
            print_lines(f"Test it on other rows: steincritic check OTHER_ROWS --model {files[0]}")

        files = [self.out / name for name in FILES]
        about = {"energy": self.energy, "data": str(self.data), "dropped": dropped, "seed": self.seed}
        last = {name: plain(float(values[-1])) for name, values in fitted.history.items()}
        content = {"model": str(files[0]), "last": last, "files": [str(file) for file in files]}
        self.tell(described(content, command="fit-energy", **about), show)


def _verdict(fitted: "FittedEnergy") -> str:
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
