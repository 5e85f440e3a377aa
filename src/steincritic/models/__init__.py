"""q, known by its score."""

from steincritic.models.base import DensityModel, SamplingModel, ScoreModel, as_model, dimension
from steincritic.models.density import DistributionModel, LogDensity, PairModel
from steincritic.models.mixture import GaussianMixture

__all__ = [
    "DensityModel",
    "DistributionModel",
    "GaussianMixture",
    "LogDensity",
    "PairModel",
    "SamplingModel",
    "ScoreModel",
    "as_model",
    "dimension",
]
