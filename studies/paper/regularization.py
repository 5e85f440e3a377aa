"""Regularization other than staged L², which the paper's discussion leaves open: does any of it gain?

A penalty shrinks the optimum, so each critic f is compared at the scale a >= 0 that suits its validation
points best: a minimizes E_p[a²|f|² - 2 a T_q f], and that minimum is the monitor that chooses its epoch.

Nothing is chosen on what is reported. `chosen` takes, of each family, the candidate of the lowest error in a
tuning run: two of the five problems, a critic for each, all draws of other seeds ("tuning" derived from the
seed). The candidates were picked among some more, and the small numbers of tested points chosen, with single
critics of those same seeds: c = 1 and g = 3 floors did worse on both problems, a decay of 0.5 in 25-D.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import torch

from steincritic import MLP, ScoredPoints, Staged, Training, fixed
from steincritic.critics import Bank
from steincritic.data import Problem, problem
from steincritic.rng import derive
from steincritic.training import FittedBank, Gap, History
from studies.cells import Cell, Row, counted
from studies.paper.compared import FIXED, LAST, LOWEST, STAGED, draw_regularization, regularization_table
from studies.paper.penalties import BySlope, Scheme, fitted_scale, trained
from studies.paper.power import SplitPower, split_power
from studies.paper.published import GM_2D, GM_10D, GM_25D, Published
from studies.study import Context, Outcome, Study

Schemes = Mapping[str, Mapping[str, Scheme]]  # by family and candidate


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """One of the paper's problems.

    Args:
        published: schemes of the paper's table; the fixed λ of the highest power is compared, too.
        tested: the paper's number of points, and one at which staging misses the difference at times.
    """

    name: str
    staged: Staged
    published: Mapping[str, Published] | None = None
    tested: tuple[int, int]

    def plain(self) -> Schemes:
        schemes = {STAGED: {"": Scheme(staging=self.staged)}}
        powers = {name: row.power for name, row in (self.published or {}).items() if "staged" not in name}
        if powers:
            best = max(powers, key=powers.__getitem__)
            schemes[FIXED] = {"": Scheme(staging=fixed(float(best)))}
        return schemes

    def candidates(self) -> Schemes:
        """λ falls between the same two values in all of them."""
        staged = self.staged
        slopes = {
            f"share {share:g}, decay {decay:g}": Scheme(
                staging=BySlope(initial=staged.initial, floor=staged.floor, decay=decay, share=share)
            )
            for share, decay in ((0.1, 0.7), (0.1, 0.8))
        }
        return {
            "slope": slopes,
            "H1": {f"c = {c:g}": Scheme(staging=staged, sobolev=c) for c in (0.01, 0.1)},
            "gradient": {
                f"g = {g:g} floors": Scheme(staging=staged, gradient=g * staged.floor) for g in (0.03, 0.3)
            },
        }


@dataclass(frozen=True, kw_only=True)
class Sizes:
    critics: int
    epochs: int = 60
    batch: int = 200
    trained: int = 2000
    validated: int = 1000
    measured: int = 5000  # points of MSE_q
    width: int = 512
    look: int = 10  # epochs between two points of a curve
    draws: int = 499
    pool: int = 20


@dataclass(frozen=True, kw_only=True)
class Case(Cell):
    """Critics of one scheme on one problem; replica r of each scheme has the same data and first weights."""

    candidate: str
    scheme: Scheme
    sizes: Sizes
    tested: tuple[int, ...]


@counted
def measure(case: Case) -> Row:
    """Error and power of the critics, one value per critic: where the monitor is lowest, and at the end."""
    pair, sizes = problem(case.problem).to(torch.float32), case.sizes
    seed = derive(case.seed, case.kind) if case.kind else case.seed
    x = pair.model.sample(sizes.measured, seed=derive(seed, "mse"))
    gap, start = Gap(x, pair.gap(x)), time.process_time()
    critics = [_train(pair, case, gap, derive(seed, "replica", r)) for r in range(sizes.critics)]
    row: Row = {
        "problem": case.problem,
        "scheme": case.method,
        "candidate": case.candidate,
        "epoch": [critic.epoch for critic in critics],
        "curve": [critic.curve for critic in critics],
        "training": (time.process_time() - start) / sizes.critics,  # processor seconds of a critic
    }
    for stop in (LOWEST, LAST):
        bank = _joined([critic.stops[stop] for critic in critics])
        rates = {}
        for n in case.tested:
            power = SplitPower(n=n, runs=case.runs, draws=sizes.draws, pool=sizes.pool)
            tests = split_power(bank, pair.data, pair.model, power, seed=seed)
            rates[str(n)] = [rate.value for rate in tests]
        row[stop] = {"mse_q": gap.error(bank.bank, bank.lam).tolist(), "power": rates}
    return row


@dataclass(eq=False)
class _Critic:
    stops: dict[str, FittedBank] = field(default_factory=dict)
    epoch: int = 0  # of the lowest monitor
    curve: list[float] = field(default_factory=list)  # MSE_q


def _train(pair: Problem, case: Case, gap: Gap, seed: int) -> _Critic:
    def scored(n: int, name: str) -> ScoredPoints:
        x = pair.data.sample(n, seed=derive(seed, name))
        return ScoredPoints(x, pair.model.score(x))

    sizes, critic, lowest = case.sizes, _Critic(), float("inf")
    train, validation = scored(sizes.trained, "train"), scored(sizes.validated, "validation")
    network, training = MLP(hidden=(sizes.width, sizes.width)), _training(sizes)
    banks = trained(train, validation, case.scheme, network, training, seed=derive(seed, "critic"))
    for epoch, bank in enumerate(banks, start=1):
        scale, value = fitted_scale(bank, validation)
        critic.stops[LAST] = FittedBank(bank.clone(), scale, History(), (seed,), (None,))
        if float(value) < lowest:
            critic.stops[LOWEST], critic.epoch, lowest = critic.stops[LAST], epoch, float(value)
        if epoch % sizes.look == 0:
            critic.curve.append(float(gap.error(bank, scale)))
    return critic


def _training(sizes: Sizes) -> Training:
    return Training(epochs=sizes.epochs, batch_size=sizes.batch, learning_rate=1e-3)


def _joined(critics: Sequence[FittedBank]) -> FittedBank:
    first, lam = critics[0].bank, torch.cat([critic.lam for critic in critics])
    parameters = {name: torch.cat([c.bank.parameters[name] for c in critics]) for name in first.parameters}
    seeds = tuple(seed for critic in critics for seed in critic.seeds)
    return FittedBank(Bank(first.network, parameters), lam, History(), seeds, (None,) * len(seeds))


_LOW = Staged(initial=1.0, floor=0.05, decay=0.90)
_HIGH = Staged(initial=0.4, floor=5e-4, decay=0.85)
_MIDDLE = Staged(initial=0.5, floor=1e-3, decay=0.80)
MIXTURES = (
    Mixture(name="gm-1d", staged=_LOW, tested=(100, 25)),
    Mixture(name="gm-2d", staged=_LOW, published=GM_2D, tested=(75, 40)),
    Mixture(name="gm-10d", staged=_MIDDLE, published=GM_10D, tested=(200, 30)),
    Mixture(name="gm-25d", staged=_HIGH, published=GM_25D, tested=(500, 40)),
    Mixture(name="gm-50d", staged=_HIGH, tested=(500, 15)),
)


@dataclass(frozen=True, kw_only=True)
class Regularization:
    """The schemes on all problems; before that, with other seeds, the candidates on those of the tuning."""

    mixtures: tuple[Mixture, ...] = MIXTURES
    tuned_on: tuple[str, ...] = ("gm-2d", "gm-25d")
    sizes: Sizes = Sizes(critics=10)
    tuning: Sizes = Sizes(critics=1)
    runs: int = 100  # tests of a critic

    def cases(self, mixture: Mixture, schemes: Schemes, seed: int, *, kind: str = "") -> Iterator[Case]:
        for family, candidates in schemes.items():
            for candidate, scheme in candidates.items():
                yield Case(
                    problem=mixture.name,
                    method=family,
                    kind=kind,
                    runs=self.runs,
                    seed=seed,
                    candidate=candidate,
                    scheme=scheme,
                    sizes=self.tuning if kind else self.sizes,
                    tested=() if kind else mixture.tested,
                )


def run(config: Regularization, context: Context) -> Outcome:
    cases: list[Case] = []
    for mixture in config.mixtures:
        if mixture.name in config.tuned_on:
            schemes = {STAGED: mixture.plain()[STAGED], **mixture.candidates()}
            cases += config.cases(mixture, schemes, context.seed, kind="tuning")
    tuning = [row for part in context.sweep(measure, cases) for row in part["rows"]]
    choices, cases = chosen(tuning), []
    for mixture in config.mixtures:
        best = {
            family: {choices[family]: candidates[choices[family]]}
            for family, candidates in mixture.candidates().items()
        }
        cases += config.cases(mixture, {**mixture.plain(), **best}, context.seed)
    rows = [row for part in context.sweep(measure, cases) for row in part["rows"]]
    seconds = {"jobs": sum(row["seconds"] for row in [*tuning, *rows])}  # also of those that were kept
    return Outcome({"tuning": tuning, "chosen": choices, "rows": rows}, seconds)


def chosen(tuning: Sequence[Row]) -> dict[str, str]:
    """Of each family the candidate of the lowest error beside staging: in the product over problems."""
    errors = {(r["problem"], r["scheme"], r["candidate"]): fmean(r[LOWEST]["mse_q"]) for r in tuning}
    products: dict[str, dict[str, float]] = {}
    for (name, family, candidate), error in errors.items():
        if family != STAGED:
            of_family = products.setdefault(family, {})
            of_family[candidate] = of_family.get(candidate, 1.0) * error / errors[name, STAGED, ""]
    return {family: min(of_family, key=of_family.__getitem__) for family, of_family in products.items()}


_FULL = Regularization()
_TINY = Sizes(
    critics=2,
    epochs=3,
    batch=20,
    trained=80,
    validated=50,
    measured=100,
    width=8,
    look=1,
    draws=39,
    pool=5,
)
STUDY = Study(
    name="regularization",
    title="Regularization other than staged L²: Jacobian penalties, λ by the monitor's slope",
    takes="45 minutes of one CPU core",
    full=_FULL,
    tiny=replace(_FULL, mixtures=MIXTURES[1:3], tuned_on=("gm-2d",), sizes=_TINY, tuning=_TINY, runs=10),
    run=run,
    table=regularization_table,
    figures=draw_regularization,
)
