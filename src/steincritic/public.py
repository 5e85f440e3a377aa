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
from steincritic.errors import DivergedError, DoubtfulWarning, FileFormatError, InputError, ModelError
from steincritic.gof.betting import Sequential
from steincritic.gof.choose import gof_test
from steincritic.gof.combined import Combined
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.fisher_ball import FisherBall
from steincritic.gof.fitted import Fitted
from steincritic.gof.kernel import Ksd, KsdAgg
from steincritic.gof.moment_box import MomentBox
from steincritic.gof.power import Rate, Trials, calibrate, power
from steincritic.gof.result import GofResult
from steincritic.gof.sequential import watch
from steincritic.gof.split import Split
from steincritic.gof.test import GofTest
from steincritic.gof.watch_state import WatchState, load_watch
from steincritic.models.base import Model, as_model
from steincritic.models.conditional import ConditionalModel
from steincritic.stein.kernels import IMQ, RBF, stein_witness
from steincritic.stein.tiles import ksd
from steincritic.training.critic import Critic, fit_critic, load_critic
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Adaptive, Staged, fixed

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
    "Critic",
    "CrossFit",
    "DivergedError",
    "DoubtfulWarning",
    "FileFormatError",
    "FisherBall",
    "Fitted",
    "GofResult",
    "GofTest",
    "InputError",
    "Ksd",
    "KsdAgg",
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
    "fixed",
    "gof_test",
    "ksd",
    "lenses",
    "load_critic",
    "load_watch",
    "models",
    "power",
    "stein_witness",
    "watch",
]

GONE: dict[str, str] = {  # names that went, and what to use instead; for one release
    "Contamination": 'MomentBox or FisherBall, tolerance=0.05 or "fisher:0.1"',
    "Fssd": "KsdAgg, or stein_witness for where the model fails",
    "forecast": "leave it out; a bar shows how far long work is",
    "suggest_staging": "Staged(initial=0.4, floor=0.0005, decay=0.90), or the study auto-staging",
    "GuideReading": "check_draws on draws of the guide, each so many steps",
    "GuideWatch": "check_draws on draws of the guide, each so many steps",
    "watch_guide": "check_draws on draws of the guide, each so many steps",
    "EnergyMLP": "train an energy yourself; the gallery page energy_on_two_moons shows how",
    "FittedEnergy": "train an energy yourself; the gallery page energy_on_two_moons shows how",
    "Learning": "train an energy yourself; the gallery page energy_on_two_moons shows how",
    "fit_energy": "train an energy yourself; the gallery page energy_on_two_moons shows how",
}
