"""What the doctor asks of a conditional model at the rows of a dataset."""

from collections.abc import Callable

import torch

from steincritic.data.frame import RowFrame
from steincritic.data.points import ScoredPoints, checked_score, score_points
from steincritic.diagnosis.doctor.identity import stein_identity
from steincritic.diagnosis.doctor.patient import Verdict
from steincritic.models.conditional import AtRows
from steincritic.rng import derive
from steincritic.shapes import Points

_TIMES = 50  # draws of y at each row
_ROWS = 2_000  # at most


def check_seeds(model: AtRows, seed: int) -> Verdict:
    first, again, other = (model.sample(len(model), seed=derive(seed, s)) for s in ("one", "one", "two"))
    if not torch.equal(first, again):
        return "failed", "The same seed gave other draws of y: let the seed alone decide."
    if torch.equal(first, other):
        return "failed", "Two seeds gave the same draws of y: the sampler does not use its seed."
    return "passed", "The same seed gives the same draws of y, another seed others."


def check_score(model: AtRows, seed: int) -> Verdict:
    x = model.sample(len(model), seed=seed)
    score = checked_score(model, x)
    one = checked_score(model, x[:1])
    if not bool(score.isfinite().all()):
        return "failed", "The score is not finite at some of the model's own draws."
    if not torch.allclose(one, score[:1], rtol=1e-3, atol=1e-5):
        return "failed", "The score of a row depends on the other rows: score(x, y) must go row by row."
    return "passed", "score(x, y) keeps the shape of y and goes row by row."


def check_use_of_x(model: AtRows, seed: int) -> Verdict:
    rows = torch.arange(len(model)).roll(1)
    here, there = model.sample(len(model), seed=seed), model.at(rows).sample(len(model), seed=seed)
    if torch.equal(here[:, model.covariates :], there[:, model.covariates :]):
        return "warning", (
            "The draws of y do not change with x: sample(x, seed) must draw y at each row of its x."
        )
    return "passed", "The draws of y change with x."


def check_identity(model: AtRows, seed: int) -> Verdict:
    """Of residuals, over all rows."""
    p, own = model.covariates, _own_draws(model, seed)
    found = stein_identity(ScoredPoints(own.x[:, p:], own.score[:, p:]), 1.0)
    seen = f"{found.worst:+.3g} standard errors for f = {found.function}, bound {found.bound:.1f}"
    if found.holds or found.heavy:
        return "passed", f"E[T f | x] = 0 on the model's own draws of y (worst {seen})."
    hint = f"; the score looks {found.ratio:.3g} times as large as it should be"
    return "failed", f"Score and sampler of y disagree: {seen}{hint if abs(found.ratio - 1) > 0.02 else ''}."


def _own_draws(model: AtRows, seed: int) -> ScoredPoints:
    """In the model's own location and spread at each row, from other draws."""
    some = model.at(torch.arange(min(_ROWS, len(model))))
    frame = RowFrame.of(_drawn(some, derive(seed, "frame")).view(_TIMES, len(some), -1), model.covariates)
    return frame.enter(score_points(some, _drawn(some, derive(seed, "own")))).to(torch.float64)


def _drawn(model: AtRows, seed: int) -> Points:
    return model.sample(_TIMES * len(model), seed=seed)


CHECKS: dict[str, Callable[[AtRows, int], Verdict]] = {
    "seeded sampling": check_seeds,
    "shape": check_score,
    "draws at x": check_use_of_x,
    "Stein's identity": check_identity,
}
