"""A regression with two nearly equal columns: what does an independent normal guide miss?

Reports go to out/collinear-regression.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

import steincritic as sc

NAMES = ["intercept", "left", "right", "log sigma"]


def data() -> tuple[Tensor, Tensor]:
    """40 rows: an intercept, two columns with correlation 0.96, and a response to their sum."""
    noise = torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left, right = noise[:, 0], noise[:, 0] + 0.3 * noise[:, 1]
    return torch.stack([torch.ones_like(left), left, right], 1), 1 + left + right + 0.5 * noise[:, 2]


def log_posterior(x: Tensor) -> Tensor:
    """Of intercept, two slopes and log sigma; normal priors."""
    design, response = data()
    weights, log_sigma = x[:, :3], x[:, 3]
    error = (response - weights @ design.T) / log_sigma.exp()[:, None]
    prior = -0.5 * (weights / 3).square().sum(-1) - 0.5 * log_sigma.square()
    return prior - 0.5 * error.square().sum(-1) - len(response) * log_sigma


def mean_field(watch: sc.GuideWatch, draws: int, steps: int = 3000) -> Tensor:
    """Draws of the best normal law with independent coordinates, by gradients of the ELBO."""
    source = torch.Generator().manual_seed(0)
    mean = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    log_sd = torch.full((4,), -2.0, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([mean, log_sd], lr=0.01)
    for step in range(steps):
        x = mean + log_sd.exp() * torch.randn(100, 4, generator=source, dtype=torch.float64)
        loss = -log_posterior(x).mean() - log_sd.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch(step, x)
    noise = torch.randn(draws, 4, generator=source, dtype=torch.float64)
    return (mean + log_sd.exp() * noise).detach()


def main(out: Path, draws: int = 1000) -> dict[str, sc.CheckResult]:
    watch = sc.watch_guide(log_posterior, every=500, names=NAMES)
    guided = mean_field(watch, draws)
    print(watch.summary())
    settings = sc.models.Langevin(warmup=400, steps=2400)
    chains = sc.models.LangevinModel(log_posterior, dim=4, settings=settings)  # a chain per draw
    found = {}
    for name, x in (("chains", chains.sample(draws, seed=1)), ("mean field", guided)):
        found[name] = sc.check_draws(log_posterior, x, names=NAMES, seed=0)
        print(f"\n{name}\n{found[name].summary()}")
        found[name].save(out / name, title=f"Collinear regression: {name}")
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/collinear-regression"))
