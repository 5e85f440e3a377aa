"""q, known by its score."""

from typing import TYPE_CHECKING, Any

from steincritic.models.adapters.bridgestan import BridgeStanPosterior
from steincritic.models.adapters.diffusion import DiffusionModel
from steincritic.models.adapters.jax import JaxDensity
from steincritic.models.adapters.numeric import NumericDensity
from steincritic.models.adapters.numpyro import NumPyroPosterior
from steincritic.models.adapters.openmm import OpenMMModel
from steincritic.models.adapters.pymc import PyMCPosterior
from steincritic.models.adapters.sbi import SbiPosterior, SbiVectorField
from steincritic.models.base import DensityModel, Model, SamplingModel, as_model, dimension
from steincritic.models.bounded import BoundedDensity, BoundedModel
from steincritic.models.conditional import ConditionalModel, Regression, as_conditional
from steincritic.models.density import DistributionModel, EnergyModel, LogDensity, PairModel
from steincritic.models.langevin import Langevin, LangevinModel
from steincritic.models.mixture import GaussianMixture
from steincritic.models.normal_fit import FitNormal
from steincritic.models.rbm import GaussianBernoulliRBM, random_rbm

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
    "JaxDensity",
    "Langevin",
    "LangevinModel",
    "LogDensity",
    "Model",
    "NumPyroPosterior",
    "NumericDensity",
    "OpenMMModel",
    "PairModel",
    "PyMCPosterior",
    "Regression",
    "SamplingModel",
    "SbiPosterior",
    "SbiVectorField",
    "as_conditional",
    "as_model",
    "dimension",
    "random_rbm",
]

GONE = {  # names that went, and what to use instead; for one release
    "GridModel": "LangevinModel(log_density, dim=d) draws by chains",
    "StanPosterior": "compile the program with BridgeStan and pass bridgestan.StanModel",
    "PerceptronEnergy": "pass an energy nn.Module; LangevinModel(energy, dim=d) draws",
    "load_saved": "keep weights with safetensors, and name the model that you make of them file.py:attr",
    "save_model": "keep weights with safetensors, and name the model that you make of them file.py:attr",
}
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in GONE:
            raise AttributeError(f"steincritic.models.{name} is gone: {GONE[name]}")
        raise AttributeError(f"module 'steincritic.models' has no attribute {name!r}")
