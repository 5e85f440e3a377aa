"""Ways to look at data: each lens turns datasets into numbers that are large for some kinds of faults."""

from steincritic.lenses.cells import Cells
from steincritic.lenses.critics import Critics
from steincritic.lenses.kernels import Kernels
from steincritic.lenses.lens import Field, Lens
from steincritic.lenses.modes import Modes
from steincritic.lenses.moments import Dependence, Moments
from steincritic.lenses.noise import Noise

__all__ = ["Cells", "Critics", "Dependence", "Field", "Kernels", "Lens", "Modes", "Moments", "Noise"]
