"""Learning that was interrupted goes on exactly where it was.

Batches and probes are counted, not carried (see `rng.Streams`), so the parameters of model and critic,
their average, Adam's moments, the stage of λ and the history are the whole state.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic.errors import FileFormatError, InputError
from steincritic.files import read_tensors, write_tensors
from steincritic.training.staging import Stage

_FORMAT = "steincritic-learning-1"


@dataclass(frozen=True, eq=False)
class State:
    """All that changes; tensors by the part they belong to."""

    step: int  # steps done
    stage: Stage
    parts: Mapping[str, Mapping[str, Tensor]]


@dataclass
class LearningCheckpoint:
    """A file that learning keeps up to date, at most once in `least_seconds`."""

    path: Path
    least_seconds: float = 0.0
    _written: float = field(default=0.0, init=False, repr=False)

    @classmethod
    def at(cls, place: "str | Path | LearningCheckpoint | None") -> "LearningCheckpoint | None":
        return place if place is None or isinstance(place, LearningCheckpoint) else cls(Path(place))

    def load(self, identity: str, *, device: torch.device) -> State | None:
        if not self.path.exists():
            return None
        tensors, about = read_tensors(self.path, device=device)
        if about.get("format") != _FORMAT:
            raise FileFormatError(f"{self.path} is not a checkpoint of learning of this version")
        if about["identity"] != identity:
            raise InputError(
                f"{self.path} belongs to other data or settings; remove it or name another checkpoint file"
            )
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition("/")
            parts.setdefault(part, {})[rest] = value
        return State(int(about["step"]), Stage(**about["stage"]), parts)

    def save(self, identity: str, state: State, *, last: bool) -> None:
        if time.monotonic() - self._written < self.least_seconds and not last:
            return
        tensors = {f"{part}/{k}": v for part, content in state.parts.items() for k, v in content.items()}
        about: dict[str, Any] = {
            "format": _FORMAT,
            "identity": identity,
            "step": state.step,
            "stage": asdict(state.stage),
        }
        write_tensors(self.path, tensors, about)
        self._written = time.monotonic()


def moments(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Adam's state by the names of the parameters."""
    return {
        f"{name}/{key}": value
        for name, parameter in parameters.items()
        for key, value in optimizer.state[parameter].items()
    }


def restore_moments(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], saved: Mapping[str, Tensor]
) -> None:
    for name, parameter in parameters.items():
        optimizer.state[parameter] = {
            key: saved[f"{name}/{key}"].clone() for key in ("step", "exp_avg", "exp_avg_sq")
        }


def identity_of(arrays: Sequence[Tensor], settings: Sequence[object]) -> str:
    """A hash of the data, of the first parameters and of every setting: it fits this learning or none."""
    digest = hashlib.sha256()
    for tensor in arrays:
        digest.update(repr(tuple(tensor.shape)).encode())
        digest.update(tensor.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    digest.update(repr(settings).encode())
    return digest.hexdigest()
