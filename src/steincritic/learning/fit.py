r"""fit_energy: learn an energy model by its Stein discrepancy.

$$\min_\theta \max_f\; E_p[s_\theta \cdot f + \nabla \cdot f] - \tfrac{\lambda}{2} E_p|f|^2$$

[grathwohl2020]. The best critic is $(s_\theta - s_p)/\lambda$, where the inner maximum is the Fisher
divergence over 2λ. For the model only $s_\theta \cdot f$ counts: no derivative of f is taken in its step.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from steincritic.critics.bank import Bank
from steincritic.data.arrays import ArrayLike, as_points
from steincritic.devices import DeviceLike, resolve_device
from steincritic.display import GRAY, RED, axes, panel
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.learning.learnable import EnergyMLP, as_learnable
from steincritic.learning.run import Run
from steincritic.learning.settings import FOR_PERCEPTRONS, Learning
from steincritic.learning.state import LearningCheckpoint
from steincritic.models.base import SamplingModel
from steincritic.models.perceptron_energy import PerceptronEnergy
from steincritic.models.rbm import GaussianBernoulliRBM
from steincritic.shapes import Points
from steincritic.training.fitted import History
from steincritic.training.progress import Callback

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BY_HEART = 0.5  # of the largest divergence found: more between trained and held-out rows is no noise
_FINEST = 1e-3  # of a standard deviation: rounding beyond it would be learned
Observer = Callable[[int, SamplingModel], None]


@dataclass(frozen=True, eq=False, repr=False)
class FittedEnergy:
    """A learned model, and what its learning was like.

    The history has a row each `log_every` steps: `step`, `lam`, `stein` (E[T_q f]), `penalty`
    (λ/2 E|f|²), `fisher` (2λ times their difference: what the critic certifies of the Fisher divergence,
    on rows of the training set), and `fisher_held_out` on rows that were not trained on. All but the first
    two are in the coordinates that learning sees, where the data of a perceptron have the standard
    deviation `resolution`.
    """

    model: SamplingModel  # with the averaged parameters
    history: History  # columns (rows,)
    critic: Bank  # the last one
    seed: int
    seconds: float

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """What the critic finds of the Fisher divergence, by step: on trained rows and on held-out ones."""
        ax = axes(ax)
        for name, color, words in (("fisher", GRAY, "trained"), ("fisher_held_out", RED, "held out")):
            if name in self.history:
                ax.plot(self.history["step"], self.history[name], color=color, label=f"rows {words}")
        ax.axhline(0, color=GRAY, linewidth=1, zorder=0)
        ax.set(xlabel="step", ylabel="Fisher divergence found")
        ax.legend(frameon=False)
        return ax

    def _repr_html_(self) -> str:
        return panel([repr(self)]) + self.history._repr_html_()

    def __repr__(self) -> str:
        return f"FittedEnergy({self.model!r}, learned in {self.seconds:.0f} s)"


def fit_energy(
    model: EnergyMLP | PerceptronEnergy | GaussianBernoulliRBM | nn.Module,
    x: ArrayLike,
    *,
    learning: Learning | None = None,
    seed: int = 0,
    device: DeviceLike = None,
    callbacks: Sequence[Callback] = (),
    observers: Sequence[Observer] = (),
    checkpoint: str | Path | LearningCheckpoint | None = None,
) -> FittedEnergy:
    """Learn an energy model from data.

    Args:
        model: the start: a GaussianBernoulliRBM, `EnergyMLP(hidden=...)`, a PerceptronEnergy, or an
            energy `nn.Module`. It is not changed.
        x: (n, d) data: tensor, array, frame or file path.
        learning: by default settings that suit the model: FOR_PERCEPTRONS, or else Learning().
        seed: decides the first weights, the batches and the probes.
        device: that of x, unless another is named.
        callbacks: called as (step, steps, row) with each row of the history; may raise to stop.
        observers: called as (step, model) at the same times, to look at the model or draw from it.
        checkpoint: a file to resume from if it is there and to keep up to date; it must stem from the
            same data and settings. A resumed run ends in the same bits as one that never stopped.

    Raises:
        DivergedError: naming the step at which a loss or weight was not finite, or absurdly large.

    >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) + 3
    >>> fitted = fit_energy(EnergyMLP(hidden=(8,)), x, learning=Learning(steps=2, batch_size=50))
    >>> fitted.model.sample(4, seed=1).shape
    torch.Size([4, 2])
    """
    began = time.perf_counter()
    usual = FOR_PERCEPTRONS if isinstance(model, EnergyMLP | PerceptronEnergy) else Learning()
    config, rows = learning or usual, as_points(x).detach()
    place = rows.device if device is None else resolve_device(device, rows)
    rows = _rounded(rows, getattr(torch, config.dtype)).to(place)
    check_rows(rows, config)
    run = Run(as_learnable(model, rows, seed), rows, config, seed, LearningCheckpoint.at(checkpoint))
    run.learn(callbacks, observers)
    _warn_if_by_heart(run.history, float((1 / run.rows.var(0)).sum()))
    return FittedEnergy(run.result, run.history, run.critic, seed, time.perf_counter() - began)


def check_rows(x: Points, config: Learning) -> None:
    if len(x) < config.batch_size:
        raise InputError(
            f"x has {len(x)} rows, fewer than one batch of {config.batch_size}: lower batch_size"
        )


def _warn_if_by_heart(history: History, information: float) -> None:
    """A critic that knows its rows by heart teaches the model nothing about others.

    The information is that of a Gaussian with the data's variances: a divergence that is much.
    """
    if "fisher_held_out" not in history:
        return
    late = slice(-max(1, len(history["step"]) // 4), None)
    trained, others = (float(history[name][late].mean()) for name in ("fisher", "fisher_held_out"))
    if others < 0 < trained and trained - others > max(
        information, _BY_HEART * float(history["fisher"].max())
    ):
        warnings.warn(
            f"the critic has learned its rows by heart: it finds a Fisher divergence of {trained:.3g} on "
            f"them and {others:.3g} on held-out rows, so the model may follow noise; give more rows, "
            "fewer steps or critic_weight_decay (0.1, say), and test the model on other rows",
            DoubtfulWarning,
            stacklevel=3,
        )


def _rounded(x: Points, dtype: torch.dtype) -> Points:
    """In the precision of learning, if that can tell the rows apart."""
    step = torch.finfo(dtype).eps * x.abs().amax(0)
    blurred = (step > _FINEST * x.std(0)) & (x.std(0) > 0)
    if len(x) > 1 and bool(blurred.any()):
        raise InputError(
            f"column {int(blurred.nonzero()[0, 0])} of x is far from zero for its spread and {dtype} would "
            "blur it: subtract its mean first"
        )
    rounded = x.to(dtype)
    if not bool(rounded.isfinite().all()):
        raise InputError(
            f"x has values up to {float(x.abs().max()):.3g}, too large for {dtype}: divide its columns by "
            "their standard deviations"
        )
    return rounded
