"""The laws of lazy training, measured: one- and two-dimensional mixtures, three widths."""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.data.problems import Problem, problem
from steincritic.rng import derive
from steincritic.training.staging import Staged
from steincritic_studies.lazy.bounds import envelope, power_corollary
from steincritic_studies.lazy.figures import draw_lazy, lazy_table
from steincritic_studies.lazy.flow import KernelSolution, NetworkFlow, Objective, gradient_flow, slope
from steincritic_studies.lazy.law import Law, quadrature
from steincritic_studies.lazy.ntk import TangentKernel, spectrum, tangent_kernel
from steincritic_studies.lazy.staged import SchemeRun, staged_runs
from steincritic_studies.study import Context, Outcome, Study

_COROLLARY_CLOCK = 100.0
_SPACING = {1: 0.2, 2: 0.8}  # of the grid that stands for p


@dataclass(frozen=True, kw_only=True)
class LazyTraining:
    """[repasky2023] section 4, for which the paper shows no experiment. Times are μ₁λt."""

    problems: tuple[str, ...] = ("gm-1d", "gm-2d")
    widths: tuple[int, ...] = (16, 64, 256)
    lambdas: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
    lazy_from: float = 16.0  # exponents in λ are fitted from here on
    clock: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    early_until: float = 0.1  # exponents in t are fitted up to here
    tolerance: float = 1e-6
    sizes: tuple[int, ...] = (100, 200, 400, 800)
    replicates: int = 8
    sample_clock: float = 20.0
    sample_lambdas: tuple[float, ...] = (64.0, 1.0)
    widest_sampled: int = 64  # beyond it, finite samples by the kernel alone and no path constants
    staged: SchemeRun
    corollary_runs: int = 2000


def run(config: LazyTraining, context: Context) -> Outcome:
    begun = time.perf_counter()
    rows = [_laws(config, name, width, context.seed) for name in config.problems for width in config.widths]
    laws = time.perf_counter()
    results = {
        "rows": rows,
        "corollary": _corollary(config, context.seed),
        "staged": staged_runs(config.staged, grid("gm-2d"), context.seed),
    }
    return Outcome(results, {"laws": laws - begun, "staged": time.perf_counter() - laws})


def grid(name: str, *, of_model: bool = False) -> Law:
    pair = problem(name)
    density = pair.model if of_model else pair.data
    return quadrature(density, center=0.1, reach=7.0, spacing=_SPACING[pair.dim], dim=pair.dim)


def _critic(dim: int, width: int, seed: int) -> TangentKernel:
    network = MLP(hidden=(width, width))
    seeds = [derive(seed, "critic", width)]
    return tangent_kernel(
        Bank(network, network.init(dim, seeds, dtype=torch.float64, device=torch.device("cpu")))
    )


def _laws(config: LazyTraining, name: str, width: int, seed: int) -> dict[str, Any]:
    """One network on one problem: everything that the theory says of it, beside what is."""
    pair, law = problem(name), grid(name)
    gap, kernel = pair.gap(law.x), _critic(pair.dim, width, seed)
    objective = Objective.population(law, gap)
    solution = KernelSolution.of(kernel, objective)
    modes = solution.spectrum
    scaled = [s / float(modes.values[0]) for s in config.clock]
    flow = gradient_flow(
        kernel.bank, objective, lam=config.lambdas, scaled_times=scaled, tolerance=config.tolerance
    )
    size = float(law.norm(gap))
    fields = flow.fields(law.x)
    regression = torch.stack([solution.field(law.x, t) for t in scaled])
    kernel_error = law.norm(regression - gap)
    bounds = torch.stack([modes.bound(gap, t) for t in scaled])  # (times, modes)
    return {
        "problem": name,
        "width": width,
        "parameters": kernel.size,
        "rank": len(modes),
        "eigenvalues": modes.values[:60],
        "alignment": modes.alignment(gap)[:60],
        "gap_norm": size,
        "kernel_error": kernel_error / size,
        "kernel_bound": bounds.min(1).values / size,
        "kernel_bound_used": float((kernel_error[:, None] / bounds).max()),
        **_network_side(config, flow, law.norm(fields - regression[:, None]), size),
        "network_error": law.norm(fields - gap) / size,
        "envelope": envelope(flow, law, gap) if width <= config.widest_sampled else None,
        "samples": _samples(config, pair, law, solution, seed, width <= config.widest_sampled),
    }


def _network_side(config: LazyTraining, flow: NetworkFlow, difference: Tensor, size: float) -> dict[str, Any]:
    """Distances and their exponents; all arrays (times, λ)."""
    lam = flow.lam
    times = torch.tensor(flow.scaled_times, dtype=torch.float64)[:, None] / lam
    moved, bound = flow.moved(), (times / (2 * lam)).sqrt() * size
    lazy = lam >= config.lazy_from
    early = torch.tensor(config.clock) <= config.early_until
    return {
        "times": times,
        "difference": difference,
        "moved": moved,
        "moved_bound": bound,
        "moved_bound_used": float((moved / bound).max()),
        "slopes": {
            "difference_in_lambda": [slope(lam[lazy], row[lazy]) for row in difference],
            "moved_in_lambda": [slope(lam[lazy], row[lazy]) for row in moved],
            "difference_in_time": [slope(times[early, k], difference[early, k]) for k in range(len(lam))],
        },
    }


def _samples(
    config: LazyTraining, pair: Problem, law: Law, solution: KernelSolution, seed: int, network: bool
) -> dict[str, Any]:
    """Root-mean-square distance of finite-sample training from the population's kernel solution, by n."""
    kernel, scaled = solution.spectrum.kernel, config.sample_clock / float(solution.spectrum.values[0])
    wanted = solution.field(law.x, scaled)
    curves: dict[str, list[float]] = {"kernel": []}
    for n in config.sizes:
        x = torch.stack(
            [pair.data.sample(n, seed=derive(seed, "sample", n, r)) for r in range(config.replicates)]
        )
        score = pair.model.score(x)
        alone = torch.stack(
            [
                KernelSolution.of(kernel, Objective.sample(ScoredPoints(*one))).field(law.x, scaled)
                for one in zip(x, score, strict=True)
            ]
        )
        curves["kernel"].append(_rms(law, alone - wanted))
        for lam in config.sample_lambdas if network else ():
            flow = gradient_flow(
                kernel.bank,
                Objective.sample(ScoredPoints(x, score)),
                lam=[lam] * config.replicates,
                scaled_times=[scaled],
                tolerance=1e-4,
            )
            curves.setdefault(f"{lam:g}", []).append(_rms(law, flow.fields(law.x)[0] - wanted))
    return {
        "sizes": config.sizes,
        "distance": curves,
        "slopes": {key: slope(config.sizes, curve) for key, curve in curves.items()},
    }


def _rms(law: Law, difference: Tensor) -> float:
    return float(law.norm(difference).square().mean().sqrt())


def _corollary(config: LazyTraining, seed: int) -> dict[str, Any]:
    """The power corollary for a one-dimensional critic trained at λ = 16, and tests that check its n."""
    pair, law, null = problem("gm-1d"), grid("gm-1d"), grid("gm-1d", of_model=True)
    kernel, objective = _critic(1, config.widths[0], seed), Objective.population(law, pair.gap(law.x))
    scaled = _COROLLARY_CLOCK / float(spectrum(kernel, law, count=1).values[0])
    flow = gradient_flow(
        kernel.bank, objective, lam=[16.0], scaled_times=[scaled], tolerance=config.tolerance
    )
    found = power_corollary(flow, pair, law, null, level=0.05, miss=0.05)
    n = max(2, round(found.needed))
    means = [
        _mean_witness(flow, pair, source.sample(n * config.corollary_runs, seed=derive(seed, side)), n)
        for side, source in (("null", pair.model), ("data", pair.data))
    ]
    threshold = means[0].quantile(0.95)
    return {
        **asdict(found),
        "simulated_n": n,
        "simulated_power": float((means[1] > threshold).double().mean()),
    }


def _mean_witness(flow: NetworkFlow, pair: Problem, x: Tensor, n: int) -> Tensor:
    """T_q u averaged over runs of n points."""
    f, div_f = flow.banks[-1].field_and_divergence(x)
    f_0, div_0 = flow.start.field_and_divergence(x)
    witness = (pair.model.score(x) * (f - f_0)[0]).sum(-1) + (div_f - div_0)[0]
    return witness.view(-1, n).mean(1)


_FULL = LazyTraining(
    staged=SchemeRun(
        schemes={
            "λ = 1": Staged(initial=1.0, floor=1.0, decay=1.0),
            "λ = 0.01": Staged(initial=0.01, floor=0.01, decay=1.0),
            "staged 1 → 0.01": Staged(initial=1.0, floor=0.01, decay=0.85),
        },
        width=64,
        trained=1000,
        epochs=40,
        replicas=2,
    ),
)

STUDY = Study(
    name="lazy-training",
    title="Lazy training: the theory's laws, measured",
    takes="a minute on two cores",
    full=_FULL,
    tiny=replace(
        _FULL,
        widths=(4, 6),
        lambdas=(1.0, 16.0, 64.0),
        clock=(0.01, 0.1, 1.0),
        tolerance=1e-4,
        sizes=(16, 32),
        replicates=2,
        sample_clock=1.0,
        widest_sampled=4,
        staged=replace(_FULL.staged, width=4, trained=40, epochs=2, replicas=1),
        corollary_runs=10,
    ),
    run=run,
    table=lazy_table,
    figures=draw_lazy,
)
