"""One file per table or figure: configuration to record."""

from steincritic_studies.calibration.experiment import CALIBRATION
from steincritic_studies.digits.images import IMAGES, SMALL_IMAGES
from steincritic_studies.digits.mnist import DIGITS
from steincritic_studies.faults.experiment import FAULTS
from steincritic_studies.lazy.experiment import LAZY
from steincritic_studies.learning.experiment import ENERGIES
from steincritic_studies.paper.adaptive import ADAPTIVE
from steincritic_studies.paper.mixtures import TABLES
from steincritic_studies.paper.one_dimension import ONE_DIMENSION
from steincritic_studies.posteriors.experiment import POSTERIOR
from steincritic_studies.power.curves import CURVES
from steincritic_studies.power.staging import STAGING_POWER
from steincritic_studies.streams.experiment import STREAMS
from steincritic_studies.study import Context, Experiment

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
