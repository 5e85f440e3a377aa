"""q, known by its score."""

from steincritic.models.adapters import (
    DiffusionModel,
    EnergyModel,
    JaxDensity,
    NumericDensity,
    NumPyroPosterior,
    OpenMMModel,
    PyMCPosterior,
    StanPosterior,
)
from steincritic.models.base import DensityModel, SamplingModel, ScoreModel, as_model, dimension
from steincritic.models.density import DistributionModel, LogDensity, PairModel
from steincritic.models.langevin import Langevin, LangevinModel
from steincritic.models.mixture import GaussianMixture
from steincritic.models.rbm import GaussianBernoulliRBM, random_rbm

__all__ = [
    "DensityModel",
    "DiffusionModel",
    "DistributionModel",
    "EnergyModel",
    "GaussianBernoulliRBM",
    "GaussianMixture",
    "JaxDensity",
    "Langevin",
    "LangevinModel",
    "LogDensity",
    "NumPyroPosterior",
    "NumericDensity",
    "OpenMMModel",
    "PairModel",
    "PyMCPosterior",
    "SamplingModel",
    "ScoreModel",
    "StanPosterior",
    "as_model",
    "dimension",
    "random_rbm",
]
