"""One file per table or figure: configuration to record."""

from steincritic.experiments.adaptive import ADAPTIVE
from steincritic.experiments.base import Context, Experiment
from steincritic.experiments.calibration import CALIBRATION
from steincritic.experiments.faults import FAULTS
from steincritic.experiments.image_models import IMAGES, SMALL_IMAGES
from steincritic.experiments.lazy_training import LAZY
from steincritic.experiments.learn_ebm import ENERGIES
from steincritic.experiments.mixture_1d import ONE_DIMENSION
from steincritic.experiments.mixture_tables import TABLES
from steincritic.experiments.mnist import DIGITS
from steincritic.experiments.posterior import POSTERIOR
from steincritic.experiments.power_curves import CURVES
from steincritic.experiments.staging_power import STAGING_POWER
from steincritic.experiments.streams import STREAMS

EXPERIMENTS: dict[str, Experiment] = {
    e.name: e
    for e in (
        ONE_DIMENSION,
        *TABLES,
        ADAPTIVE,
        *CURVES,
        CALIBRATION,
        STREAMS,
        FAULTS,
        LAZY,
        POSTERIOR,
        IMAGES,
        SMALL_IMAGES,
        STAGING_POWER,
        DIGITS,
        ENERGIES,
    )
}

__all__ = ["EXPERIMENTS", "Context", "Experiment"]
