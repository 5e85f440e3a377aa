"""watch: test rows as they come, and stop when they cannot be draws of the model."""

import math
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from steincritic.cli.guard import FITS, REJECTED, described, print_json
from steincritic.cli.options import Common, Data, Model, OnDevice, check_writable, model_named
from steincritic.cli.parse import ADVANCED, POSITIONAL
from steincritic.errors import InputError, check_count, check_level

if TYPE_CHECKING:
    from steincritic.data.tail import TailReader
    from steincritic.gof.watch_state import WatchState
    from steincritic.models import base

_COMPARED = 100  # points of the past whose score shows that the model is the same
_LOG_MOST = 700.0  # exp of more is no float


@dataclass(frozen=True, kw_only=True)
class Watch(Common, OnDevice, Model, Data):
    """Test rows of csv text as they arrive, batch by batch.

    Exit code 0: the rows ended and the model is not rejected, 1: rejected (at once), 2: error. The model must
    have a sampler. You may read the verdict after every batch: the level bounds the probability of ever
    raising a false alarm.
    """

    data: Annotated[Path, POSITIONAL, "csv file, one point per row; - for standard input."]
    batch: Annotated[int, "Rows that are looked at together; the last batch may be smaller."] = 100
    level: Annotated[
        float | None, "Accepted probability of a false alarm; by default 0.05, or that of the state."
    ] = None
    seed: Annotated[int | None, "Decides every random choice; by default 0, or that of the state."] = None
    state: Annotated[
        Path | None,
        "File that keeps the state after every batch. If it exists, the watch continues from it: in a file, "
        "rows that were seen are skipped; from standard input, all rows are taken as new.",
    ] = None
    follow: Annotated[bool, "Wait for more rows at the end of the file."] = False
    idle: Annotated[float | None, ADVANCED, "Stop waiting after this many seconds without a new row."] = None
    json: Annotated[bool, "Print one JSON object per batch on standard output and nothing else."] = False

    takes_stdin: ClassVar[bool] = True
    tells: ClassVar[bool] = True

    @property
    def after_interrupt(self) -> str:
        if self.state is None or not self.state.exists():
            return super().after_interrupt
        return f"{self.state} holds what was seen: the same command goes on from there"

    def check(self) -> None:
        super().check()
        check_count(self.batch, name="batch")
        if self.level is not None:
            check_level(self.level)
        if self.seed is not None:
            check_count(self.seed, name="seed", least=0)
        if self.state is not None:
            check_writable(self.state)

    def __call__(self) -> int:
        from steincritic.data.tables import check_rows
        from steincritic.gof.sequential import watch
        from steincritic.gof.watch_state import load_watch
        from steincritic.shapes import counted

        model = model_named(self.model)
        state = load_watch(self.state) if self.state is not None and self.state.exists() else None
        reader = self._reader(follow=self.follow, idle=self.idle)
        if state is not None:
            self._resume(reader, state, model)
        if state is None or not state.rejected:
            stream = takewhile(len, iter(lambda: reader.take(self.batch), None))
            settings: dict[str, Any] = {"level": self.level, "seed": self.seed, "device": self.device}
            for latest in watch(model, stream, state=state, **settings):
                state = latest
                if self.state is not None:
                    state.save(self.state)
                self._print(state, reader.dropped)
                if state.rejected:
                    break
        if state is None:
            check_rows(reader.parser)
        assert state is not None  # a row makes a state
        if not self.json:
            left_out = f" {counted(reader.dropped, 'row')} left out." if reader.dropped else ""
            print(state.summary() + left_out, flush=True)
        return REJECTED if state.rejected else FITS

    def _reader(self, **waiting: Any) -> "TailReader":
        from steincritic.data.tail import TailReader

        return TailReader(self.data, drop_nan=self.drop_nan, columns=self.chosen, **waiting)

    def _resume(self, reader: "TailReader", state: "WatchState", model: "base.Model") -> None:
        """Bring the reader to the first row that the state has not seen, if these rows are those it saw."""
        import torch

        from steincritic.data.points import arranged, score_points
        from steincritic.data.tables import STDIN
        from steincritic.models.bounded import coordinates_of, unbounded
        from steincritic.models.coordinates import entered

        past = state.past
        if past is None:
            return
        again = score_points(unbounded(model), past.x[:_COMPARED]).score
        if not torch.allclose(again, past.score[:_COMPARED], rtol=1e-4, atol=1e-6):  # float32 rounding
            raise InputError(
                f"{self.state} was begun with another model than {self.model}; name another file"
            )
        if str(self.data) == STDIN:
            return
        rows = torch.from_numpy(arranged(self._reader().take(len(past)), model).x)
        if (within := coordinates_of(model)) is not None:
            rows = entered(within, rows)
        if not torch.equal(rows.to(past.x), past.x):
            raise InputError(
                f"{self.data} does not begin with the {len(past)} rows that {self.state} has seen; it is "
                "another file, or was cut: name another state file to begin anew"
            )
        reader.take(len(past))

    def _print(self, state: "WatchState", dropped: int) -> None:
        wealth = math.exp(min(state.log_wealth, _LOG_MOST))
        if not self.json:
            print(
                f"{state.points:9d} points   wealth {wealth:10.4g} of {1 / state.level:g}   "
                f"p {state.pvalue:.3g}",
                flush=True,
            )
            return
        content = {
            "points": state.points,
            "batches": state.batches,
            "wealth": wealth,
            "log_wealth": state.log_wealth,
            "threshold": 1 / state.level,
            "pvalue": state.pvalue,
            "rejected": state.rejected,
            "rejected_at": state.rejected_at,
        }
        about = {"model": self.model, "data": str(self.data), "dropped": dropped}
        print_json(described(content, command="watch", **about))
