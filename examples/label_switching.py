"""A mixture whose components can change places: what scores see of two mirrored modes, and what they do not.

Reports go to out/label-switching.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

import steincritic as sc

NAMES = ["first mean", "second mean", "log sigma"]


def data() -> Tensor:
    """60 numbers around -1.5 and 1.5."""
    source = torch.Generator().manual_seed(0)
    side = 2.0 * torch.bernoulli(torch.full((60,), 0.5, dtype=torch.float64), generator=source) - 1
    return 1.5 * side + 0.6 * torch.randn(60, generator=source, dtype=torch.float64)


def log_posterior(x: Tensor) -> Tensor:
    """Of two means and the log of their common spread; swapping the means changes nothing."""
    means, log_sigma = x[:, :2], x[:, 2]
    away = (data()[:, None] - means[:, None]) / log_sigma.exp()[:, None, None]  # (n, 60, 2)
    likelihood = torch.logsumexp(-0.5 * away.square() - log_sigma[:, None, None], -1).sum(-1)
    return likelihood - 0.5 * (means / 3).square().sum(-1) - 0.5 * log_sigma.square()


def main(out: Path, draws: int = 1000) -> dict[str, sc.CheckResult]:
    start = torch.tensor([-1.5, 1.5, -0.5], dtype=torch.float64)
    chains = sc.models.LangevinModel(log_posterior, dim=3, start=lambda n, source: start.expand(n, 3))
    one = chains.sample(draws, seed=1)
    swapped = one[:, [1, 0, 2]]
    uneven = torch.cat([one[: -draws // 10], swapped[-draws // 10 :]])
    both = torch.cat([one, swapped])  # as the posterior has it
    noise = torch.randn(draws, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    normal = both.mean(0) + noise @ torch.linalg.cholesky(torch.cov(both.T)).T
    found = {}
    for name, x in (("one mode", one), ("nine to one", uneven), ("a normal fit", normal)):
        found[name] = sc.check_draws(log_posterior, x[_shuffled(draws)], names=NAMES, seed=0)
        print(f"\n{name}\n{found[name].summary()}")
        found[name].save(out / name, title=f"Label switching: {name}")
    return found


def _shuffled(n: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(3))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/label-switching"))
