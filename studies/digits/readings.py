"""What is read off the critics of the digits: power, ranking of the foreign digits, lists, pictures."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.diagnosis.points import benjamini_hochberg
from steincritic.gof.null import mean_gap, permutation, pooled_bootstrap, rank_pvalues
from steincritic.models.adapters.outside import require
from steincritic.rng import Source
from steincritic.shapes import PerPoint, Points
from studies.digits.data import as_pixels

_AXES = 50  # principal components that t-SNE gets
_RESAMPLED = 2000  # tests whose rejections are counted


def power_proxy(data: Tensor, null: Tensor) -> Tensor:
    r"""$\hat P = \bar w_p / (\sigma(w_p) + \sigma(w_q))$ with $\sigma$ the standard error of a mean.

    [repasky2023] section 6.3.2, over the last axis: witness values of n points of data and of n model draws.
    """
    errors = [(w.var(-1, correction=0) / w.shape[-1]).sqrt() for w in (data, null)]
    return data.mean(-1) / (errors[0] + errors[1])


def ranking(
    values: PerPoint, foreign: Tensor, reference: PerPoint, *, shown: int, fdr: float
) -> dict[str, float]:
    """The ranking by witness and the list with a bounded false discovery rate, by what is known of points."""
    from scipy.stats import mannwhitneyu

    pairs = int(foreign.sum()) * int((~foreign).sum())
    chosen = benjamini_hochberg(rank_pvalues(values, reference), fdr)
    count, right = int(chosen.sum()), int((chosen & foreign).sum())
    return {
        "roc_area": float(mannwhitneyu(values[foreign], values[~foreign]).statistic) / pairs,
        "highest": int(foreign[values.topk(shown).indices].sum()),
        "listed": count,
        "false_share": (count - right) / max(count, 1),
        "recall": right / int(foreign.sum()),
    }


def mean_test(
    values: PerPoint, judged: PerPoint, pool: PerPoint, *, draws: int, seed: int
) -> tuple[dict[str, float], Tensor]:
    """The test of n points, its null draws, and its power over n points drawn again and again.

    The null is the paper's bootstrap from a pool of model draws; `pvalue` is the exact one by permutation.
    """
    source = Source(seed, "test", device=values.device)
    n, pool = len(values), pool.double()
    null = pooled_bootstrap(pool, n, draws=draws, source=source, centered=False)
    statistic = values.double().mean()
    exact = permutation(values, pool, draws=draws, source=source)
    again = source.integers(len(judged), _RESAMPLED, n)
    rejected = judged.double()[again].mean(-1) > null.quantile(0.95)
    return {
        "statistic": float(statistic),
        "separation": float((statistic - null.mean()) / null.std()),
        "pvalue": (1 + int((exact >= mean_gap(values, pool)).sum())) / (draws + 1),
        "power": float(rejected.double().mean()),
    }, null


def gallery(x: Points, values: PerPoint, foreign: Tensor, count: int) -> dict[str, list[dict[str, Any]]]:
    """The images with the highest and with the lowest witness."""
    order = values.argsort(descending=True)
    return {
        end: [
            {"pixels": pixels, "foreign": bool(foreign[row])}
            for pixels, row in zip(as_pixels(x[rows]), rows.tolist(), strict=True)
        ]
        for end, rows in {"highest": order[:count], "lowest": order[-count:].flip(0)}.items()
    }


def embedding(x: Points, values: PerPoint, foreign: Tensor, *, kept: int, seed: int) -> dict[str, list[Any]]:
    """A t-SNE map of all points in thousandths; all foreign ones and others up to `kept` are noted."""
    manifold = require("sklearn.manifold", extra="sklearn")
    points = x.double().cpu().numpy()
    centered = points - points.mean(0)
    reduced = centered @ np.linalg.eigh(centered.T @ centered)[1][:, -_AXES:]
    tsne = manifold.TSNE(perplexity=min(30.0, len(x) / 4), init="pca", random_state=seed % 2**32)
    flat = tsne.fit_transform(reduced)
    low, high = flat.min(0), flat.max(0)
    mask = foreign.cpu().numpy()
    others = np.flatnonzero(~mask)[: max(0, kept - int(mask.sum()))]  # in no order to speak of
    rows = np.concatenate([others, np.flatnonzero(mask)])
    place = np.rint(999 * (flat[rows] - low) / (high - low)).astype(int)
    return {
        "x": place[:, 0].tolist(),
        "y": place[:, 1].tolist(),
        "witness": [float(f"{v:.3g}") for v in values.cpu()[torch.from_numpy(rows)].tolist()],
        "foreign": mask[rows].astype(int).tolist(),
    }
