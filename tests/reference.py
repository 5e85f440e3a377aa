"""What tests compare with: standard errors, traces of Jacobians by reverse mode, seeded modules."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Z_MAX = 5.0  # two-sided normal tail beyond 5 standard errors: 6e-7, so a failure is a defect


def z_of_mean(values: Tensor, mean: float = 0.0) -> float:
    """Standard errors between the mean of independent values and the mean that they should have."""
    return float((values.mean() - mean) / (values.std() / len(values) ** 0.5))


def jacobian_diagonal(field: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """(n, d): ∂f_j/∂x_j of a field at each row, by one backward pass a coordinate."""
    jacobian = torch.autograd.functional.jacobian(lambda y: field(y).sum(0), x)  # (d, n, d)
    return jacobian.diagonal(dim1=0, dim2=2)


def jacobian_trace(field: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The divergence of a field at each row."""
    return jacobian_diagonal(field, x).sum(-1)


def twisted_field(x: Tensor) -> Tensor:
    """Smooth and bounded, and every coordinate depends on its neighbor too."""
    return torch.tanh(x + 0.5 * x.roll(1, dims=-1))


def seeded(make: Callable[[], nn.Module], *, seed: int) -> nn.Module:
    """A float64 module whose initial weights the seed decides; the global generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().double()


def small_module(dim: int, *, seed: int, width: int = 5) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(dim, width), nn.Tanh(), nn.Linear(width, dim)), seed=seed)
