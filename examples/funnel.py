"""Neal's funnel: did chains reach its neck, and in which coordinates does one see it?

Reports go to out/funnel.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

import steincritic as sc

NAMES = ["log scale", *(f"x{j}" for j in range(1, 5))]


def centered(x: Tensor) -> Tensor:
    """log scale v ~ N(0, 3^2), and x1 ... x4 ~ N(0, exp(v)) given it."""
    v, rest = x[:, 0], x[:, 1:]
    return -0.5 * (v / 3).square() - 0.5 * rest.square().sum(-1) * (-v).exp() - 2 * v


def non_centered(z: Tensor) -> Tensor:
    """The same law in coordinates v and x exp(-v / 2)."""
    return -0.5 * (z[:, 0] / 3).square() - 0.5 * z[:, 1:].square().sum(-1)


def to_non_centered(x: Tensor) -> Tensor:
    return torch.cat([x[:, :1], x[:, 1:] * (-0.5 * x[:, :1]).exp()], 1)


def main(out: Path, draws: int = 1000) -> dict[str, sc.CheckResult]:
    settings = sc.models.Langevin(warmup=200, steps=200)
    x, z = (
        sc.models.LangevinModel(density, dim=5, settings=settings).sample(draws, seed=1)
        for density in (centered, non_centered)
    )
    found = {}
    for name, density, points in (
        ("centered chains", centered, x),
        ("the same draws, non-centered", non_centered, to_non_centered(x)),
        ("non-centered chains", non_centered, z),
    ):
        found[name] = sc.check_draws(density, points, names=NAMES, seed=0)
        v = points[:, 0]
        print(f"\n{name}: log scale has mean {v.mean():.2f} and spread {v.std():.2f}; truth 0 and 3")
        print(found[name].summary())
        found[name].save(out / name, title=f"Funnel: {name}")
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/funnel"))
