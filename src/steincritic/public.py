"""The public names, as `import steincritic as sc` gives them; loaded when the first of them is used."""

from steincritic import data, models
from steincritic.critics import MLP
from steincritic.data import ScoredPoints
from steincritic.diagnosis import (
    Checkup,
    Comparison,
    Diagnosis,
    check_draws,
    compare_models,
    diagnose,
    examine,
)
from steincritic.errors import (
    DivergedError,
    DoubtfulWarning,
    FileFormatError,
    InputError,
    ModelError,
)
from steincritic.gof import (
    CrossFit,
    Fssd,
    GofResult,
    Ksd,
    KsdAgg,
    MonitorState,
    Sequential,
    Split,
    calibrate,
    gof_test,
    load_state,
    monitor,
    power,
)
from steincritic.learning import EnergyMLP, Learning, fit_energy
from steincritic.models import as_model
from steincritic.report.page import save_report
from steincritic.stein import IMQ, RBF, ksd, stein_witness
from steincritic.training import Adaptive, Staged, Training, fit_bank, fixed
from steincritic.training.critic import Critic, fit_critic, load_critic
from steincritic.training.suggest import suggest_staging

__all__ = [
    "IMQ",
    "MLP",
    "RBF",
    "Adaptive",
    "Checkup",
    "Comparison",
    "Critic",
    "CrossFit",
    "Diagnosis",
    "DivergedError",
    "DoubtfulWarning",
    "EnergyMLP",
    "FileFormatError",
    "Fssd",
    "GofResult",
    "InputError",
    "Ksd",
    "KsdAgg",
    "Learning",
    "ModelError",
    "MonitorState",
    "ScoredPoints",
    "Sequential",
    "Split",
    "Staged",
    "Training",
    "as_model",
    "calibrate",
    "check_draws",
    "compare_models",
    "data",
    "diagnose",
    "examine",
    "fit_bank",
    "fit_critic",
    "fit_energy",
    "fixed",
    "gof_test",
    "ksd",
    "load_critic",
    "load_state",
    "models",
    "monitor",
    "power",
    "save_report",
    "stein_witness",
    "suggest_staging",
]
