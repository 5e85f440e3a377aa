"""The theorems of section 4 on small networks: promises of a population, of samples, and of a small start."""

from collections.abc import Sequence
from typing import Any

import torch

from steincritic import ScoredPoints
from steincritic.critics import Bank
from steincritic.data import Problem
from steincritic.rng import derive
from studies.lazy.bounds import SampleBound, Span, envelope, least_n_of_lemma
from studies.lazy.flow import KernelSolution, Objective, gradient_flow, rate
from studies.lazy.ntk import Law, TangentKernel

_DECADES = (0.1, 1.0, 10.0, 100.0, 1000.0)  # times μ₁λt between the waits, for the constants along the path
_LONGEST = 1e9  # μ₁λt beyond which rounding spoils the closed form


def two_eps(solution: KernelSolution, gap: torch.Tensor) -> dict[str, Any]:
    """[repasky2023] eq. (28) for each number of modes: error of the kernel at the promised time, and 2ε."""
    modes, law = solution.spectrum, solution.spectrum.law
    first, size = float(modes.values[0]), float(law.norm(gap))
    rows: dict[str, list[float]] = {"modes": [], "eps": [], "wait": [], "error": []}
    for count in range(1, len(modes.values) + 1):
        span = Span.of(modes, gap, count)
        if not 0 < span.eps < 1 or span.wait * first > _LONGEST:
            break
        error = float(law.norm(solution.field(law.x, span.wait) - gap)) / size
        for key, value in zip(rows, (count, span.eps, span.wait * first, error), strict=True):
            rows[key].append(value)
    return rows


def population_theorem(
    kernel: TangentKernel,
    pair: Problem,
    law: Law,
    *,
    counts: Sequence[int],
    lam: Sequence[float],
    tolerance: float,
) -> list[dict[str, Any]]:
    """Theorem 4.6 by number of modes, beside true errors; and what theorem 4.10 asks at the largest λ.

    r is the smallest radius that the theorems allow, 2|θ(0)|.
    """
    gap = pair.gap(law.x)
    objective, size = Objective(law, gap), float(law.norm(gap))
    modes = KernelSolution.of(kernel, objective).spectrum
    spans, first = [Span.of(modes, gap, count) for count in counts], float(modes.values[0])
    last, reach = max(span.wait for span in spans), 2 * float(kernel.theta.norm()) / size
    between = [decade / first for decade in _DECADES if decade / first < last]
    scaled = sorted({*(span.wait for span in spans), *between})
    flow = gradient_flow(kernel.bank, objective, lam=lam, scaled_times=scaled, tolerance=tolerance)
    errors = law.norm(flow.fields(law.x) - gap) / size  # (times, λ)
    distance = envelope(flow, law, gap) / size
    rows = []
    for count, span in zip(counts, spans, strict=True):
        now, latest, bound = scaled.index(span.wait), span.latest(reach, flow.lam), 2 * span.eps + distance
        t_0 = flow.tau[:, None] / span.wait
        used = torch.where((t_0 >= 1) & (t_0 <= latest), errors / bound, 0.0)
        sample = SampleBound.along(flow, pair, law, time=now, member=-1)
        kappa_1, kappa_2 = sample.kappas(span.wait)
        rows.append(
            {
                "modes": count,
                "eps": span.eps,
                "wait": span.wait * first,
                "least_lambda": span.least_lambda(reach),
                "latest": latest,
                "error": errors[now],
                "bound": bound[now],
                "used": float(used.max()),
                "sampled": {
                    "least_lambda": span.least_lambda(reach, sampled=True),
                    "constants": [*sample.jacobian, *sample.divergence, sample.b_q],
                    "factor": sample.factor,
                    "kappa_1": kappa_1,
                    "kappa_2": kappa_2,
                    "asked": sample.asked(span.wait, share=0.1),
                    "n_lemma": least_n_of_lemma(flow, pair, law, time=now, member=-1),
                },
            }
        )
    return rows


def small_start(
    bank: Bank, law: Law, gap: torch.Tensor, *, lam: float, share: float | None, count: int, tolerance: float
) -> dict[str, float]:
    """The remark after theorem 4.6: training from f(x, θ(0)) itself, with the last layer scaled or as it is.

    Such training is training from zero toward f* - λ f(x, θ(0)): the loss of u = f(0) + v is that of v with
    this target, but for a constant. Where |λ f(0)|_p ≤ ε |f*|_p, the remark multiplies the bounds (29) and
    (30) by 1 + ε and its square, and adds a third ε to eq. (28).

    Args:
        share: |λ f(0)|_p / |f*|_p to scale the last layer to; None leaves it as initialized.
    """
    size, start = float(law.norm(gap)), lam * bank.field(law.x)[0]
    if share is not None:
        last, factor = len(bank.parameters) // 2, share * size / float(law.norm(start))
        scaled_layer = {name: bank.parameters[name] * factor for name in (f"w{last}", f"b{last}")}
        bank, start = Bank(bank.network, bank.parameters | scaled_layer), start * factor
    objective = Objective(law, gap - start)
    solution = KernelSolution.of(TangentKernel.of(bank), objective)
    span, scale = Span.of(solution.spectrum, gap, count), 1 + float(law.norm(start)) / size
    scaled = [span.wait / 100, span.wait / 10, span.wait]
    flow = gradient_flow(bank, objective, lam=[lam], scaled_times=scaled, tolerance=tolerance)
    regression = torch.stack([solution.field(law.x, tau) for tau in scaled])
    moved = scale * (flow.tau / 2).sqrt()[:, None] / lam * size
    distance = scale**2 * envelope(flow, law, gap)
    return {
        "lam": lam,
        "start": scale - 1,
        "modes": count,
        "eps": span.eps,
        "wait": span.wait * float(solution.spectrum.values[0]),
        "kernel_error": float(law.norm(regression[-1] - objective.target)) / size,
        "error": float(law.norm(flow.fields(law.x)[-1, 0] - objective.target)) / size,
        "moved_used": float((flow.moved() / moved).max()),
        "distance_used": float((law.norm(flow.fields(law.x)[:, 0] - regression)[:, None] / distance).max()),
    }


def sample_rates(
    solution: KernelSolution,
    pair: Problem,
    *,
    sizes: Sequence[int],
    replicates: int,
    scaled: float,
    lambdas: Sequence[float],
    largest: int,
    trained: int,
    seed: int,
) -> dict[str, Any]:
    """Root-mean-square distance of training on n points from the population's kernel solution, by n.

    Networks have the first samples of the kernel. With them come the share of lemma 4.8's bound that the
    parameters use, and at their last size the bound (40), by the constants of the path that moved most.

    Args:
        lambdas, largest, trained: of the networks, with the most points and the number of samples.
    """
    kernel, law = solution.spectrum.kernel, solution.spectrum.law
    size, wanted = float(law.norm(pair.gap(law.x))), solution.field(law.x, scaled)
    squares: dict[str, list[torch.Tensor]] = {key: [] for key in ("kernel", *(f"{lam:g}" for lam in lambdas))}
    used: dict[str, list[float]] = {f"{lam:g}": [] for lam in lambdas}
    bounds: dict[str, float] = {}
    for n in sizes:
        x = torch.stack([pair.data.sample(n, seed=derive(seed, "sample", n, r)) for r in range(replicates)])
        points = ScoredPoints(x, pair.model.score(x))
        regressions = [KernelSolution.of(kernel, Objective.sample(one)) for one in points.each()]
        fields = torch.stack([regression.field(law.x, scaled) for regression in regressions])
        squares["kernel"].append(law.norm(fields - wanted).square())
        objective = Objective.sample(ScoredPoints(x[:trained], points.score[:trained]))
        for lam in lambdas if n <= largest else ():
            flow = gradient_flow(
                kernel.bank, objective, lam=[lam] * trained, scaled_times=[scaled], tolerance=1e-4
            )
            squares[f"{lam:g}"].append(law.norm(flow.fields(law.x)[0] - wanted).square())
            used[f"{lam:g}"].append(float(flow.moved().max()) / (scaled**0.5 / lam * size))
            bound = SampleBound.along(flow, pair, law, time=0, member=int(flow.moved()[0].argmax()))
            bounds[f"{lam:g}"] = bound(lam=lam, tau=scaled, n=n)
    rates = {key: rate(sizes[: len(rows)], torch.stack(rows)) for key, rows in squares.items()}
    beside = {
        key: [
            float((row.mean() / same[:trained].mean()).sqrt())
            for row, same in zip(rows, squares["kernel"][: len(rows)], strict=True)
        ]
        for key, rows in squares.items()
        if key != "kernel"
    }
    return {
        "sizes": sizes,
        "distance": {key: [float(row.mean().sqrt()) for row in rows] for key, rows in squares.items()},
        "rates": {key: {"exponent": value[0], "error": value[1]} for key, value in rates.items()},
        "beside_kernel": beside,  # on the same samples
        "lemma_used": used,
        "bound": bounds,
    }


def unstopped(
    solution: KernelSolution,
    pair: Problem,
    *,
    lam: float,
    n: int,
    replicates: int,
    scaled: Sequence[float],
    seed: int,
) -> dict[str, Any]:
    """|λu|_p / |f*|_p along the flow of few points and a small λ, of many samples and of the population."""
    kernel, law = solution.spectrum.kernel, solution.spectrum.law
    gap = pair.gap(law.x)

    def sizes(objective: Objective) -> torch.Tensor:
        flow = gradient_flow(kernel.bank, objective, lam=[lam], scaled_times=scaled, tolerance=1e-4)
        return law.norm(flow.fields(law.x))[:, 0] / law.norm(gap)

    samples = [pair.data.sample(n, seed=derive(seed, "unstopped", r)) for r in range(replicates)]
    return {
        "lam": lam,
        "n": n,
        "times": scaled,
        "samples": [sizes(Objective.sample(ScoredPoints(x, pair.model.score(x)))) for x in samples],
        "population": sizes(Objective(law, gap)),
    }
