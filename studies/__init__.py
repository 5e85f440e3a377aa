"""What reproduces the paper and measures the library; never imported by it."""

from importlib import import_module
from typing import TYPE_CHECKING

from steincritic.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from studies.study import Study

NAMES = {  # `python -m studies NAME`: where each study stands
    "gm-1d": "studies.paper.one_dimension:STUDY",
    "gm-2d": "studies.paper.mixtures:STUDY_2D",
    "gm-10d": "studies.paper.mixtures:STUDY_10D",
    "gm-25d": "studies.paper.mixtures:STUDY_25D",
    "adaptive": "studies.paper.mixtures:ADAPTIVE",
    "ksd-50d": "studies.paper.fifty:FIFTY_DIMENSIONS",
    "ksd-50d-easy": "studies.paper.fifty:FIFTY_DIMENSIONS_EASY",
    "ksd-bandwidth": "studies.paper.fifty:BANDWIDTH",
    "splits": "studies.paper.fifty:SPLITS",
    "times-50d": "studies.paper.times:STUDY",
    "regularization": "studies.paper.regularization:STUDY",
    "rbm-benchmark": "studies.power.curves:RBM",
    "auto-staging": "studies.power.curves:STAGING",
    "calibration": "studies.calibration.experiment:STUDY",
    "streams": "studies.streams.experiment:STUDY",
    "planted-faults": "studies.faults.experiment:PLANTED",
    "fault-zoo": "studies.zoo.experiment:STUDY",
    "level": "studies.calibration.experiment:LEVEL_STUDY",
    "bounded": "studies.bounded.experiment:STUDY",
    "level-of-chains": "studies.calibration.by_scores:CHAINS",
    "level-without-draws": "studies.calibration.by_scores:WITHOUT_DRAWS",
    "fitted": "studies.fitted.experiment:STUDY",
    "fault-sentences": "studies.faults.experiment:SENTENCES",
    "lazy-training": "studies.lazy.experiment:STUDY",
    "posterior-checks": "studies.posteriors.experiment:STUDY",
    "posteriordb": "studies.posteriordb.experiment:STUDY",
    "image-models": "studies.digits.images:MNIST_MODELS",
    "small-images": "studies.digits.images:SMALL_MODELS",
    "mnist": "studies.digits.mnist:STUDY",
    "conditional": "studies.conditional.experiment:STUDY",
    "lc2st": "studies.lc2st.experiment:STUDY",
    "tolerance": "studies.tolerance.experiment:STUDY",
    "far-modes": "studies.far_modes.experiment:STUDY",
}


def load_study(name: str) -> "Study":
    """The study of this name."""
    if name not in NAMES:
        raise InputError(
            f"no study {name!r}{did_you_mean(name, NAMES)} (the studies: {', '.join(sorted(NAMES))})"
        )
    module, _, attribute = NAMES[name].partition(":")
    found: Study = getattr(import_module(module), attribute)
    return found
