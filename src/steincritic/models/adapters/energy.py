"""Networks that are a log-density, or an energy E with q ∝ exp(-E). Draws: `LangevinModel(net, dim=...)`."""

import torch
from torch import Tensor, nn

from steincritic.models.density import LogDensity, in_own_precision


class EnergyModel(LogDensity):
    """An `nn.Module` E(x) of shape (n,) or (n, 1), asked in the dtype and on the device of its weights."""

    def __init__(self, energy: nn.Module, *, dim: int | None = None) -> None:
        self.like = weights_like(energy)
        super().__init__(in_own_precision(lambda x: -energy(x), self.like), dim=dim)


class ModuleDensity(LogDensity):
    """An `nn.Module` with `log_prob(x)`, asked in the dtype and on the device of its weights."""

    def __init__(self, module: nn.Module) -> None:
        self.like = weights_like(module)
        super().__init__(in_own_precision(module.log_prob, self.like))  # type: ignore[arg-type]


def weights_like(module: nn.Module) -> Tensor:
    """An empty tensor with the dtype and device of a module's weights; float64 where it has none."""
    for weight in (*module.parameters(), *module.buffers()):
        if weight.is_floating_point():
            return torch.empty(0, dtype=weight.dtype, device=weight.device)
    return torch.empty(0, dtype=torch.float64)
