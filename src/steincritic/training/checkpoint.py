"""Training that was interrupted goes on exactly where it was.

The randomness of training is counted, not carried (see `rng.Streams`), so weights, Adam's moments,
stages, the best critics so far and the history are the whole state.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.files import read_tensors, rebuilding, write_tensors
from steincritic.training.staging import Stage

Parts = Mapping[str, Mapping[str, Tensor]]  # by the part they belong to and by name


@dataclass
class StateFile:
    """A file that is kept up to date, at most once in `least_seconds`, and fits one run or none."""

    path: Path
    least_seconds: float = 0.0
    _written: float = field(default=0.0, init=False, repr=False)
    kind: ClassVar[str]

    @classmethod
    def at(cls, place: "str | Path | Self | None") -> "Self | None":
        return place if place is None or isinstance(place, cls) else cls(Path(str(place)))

    def read(self, identity: str, *, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Tensors and their description; None where there is no file yet."""
        if not self.path.exists():
            return None
        tensors, about = read_tensors(self.path, kind=self.kind, device=device)
        if about.get("identity") != identity:
            raise InputError(
                f"{self.path} belongs to other data or settings: take those, remove it, or name another"
            )
        return tensors, about

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._written >= self.least_seconds

    def write(self, identity: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        write_tensors(self.path, dict(tensors), {"identity": identity, **about}, kind=self.kind)
        self._written = time.monotonic()


@dataclass(frozen=True, eq=False)
class Saved:
    """A checkpoint of a training, read."""

    epoch: int
    stages: list[Stage]
    failures: list[str | None]
    parts: Parts


class Checkpoint(StateFile):
    """The state of a training."""

    kind = "training checkpoint"

    def load(self, identity: str, *, device: torch.device) -> Saved | None:
        content = self.read(identity, device=device)
        if content is None:
            return None
        tensors, about = content
        with rebuilding(self.path):
            stages = [Stage(**stage) for stage in about["stages"]]
            return Saved(about["epoch"], stages, list(about["failures"]), in_parts(tensors))

    def save(
        self,
        identity: str,
        *,
        epoch: int,
        stages: Sequence[Stage],
        parts: Parts,
        failures: Sequence[str | None],
    ) -> None:
        if not self.is_due:
            return
        about = {"epoch": epoch, "stages": [asdict(stage) for stage in stages], "failures": list(failures)}
        tensors = {f"{part}/{name}": value for part, state in parts.items() for name, value in state.items()}
        self.write(identity, tensors, about)


def in_parts(tensors: Mapping[str, Tensor]) -> Parts:
    """The parts again."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = value
    return parts


def identity_of(
    data: Sequence[ScoredPoints],
    training: object,
    stagings: Sequence[object],
    seeds: Sequence[int],
    bank: Bank,
) -> str:
    """A hash of the data, of every setting and of the first weights: it fits this training or none."""
    arrays = [tensor for points in data for tensor in (points.x, points.score)]
    settings = (training, list(stagings), list(seeds), bank.network, list(bank.parameters))
    return digest_of((*arrays, *bank.parameters.values()), settings)


def digest_of(arrays: Sequence[Tensor], settings: Sequence[object]) -> str:
    """A hash of arrays and settings; of an expanded array what it holds once."""
    digest = hashlib.sha256()
    for tensor in arrays:
        digest.update(repr(tuple(tensor.shape)).encode())
        base = tensor[:1] if tensor.stride(0) == 0 else tensor
        digest.update(base.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    digest.update(repr(settings).encode())
    return digest.hexdigest()
