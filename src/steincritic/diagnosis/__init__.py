"""Where a model fails, how far, which of several is best, and whether its adapter can be trusted."""

from steincritic.diagnosis.check import Diagnosis, diagnose
from steincritic.diagnosis.compare import compare_models
from steincritic.diagnosis.comparison import Comparison
from steincritic.diagnosis.doctor.doctor import Checkup, examine
from steincritic.diagnosis.draws import check_draws

__all__ = ["Checkup", "Comparison", "Diagnosis", "check_draws", "compare_models", "diagnose", "examine"]
