"""50 dimensions: the paper's neural test beside kernel tests, [repasky2023] section 6.2, B.3 and B.4."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from steincritic import MLP, RBF, CrossFit, Ksd, KsdAgg, ScoredPoints, Split, Staged, Training, fit_bank
from steincritic.data import problem
from steincritic.gof.null import rank_pvalues
from steincritic.gof.power import Rate, trials_of
from steincritic.gof.split import split_sizes
from steincritic.rng import Source, derive
from steincritic.stein import stein_sums
from steincritic.stein.tiles import random_signs
from steincritic.training import FittedBank, Yardsticks
from studies.cells import MEDIAN, Cell, Plan, Row, counted, rates, spread, tests
from studies.paper.fifty_shown import draw_fifty, fifty_table
from studies.paper.power import SplitPower, ceiling, split_powers
from studies.paper.selection import RULES, Epochs, replica_seeds
from studies.show import LEVEL
from studies.study import Study

PAPER = Split(  # the paper's test in 50 dimensions, as its text has it
    train=0.5,
    threshold="pooled",
    draws=500,
    pool=50,
    staging=Staged(initial=0.4, floor=5e-4, decay=0.85),  # every epoch
    network=MLP(hidden=(512, 512)),
    training=Training(epochs=60, batch_size=40, learning_rate=5e-3, selection="monitor", monitor="gaussian"),
    standardize=False,
)
HELD_OUT = 0.2  # of the points to train on, for the monitor
SIZES = (100, 200, 300, 500, 1000, 1500, 2500)
FACTORS = tuple(2.0**k for k in range(-6, 3))  # of the squared median distance
BEST = 2.0**-4  # the paper's choice among them
SHARES = tuple(k / 10 for k in range(1, 10))  # of the points, to train on
_LARGE = 1500  # from this n on, kernel tests have a quarter of the datasets
_SETS_EACH = 100  # datasets of a job


def kernel_name(factor: float) -> str:
    return MEDIAN if factor == 1 else f"KSD, δ = 2^{math.log2(factor):g}"


@dataclass(frozen=True, kw_only=True)
class FiftyCell(Cell):
    """A method at one n.

    Args:
        method: "neural", "kernels", "likelihood ratio", or the name of one of our tests.
        share: of the points, to train on.
        critics: of the neural test, each with training data of its own and `runs` tests.
        factors: of the kernels.
    """

    share: float = PAPER.train
    critics: int = 5
    factors: tuple[float, ...] = (1.0, BEST)


@dataclass(frozen=True, kw_only=True)
class FiftyDimensions(Plan):
    """Every method at every n, on the datasets of one problem.

    Args:
        ours: our tests, by the largest n at which they run and their datasets.
    """

    problem: str
    sizes: tuple[int, ...] = SIZES
    shares: tuple[float, ...] = (PAPER.train,)
    factors: tuple[float, ...] = (1.0, BEST)
    critics: int = 5
    runs: int = 400
    ours: tuple[tuple[str, int, int], ...] = ()
    with_ceiling: bool = False

    def cells(self) -> Iterator[FiftyCell]:
        common: dict[str, Any] = {"problem": self.problem, "critics": self.critics, "gpu": True}
        for n in sorted(self.sizes, reverse=True):  # the longest first
            for share in self.shares:
                yield FiftyCell(method="neural", n=n, share=share, runs=self.runs, **common)
            runs = self.runs if n < _LARGE else self.runs // 4
            for part, start in enumerate(range(0, runs, _SETS_EACH)):
                count = min(_SETS_EACH, runs - start)
                yield FiftyCell(method="kernels", n=n, runs=count, part=part, factors=self.factors, **common)
            for name, largest, datasets in self.ours:
                if n <= largest:
                    yield FiftyCell(method=name, n=n, runs=min(datasets, self.runs), **common)
            if self.with_ceiling:
                yield FiftyCell(method="likelihood ratio", n=n, runs=self.runs, **common)


@counted
def count_fifty(cell: FiftyCell) -> list[Row]:
    row = {"method": cell.method, "n": cell.n, "share": cell.share}
    if cell.method == "neural":
        return [row | shown for shown in _neural(cell)]
    if cell.method == "kernels":
        return [row | shown for shown in _kernels(cell)]
    pair = problem(cell.problem).to(torch.device(cell.device), torch.float32)
    if cell.method == "likelihood ratio":
        config = SplitPower(n=cell.n, runs=cell.runs, draws=PAPER.draws)
        return [row | _rate(ceiling(cell.method, pair, config, seed=cell.seed))]
    seeds = [derive(cell.seed, "data", cell.n, t) for t in range(cell.runs)]
    x = torch.stack([pair.data.sample(cell.n, seed=seed) for seed in seeds])
    test: Any = tests(tiny=cell.tiny)[cell.method]
    if not isinstance(test, KsdAgg):  # null sets that the datasets share
        test = replace(test, null_pool=19 if cell.tiny else 199)
    if isinstance(test, CrossFit):
        test = replace(test, draws=19 if cell.tiny else 99)
    seed = derive(cell.seed, "trials", cell.n)
    return [row | _rate(trials_of(pair.model, x, test, seed=seed, device=cell.device).rate())]


def _rate(rate: Rate) -> Row:
    return {"rejections": rate.rejections, "runs": rate.trials}


def trained(cell: FiftyCell, test: Split = PAPER) -> tuple[FittedBank, Epochs]:
    """Critics of the paper's test, each on data of its own, and how they were after every epoch."""
    pair = problem(cell.problem).to(torch.device(cell.device), torch.float32)
    training = replace(test.training or Training(), selection="last")
    if cell.tiny:
        training = replace(training, epochs=3)
    count, _ = split_sizes(cell.n, replace(test, train=cell.share))
    held = max(1, round(HELD_OUT * count))
    seeds = [derive(s, "50-D", cell.n, f"{cell.share:g}") for s in replica_seeds(cell.seed, cell.critics)]
    x = torch.stack([pair.data.sample(count, seed=derive(seed, "train")) for seed in seeds])
    points = ScoredPoints(x, pair.model.score(x))
    fits, held_out = points[: count - held], points[count - held :]
    epochs = Epochs(held_out, seeds, -(-(count - held) // min(training.batch_size, count - held)))
    fitted = fit_bank(
        fits,
        staging=test.staging,
        seeds=seeds,
        network=MLP(hidden=(16, 16)) if cell.tiny else test.network,
        training=training,
        yardsticks=Yardsticks(),
        observers=[epochs],
    )
    fitted.require_success()
    return fitted, epochs


def _neural(cell: FiftyCell) -> Iterator[Row]:
    """Power of every critic by every rule; the test's divergence is exact where the monitor's is."""
    pair = problem(cell.problem).to(torch.device(cell.device), torch.float32)
    fitted, epochs = trained(cell)
    tested = split_sizes(cell.n, replace(PAPER, train=cell.share))[1]
    rules = [(rule, kind, epochs.chosen(rule, kind)) for rule in RULES for kind in epochs.monitors]
    config = SplitPower(n=tested, runs=cell.runs, draws=PAPER.draws, pool=PAPER.pool)
    seed = derive(cell.seed, "50-D tests", cell.n, f"{cell.share:g}")
    ways = [(epochs.at(chosen, fitted), kind == "probed") for _, kind, chosen in rules]
    powers = split_powers(ways, pair.data, pair.model, config, seed=seed)
    for (rule, kind, chosen), critics in zip(rules, powers, strict=True):
        power = spread(rate.value for rate in critics)
        yield {"method": f"neural, {rule}, {kind}", "power": power, "epoch": spread(chosen.tolist())}


def _kernels(cell: FiftyCell) -> list[Row]:
    """KSD at several bandwidths; the distances of a dataset serve all of them."""
    pair = problem(cell.problem).to(torch.device(cell.device), torch.float32)
    kernels, draws = [RBF(factor=factor) for factor in cell.factors], 39 if cell.tiny else PAPER.draws
    rejections = torch.zeros(len(kernels), dtype=torch.int64)
    for t in range(cell.part * _SETS_EACH, cell.part * _SETS_EACH + cell.runs):
        x = pair.data.sample(cell.n, seed=derive(cell.seed, "data", cell.n, t))
        source = Source(derive(cell.seed, "signs", cell.n, t), device=x.device)
        signs = random_signs(cell.n, draws, flip=Ksd().flip, source=source)
        sums = stein_sums(ScoredPoints(x, pair.model.score(x)), kernels, signs=signs)
        observed, null = sums.statistic("v").cpu(), sums.bootstrap("v").cpu()
        pairs = zip(observed, null, strict=True)
        rejections += torch.tensor([bool(rank_pvalues(one[None], b) <= LEVEL) for one, b in pairs])
    return [
        {"method": kernel_name(factor), **_rate(Rate(int(count), cell.runs))}
        for factor, count in zip(cell.factors, rejections, strict=True)
    ]


def _study(name: str, title: str, takes: str, config: FiftyDimensions) -> Study:
    tiny = replace(
        config,
        sizes=config.sizes[:1],
        shares=config.shares[:2],
        factors=config.factors[:2],
        ours=(),
        critics=2,
        runs=6,
        tiny=True,
    )
    return Study(
        name=name,
        title=title,
        takes=f"{takes} on two cores",
        full=config,
        tiny=tiny,
        run=rates(count_fifty, by=("method", "n", "share")),
        table=fifty_table,
        figures=draw_fifty,
    )


FIFTY_DIMENSIONS = _study(
    "ksd-50d",
    "Power in 50 dimensions: the paper's test, kernel tests, ours",
    "half an hour",
    FiftyDimensions(
        problem="gm-50d",
        ours=(("combined", 2500, 100), ("crossfit", 500, 100), ("aggregated KSD", 1000, 100)),
        with_ceiling=True,
    ),
)
FIFTY_DIMENSIONS_EASY = _study(
    "ksd-50d-easy",
    "The same with the larger difference",
    "20 minutes",
    FiftyDimensions(
        problem="gm-50d-easy",
        ours=(("combined", 500, 100),),
        with_ceiling=True,
    ),
)
BANDWIDTH = _study(
    "ksd-bandwidth",
    "Power of the kernel test by bandwidth, 50 dimensions, n = 1500",
    "5 minutes",
    FiftyDimensions(problem="gm-50d", sizes=(1500,), factors=FACTORS),
)
SPLITS = _study(
    "splits",
    "Power by share of training points, 50 dimensions, n = 500",
    "6 minutes",
    FiftyDimensions(problem="gm-50d-easy", sizes=(500,), shares=SHARES, factors=(BEST,)),
)
