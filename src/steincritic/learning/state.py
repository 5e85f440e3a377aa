"""Learning that was interrupted goes on exactly where it was.

Batches and probes are counted, not carried (see `rng.Streams`), so the parameters of model and critic,
their average, Adam's moments, the stage of λ and the history are the whole state.
"""

from dataclasses import asdict, dataclass

import torch

from steincritic.files import rebuilding
from steincritic.training.checkpoint import Parts, StateFile, flattened, in_parts
from steincritic.training.staging import Stage


@dataclass(frozen=True, eq=False)
class State:
    """All that changes; tensors by the part they belong to."""

    step: int  # steps done
    stage: Stage
    parts: Parts


class LearningCheckpoint(StateFile):
    """The state of a learning."""

    kind = "learning checkpoint"

    def load(self, identity: str, *, device: torch.device) -> State | None:
        found = self.read(identity, device=device)
        if found is None:
            return None
        tensors, about = found
        with rebuilding(self.path):
            return State(about["step"], Stage(**about["stage"]), in_parts(tensors))

    def save(self, identity: str, state: State, *, last: bool) -> None:
        if self.is_due or last:
            about = {"step": state.step, "stage": asdict(state.stage)}
            self.write(identity, flattened(state.parts), about)
