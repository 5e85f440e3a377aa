"""Seconds of one test in 50 dimensions, by part: figures 6 B and C, A.2 B and C of [repasky2023].

The paper's KSD makes the kernel anew for each dimension and draws its bootstrap one by one; a fair one has
three products of matrices. All are warmed up, on the run's own device, with nothing beside them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from steincritic import RBF, ScoredPoints, Training, fit_bank
from steincritic.data import Problem, problem
from steincritic.gof.null import fresh_monte_carlo, pooled_bootstrap
from steincritic.gof.split import split_sizes
from steincritic.report.style import ACCENT, GRAY
from steincritic.rng import Source, derive
from steincritic.stein import median_distance, stein_sums
from steincritic.stein.tiles import random_signs
from steincritic.training import FittedBank, Yardsticks, always
from studies import show
from studies.cells import Row, spread
from studies.paper.fifty import BEST, HELD_OUT, PAPER, SHARES, SIZES
from studies.record import Record
from studies.study import Context, Outcome, Study

LOOP, PRODUCTS, NEURAL = "KSD, loop over dimensions", "KSD, matrix products", "neural"
_COLORS = {NEURAL: ACCENT, LOOP: show.BLUE, PRODUCTS: GRAY}
Value = TypeVar("Value")
PARTS = ("training", "statistic", "bootstrap")


@dataclass(frozen=True, kw_only=True)
class Times:
    """Replicas have data of their own, and a critic; each is tested `runs` times."""

    sizes: tuple[int, ...] = SIZES
    shares: tuple[float, ...] = SHARES  # at the size of the split, of the larger difference
    split_size: int = 500
    replicas: int = 5
    runs: int = 10
    loop_runs: int = 1
    draws: int = 500
    epochs: int = 60


def run(config: Times, context: Context) -> Outcome:
    rows = []
    for name, n, share in [
        *(("gm-50d", n, PAPER.train) for n in config.sizes),
        *(("gm-50d-easy", config.split_size, share) for share in config.shares),
    ]:
        pair = problem(name).to(context.device, torch.float32)
        timed = {NEURAL: partial(_neural, share=share)}
        if share == PAPER.train:
            timed |= {PRODUCTS: partial(_products), LOOP: partial(_loop)}
        for method, seconds in timed.items():
            seconds(pair, n, 0, config, context)  # warms up
            replicas = [seconds(pair, n, r, config, context) for r in range(config.replicas)]
            parts = {part: spread(replica[part] for replica in replicas) for part in replicas[0]}
            rows.append({"problem": name, "n": n, "share": share, "method": method, **parts})
    return Outcome({"rows": rows})


def clock(work: Callable[[], Value], runs: int = 1) -> tuple[float, Value]:
    """Mean seconds of some runs, and what the last one gave."""
    start = time.perf_counter()
    for _ in range(runs - 1):
        work()
    value = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / runs, value


def _points(pair: Problem, n: int, replica: int, context: Context) -> ScoredPoints:
    x = pair.data.sample(n, seed=derive(context.seed, "timed", n, replica))
    return ScoredPoints(x, pair.model.score(x))


def _neural(
    pair: Problem, n: int, replica: int, config: Times, context: Context, *, share: float
) -> dict[str, float]:
    points, training = _points(pair, n, replica, context), PAPER.training or Training()
    count, tested = split_sizes(n, replace(PAPER, train=share))
    held = max(1, round(HELD_OUT * count))

    def train() -> FittedBank:
        return fit_bank(
            points[: count - held],
            staging=PAPER.staging,
            seeds=[derive(context.seed, "timed critic", replica)],
            network=PAPER.network,
            training=replace(training, epochs=config.epochs),
            yardsticks=Yardsticks(validation=always(points[count - held : count])),
        )

    seconds, fitted = clock(train)

    def draw(size: int, part: int) -> Tensor:
        y = pair.model.sample(size, seed=derive(context.seed, "null", replica, part))
        return fitted.witness(ScoredPoints(y, pair.model.score(y)))[0]

    def bootstrap() -> Tensor:
        source = Source(context.seed, "bootstrap", device=points.x.device)
        return pooled_bootstrap(draw(PAPER.pool * tested, 0), tested, draws=config.draws, source=source)

    fresh, _ = clock(lambda: fresh_monte_carlo(draw, tested, draws=config.draws))
    return {
        "training": seconds,
        "statistic": clock(lambda: float(fitted.witness(points[count:]).mean()), config.runs)[0],
        "bootstrap": clock(bootstrap, config.runs)[0],
        "fresh": fresh,
    }


def _products(pair: Problem, n: int, replica: int, config: Times, context: Context) -> dict[str, float]:
    points, kernels = _points(pair, n, replica, context), [RBF(factor=BEST)]

    def both() -> object:
        source = Source(context.seed, "signs", device=points.x.device)
        signs = random_signs(n, config.draws, flip=0.5, source=source)
        return stein_sums(points, kernels, signs=signs)

    statistic, _ = clock(lambda: stein_sums(points, kernels), config.runs)
    together, _ = clock(both, config.runs)
    return {"training": 0.0, "statistic": statistic, "bootstrap": max(0.0, together - statistic)}


def _loop(pair: Problem, n: int, replica: int, config: Times, context: Context) -> dict[str, float]:
    """As research code does it: the kernel anew for each dimension, one bootstrap draw at a time."""
    points = _points(pair, n, replica, context)
    source = Source(context.seed, "loop", device=points.x.device)

    def matrix() -> Tensor:
        scale = BEST * float(median_distance(points.x)) ** 2
        total = points.x.new_zeros(n, n)
        for j in range(points.dim):
            kernel = torch.exp(-torch.cdist(points.x, points.x).square() / (2 * scale))
            gap, score = points.x[:, None, j] - points.x[None, :, j], points.score[:, j]
            crossed = (score[:, None] - score[None, :]) * gap / scale
            total += kernel * (score[:, None] * score + crossed + 1 / scale - (gap / scale).square())
        return total

    def draw(u: Tensor) -> float:
        signs = 2.0 * source.integers(2, n) - 1
        return float(signs @ u @ signs) / n**2

    statistic, u = clock(matrix, config.loop_runs)
    bootstrap, _ = clock(lambda: [draw(u) for _ in range(config.draws)], config.loop_runs)
    return {"training": 0.0, "statistic": statistic, "bootstrap": bootstrap}


def seconds_of(row: Row, parts: Sequence[str]) -> float:
    return float(sum(row[part]["mean"] for part in parts))


def crossing(rows: Sequence[Row], peer: str, parts: Sequence[str]) -> float | None:
    """The n from which the neural test takes less time, on a line of logarithms; None where it never does."""
    by_n: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["problem"] == "gm-50d":
            by_n.setdefault(row["n"], {})[row["method"]] = seconds_of(row, parts)
    sizes = sorted(by_n)
    gaps = [float(np.log(by_n[n][NEURAL] / by_n[n][peer])) for n in sizes]
    if gaps[-1] > 0:
        return None
    last = max((k for k, gap in enumerate(gaps) if gap > 0), default=None)
    if last is None:
        return float(sizes[0])
    share = gaps[last] / (gaps[last] - gaps[last + 1])
    return float(np.exp(np.log(sizes[last]) + share * np.log(sizes[last + 1] / sizes[last])))


def pool_speedup(rows: Sequence[Row]) -> Mapping[int, float]:
    """By n: seconds of fresh null statistics over those from the pool."""
    neural = (row for row in rows if row["method"] == NEURAL and row["problem"] == "gm-50d")
    return {row["n"]: row["fresh"]["mean"] / row["bootstrap"]["mean"] for row in neural}


def _table(record: Record) -> str:
    rows, config = record.results["rows"], record.config

    def cells(part: str) -> Callable[[Row], str]:
        return lambda row: f"{row[part]['mean']:.4f} ± {row[part]['sd']:.4f}" if part in row else "–"

    columns: show.Columns = {
        "problem": "{problem}",
        "n": "{n}",
        "to train on": lambda row: f"{row['share']:.0%}",
        "method": "{method}",
        **{part: cells(part) for part in PARTS},
        "in all": lambda row: f"{seconds_of(row, PARTS):.3f}",
        "fresh bootstrap": cells("fresh"),
    }
    crossings = [
        f"{name}: the neural test is faster than {peer} {_from(crossing(rows, peer, parts))}"
        for name, parts in (("in all", PARTS), ("without the bootstrap", PARTS[:2]))
        for peer in (LOOP, PRODUCTS)
    ]
    ratios = ", ".join(f"{ratio:.1f} at n = {n}" for n, ratio in pool_speedup(rows).items())
    return show.document(
        record,
        show.listing(rows, columns),
        f"Seconds of one test, mean ± standard deviation over {config['replicas']} replicas of "
        f"{config['runs']} runs (the loop {config['loop_runs']}), {config['draws']} bootstrap draws, "
        f"{record.environment['threads']} threads.",
        f"Seconds {'; '.join(crossings)}. The paper: in all from just above 1,000, without the bootstrap "
        "from just above 1,500, on a laptop.",
        f"Fresh null statistics take so many times the seconds of those from a pool of 50 n: {ratios}. The "
        "paper: about ten times.",
    )


def _from(n: float | None) -> str:
    return "at no n up to the largest" if n is None else f"from n = {n:.0f} on"


def _figures(record: Record, folder: Path) -> list[Path]:
    rows, paths = record.results["rows"], [folder / "time.png", folder / "time-splits.png"]
    by_size = [row for row in rows if row["problem"] == "gm-50d"]
    by_share = [row for row in rows if row["problem"] != "gm-50d"]
    for path, shown, axis in ((paths[0], by_size, "n"), (paths[1], by_share, "share")):
        with show.picture(path, 10, 3.6, ncols=2) as (whole, parts):
            style: dict[str, Any]
            for method, color in _COLORS.items():
                places = [row for row in shown if row["method"] == method]
                x = [row[axis] for row in places]
                if len(places) == 1 and axis == "share":
                    whole.axhline(seconds_of(places[0], PARTS), color=color)
                    parts.axhline(seconds_of(places[0], PARTS[:2]), color=color, label=method)
                    style = {"color": color, "linestyle": "--", "label": f"{method}: bootstrap"}
                    parts.axhline(seconds_of(places[0], PARTS[2:]), **style)
                    continue
                style = {"color": color, "marker": "o", "markersize": 3}
                whole.plot(x, [seconds_of(row, PARTS) for row in places], label=method, **style)
                parts.plot(x, [seconds_of(row, PARTS[:2]) for row in places], label=method, **style)
                bootstrap = [seconds_of(row, PARTS[2:]) for row in places]
                parts.plot(x, bootstrap, linestyle="--", label=f"{method}: bootstrap", **style)
            whole.set(ylabel="seconds of one test")
            for ax in (whole, parts):
                ax.set(yscale="log", xlabel={"n": "n", "share": "share of points to train on"}[axis])
                ax.set_xscale("log" if axis == "n" else "linear")
            whole.set_title("in all")
            parts.set_title("statistic, with its training; bootstrap")
            show.legend_beside(parts)
    return paths


STUDY = Study(
    name="times-50d",
    title="Seconds of one test in 50 dimensions, by part",
    takes="15 minutes on two quiet cores",
    full=Times(),
    tiny=Times(
        sizes=(40, 60), shares=(0.3, 0.5), split_size=40, replicas=2, runs=1, loop_runs=1, draws=9, epochs=1
    ),
    run=run,
    table=_table,
    figures=_figures,
)
