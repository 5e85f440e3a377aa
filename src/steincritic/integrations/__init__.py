"""Where results go: test suites, experiment trackers, training loops.

Importing this loads none of them, nor torch: the pytest plugin is loaded by every pytest.
"""

from typing import TYPE_CHECKING, Any

from steincritic.integrations.tracking import Logger, to_mlflow, to_wandb

__all__ = ["Logger", "to_mlflow", "to_wandb"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "to_arviz":  # for one release
            raise AttributeError("to_arviz is gone: result.points.witness has the witness of every draw")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
