"""The public names, as `import steincritic as sc` gives them; loaded when the first of them is used."""

from steincritic import data, lenses, models
from steincritic.critics.mlp import MLP
from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.amortized import AmortizedResult, check_amortized
from steincritic.diagnosis.check import check
from steincritic.diagnosis.check_result import CheckResult
from steincritic.diagnosis.compare import compare
from steincritic.diagnosis.comparison import Comparison
from steincritic.diagnosis.doctor.doctor import Checkup, doctor
from steincritic.diagnosis.draws import check_draws
from steincritic.diagnosis.forecast import forecast
from steincritic.diagnosis.guide import GuideReading, GuideWatch, watch_guide
from steincritic.errors import DivergedError, DoubtfulWarning, FileFormatError, InputError, ModelError
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.betting import Sequential
from steincritic.gof.choose import gof_test
from steincritic.gof.combined import Combined
from steincritic.gof.contamination import Contamination
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.fisher_ball import FisherBall
from steincritic.gof.fitted import Fitted
from steincritic.gof.fssd import Fssd
from steincritic.gof.kernel import Ksd
from steincritic.gof.moment_box import MomentBox
from steincritic.gof.power import Rate, Trials, calibrate, power
from steincritic.gof.result import GofResult
from steincritic.gof.sequential import watch
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.gof.watch_state import WatchState, load_watch
from steincritic.learning.fit import FittedEnergy, fit_energy
from steincritic.learning.learnable import EnergyMLP
from steincritic.learning.settings import Learning
from steincritic.models.base import Model, as_model
from steincritic.models.conditional import ConditionalModel
from steincritic.stein.fssd import stein_witness
from steincritic.stein.kernels import IMQ, RBF
from steincritic.stein.tiles import ksd
from steincritic.training.critic import Critic, fit_critic, load_critic
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Adaptive, Staged, fixed
from steincritic.training.suggest import suggest_staging

__all__ = [
    "IMQ",
    "MLP",
    "RBF",
    "Adaptive",
    "AmortizedResult",
    "CheckResult",
    "Checkup",
    "Combined",
    "Comparison",
    "ConditionalModel",
    "Contamination",
    "Critic",
    "CrossFit",
    "DivergedError",
    "DoubtfulWarning",
    "EnergyMLP",
    "FileFormatError",
    "FisherBall",
    "Fitted",
    "FittedEnergy",
    "Fssd",
    "GofResult",
    "GofTest",
    "GuideReading",
    "GuideWatch",
    "InputError",
    "Ksd",
    "KsdAgg",
    "Learning",
    "Model",
    "ModelError",
    "MomentBox",
    "Rate",
    "ScoredPoints",
    "Sequential",
    "Split",
    "Staged",
    "Training",
    "Trials",
    "WatchState",
    "as_model",
    "calibrate",
    "check",
    "check_amortized",
    "check_draws",
    "compare",
    "data",
    "doctor",
    "fit_bank",
    "fit_critic",
    "fit_energy",
    "fixed",
    "forecast",
    "gof_test",
    "ksd",
    "lenses",
    "load_critic",
    "load_watch",
    "models",
    "power",
    "stein_witness",
    "suggest_staging",
    "watch",
    "watch_guide",
]
