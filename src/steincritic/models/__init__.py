"""q, known by its score."""

from steincritic.models.base import DensityModel, SamplingModel, ScoreModel, as_model, dimension
from steincritic.models.density import DistributionModel, LogDensity, PairModel
from steincritic.models.mixture import GaussianMixture
from steincritic.models.rbm import GaussianBernoulliRBM, random_rbm

__all__ = [
    "DensityModel",
    "DistributionModel",
    "GaussianBernoulliRBM",
    "GaussianMixture",
    "LogDensity",
    "PairModel",
    "SamplingModel",
    "ScoreModel",
    "as_model",
    "dimension",
    "random_rbm",
]
