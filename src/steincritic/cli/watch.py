"""watch: monitor rows as they come, and stop when they cannot be draws of the model."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from steincritic.cli.options import FITS, REJECTED, Common, model_named
from steincritic.data.points import score_points
from steincritic.data.stream import STDIN, check_rows
from steincritic.data.tail import TailReader
from steincritic.errors import InputError, check_count
from steincritic.gof.sequential import MonitorState, load_state, monitor
from steincritic.models.base import ScoreModel

_COMPARED = 100  # points of the past whose score shows that the model is the same
_LOG_MOST = 700.0  # exp of more is no float


@dataclass(frozen=True, kw_only=True)
class Watch(Common):
    """Monitor rows of csv text as they come. Exit code 0: end, not rejected, 1: rejected (at once), 2: error.

    The verdict may be read after every batch: the level bounds the chance of ever raising a false alarm.
    """

    data: tyro.conf.Positional[Path]
    """csv file, one row a point; - for standard input."""
    model: str
    """package.module:attr, file.py:attr, FILE.safetensors or a built-in name. It must have a sampler."""
    batch: int = 100
    """Rows that are looked at together; the last batch may be smaller."""
    level: float | None = None
    """0.05, or that of the state."""
    seed: int | None = None
    """0, or that of the state."""
    state: Path | None = None
    """File that keeps the state after every batch. If it is there the watch goes on from it: the rows that it
    has seen are skipped in a file; standard input is taken to bring new ones."""
    follow: bool = False
    """Wait for more rows at the end of the file."""
    idle: float | None = None
    """Stop waiting after so many seconds without a new row."""
    json: bool = False
    """Print one JSON object a batch on standard output and nothing else."""

    def __call__(self) -> int:
        check_count(self.batch, name="batch")
        model = model_named(self.model)
        state = load_state(self.state) if self.state is not None and self.state.exists() else None
        reader = TailReader(self.data, follow=self.follow, idle=self.idle)
        if state is not None:
            self._resume(reader, state, model)
        if state is None or not state.rejected:
            stream = batches(reader, self.batch)
            for latest in monitor(model, stream, level=self.level, seed=self.seed, state=state):
                state = latest
                if self.state is not None:
                    state.save(self.state)
                self._print(state)
                if state.rejected:
                    break
        if state is None:
            check_rows(reader.parser)
        assert state is not None  # a row makes a state
        if not self.json:
            print(verdict(state), flush=True)
        return REJECTED if state.rejected else FITS

    def _resume(self, reader: TailReader, state: MonitorState, model: ScoreModel) -> None:
        """Bring the reader to the first row that the state has not seen, if these rows are those it saw."""
        past = state.past
        if past is None:
            return
        again = score_points(model, past.x[:_COMPARED]).score
        if not torch.allclose(again, past.score[:_COMPARED], rtol=1e-4, atol=1e-6):  # float32 rounding
            raise InputError(
                f"{self.state} was begun with another model than {self.model}; name another file"
            )
        if str(self.data) == STDIN:
            return
        seen = TailReader(self.data).take(len(past))
        if not np.array_equal(seen, past.x.cpu().numpy()):
            raise InputError(
                f"{self.data} does not begin with the {len(past)} rows that {self.state} has seen; it is "
                "another file, or was cut: name another state file to begin anew"
            )
        reader.take(len(past))

    def _print(self, state: MonitorState) -> None:
        print(json.dumps(standing(state)) if self.json else line(state), flush=True)


def batches(reader: TailReader, size: int) -> Iterator[np.ndarray]:
    while len(rows := reader.take(size)):
        yield rows


def standing(state: MonitorState) -> dict[str, Any]:
    """Where the stream stands, in plain values."""
    return {
        "points": state.points,
        "batches": state.batches,
        "wealth": wealth(state),
        "log_wealth": state.log_wealth,
        "threshold": 1 / state.level,
        "pvalue": state.pvalue,
        "rejected": state.rejected,
        "rejected_at": state.rejected_at,
    }


def line(state: MonitorState) -> str:
    return (
        f"{state.points:9d} points   wealth {wealth(state):10.4g} of {1 / state.level:g}   "
        f"p {state.pvalue:.3g}"
    )


def verdict(state: MonitorState) -> str:
    if state.rejected:
        return f"Rejected at point {state.rejected_at}: the rows do not look like draws from the model."
    return f"Not rejected at level {state.level:g} after {state.points} points."


def wealth(state: MonitorState) -> float:
    return math.exp(min(state.log_wealth, _LOG_MOST))
