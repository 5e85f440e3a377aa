"""Vector fields f."""

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.critics.module import ModuleNetwork
from steincritic.critics.network import Network, Parameters
from steincritic.critics.optimal import OptimalCritic

__all__ = ["MLP", "Bank", "ModuleNetwork", "Network", "OptimalCritic", "Parameters"]
