"""Learning that was interrupted goes on exactly where it was.

Batches and probes are counted, not carried (see `rng.Streams`), so the parameters of model and critic,
their average, Adam's moments, the stage of λ and the history are the whole state.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from steincritic.training.checkpoint import StateFile, flattened
from steincritic.training.staging import Stage


@dataclass(frozen=True, eq=False)
class State:
    """All that changes; tensors by the part they belong to."""

    step: int  # steps done
    stage: Stage
    parts: Mapping[str, Mapping[str, Tensor]]


class LearningCheckpoint(StateFile):
    """The state of a learning."""

    kind = "learning"

    def load(self, identity: str, *, device: torch.device) -> State | None:
        found = self.read(identity, device=device)
        if found is None:
            return None
        tensors, about = found
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition("/")
            parts.setdefault(part, {})[rest] = value
        return State(int(about["step"]), Stage(**about["stage"]), parts)

    def save(self, identity: str, state: State, *, last: bool) -> None:
        if self.is_due or last:
            about = {"step": state.step, "stage": asdict(state.stage)}
            self.write(identity, flattened(state.parts), about)
