"""How often a monitored stream ever raises an alarm; with a control that must fail."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from steincritic import Rate, Sequential, Training, watch
from steincritic.data import problem, scored
from steincritic.gof.betting import log_evalues, train_bettor, wealth_path
from steincritic.models import SamplingModel
from steincritic.rng import derive
from studies.cells import Cell, Plan, Row, counted, of_jobs, swept
from studies.record import Record
from studies.show import LEVEL, Columns, document, listing, rate_bound, shown
from studies.study import Context, Outcome, Study

_KINDS = {
    "null": "model draws",
    "data": "data of the problem",
    "control": "control: critic trained on the points it bets on",
}
_BATCH = 50


@dataclass(frozen=True, kw_only=True)
class Streams(Plan):
    """Streams watched to their end, critics retrained on the past of each as it grows."""

    counts: tuple[int, int, int] = (2000, 200, 200)  # streams of each kind
    length: int = 300
    together: int = 25  # streams per job

    def cells(self) -> Iterator[Cell]:
        for kind, count in zip(_KINDS, self.counts, strict=True):
            for first in range(0, count, self.together):
                runs = min(self.together, count - first)
                yield Cell(problem="gm-10d", kind=kind, n=self.length, runs=runs, part=first)


def run(config: Streams, context: Context) -> Outcome:
    streams = swept(alarms, config, context)
    rows = []
    for kind in _KINDS:
        delays = [stream["alarm"] for stream in streams if stream["kind"] == kind]
        raised = [alarm for alarm in delays if alarm is not None]
        row = {"method": "soft-rank", "kind": kind, "streams": len(delays), "alarms": len(raised)}
        rows.append(row | {"median_delay": median(raised) if raised else None})
    return of_jobs({"rows": rows, "level": LEVEL}, streams)


@counted
def alarms(cell: Cell) -> list[Row]:
    """For each stream the number of points seen at its alarm, or None."""
    pair = problem(cell.problem)
    model, data = (m.to(torch.float32) for m in (pair.model, pair.data))
    config = Sequential(training=Training(epochs=6 if cell.tiny else 60))
    rows: list[Row] = []
    for k in range(cell.part, cell.part + cell.runs):
        seed = derive(cell.seed, "stream", cell.kind, k)
        x = (data if cell.kind == "data" else model).sample(cell.n, seed=derive(seed, "points"))
        if cell.kind == "control":
            alarm = _control(model, x, config, seed)
        else:
            states = watch(model, x.split(_BATCH), level=LEVEL, seed=seed, test=config)
            alarm = next((state.rejected_at for state in states if state.rejected), None)
        rows.append({"kind": cell.kind, "alarm": alarm})
    return rows


def _control(model: SamplingModel, x: Tensor, config: Sequential, seed: int) -> int | None:
    """Bets by a critic that was trained on the very points."""
    points = scored(model, x)
    bettor, _ = train_bettor(model, points, config, number=1, seed=seed)
    bets = log_evalues(bettor, model, points, config, seed=derive(seed, "bets"))
    _, wealth = wealth_path(torch.zeros(config.accounts, dtype=torch.float64), bets)
    crossed = (wealth >= -math.log(LEVEL)).nonzero()
    return int(crossed[0]) + 1 if len(crossed) else None


def streams_table(record: Record) -> str:
    rows, level = record.results["rows"], record.results["level"]
    columns: Columns = {
        "bets": "{method}",
        "stream": lambda row: _KINDS[row["kind"]],
        "streams": "{streams}",
        "alarms": "{alarms}",
        "rate, 95 % interval": lambda row: shown(
            Rate(row["alarms"], row["streams"]), "{:.4f} [{:.4f}, {:.4f}]"
        ),
        "median points to alarm": lambda row: (
            "" if row["median_delay"] is None else f"{row['median_delay']:g}"
        ),
    }
    null = rows[0]["streams"]
    return document(
        record,
        listing(rows, columns),
        f"Streams of {record.config['length']} points, watched after every point. At level {level:g} the "
        f"99.9 % bound on {null} null streams is {rate_bound(level, null):.4f}.",
    )


STUDY = Study(
    name="streams",
    title="Alarms of monitored streams",
    takes="8 minutes on one core",
    full=Streams(),
    tiny=Streams(counts=(2, 2, 2), length=120, together=2, tiny=True),
    run=run,
    table=streams_table,
)
