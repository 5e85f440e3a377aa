"""q, known by its score."""

from steincritic.models.adapters.bridgestan import BridgeStanPosterior
from steincritic.models.adapters.diffusion import DiffusionModel
from steincritic.models.adapters.jax import JaxDensity
from steincritic.models.adapters.numeric import NumericDensity
from steincritic.models.adapters.numpyro import NumPyroPosterior
from steincritic.models.adapters.openmm import OpenMMModel
from steincritic.models.adapters.pymc import PyMCPosterior
from steincritic.models.adapters.sbi import SbiPosterior, SbiVectorField
from steincritic.models.adapters.stan import StanPosterior
from steincritic.models.base import DensityModel, Model, SamplingModel, as_model, dimension
from steincritic.models.bounded import BoundedDensity, BoundedModel
from steincritic.models.conditional import ConditionalModel, as_conditional
from steincritic.models.density import DistributionModel, EnergyModel, LogDensity, PairModel
from steincritic.models.grid import GridModel
from steincritic.models.langevin import Langevin, LangevinModel
from steincritic.models.mixture import GaussianMixture
from steincritic.models.normal_fit import FitNormal
from steincritic.models.perceptron_energy import PerceptronEnergy
from steincritic.models.rbm import GaussianBernoulliRBM, random_rbm
from steincritic.models.regression import Regression
from steincritic.models.saved import load_saved, save_model

__all__ = [
    "BoundedDensity",
    "BoundedModel",
    "BridgeStanPosterior",
    "ConditionalModel",
    "DensityModel",
    "DiffusionModel",
    "DistributionModel",
    "EnergyModel",
    "FitNormal",
    "GaussianBernoulliRBM",
    "GaussianMixture",
    "GridModel",
    "JaxDensity",
    "Langevin",
    "LangevinModel",
    "LogDensity",
    "Model",
    "NumPyroPosterior",
    "NumericDensity",
    "OpenMMModel",
    "PairModel",
    "PerceptronEnergy",
    "PyMCPosterior",
    "Regression",
    "SamplingModel",
    "SbiPosterior",
    "SbiVectorField",
    "StanPosterior",
    "as_conditional",
    "as_model",
    "dimension",
    "load_saved",
    "random_rbm",
    "save_model",
]
