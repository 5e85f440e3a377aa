"""Training of critics with staged regularization."""

from steincritic.training.fit import Training, Yardsticks, always, fit_bank, monitor_probe
from steincritic.training.fitted import FittedBank, History
from steincritic.training.objective import Gap, monitor
from steincritic.training.progress import Callback, ProgressBar
from steincritic.training.staging import Adaptive, Stage, Staged, Staging, fixed

__all__ = [
    "Adaptive",
    "Callback",
    "FittedBank",
    "Gap",
    "History",
    "ProgressBar",
    "Stage",
    "Staged",
    "Staging",
    "Training",
    "Yardsticks",
    "always",
    "fit_bank",
    "fixed",
    "monitor",
    "monitor_probe",
]
