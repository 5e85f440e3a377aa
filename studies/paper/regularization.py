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
from dataclasses import dataclass, replace
from typing import Any

import torch

from steincritic import MLP, ScoredPoints, Staged, Training, fixed
from steincritic.data import problem
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
    epochs: int = 60
    batch: int = 200
    trained: int = 2000
    validated: int = 1000
    measured: int = 5000  # points of MSE_q
    width: int = 512
    look: int = 10  # epochs between two points of a curve
    runs: int = 100  # tests
    draws: int = 499
    pool: int = 20


@dataclass(frozen=True, kw_only=True)
class Case(Cell):
    """One critic; part r of each scheme has the same draws and first weights."""

    candidate: str
    scheme: Scheme
    sizes: Sizes
    tested: tuple[int, ...]


@counted
def measure(case: Case) -> Row:
    """Error and power of a critic: where its monitor is lowest, and at the end."""
    pair, sizes = problem(case.problem).to(torch.float32), case.sizes
    seed = derive(case.seed, case.kind) if case.kind else case.seed
    replica = derive(seed, "replica", case.part)

    def scored(n: int, name: str) -> ScoredPoints:
        x = pair.data.sample(n, seed=derive(replica, name))
        return ScoredPoints(x, pair.model.score(x))

    x = pair.model.sample(sizes.measured, seed=derive(seed, "mse"))
    gap, validation, start = Gap(x, pair.gap(x)), scored(sizes.validated, "validation"), time.process_time()
    banks = trained(
        scored(sizes.trained, "train"),
        validation,
        case.scheme,
        MLP(hidden=(sizes.width, sizes.width)),
        Training(epochs=sizes.epochs, batch_size=sizes.batch, learning_rate=1e-3),
        seed=derive(replica, "critic"),
    )
    stops: dict[str, FittedBank] = {}
    row: Row = {"problem": case.problem, "scheme": case.method, "candidate": case.candidate, "curve": []}
    lowest = float("inf")
    for epoch, bank in enumerate(banks, start=1):
        scale, value = fitted_scale(bank, validation)
        stops[LAST] = FittedBank(bank.clone(), scale, History(), (replica,), (None,))
        if float(value) < lowest:
            stops[LOWEST], row["epoch"], lowest = stops[LAST], epoch, float(value)
        if epoch % sizes.look == 0:
            row["curve"].append(float(gap.error(bank, scale)))
    row["training"] = time.process_time() - start
    for stop, critic in stops.items():
        powers = {}
        for n in case.tested if stop == LOWEST else case.tested[1:]:
            power = SplitPower(n=n, runs=case.runs, draws=sizes.draws, pool=sizes.pool)
            (rate,) = split_power(critic, pair.data, pair.model, power, seed=replica)
            powers[str(n)] = rate.value
        row[stop] = {"mse_q": float(gap.error(critic.bank, critic.lam)), "power": powers}
    return row


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
    critics: int = 10
    sizes: Sizes = Sizes()

    def cases(
        self, schemes: Mapping[str, Schemes], *, critics: int, seed: int, kind: str = ""
    ) -> Iterator[Case]:
        """Of the schemes of each mixture."""
        for part in range(critics):
            for mixture in self.mixtures:
                for family, candidates in schemes.get(mixture.name, {}).items():
                    for candidate, scheme in candidates.items():
                        yield Case(
                            problem=mixture.name,
                            method=family,
                            kind=kind,
                            runs=self.sizes.runs,
                            part=part,
                            seed=seed,
                            candidate=candidate,
                            scheme=scheme,
                            sizes=self.sizes,
                            tested=() if kind else mixture.tested,
                        )


def run(config: Regularization, context: Context) -> Outcome:
    def rows_of(cases: Iterator[Case]) -> list[Row]:
        return [row for part in context.sweep(measure, list(cases)) for row in part["rows"]]

    candidates = {mixture.name: mixture.candidates() for mixture in config.mixtures}
    plain = {mixture.name: mixture.plain() for mixture in config.mixtures}
    tried = {name: {STAGED: plain[name][STAGED], **candidates[name]} for name in config.tuned_on}
    tuning = rows_of(config.cases(tried, critics=1, seed=context.seed, kind="tuning"))
    choices = chosen(tuning)
    schemes = {
        name: {**plain[name], **{family: {best: of[family][best]} for family, best in choices.items()}}
        for name, of in candidates.items()
    }
    rows = rows_of(config.cases(schemes, critics=config.critics, seed=context.seed))
    seconds = {"jobs": sum(row["seconds"] for row in [*tuning, *rows])}  # also of those that were kept
    return Outcome({"tuning": tuning, "chosen": choices, "rows": by_scheme(rows)}, seconds)


def by_scheme(rows: Sequence[Row]) -> list[Row]:
    """The critics of a scheme on a problem as one row, which has lists for their values."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["problem"], row["scheme"]), []).append(row)
    return [_listed(group) for group in groups.values()]


def _listed(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _listed([value[name] for value in values]) for name in first}
    return first if isinstance(first, str) else list(values)


def chosen(tuning: Sequence[Row]) -> dict[str, str]:
    """Of each family the candidate of the lowest error beside staging: in the product over problems."""
    errors = {(r["problem"], r["scheme"], r["candidate"]): r[LOWEST]["mse_q"] for r in tuning}
    products: dict[str, dict[str, float]] = {}
    for (name, family, candidate), error in errors.items():
        if family != STAGED:
            of_family = products.setdefault(family, {})
            of_family[candidate] = of_family.get(candidate, 1.0) * error / errors[name, STAGED, ""]
    return {family: min(of_family, key=of_family.__getitem__) for family, of_family in products.items()}


_FULL = Regularization()
_TINY = Sizes(
    epochs=3,
    batch=20,
    trained=80,
    validated=50,
    measured=100,
    width=8,
    look=1,
    runs=10,
    draws=39,
    pool=5,
)
STUDY = Study(
    name="regularization",
    title="Regularization other than staged L²: Jacobian penalties, λ by the monitor's slope",
    takes="about 45 minutes on one free core, from the time of its first critics",
    full=_FULL,
    tiny=replace(_FULL, mixtures=MIXTURES[1:3], tuned_on=("gm-2d",), critics=2, sizes=_TINY),
    run=run,
    table=regularization_table,
    figures=draw_regularization,
)
