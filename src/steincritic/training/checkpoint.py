"""Training that was interrupted goes on exactly where it was.

The randomness of training is counted, not carried (see `rng.Streams`), so weights, Adam's moments,
stages, the keeper and the history are the whole state.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.data.points import ScoredPoints
from steincritic.errors import FileFormatError, InputError
from steincritic.files import read_tensors, write_tensors
from steincritic.training.staging import Stage

_FORMAT = "steincritic-training-1"


@dataclass(frozen=True, eq=False)
class Saved:
    """A checkpoint, read."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]

    @property
    def epoch(self) -> int:
        return int(self.about["epoch"])

    @property
    def stages(self) -> list[Stage]:
        return [Stage(**stage) for stage in self.about["stages"]]

    @property
    def failures(self) -> list[str | None]:
        return list(self.about["failures"])

    def part(self, name: str) -> dict[str, Tensor]:
        start = f"{name}/"
        return {k.removeprefix(start): v for k, v in self.tensors.items() if k.startswith(start)}

    def into_optimizer(self, bank: Bank, optimizer: torch.optim.Optimizer) -> None:
        """Put weights and moments back in place."""
        weights, state = self.part("weights"), self.part("adam")
        for name, parameter in bank.parameters.items():
            parameter.copy_(weights[name])
            optimizer.state[parameter] = {
                key: state[f"{name}/{key}"].clone() for key in ("step", "exp_avg", "exp_avg_sq")
            }


@dataclass
class Checkpoint:
    """A file that training keeps up to date, at most once in `least_seconds`."""

    path: Path
    least_seconds: float = 0.0
    _written: float = field(default=0.0, init=False, repr=False)

    @classmethod
    def at(cls, place: "str | Path | Checkpoint | None") -> "Checkpoint | None":
        return place if place is None or isinstance(place, Checkpoint) else cls(Path(place))

    def load(self, identity: str, *, device: torch.device) -> Saved | None:
        if not self.path.exists():
            return None
        tensors, about = read_tensors(self.path, device=device)
        if about.get("format") != _FORMAT:
            raise FileFormatError(f"{self.path} is not a training checkpoint of this version")
        if about["identity"] != identity:
            raise InputError(
                f"{self.path} belongs to other data or settings; remove it or name another checkpoint file"
            )
        return Saved(tensors, about)

    def save(
        self,
        identity: str,
        *,
        epoch: int,
        bank: Bank,
        optimizer: torch.optim.Optimizer,
        stages: Sequence[Stage],
        parts: Mapping[str, Mapping[str, Tensor]],
        failures: Sequence[str | None],
    ) -> None:
        if time.monotonic() - self._written < self.least_seconds:
            return
        tensors = {f"weights/{name}": value for name, value in bank.parameters.items()}
        for name, parameter in bank.parameters.items():
            for key, value in optimizer.state[parameter].items():
                tensors[f"adam/{name}/{key}"] = value
        for part, content in parts.items():
            tensors |= {f"{part}/{name}": value for name, value in content.items()}
        about = {
            "format": _FORMAT,
            "identity": identity,
            "epoch": epoch,
            "stages": [asdict(stage) for stage in stages],
            "failures": list(failures),
        }
        write_tensors(self.path, tensors, about)
        self._written = time.monotonic()


def identity_of(
    data: Sequence[ScoredPoints],
    training: object,
    stagings: Sequence[object],
    seeds: Sequence[int],
    bank: Bank,
) -> str:
    """A hash of the data, of every setting and of the first weights: it fits this training or none."""
    digest = hashlib.sha256()
    arrays = [tensor for points in data for tensor in (points.x, points.score)]
    for tensor in (*arrays, *bank.parameters.values()):
        digest.update(repr(tuple(tensor.shape)).encode())
        base = tensor[:1] if tensor.stride(0) == 0 else tensor
        digest.update(base.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    settings = (training, list(stagings), list(seeds), bank.network, list(bank.parameters))
    digest.update(repr(settings).encode())
    return digest.hexdigest()
