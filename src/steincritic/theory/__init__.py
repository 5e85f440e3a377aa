"""Tangent kernels and lazy training: the paper's theory as numbers."""

from steincritic.theory.law import Law, empirical, quadrature
from steincritic.theory.lazy import KernelSolution, NetworkFlow, Objective, gradient_flow, slope
from steincritic.theory.ntk import TangentKernel, tangent_kernel
from steincritic.theory.spectrum import Spectrum, drift, spectrum

__all__ = [
    "KernelSolution",
    "Law",
    "NetworkFlow",
    "Objective",
    "Spectrum",
    "TangentKernel",
    "drift",
    "empirical",
    "gradient_flow",
    "quadrature",
    "slope",
    "spectrum",
    "tangent_kernel",
]
