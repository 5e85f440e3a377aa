"""Any nn.Module as a critic: stacked copies run through torch.func, the divergence by forward mode."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from steincritic.critics.network import Buffers, Parameters, Pullback, autograd_pullback
from steincritic.errors import InputError, first_line
from steincritic.shapes import BankPerPoint, BankPoints
from steincritic.stein.divergence import directional

_STATEFUL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


class ModuleNetwork:
    """Modules of one architecture, one per bank member; each maps (n, d) to (n, d).

    The modules are copied, never changed. They must compute every row on its own: dropout and batch
    normalization would make the divergence wrong, so they are refused.
    """

    def __init__(self, *modules: nn.Module) -> None:
        if not modules:
            raise InputError("pass at least one nn.Module")
        for part in (part for module in modules for part in module.modules()):
            if isinstance(part, _STATEFUL):
                raise InputError(
                    f"a critic must treat each row alone and without noise, but the module holds "
                    f"{type(part).__name__}; take it out (LayerNorm is fine)"
                )
        if not all(any(True for _ in module.parameters()) for module in modules):
            raise InputError("the module has no parameters, so there is nothing to train")
        self._modules = modules

    def __repr__(self) -> str:
        return f"ModuleNetwork({', '.join(map(repr, self._modules))})"

    def init(self, dim: int, seeds: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Parameters:
        if len(seeds) != len(self._modules):
            raise InputError(
                f"a bank of {len(seeds)} members needs as many modules, got {len(self._modules)}"
            )
        stacked, _ = stack_module_state(list(self._modules))
        parameters = {
            name: value.detach().to(dtype=dtype, device=device, copy=True) for name, value in stacked.items()
        }
        first = {name: value[:1] for name, value in parameters.items()}
        try:
            f = self.field(first, torch.zeros(1, 2, dim, dtype=dtype, device=device))
        except Exception as error:
            raise InputError(
                f"the module must map (n, {dim}) to (n, {dim}); for two points it raised "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error
        if f.shape != (1, 2, dim):
            raise InputError(
                f"the module must map (n, {dim}) to (n, {dim}); for two points it returned "
                f"{tuple(f.shape[1:])}"
            )
        return parameters

    def widest(self, parameters: Parameters) -> int:
        return max(max(value.shape[1:], default=1) for value in parameters.values())

    def _call(self, member: Parameters, x: Tensor) -> Tensor:
        result: Tensor = functional_call(self._modules[0], member, (x,))
        return result

    def field(self, parameters: Parameters, x: BankPoints) -> BankPoints:
        return vmap(self._call)(parameters, _expanded(parameters, x))

    def field_and_divergence(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None = None
    ) -> tuple[BankPoints, BankPerPoint]:
        x = _expanded(parameters, x).contiguous()  # duals need memory of their own
        if probe is not None:
            return vmap(self._probed)(parameters, x, probe)
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for value, part in self._along_axes(parameters, x):
            f, total = value, total + part
        return f, total

    def field_and_parts(
        self, parameters: Parameters, x: BankPoints, blocks: Sequence[slice]
    ) -> tuple[BankPoints, BankPoints]:
        x = _expanded(parameters, x).contiguous()
        diagonal = [part for _, part in self._along_axes(parameters, x)]
        parts = [torch.stack(diagonal[block]).sum(0) for block in blocks]
        return self.field(parameters, x), torch.stack(parts, dim=-1)

    def _along_axes(self, parameters: Parameters, x: BankPoints) -> Iterator[tuple[Tensor, Tensor]]:
        """f and ∂f_j/∂x_j for each j; one tangent at a time keeps the memory of a forward pass."""
        for direction in torch.eye(x.shape[-1], dtype=x.dtype, device=x.device):
            yield vmap(self._probed)(parameters, x, direction.expand_as(x))

    def _probed(self, member: Parameters, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        f, tangent = directional(lambda y: self._call(member, y), x, z)
        return f, (tangent * z).sum(-1)

    def pullback(
        self, parameters: Parameters, x: BankPoints, probe: BankPoints | None, buffers: Buffers
    ) -> tuple[BankPoints, BankPerPoint, Pullback]:
        return autograd_pullback(self, parameters, x, probe)


def _expanded(parameters: Parameters, x: BankPoints) -> BankPoints:
    """Points of every member, where they share one set."""
    return x.expand(len(next(iter(parameters.values()))), *x.shape[1:])
