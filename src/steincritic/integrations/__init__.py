"""Where results go: test suites, experiment trackers, training loops, ArviZ.

Importing this loads none of them, nor torch: the pytest plugin is loaded by every pytest.
"""

from steincritic.integrations.arviz import to_arviz
from steincritic.integrations.tracking import Logger, to_mlflow, to_wandb

__all__ = ["Logger", "to_arviz", "to_mlflow", "to_wandb"]
