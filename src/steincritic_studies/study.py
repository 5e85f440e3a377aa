"""What all experiments share: a frozen configuration in, plain results out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from steincritic.engine import EngineName
from steincritic.training.progress import Callback
from steincritic_studies.record import Record, environment


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where an experiment runs and who watches."""

    device: torch.device
    seed: int = 0
    callbacks: Sequence[Callback] = ()
    checkpoint: Path | None = None
    jobs: Path = Path("out/jobs")  # results of the jobs of a sweep
    engine: EngineName = "serial"
    address: str | None = None


@dataclass(frozen=True)
class Outcome:
    results: Mapping[str, Any]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Experiment:
    """A named experiment: its full configuration, a tiny one for tests, and how to run either."""

    name: str
    title: str
    full: Any
    tiny: Any
    run: Callable[[Any, Context], Outcome]

    def record(self, context: Context, *, tiny: bool = False) -> Record:
        config = self.tiny if tiny else self.full
        outcome = self.run(config, context)
        return Record(
            name=self.name,
            command=f"steincritic reproduce {self.name}" + (" --tiny" if tiny else ""),
            config={"type": type(config).__name__, **vars(config)},
            seed=context.seed,
            results=outcome.results,
            seconds=outcome.seconds,
            environment=environment(context.device),
        )


class Clock:
    """Seconds by part, the device's work waited for."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._last = device, time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds[name], self._last = now - self._last, now
