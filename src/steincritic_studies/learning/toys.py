"""Densities in the plane that people try energy models on; each known in full.

Curves are chains of many small Gaussians, so scores, densities and draws are those of a mixture.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from steincritic.errors import check_choice
from steincritic.models.mixture import GaussianMixture

_APART = 0.7  # standard deviations between neighbors on a curve: its density then ripples by less than 1e-17


def mixture_of_five() -> GaussianMixture:
    """Four Gaussians on the axes and one in the middle, of different widths, weights and directions."""
    means = [[0.0, 0.0], [2.2, 0.0], [-2.2, 0.0], [0.0, 2.2], [0.0, -2.2]]
    narrow, slanted = [[0.25, 0.0], [0.0, 0.25]], [[0.5, 0.35], [0.35, 0.5]]
    flat, tall = [[0.6, 0.0], [0.0, 0.2]], [[0.2, 0.0], [0.0, 0.6]]
    return GaussianMixture(means, [slanted, narrow, tall, flat, narrow], [2.0, 1.0, 1.5, 1.5, 1.0])


def rings() -> GaussianMixture:
    """Two rings about the origin, of radius 1 and 2, as many points on one as on the other."""
    width, weights, circles = 0.15, [], []
    for radius in (1.0, 2.0):
        links = math.ceil(2 * math.pi * radius / (_APART * width))
        circles.append(radius * _arc(2 * math.pi, links))
        weights.append(torch.full((links,), 1 / links, dtype=torch.float64))
    return GaussianMixture(torch.cat(circles), width**2, torch.cat(weights))


def moons() -> GaussianMixture:
    """Two half circles that reach into one another."""
    width = 0.1
    upper = _arc(math.pi, math.ceil(math.pi / (_APART * width)))
    lower = torch.tensor([1.0, 0.5], dtype=torch.float64) - upper
    return GaussianMixture(torch.cat([upper, lower]), width**2)


def _arc(angle: float, links: int) -> Tensor:
    """(links, 2) places on a circle of radius 1, evenly spaced over an angle."""
    angles = angle * (torch.arange(links, dtype=torch.float64) + 0.5) / links
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def toy(name: str) -> GaussianMixture:
    """A density by its name: mixture, rings or moons."""
    check_choice(name, name="toy", choices=TOY_NAMES)
    return _TOYS[name]()


_TOYS: dict[str, Callable[[], GaussianMixture]] = {
    "mixture": mixture_of_five,
    "rings": rings,
    "moons": moons,
}

TOY_NAMES = tuple(_TOYS)
