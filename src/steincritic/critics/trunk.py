r"""Critics with one trunk and a head each: all hidden layers in common, the last layer a member's own.

$$f_k(x) = V_k\, h(x) + c_k$$

K critics of K models on the same data learn their features h together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from steincritic.critics.mlp import MLP
from steincritic.critics.network import Parameters


@dataclass(frozen=True, kw_only=True)
class SharedTrunk(MLP):
    """Perceptrons that share their hidden layers.

    Every member keeps a copy of the trunk, so a bank of them is evaluated and cut like any other. The
    copies start alike, and training moves them alike, by the sum of the members' gradients: what trains
    is the sum of the members' losses in one trunk and K heads.
    """

    def init(self, dim: int, seeds: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Parameters:
        """The trunk of the first seed, the heads of each member's own."""
        parameters = super().init(dim, seeds, dtype=dtype, device=device)
        for name in self.shared(parameters):
            parameters[name][1:] = parameters[name][:1]
        return parameters

    def shared(self, parameters: Parameters) -> Sequence[str]:
        last = len(self.hidden) + 1
        return [name for name in parameters if name not in (f"w{last}", f"b{last}")]
