"""The laws of lazy training, measured: one- and two-dimensional mixtures, three widths."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steincritic import MLP, ScoredPoints, Staged, Training, fit_bank, fixed
from steincritic.critics import Bank
from steincritic.data import Problem, problem
from steincritic.rng import derive
from steincritic.shapes import PerMember
from steincritic.stein import stein_values
from studies.lazy.bounds import envelope, power_corollary
from studies.lazy.figures import draw_lazy
from studies.lazy.flow import KernelSolution, Objective, gradient_flow, slope
from studies.lazy.ntk import Law, TangentKernel, quadrature, spectrum
from studies.lazy.tables import lazy_table
from studies.lazy.theorems import population_theorem, sample_rates, small_start, two_eps, unstopped
from studies.study import Context, Outcome, Study

_COROLLARY_CLOCK = 100.0
_MODES = 10
_SPACING = {1: 0.2, 2: 0.8}  # of the grid that stands for p
_SCHEMES = {
    "λ = 1": fixed(1.0),
    "λ = 0.01": fixed(0.01),
    "staged 1 → 0.01": Staged(initial=1.0, floor=0.01, decay=0.85),
}


@dataclass(frozen=True, kw_only=True)
class LazyTraining:
    """[repasky2023] section 4, for which the paper shows no experiment. Times are μ₁λt.

    The last four settings are of critics trained with Adam, as users train them.
    """

    problems: tuple[str, ...] = ("gm-1d", "gm-2d")
    widths: tuple[int, ...] = (16, 64, 256)
    lambdas: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
    lazy_from: float = 16.0  # exponents in λ are fitted from here on
    clock: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    early_until: float = 0.1  # exponents in t are fitted up to here
    tolerance: float = 1e-6
    widest_path: int = 64  # beyond it no constants along the path
    modes: tuple[tuple[int, ...], ...] = ((3, 4, 5), (10, 15, 20))  # of the theorems, by problem
    theorem_lambdas: tuple[float, ...] = (16.0, 256.0, 4096.0, 1e9)  # at the last the bound says something
    start_lambdas: tuple[float, ...] = (16.0, 4096.0)
    start_share: float = 0.1  # |λ f(0)| / |f*| of a small start
    sizes: tuple[int, ...] = (100, 200, 400, 800, 1600, 3200)
    replicates: int = 100
    sample_clock: float = 20.0
    sample_lambdas: tuple[float, ...] = (64.0, 1.0)
    largest_network: int = 800  # networks are trained on no more points, and on fewer samples
    trained: int = 40
    unstopped_points: int = 64
    unstopped_lambda: float = 0.25
    unstopped_times: tuple[float, ...] = (1.0, 2.0, 4.0)  # λt
    unstopped_replicates: int = 20
    corollary_runs: int = 2000
    staged_width: int = 64
    staged_points: int = 1000
    staged_epochs: int = 40
    staged_replicas: int = 2


def run(config: LazyTraining, context: Context) -> Outcome:
    seed = context.seed
    return Outcome(
        {
            "rows": [_laws(config, name, width, seed) for name in config.problems for width in config.widths],
            "theorems": [
                _theorems(config, *at, seed) for at in zip(config.problems, config.modes, strict=True)
            ],
            "corollary": _corollary(config, seed),
            "staged": _staged(config, seed),
        }
    )


def _grid(pair: Problem, *, of_model: bool = False) -> Law:
    density = pair.model if of_model else pair.data
    return quadrature(density, center=0.1, reach=7.0, spacing=_SPACING[pair.dim], dim=pair.dim)


def _critics(dim: int, width: int, seeds: list[int]) -> Bank:
    network = MLP(hidden=(width, width))
    return Bank(network, network.init(dim, seeds, dtype=torch.float64, device=torch.device("cpu")))


def _laws(config: LazyTraining, name: str, width: int, seed: int) -> dict[str, Any]:
    """One network on one problem: everything that the theory says of it, beside what is."""
    pair = problem(name)
    law = _grid(pair)
    gap, kernel = pair.gap(law.x), TangentKernel(_critics(pair.dim, width, [derive(seed, "critic", width)]))
    objective = Objective(law, gap)
    solution = KernelSolution.of(kernel, objective)
    modes = solution.spectrum
    scaled = [s / float(modes.values[0]) for s in config.clock]
    flow = gradient_flow(
        kernel.bank, objective, lam=config.lambdas, scaled_times=scaled, tolerance=config.tolerance
    )
    size, lam = float(law.norm(gap)), flow.lam
    fields = flow.fields(law.x)
    regression = torch.stack([solution.field(law.x, t) for t in scaled])
    kernel_error = law.norm(regression - gap)
    bounds = torch.stack([modes.bound(gap, t) for t in scaled])  # (times, modes)
    difference, moved = law.norm(fields - regression[:, None]), flow.moved()  # (times, λ)
    times = torch.tensor(scaled, dtype=torch.float64)[:, None] / lam
    lazy, early = lam >= config.lazy_from, torch.tensor(config.clock) <= config.early_until
    return {
        "problem": name,
        "width": width,
        "parameters": len(kernel.theta),
        "eigenvalues": modes.values[:60],
        "alignment": modes.alignment(gap)[:60],
        "kernel_error": kernel_error / size,
        "kernel_bound": bounds.min(1).values / size,
        "kernel_bound_used": float((kernel_error[:, None] / bounds).max()),
        "times": times,
        "difference": difference,
        "moved": moved,
        "moved_bound": (times / (2 * lam)).sqrt() * size,
        "slopes": {
            "difference_in_lambda": [slope(lam[lazy], row[lazy]) for row in difference],
            "moved_in_lambda": [slope(lam[lazy], row[lazy]) for row in moved],
            "difference_in_time": [slope(times[early, k], difference[early, k]) for k in range(len(lam))],
        },
        "network_error": law.norm(fields - gap) / size,
        "two_eps": two_eps(solution, gap),
        "envelope": envelope(flow, law, gap) if width <= config.widest_path else None,
    }


def _theorems(config: LazyTraining, name: str, counts: tuple[int, ...], seed: int) -> dict[str, Any]:
    """What the theorems promise of the narrowest network, with their constants, beside what is."""
    pair, width = problem(name), config.widths[0]
    law = _grid(pair)
    gap, kernel = pair.gap(law.x), TangentKernel(_critics(pair.dim, width, [derive(seed, "critic", width)]))
    solution, tolerance = KernelSolution.of(kernel, Objective(law, gap)), config.tolerance
    middle = counts[len(counts) // 2]
    return {
        "problem": name,
        "population": population_theorem(
            kernel, pair, law, counts=counts, lam=config.theorem_lambdas, tolerance=tolerance
        ),
        "starts": [
            small_start(kernel.bank, law, gap, lam=lam, share=share, count=middle, tolerance=tolerance)
            for lam in config.start_lambdas
            for share in (config.start_share, None)
        ],
        "samples": sample_rates(
            solution,
            pair,
            sizes=config.sizes,
            replicates=config.replicates,
            scaled=config.sample_clock / float(solution.spectrum.values[0]),
            lambdas=config.sample_lambdas,
            largest=config.largest_network,
            trained=config.trained,
            seed=seed,
        ),
        "unstopped": unstopped(
            solution,
            pair,
            lam=config.unstopped_lambda,
            n=config.unstopped_points,
            replicates=config.unstopped_replicates,
            scaled=config.unstopped_times,
            seed=seed,
        ),
    }


def _corollary(config: LazyTraining, seed: int) -> dict[str, Any]:
    """The power corollary for a one-dimensional critic trained at λ = 16, and tests that check its n."""
    pair, width = problem("gm-1d"), config.widths[0]
    law, null = _grid(pair), _grid(pair, of_model=True)
    kernel = TangentKernel(_critics(1, width, [derive(seed, "critic", width)]))
    scaled = _COROLLARY_CLOCK / float(spectrum(kernel, law).values[0])
    flow = gradient_flow(
        kernel.bank,
        Objective(law, pair.gap(law.x)),
        lam=[16.0],
        scaled_times=[scaled],
        tolerance=config.tolerance,
    )
    corollary = power_corollary(flow, pair, law, null, level=0.05, miss=0.05)
    n = max(2, round(corollary["needed"]))
    means = []
    for side, source in (("null", pair.model), ("data", pair.data)):
        x = source.sample(n * config.corollary_runs, seed=derive(seed, side))
        means.append(stein_values(pair.model.score(x), *flow.critic(x)).view(-1, n).mean(1))
    power = (means[1] > means[0].quantile(0.95)).double().mean()
    return {**corollary, "simulated_power": float(power)}


def _staged(config: LazyTraining, seed: int) -> list[dict[str, Any]]:
    """By scheme and epoch: λ, error, K_t's drift from K_0, and the share of f* in its leading modes."""
    pair, replicas = problem("gm-2d"), range(config.staged_replicas)
    law = _grid(pair)
    gap = pair.gap(law.x)
    samples = [pair.data.sample(config.staged_points, seed=derive(seed, "staged", r)) for r in replicas]
    x = torch.stack(samples).repeat(len(_SCHEMES), 1, 1)
    stagings = [staging for staging in _SCHEMES.values() for _ in replicas]
    seeds = [derive(seed, "staged critic", r) for r in replicas] * len(_SCHEMES)
    start = _critics(2, config.staged_width, seeds)
    operators = [TangentKernel.of(start, k).operator(law) for k in range(len(start))]  # of K_0
    curves: dict[str, list[Tensor]] = {key: [] for key in ("lam", "error", "drift", "alignment")}

    def watch(epoch: int, bank: Bank, lam: PerMember) -> None:
        kernels = [TangentKernel.of(bank, k) for k in range(len(bank))]
        changes = [
            float((kernel.operator(law) - before).norm() / before.norm())
            for kernel, before in zip(kernels, operators, strict=True)
        ]
        shares = [float(spectrum(kernel, law).alignment(gap)[:_MODES][-1]) for kernel in kernels]
        curves["lam"].append(lam)
        curves["error"].append(law.norm(lam[:, None, None] * bank.field(law.x) - gap) / law.norm(gap))
        curves["drift"].append(torch.tensor(changes))
        curves["alignment"].append(torch.tensor(shares))

    watch(-1, start, torch.tensor([staging.initial for staging in stagings], dtype=torch.float64))
    fit_bank(
        ScoredPoints(x, pair.model.score(x)),
        staging=stagings,
        seeds=seeds,
        network=start.network,
        training=Training(epochs=config.staged_epochs, batch_size=100, dtype="float64"),
        observers=[watch],
    ).require_success()
    means = {key: torch.stack(rows).unflatten(1, (-1, len(replicas))).mean(2) for key, rows in curves.items()}
    return [
        {"scheme": name, "curves": {key: mean[:, k] for key, mean in means.items()}}
        for k, name in enumerate(_SCHEMES)
    ]


STUDY = Study(
    name="lazy-training",
    title="Lazy training: the theory's laws, measured",
    takes="three minutes on one core",
    full=LazyTraining(),
    tiny=LazyTraining(
        widths=(4, 6),
        lambdas=(1.0, 16.0, 64.0),
        clock=(0.01, 0.1, 1.0),
        tolerance=1e-4,
        widest_path=4,
        modes=((2, 3), (5, 6)),
        theorem_lambdas=(16.0, 64.0),
        start_lambdas=(16.0, 64.0),
        sizes=(16, 32, 64),
        replicates=3,
        sample_clock=1.0,
        largest_network=32,
        trained=2,
        unstopped_times=(0.1, 0.2),
        unstopped_replicates=2,
        corollary_runs=10,
        staged_width=4,
        staged_points=40,
        staged_epochs=2,
        staged_replicas=1,
    ),
    run=run,
    table=lazy_table,
    figures=draw_lazy,
)
