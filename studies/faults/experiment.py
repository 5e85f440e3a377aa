"""Are planted faults found, and told in the right words, and is nothing said where there is none?"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from steincritic import CheckResult, Combined, Rate, ScoredPoints, check, gof_test
from steincritic.data import score_points
from steincritic.diagnosis.findings import Finding, find
from steincritic.models import GaussianMixture
from steincritic.rng import derive, generator
from studies import show
from studies.cells import Cell, Plan, Row, counted, of_jobs, swept
from studies.laws import normal, replaced
from studies.record import Record
from studies.show import LEVEL
from studies.study import Context, Outcome, Study

FDR = 0.1
_FOREIGN = 0.03  # share of rows from elsewhere
_WRONG = 7  # the wrong column
_DIMS = {"points": 20, "coordinate": 30, "region": 5, "none": 5}


@dataclass(frozen=True, kw_only=True)
class PlantedFaults(Plan):
    """Standard normal models, and data that differ from them in one way.

    points: 3 % of the rows come from another normal, with mean 1.5 in ten coordinates and half the
    spread. coordinate: column 8 is wider by 1.3. region: outside of x1 > 0.5 and x2 < 0 fewer than half
    of the rows are kept. none: draws of the model.
    """

    counts: tuple[tuple[str, int, int], ...] = (  # kind, n, runs
        ("points", 1000, 200),
        ("coordinate", 500, 100),
        ("region", 1000, 100),
        ("none", 500, 100),
    )

    def cells(self) -> Iterator[Cell]:
        for kind, n, count in self.counts:
            for k in range(count):
                yield Cell(problem=kind, n=n, runs=1, part=k)


def run_planted(config: PlantedFaults, context: Context) -> Outcome:
    rows: dict[str, Row] = {kind: {} for kind, _, _ in config.counts}
    runs = swept(diagnose, config, context)
    for run in runs:
        for name, value in run["measured"].items():
            rows[run["kind"]].setdefault(name, []).append(value)
    results = {
        kind: {name: _summary(values) for name, values in rows[kind].items()} | {"n": n}
        for kind, n, _ in config.counts
    }
    return of_jobs({"rows": results, "fdr": FDR}, runs)


@counted
def diagnose(cell: Cell) -> Row:
    seed, model = derive(cell.seed, cell.problem, cell.part), normal(_DIMS[cell.problem]).to(torch.float32)
    x = _planted(cell.problem, model, cell.n, seed)
    few = Combined(draws=19, reference=20, critics=None, cache=False)
    test = gof_test(model, x, few if cell.tiny else Combined(), seed=seed)
    diagnosis = check(model, x, fdr=FDR, seed=seed, test=test)
    return {
        "kind": cell.problem,
        "measured": {"rejected": test.rejected} | _measured(cell.problem, diagnosis),
    }


def _planted(kind: str, model: GaussianMixture, n: int, seed: int) -> Tensor:
    """Foreign rows come first."""
    x = model.sample(4 * n if kind == "region" else n, seed=seed).to(torch.float32)
    if kind == "points":
        count = round(_FOREIGN * n)
        noise = torch.randn(count, x.shape[1], generator=generator(seed, "foreign"))
        x[:count] = 0.5 * noise + torch.where(torch.arange(x.shape[1]) < 10, 1.5, 0.0)
    if kind == "coordinate":
        x[:, _WRONG] *= 1.3
    if kind == "region":
        kept = torch.rand(len(x), generator=generator(seed, "kept")) < 0.45
        x = x[kept | _region(x)][:n]
    return x


def _region(x: Tensor) -> Tensor:
    return (x[:, 0] > 0.5) & (x[:, 1] < 0.0)


def _measured(kind: str, diagnosis: CheckResult) -> Row:
    """What holds in a run, as bools whose share is told, and as numbers of which the mean is."""
    if kind == "points":
        flagged, planted = diagnosis.points.flagged, round(_FOREIGN * len(diagnosis.data))
        true = int((flagged < planted).sum())
        false_share = (len(flagged) - true) / max(1, len(flagged))
        return {"false_discovery_rate": false_share, "recall": true / planted}
    if kind == "coordinate":
        first = diagnosis.coordinates[0]
        named = first.first == _WRONG
        return {"named_first": named, "first_and_significant": named and first in diagnosis.wrong_coordinates}
    if kind == "region":
        x = normal(5).to(torch.float32).sample(20_000, seed=0)
        wrong = _region(x).numpy()
        holds = [region.holds(x.numpy()) for region in diagnosis.regions]
        overlaps = [float((inside & wrong).sum() / (inside | wrong).sum()) for inside in holds] or [0.0]
        shares = {"first_rule_overlaps": overlaps[0] >= 0.5, "some_rule_overlaps": max(overlaps) >= 0.5}
        return {**shares, "overlap": overlaps[0]}
    lists = diagnosis.points, diagnosis.wrong_coordinates, diagnosis.regions, diagnosis.missing or ()
    return {"no_list": not any(map(len, lists))}


def _summary(values: list[Any]) -> Row:
    if isinstance(values[0], bool):
        rate = Rate(sum(values), len(values))
        ends = rate.interval()
        return {"count": rate.rejections, "runs": rate.trials, "rate": rate.value, "interval": ends}
    return {"mean": mean(values), "se": stdev(values) / len(values) ** 0.5}


_DEMANDS = {
    ("points", "rejected"): "foreign rows, 20-D: model rejected",
    ("points", "false_discovery_rate"): "foreign rows, 20-D: false discovery rate (nominal 0.1)",
    ("points", "recall"): "foreign rows, 20-D: share of them listed",
    ("coordinate", "rejected"): "wrong coordinate of 30: model rejected",
    ("coordinate", "named_first"): "wrong coordinate of 30: named first",
    ("coordinate", "first_and_significant"): "wrong coordinate of 30: named first, and significant",
    ("region", "rejected"): "wrong region, 5-D: model rejected",
    ("region", "first_rule_overlaps"): "wrong region, 5-D: first rule overlaps it by half (Jaccard)",
    ("region", "some_rule_overlaps"): "wrong region, 5-D: some rule does",
    ("region", "overlap"): "wrong region, 5-D: overlap of the first rule",
    ("none", "rejected"): "no fault, 5-D: model rejected (level 0.05)",
    ("none", "no_list"): "no fault, 5-D: no list printed",
}


def planted_table(record: Record) -> str:
    rows = []
    for (kind, name), words in _DEMANDS.items():
        measured = record.results["rows"][kind]
        value = measured[name]
        if "rate" in value:
            rate = show.shown(Rate(value["count"], value["runs"]), "{:.3f} [{:.3f}, {:.3f}]")
            text = f"{rate}, {value['runs']} runs"
        else:
            text = show.mean_and_error(value)
        rows.append([words, str(measured["n"]), text])
    return show.document(
        record,
        show.markdown(["planted fault", "n", "measured"], rows),
        "Shares with their Wilson 95 % interval, means with their standard error. The gate of every list is "
        "the combined test at level 0.05.",
    )


PLANTED = Study(
    name="planted-faults",
    title="Planted faults and what a diagnosis says of them",
    takes="a sweep of many jobs: hours on two cores",
    full=PlantedFaults(),
    tiny=PlantedFaults(counts=tuple((kind, 60, 2) for kind in _DIMS), tiny=True),
    run=run_planted,
    table=planted_table,
)


_STEPS = torch.tensor([-3.0, 0.0, 3.0], dtype=torch.float64)
_TEN = normal(10)
_NINE = GaussianMixture(torch.cartesian_prod(_STEPS, _STEPS), 0.5**2)
_LOST = 7  # the mode that data lack, around (3, 0)


@dataclass(frozen=True)
class Planted:
    """What is wrong with the data, and which first findings are right.

    Args:
        spoil: takes draws of the model, and the factor of each row that makes a normal law a t(5) of the
            same variance.
    """

    words: str
    spoil: Callable[[Tensor, Tensor], Tensor]
    right: Callable[[Finding], bool]
    model: GaussianMixture = _TEN
    n: int = 300


def _about(kind: str, *columns: int) -> Callable[[Finding], bool]:
    return lambda finding: finding.kind == kind and finding.columns == columns


def _pair(x: Tensor, tail: Tensor) -> Tensor:
    return replaced(x, 1, 0.5 * x[:, :1] + math.sqrt(0.75) * x[:, 1:2])


def _lost_mode(x: Tensor, tail: Tensor) -> Tensor:
    return x[torch.cdist(x, _NINE.means).argmin(-1) != _LOST]


def _at_the_lost_mode(finding: Finding) -> bool:
    if finding.kind != "cell":
        return False
    nearest = torch.cdist(torch.tensor([finding.place], dtype=torch.float64), _NINE.means).argmin()
    return int(nearest) == _LOST and (finding.estimate or 0) < (finding.expected or 0)


FAULTS = {
    "mean": Planted("x7 shifted by 0.5 sd", lambda x, _: replaced(x, 6, x[:, 6:7] + 0.5), _about("shift", 6)),
    "spread": Planted(
        "x3 spreads 1.4 times", lambda x, _: replaced(x, 2, 1.4 * x[:, 2:3]), _about("spread", 2)
    ),
    "pair": Planted("x1, x2 correlated by 0.5", _pair, _about("pair", 0, 1)),
    "all tails": Planted(
        "tails of a t(5) in all directions", lambda x, tail: tail * x, lambda f: f.kind == "radial tails"
    ),
    "one tail": Planted(
        "tails of a t(5) in x5", lambda x, tail: replaced(x, 4, tail * x[:, 4:5]), _about("tails", 4), n=500
    ),
    "cell": Planted("one of 9 modes lost", _lost_mode, _at_the_lost_mode, _NINE),
    "none": Planted("no fault", lambda x, _: x, lambda finding: False),
}


@dataclass(frozen=True, kw_only=True)
class Sentences(Plan):
    """Quick lenses alone, and the findings that `check` makes of them.

    Rules and thresholds of the findings were chosen on seed 1; the numbers that we report come from seed 0.
    """

    faults: tuple[str, ...] = tuple(FAULTS)
    runs: int = 100
    together: int = 20  # runs that share null sets

    def cells(self) -> Iterator[Cell]:
        for name in self.faults:
            for first in range(0, self.runs, self.together):
                runs = min(self.together, self.runs - first)
                yield Cell(problem=name, n=FAULTS[name].n, part=first, runs=runs)


def run_sentences(config: Sentences, context: Context) -> Outcome:
    runs = swept(say, config, context)
    rows = []
    for name in config.faults:
        of_fault = [run for run in runs if run["fault"] == name]
        rejected = [run for run in of_fault if run["rejected"]]
        any_said = [run for run in of_fault if run["said"]]
        rows.append(
            {
                "fault": name,
                "words": FAULTS[name].words,
                "n": FAULTS[name].n,
                "runs": len(of_fault),
                "rejected": len(rejected),
                "right": sum(run["right"] for run in rejected),
                "any": len(any_said),
                "said": sum(run["said"] for run in of_fault) / max(1, len(any_said)),
                "example": next((run["first"] for run in any_said), ""),
            }
        )
    return of_jobs({"rows": rows}, runs)


@counted
def say(cell: Cell) -> list[Row]:
    fault, numbers = FAULTS[cell.problem], range(cell.part, cell.part + cell.runs)
    seeds = [derive(cell.seed, "sentences", cell.problem, k) for k in numbers]
    sets = []
    for seed in seeds:
        x = fault.model.sample(2 * fault.n, seed=seed).to(torch.float64)  # as the lost mode takes some
        noise = torch.randn(len(x), 5, generator=generator(seed, "noise"), dtype=torch.float64)
        tail = (3 / noise.square().sum(-1, keepdim=True)).sqrt()
        sets.append(score_points(fault.model, fault.spoil(x, tail)[: fault.n]))
    null_seed = derive(cell.seed, "null sets", cell.problem, cell.part)
    draws, reference = (49, 50) if cell.tiny else (999, 400)
    lenses = Combined(critics=None, null_seed=null_seed, cache=False, draws=draws, reference=reference)
    results = lenses.run(fault.model, ScoredPoints.stack(sets), level=LEVEL, seeds=seeds)
    names = [f"x{j + 1}" for j in range(fault.model.dim)]
    rows: list[Row] = []
    for points, result in zip(sets, results, strict=True):
        found = find(result.examined, points, names, level=LEVEL) if result.rejected else ()
        rows.append(
            {
                "fault": cell.problem,
                "rejected": result.rejected,
                "right": bool(found) and fault.right(found[0]),
                "said": len(found),
                "first": str(found[0]) if found else "",
            }
        )
    return rows


def sentences_table(record: Record) -> str:
    def rate(count: int, of: int) -> str:
        return show.shown(Rate(count, of), f"{count}/{of} ({{1:.2f}} to {{2:.2f}})") if of else "–"

    columns: show.Columns = {
        "fault": "{words}",
        "n": "{n}",
        "rejected": lambda row: rate(row["rejected"], row["runs"]),
        "right sentence first": lambda row: rate(row["right"], row["rejected"] * (row["fault"] != "none")),
        "any sentence": lambda row: rate(row["any"], row["runs"]),
        "sentences": "{said:.1f}",
        "the first one": "{example}",
    }
    return show.document(
        record,
        show.listing(record.results["rows"], columns),
        f"Level {LEVEL}; the right sentence first among runs in which the test rejects; 95 % intervals "
        "(Wilson). Quick lenses alone, no critics. Ten normal columns, or nine modes in the plane.",
    )


SENTENCES = Study(
    name="fault-sentences",
    title="Are planted faults put into the right words?",
    takes="13 seconds on one core",
    full=Sentences(),
    tiny=Sentences(faults=("mean", "cell", "none"), runs=4, together=4, tiny=True),
    run=run_sentences,
    table=sentences_table,
)
