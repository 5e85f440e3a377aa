"""The mathematics, as functions of tensors."""

from steincritic.stein.divergence import Divergence, Probes, VectorField, exact
from steincritic.stein.kernels import IMQ, RBF, Kernel, median_distance, stein_witness
from steincritic.stein.operator import stein_values, witness_of
from steincritic.stein.tiles import ksd, stein_kernel, stein_sums

__all__ = [
    "IMQ",
    "RBF",
    "Divergence",
    "Kernel",
    "Probes",
    "VectorField",
    "exact",
    "ksd",
    "median_distance",
    "stein_kernel",
    "stein_sums",
    "stein_values",
    "stein_witness",
    "witness_of",
]
