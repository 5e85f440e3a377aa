"""WatchState: all that a watched stream has left behind, in memory and in one file."""

import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.display import DARK, GRAY, RED, axes, panel
from steincritic.errors import InputError, check_level
from steincritic.files import read_tensors, rebuilding, write_tensors
from steincritic.gof.betting import Bettor, Sequential, pooled_wealth
from steincritic.rng import derive
from steincritic.training.critic import Critic
from steincritic.training.fit import Training
from steincritic.training.staging import Staged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KIND = "watch state"
_OF_BETTOR = ("trained_on", "number", "scale")
_COUNTS = ("batches", "rejected_at", "log_maximum", "level", "seed")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WatchState:
    """Where a stream stands after a batch."""

    test: Sequential
    level: float
    seed: int
    log_wealths: Tensor  # (k,) one per account
    log_maximum: float  # of the wealth after any point so far
    rejected_at: int | None = None  # points seen when the wealth first reached 1/level
    batches: int = 0
    past: ScoredPoints | None = None
    bettor: Bettor | None = None
    log_evalues: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    log_path: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))  # after each point
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_level(self.level)
        derive(self.seed)  # refuses what is no seed, before any point is seen

    @property
    def points(self) -> int:
        """Points seen."""
        return 0 if self.past is None else len(self.past)

    @property
    def log_wealth(self) -> float:
        return float(pooled_wealth(self.log_wealths))

    @property
    def rejected(self) -> bool:
        """Has the wealth ever reached 1/level? Once it has, the verdict stands."""
        return self.rejected_at is not None

    @property
    def pvalue(self) -> float:
        """Valid at any time: 1 over the largest wealth so far, at most 1."""
        return math.exp(-max(self.log_maximum, 0.0))

    @property
    def evalues(self) -> dict[str, float]:
        """In short, the factors by which the points of the last batch changed the wealth."""
        factors = self.log_evalues.exp()
        if not len(factors):
            return {"count": 0, "mean": 1.0, "least": 1.0, "largest": 1.0}
        mean, least, largest = (float(f) for f in (factors.mean(), factors.min(), factors.max()))
        return {"count": len(factors), "mean": mean, "least": least, "largest": largest}

    def __repr__(self) -> str:
        verdict = f"rejected at point {self.rejected_at}" if self.rejected else "not rejected"
        return (
            f"WatchState({verdict}, level {self.level:g}: {self.points} points in {self.batches} batches, "
            f"log wealth {self.log_wealth:.3g}, largest {self.log_maximum:.3g}, p={self.pvalue:.3g})"
        )

    def summary(self) -> str:
        """The verdict so far, in a sentence."""
        if self.rejected:
            return f"Rejected at point {self.rejected_at}: the rows do not look like draws from the model."
        return f"Not rejected at level {self.level:g} after {self.points} points."

    def _repr_html_(self) -> str:
        wealth = f"wealth 10^{self.log_wealth / math.log(10):.1f} where {1 / self.level:g} rejects"
        where = f"{self.points} points in {self.batches} batches; {wealth}; p = {self.pvalue:.3g}."
        return panel([self.summary(), where, *self.notes], rejected=self.rejected)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The wealth after each point; above the line the model is rejected, and the verdict stands."""
        ax = axes(ax)
        known = len(self.log_path)
        ax.plot(range(self.points - known + 1, self.points + 1), self.log_path / math.log(10), color=DARK)
        ax.axhline(-math.log10(self.level), color=GRAY, linestyle="--", label=f"1 / {self.level:g}")
        if self.rejected_at is not None:
            ax.axvline(self.rejected_at, color=RED, label=f"rejected at point {self.rejected_at}")
        ax.set(xlabel="points seen", ylabel="wealth, powers of ten")
        ax.legend(frameon=False)
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; neither the past nor the critic."""
        return {
            "rejected": self.rejected,
            "rejected_at": self.rejected_at,
            "pvalue": self.pvalue,
            "level": self.level,
            "log_wealth": self.log_wealth,
            "log_maximum": self.log_maximum,
            "points": self.points,
            "batches": self.batches,
            "evalues": self.evalues,
            "trained_on": self.bettor.trained_on if self.bettor else 0,
            "seed": self.seed,
            "notes": list(self.notes),
            "settings": asdict(self.test),
        }

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file: numbers and JSON, no code."""
        tensors = {name: getattr(self, name) for name in ("log_wealths", "log_evalues", "log_path")}
        about: dict[str, Any] = {name: getattr(self, name) for name in _COUNTS}
        about |= {"test": asdict(self.test), "notes": list(self.notes)}
        if self.past is not None:
            tensors |= {"past/x": self.past.x, "past/score": self.past.score}
        if (bettor := self.bettor) is not None:
            critic, of_critic = bettor.critic.state()
            tensors |= {f"critic/{name}": value for name, value in critic.items()}
            numbers = {name: getattr(bettor, name) for name in _OF_BETTOR}
            about |= {"critic": of_critic, "bettor": numbers}
        write_tensors(Path(path), tensors, about, kind=_KIND)


def load_watch(path: str | Path) -> WatchState:
    """Read a state that `WatchState.save` wrote, to go on with `watch(q, stream, state=...)`."""
    tensors, about = read_tensors(Path(path), kind=_KIND)
    with rebuilding(path):
        bettor = None
        if "bettor" in about:
            parts = {k.removeprefix("critic/"): v for k, v in tensors.items() if k.startswith("critic/")}
            numbers = {name: about["bettor"][name] for name in _OF_BETTOR}  # older files have more
            bettor = Bettor(Critic.from_state(parts, about["critic"]), **numbers)
        state = WatchState(
            test=_test(about["test"]),
            **{name: about[name] for name in _COUNTS},
            log_wealths=tensors["log_wealths"],
            log_evalues=tensors["log_evalues"],
            log_path=tensors.get("log_path", torch.zeros(0, dtype=torch.float64)),  # older files have none
            past=ScoredPoints(tensors["past/x"], tensors["past/score"]) if "past/x" in tensors else None,
            bettor=bettor,
            notes=tuple(about["notes"]),
        )
        _check(state)
        state.to_dict()  # needs every number
    return state


def _test(about: dict[str, Any]) -> Sequential:
    settings = {field.name: about[field.name] for field in fields(Sequential)}  # older files have more
    settings["staging"], settings["training"] = Staged(**about["staging"]), Training(**about["training"])
    return Sequential(**(settings | {"network": MLP.of_file(about["network"])}))


def _check(state: WatchState) -> None:
    """Do the loaded arrays fit each other?"""
    wealths, past = state.log_wealths, state.past
    if wealths.shape != (state.test.accounts,) or bool(wealths.isnan().any()):
        raise InputError(f"wealth of shape {tuple(wealths.shape)} for {state.test.accounts} accounts")
    if state.log_path.ndim != 1 or len(state.log_path) > state.points:
        raise InputError(f"wealth after {tuple(state.log_path.shape)} of {state.points} points")
    if past is not None and not (bool(past.x.isfinite().all()) and bool(past.score.isfinite().all())):
        raise InputError("points that are not finite")
    if state.bettor is not None:
        critic = state.bettor.critic
        if past is None or len(critic.frame.scale) != past.dim:
            raise InputError("a critic of other dimensions than the past")
        if critic.fitted.bank.network != state.test.network:
            raise InputError("a critic of another network than the settings")
