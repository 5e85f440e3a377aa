"""Fitting an energy model by minimizing its Stein discrepancy."""

from steincritic.learning.fit import FittedEnergy, check_rows, fit_energy
from steincritic.learning.learnable import EnergyMLP, Learnable, as_learnable, first_machine
from steincritic.learning.settings import FOR_PERCEPTRONS, Learning

__all__ = [
    "FOR_PERCEPTRONS",
    "EnergyMLP",
    "FittedEnergy",
    "Learnable",
    "Learning",
    "as_learnable",
    "check_rows",
    "first_machine",
    "fit_energy",
]
