"""The mathematics, as functions of tensors."""

from steincritic.stein.divergence import Divergence, Probes, VectorField, exact
from steincritic.stein.operator import stein_values, witness_of

__all__ = ["Divergence", "Probes", "VectorField", "exact", "stein_values", "witness_of"]
