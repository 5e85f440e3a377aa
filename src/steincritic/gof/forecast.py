"""How long a test takes, said before it starts.

What is timed is a small part of the test's own work: null sets, which the test then has, a few steps of
training, or the test of fewer rows. Where a test may stop early, what is expected depends on the data: if
they stand out from the first null sets by far, the quick lenses will decide.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.mlp import MLP
from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.display import panel
from steincritic.engine import at_a_time, in_use, spread
from steincritic.gof.combined import LOOKED, QUICK_LOOKED, Combined, CombinedRun
from steincritic.gof.crossfit import DRAWS, CrossFit
from steincritic.gof.null import draws_for
from steincritic.gof.null_runs import NullRuns
from steincritic.gof.one_pass import Block, Summing, sample_size
from steincritic.gof.result import GofResult
from steincritic.gof.split import Split, split_sizes
from steincritic.gof.streamed import Streamed
from steincritic.gof.test import GofTest
from steincritic.gof.thresholds import choose_threshold
from steincritic.lenses.critics import Critics
from steincritic.models.base import Model, SamplingModel
from steincritic.rng import generator
from steincritic.training.critic import Critic
from steincritic.training.fit import Training, fit_bank
from steincritic.training.pacing import DEFAULT_STAGING, paced

_WHILE = 0.1  # seconds that are worth timing
_STEPS = 5  # of training
_ROWS = 100  # the fewest that a trial has
_CHANCE = 1e-4  # that a set of the model stands out
_ERRORS = 5.0  # standard errors that rows of the model are hardly off by
_GROWTH = {"ksd": 2, "ksdagg": 2}  # of the time with the rows, as a power; 1 where not named
_SOON = 2.0  # seconds that may pass before the forecast is there
# Looks at critics, by the p-value of the quick lenses: on seeds 2000 to 2059, normal data of 100 x 2 and of
# 200 x 5, all 109 tests with 0.1 and above ended at the first look, 8 of 10 below it at the sixth or seventh.
_UNUSUAL, _LOOKS, _LOOKS_IF_UNUSUAL = 0.1, 1.2, 4.5
_BANK = 4  # datasets whose critics a thread trains together


@dataclass(frozen=True)
class Part:
    """Some of the work."""

    what: str
    seconds: float  # expected
    most: float  # where nothing stops early

    def __str__(self) -> str:
        return f"{self.what}: {_between(self.seconds, self.most)}"


@dataclass(frozen=True)
class Forecast:
    """How long the work takes, on a machine that is as busy as now."""

    parts: tuple[Part, ...]

    @property
    def seconds(self) -> float:
        """What is expected."""
        return sum(part.seconds for part in self.parts)

    @property
    def most(self) -> float:
        """If the test can stop nowhere early."""
        return sum(part.most for part in self.parts)

    def __add__(self, part: Part) -> "Forecast":
        return Forecast((*self.parts, part))

    def __str__(self) -> str:
        return f"{_between(self.seconds, self.most)}: {', '.join(part.what for part in self.parts)}"

    def _repr_html_(self) -> str:
        return panel([_between(self.seconds, self.most)], items=map(str, self.parts))

    def to_dict(self) -> dict[str, Any]:
        plan = [
            {"what": p.what, "seconds": round(p.seconds, 3), "most": round(p.most, 3)} for p in self.parts
        ]
        expected, most = round(self.seconds, 3), round(self.most, 3)
        return {"seconds_expected": expected, "seconds_most": most, "plan": plan}


def _between(seconds: float, most: float) -> str:
    if seconds <= 0.3 < most:
        return f"at most {duration(most)}"
    close = f"about {duration(seconds)}" if seconds > 0.3 else duration(seconds)
    return close if most < 1.5 * seconds + 0.5 else f"{close}, at most {duration(most)}"


def duration(seconds: float) -> str:
    """In words that are as exact as a forecast."""
    if seconds < 1:
        return "a second" if seconds > 0.3 else "less than a second"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Begun:
    """A test of one dataset, about to be done."""

    forecast: Callable[[], Forecast]
    result: Callable[[], GofResult]


def begin(test: GofTest, model: Model | None, points: ScoredPoints, *, level: float, seed: int) -> Begun:
    """What the forecast makes, the test has."""
    alone = points.alone()
    if isinstance(test, Combined) and isinstance(model, SamplingModel) and test.at_once(model, len(points)):
        run = test.begin(model, alone, level=level, seeds=[seed])
        return Begun(lambda: _of_combined(run), lambda: run.result(0))
    return Begun(
        lambda: _of_other(test, model, points, level, seed),
        lambda: test.run(model, alone, level=level, seeds=[seed])[0],
    )


def _of_combined(run: CombinedRun) -> Forecast:
    plan, learned = run.plan, run.learned
    done = learned.known >= plan.reference  # in the cache
    runs, wanted = (run.quick.runs, plan.sets) if done else (learned, plan.reference)
    each = _seconds_each(runs, wanted) if runs.known < wanted else 0.0
    pvalue, left, known = _first_look(run, each)
    clear = pvalue < 1 / QUICK_LOOKED
    enough = plan.sets if pvalue < _UNUSUAL else min(QUICK_LOOKED, plan.sets)
    expected, most = (each * (left + max(0, count - known)) for count in (enough, plan.sets))
    forecast = Forecast((Part(f"{plan.sets:,} null sets for the quick lenses", expected, most),))
    if run.config.critics is None:
        return forecast
    if plan.split:
        split = Split(draws=max(999, plan.draws))
        (part,) = _of_split(split, run.model, next(run.datasets.each())).parts
        return forecast + replace(part, seconds=0.0 if clear else part.seconds)
    looks = _LOOKS if pvalue >= _UNUSUAL else _LOOKS_IF_UNUSUAL
    looked = min(plan.draws, round(looks * LOOKED.get(run.device, LOOKED["cpu"])))
    trained = run.trained.runs.known
    own, other = _seconds_of_critics(run.config.critics, run.datasets.x, run.config.engine)
    expected, most = (own + other * max(0, count - trained) for count in (looked, plan.draws))
    return forecast + Part(f"up to {plan.draws:,} with critics", 0.0 if clear else expected, most)


def _first_look(run: CombinedRun, each: float) -> tuple[float, int, int]:
    """About the p-value of the quick lenses; reference sets that are left to make; null sets that are known.

    Where null sets take next to no time, the first hundred of them tell; else whether the data stand out
    from the few reference sets that were timed.
    """
    plan, learned = run.plan, run.learned
    left = max(0, plan.reference - learned.known)
    if each * (left + QUICK_LOOKED) < _SOON:
        return run.among(0, min(QUICK_LOOKED, plan.sets)).pvalue, 0, run.quick.runs.known
    clear = stands_out(run.seen[0].cpu(), learned.rows(0, learned.known))
    return 0.0 if clear else 1.0, left, 0 if left else run.quick.runs.known


def of_streamed(test: Streamed, blocks: Iterator[Block], n: int) -> Forecast:
    """Of about n rows that go by in one pass; the first two blocks of them are timed."""
    plan, sizes = test.planned(n)
    for _ in range(2):  # the first one pays for the start
        start = time.perf_counter()
        block = next(blocks, None)
        if block is not None:
            took = time.perf_counter() - start
            last, start = block, time.perf_counter()
            Summing(test.bench, sample_size(last.points.dim), 0)((last, 0))
            own = time.perf_counter() - start
    passing = n / len(last.points) * max(took, (took + own) / at_a_time())
    runs = test.null_sums(sizes)
    each = _seconds_each(runs, sizes.sets) if runs.known < sizes.sets else 0.0
    null = each * max(0, sizes.sets - runs.known)
    what = f"{sizes.sets:,} null sets of {sizes.rows:,} rows"
    forecast = Forecast((Part(f"one pass over {n:,} rows", passing, passing), Part(what, null, null)))
    if test.config.critics is None:
        return forecast
    sample = last.points.x.new_empty(sample_size(last.points.dim), last.points.dim)
    split = Split(draws=max(999, plan.draws))
    (part,) = _of_split(split, test.model, ScoredPoints(sample, sample)).parts
    return forecast + replace(part, seconds=0.0 if _far_off(last.points) else part.seconds)


def _far_off(points: ScoredPoints) -> bool:
    """Whether rows are plainly not of the model: by Stein values of shifts and spreads, whose mean is 0."""
    x, score = (t.to("cpu", torch.float64) for t in (points.x, points.score))
    values = torch.cat([score, (x - x.mean(0)) * score + 1], -1)  # (n, 2d)
    errors = values.std(0) / math.sqrt(len(values))
    return bool((values.mean(0).abs() > _ERRORS * errors).any())


def _seconds_each(runs: NullRuns, most: int) -> float:
    """Of one more null set; those that are made for it are kept."""
    seconds, count = 0.0, 1
    for _ in range(2):  # the first ones pay for the start
        if runs.known >= most or (seconds > _WHILE and in_use() != "dask"):  # workers start slowly
            break
        count = min(runs.turn, most - runs.known)
        start = time.perf_counter()
        runs.rows(runs.known, count)
        seconds = time.perf_counter() - start
    return seconds / count


def stands_out(own: Tensor, null: Tensor) -> bool:
    """Whether a row of (k,) entries is far from the (r, k) of null sets, by Student's t."""
    from scipy.special import stdtrit  # slow to import

    sets, numbers = null.shape
    sd = null.std(0) * math.sqrt(1 + 1 / sets) if sets > 1 else torch.zeros(numbers)
    varies = sd > 0
    t = ((own - null.mean(0)).abs() / sd)[varies]
    return bool((t > -stdtrit(max(1, sets - 1), _CHANCE / numbers / 2)).any())


def _seconds_of_critics(critics: Critics, x: Tensor, engine: str | None) -> tuple[float, float]:
    """Of the critics of the data, and of those of one null set among many."""
    train, net, folds = critics.training, critics.network, critics.folds
    steps = train.epochs * math.ceil(x.shape[-2] * (1 - 1 / folds) / train.batch_size)
    threads = 1 if engine == "serial" or x.device.type != "cpu" else torch.get_num_threads()
    own = seconds_of_step(x, folds, train, network=net)
    other = seconds_of_step(x, _BANK * folds, train, network=net, at_once=threads) / (_BANK * threads)
    return steps * own, steps * other


def seconds_of_step(
    x: Tensor, members: int, training: Training, *, network: MLP | None = None, at_once: int = 1
) -> float:
    """Of training of a bank, while so many threads train one each."""
    rows = _STEPS * training.batch_size

    def train(seed: int) -> float:
        return _trained(x, members, rows, replace(training, epochs=1), network).fitted.seconds["training"]

    for _ in range(2):  # the first ones pay for the start
        took = dict(spread(train, range(at_once), "threads" if at_once > 1 else "serial"))
    return sum(took.values()) / len(took) / _STEPS


def _trained(x: Tensor, members: int, rows: int, training: Training, network: MLP | None = None) -> Critic:
    """On normal points: what a step takes does not depend on the data."""
    fitted = fit_bank(
        _normal(x, members, rows),
        staging=DEFAULT_STAGING,
        seeds=range(members),
        network=network or MLP(),
        training=training,
    )
    return Critic(fitted[:1], Frame.identity(x.shape[-1]))


def _normal(like: Tensor, *shape: int) -> ScoredPoints:
    x = torch.randn(*shape, like.shape[-1], generator=generator(0, "forecast"), dtype=like.dtype)
    return ScoredPoints(x.to(like.device), -x.to(like.device))


def _of_split(split: Split, model: Model | None, points: ScoredPoints) -> Forecast:
    trained, tested = split_sizes(len(points), split)
    training = split.training or paced(trained)[0]
    seconds = seconds_of_training(points.x, trained, 1, training)
    threshold = choose_threshold(split.threshold, model, n=tested, dim=points.dim, draws=split.draws)
    if split.slowness == 1 and threshold in ("fresh", "permutation", "pooled"):
        count = tested * (split.draws if threshold == "fresh" else split.pool)
        seconds += seconds_of_draws(model, points.x, count) + seconds_of_witness(points.x, count)
    return Forecast((Part(f"a critic trained on {trained:,} rows", seconds, seconds),))


def seconds_of_training(x: Tensor, n: int, members: int, training: Training) -> float:
    steps = training.epochs * math.ceil(n / training.batch_size)
    return steps * seconds_of_step(x, members, training)


def seconds_of_draws(model: Model | None, like: Tensor, count: int) -> float:
    """Of so many scored draws of the model."""
    return grown(lambda m: sample_points(model, m, seed=0, like=like), count, 1)


def seconds_of_witness(x: Tensor, count: int) -> float:
    critic = _trained(x, 1, _ROWS, Training(epochs=1, batch_size=_ROWS))

    def witness(m: int) -> None:
        float(critic.witness(_normal(x, m)).sum())

    return grown(witness, count, 1)


def grown(work: Callable[[int], object], n: int, power: float) -> float:
    """Seconds of work(n), by those of fewer: something that is always to do, and more with a power of n."""

    def timed(m: int) -> float:
        start = time.perf_counter()
        work(m)
        return time.perf_counter() - start

    m = min(_ROWS, n)
    timed(m)  # pays for the start
    small = large = timed(m)
    while large < _WHILE and 5 * m < n:
        m, small = 2 * m, large
        large = timed(m)
    slope: float = max(0.0, large - small) / (1 - 0.5**power)
    more: float = (n / m) ** power - 1
    return large + slope * more


def _of_other(test: GofTest, model: Model | None, points: ScoredPoints, level: float, seed: int) -> Forecast:
    if isinstance(test, Split):
        return _of_split(test, model, points)
    if isinstance(test, CrossFit):
        count = test.draws or draws_for(level, DRAWS.get(points.x.device.type, DRAWS["cpu"]))
        own, other = _seconds_of_critics(test.critics, points.x, test.engine)
        seconds = own + count * other
        return Forecast((Part(f"critics of {count:,} null sets", seconds, seconds),))
    quick: Any = replace(test, critics=None) if isinstance(test, Combined) else test

    def fewer(m: int) -> None:
        quick.run(model, points[:m].alone(), level=level, seeds=[seed])

    seconds = grown(fewer, len(points), _GROWTH.get(test.name, 1))
    found = Forecast((Part(f"test {test.name} of {len(points):,} rows", seconds, seconds),))
    if not isinstance(test, Combined) or test.critics is None:
        return found
    (part,) = _of_split(Split(threshold="bootstrap-t", slowness=test.slowness), model, points).parts
    return found + part
