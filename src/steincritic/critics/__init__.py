"""Vector fields f."""

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.critics.module import ModuleNetwork
from steincritic.critics.network import Network, Parameters

__all__ = ["MLP", "Bank", "ModuleNetwork", "Network", "Parameters"]
