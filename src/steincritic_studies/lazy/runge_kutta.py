"""An adaptive integrator for autonomous equations, many of them on one clock."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# Dormand and Prince (1980): stages, the fifth-order weights (= the last stage), and fifth less fourth order
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
_MOST_STEPS = 100_000


def integrate(
    velocity: Callable[[Tensor], Tensor], start: Tensor, times: Sequence[float], *, tolerance: float
) -> list[Tensor]:
    """States (e, m) at rising times, by the pair of Dormand and Prince.

    The step is common to all rows and set by the worst of them: the estimated error of a step stays
    below the tolerance times the distance that the row has moved from its start.
    """
    y, now, path = start, 0.0, []
    first = velocity(y)
    step = times[0] / 10
    for stop in times:
        for _ in range(_MOST_STEPS):
            if now >= stop:
                break
            last = now + step >= stop
            h = stop - now if last else step
            slopes = [first]
            for row in _STAGES:
                proposal = torch.add(y, _combined(row, slopes), alpha=h)
                slopes.append(velocity(proposal))
            moved = torch.maximum((proposal - start).norm(dim=1), h * slopes[0].norm(dim=1))
            ratio = h * _combined(_ERROR, slopes).norm(dim=1) / (tolerance * moved.clamp_min(1e-300))
            worst = float(ratio.nan_to_num(nan=1e10, posinf=1e10).max())
            if worst <= 1:
                y, first, now = proposal, slopes[-1], stop if last else now + h
            grown = h * min(5.0, max(0.2, 0.9 * max(worst, 1e-10) ** -0.2))
            step = max(step, grown) if last and worst <= 1 else grown
        else:
            raise RuntimeError(f"the flow took more than {_MOST_STEPS} steps; raise the tolerance")
        path.append(y)
    return path


def _combined(weights: Sequence[float], slopes: Sequence[Tensor]) -> Tensor:
    total = slopes[0] * weights[0]
    for weight, slope in zip(weights[1:], slopes[1:], strict=True):
        if weight:
            total = total.add_(slope, alpha=weight)
    return total
