"""A map of the points in the plane, for the report."""

from dataclasses import dataclass

import numpy as np

from steincritic.diagnosis.check_result import CheckResult

_MOST = 1500  # points on the map
_WORST = 300  # of them chosen for their witness


@dataclass(frozen=True, eq=False)
class Map:
    """Rows of the data and where they lie."""

    rows: np.ndarray
    xy: np.ndarray  # (m, 2) in [0, 1]
    how: str


def plane_map(diagnosis: CheckResult, *, seed: int = 0) -> Map:
    """t-SNE where openTSNE is installed, else the first two principal components."""
    n = len(diagnosis.data)
    source = np.random.default_rng(seed)
    worst = diagnosis.points.worst(min(_WORST, n)).numpy()
    others = np.setdiff1d(np.arange(n), worst)
    rows = np.concatenate([source.permutation(others)[: _MOST - len(worst)], worst])
    x = diagnosis.data.x.detach().cpu().double().numpy()[rows]
    spread = x.std(0)
    x = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    if x.shape[1] == 1:
        height = source.uniform(size=(len(x), 1))
        return Map(rows, _unit(np.hstack([x, height])), "the one coordinate; the height is random")
    if x.shape[1] == 2:
        return Map(rows, _unit(x), "the two coordinates")
    try:
        from openTSNE import TSNE

        return Map(rows, _unit(np.asarray(TSNE(random_state=seed, n_jobs=1).fit(x))), "a t-SNE map")
    except ImportError:
        _, _, axes = np.linalg.svd(x, full_matrices=False)
        return Map(rows, _unit(x @ axes[:2].T), "two principal components")


def _unit(xy: np.ndarray) -> np.ndarray:
    low, high = np.quantile(xy, [0.002, 0.998], axis=0)
    unit: np.ndarray = np.clip((xy - low) / np.where(high > low, high - low, 1.0), 0, 1)
    return unit
