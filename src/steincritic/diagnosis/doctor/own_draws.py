"""The model's own draws: do they fit its score, are they independent, where do they end, in which space?"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from steincritic.data.frame import Frame, RowFrame
from steincritic.data.points import ScoredPoints, checked_score, score_points
from steincritic.diagnosis.doctor.identity import robust_frame, stein_identity
from steincritic.diagnosis.doctor.patient import Patient, Verdict
from steincritic.errors import ModelError, listed
from steincritic.gof.assumptions import find_caveats, round_number, separate_groups, unseen_weights
from steincritic.gof.thresholds import dependence
from steincritic.models.base import knows_noise
from steincritic.models.conditional import AtRows
from steincritic.models.mixing import autocorrelation_time
from steincritic.rng import derive
from steincritic.shapes import Points

_WORTH = 0.5  # share of independent draws below which a sampler is doubtful
_GLANCE = 2_000  # draws at which another space is looked at first
_TIMES, _ROWS = 50, 2_000  # draws of y at each row, and rows at most
_ENOUGH = 5_000  # draws from which on the end of a second mode cannot be taken for an edge
_FLAT = 1e-10  # variance along the flattest direction, in standardized columns
_HARD, _SLOW = 1.3, 1.5  # exponent a of P(closer to the edge than t) ~ t^a; a flat density has a = 1


def check_identity(patient: Patient) -> Verdict:
    if patient.scored_draws is None:
        sentences = ["The model cannot be sampled, so the identity cannot be looked at."]
        if patient.data is not None and not knows_noise(patient.model):
            points = ScoredPoints(patient.data, patient.score(patient.data))
            sentences += map(str, unseen_weights(patient.model, points))  # of modes
        return "skipped", " ".join(sentences)
    if not bool(patient.scored_draws.score.isfinite().all()):
        return "skipped", "The score is not finite at some of the model's draws."
    draws, test, n = patient.scored_draws, patient.identity, len(patient.scored_draws)
    mean = f"{test.worst:+.3g} standard errors for f = {test.function}, bound {test.bound:.1f}, {n} draws"
    if test.holds:
        modes = separate_groups(draws)
        blind = f" It cannot see weights of the {modes} separate modes that they lie in." if modes > 1 else ""
        return "passed", f"E_q[T_q f] = 0 on the model's own draws (worst {mean}).{blind}"
    if patient.too_slow:
        return "warning", (
            f"The draws are too dependent to judge: {n} of them are worth {n / patient.slowness:.0f}; thin "
            "the chain."
        )
    if test.heavy:
        return "warning", (
            f"Heavy tails: the mean is {mean}, but rests on a few draws; look at the model in a transformed "
            "space with lighter tails."
        )
    scaled = stein_identity(ScoredPoints(draws.x, draws.score / test.ratio), patient.slowness)
    hint = "either may be wrong, or the boundary of the support counts (see below)"
    if scaled.holds:
        hint = f"the score looks {test.ratio:.3f} times as large as it should be" + (
            ": its sign is wrong" if test.ratio < 0 else ""
        )
    return "failed", f"Score and sampler disagree: {mean}; {hint}."


def check_independence(patient: Patient) -> Verdict:
    if patient.scored_draws is None:
        return "skipped", "The model cannot be sampled."
    if not bool(patient.scored_draws.score.isfinite().all()):
        return "skipped", "The score is not finite at some of the model's draws."
    n = len(patient.scored_draws)
    worth = n / patient.slowness
    inside = robust_frame(patient.scored_draws.x).enter(patient.scored_draws)
    doubts = dependence(patient.model, patient.scored_draws.x, (inside.x * inside.score).sum(1))
    if worth < _WORTH * n:
        return "warning", (
            f"In the order they come, {n} draws are worth {worth:.0f} independent ones: thin the chain to "
            f"every {math.ceil(patient.slowness)}th draw, or start one chain per draw."
        )
    if doubts:
        return "warning", doubts[0]
    return "passed", f"{n} draws are worth {min(worth, n):.0f} independent ones, and repeat none."


def check_edges(patient: Patient) -> Verdict:
    if patient.scored_draws is None:
        if patient.data is not None:
            points = ScoredPoints(patient.data.double(), patient.score(patient.data).double())
            for caveat in find_caveats(patient.model, points, by_scores=True):
                if caveat.kind == "edges of the support":
                    return "warning", str(caveat)
        return "skipped", "The model cannot be sampled, so the edges of its support are not known."
    x = patient.scored_draws.x
    correlations = torch.atleast_2d(Frame.of(x).enter(patient.scored_draws).x.T.cov())
    if float(torch.linalg.eigvalsh(correlations)[0]) < _FLAT < len(x) - x.shape[1]:
        return "failed", (
            "The draws lie in a plane (a column is constant, or a sum of others, as on a simplex): there is "
            'no density in all columns together; leave one column out, or pass bounds="simplex".'
        )
    edges = []
    for j in range(x.shape[1]):
        column = x[:, j].sort().values
        for edge, distances in ((column[0], column - column[0]), (column[-1], (column[-1] - column).flip(0))):
            edges.append((_edge_exponent(distances), j, float(edge)))
    hard = [f"x_{j + 1} = {edge:.3g}" for a, j, edge in edges if a < _HARD]
    slow = [f"x_{j + 1} = {edge:.3g}" for a, j, edge in edges if _HARD <= a < _SLOW]
    if hard and _disagree(patient):
        return "failed", (
            f"The draws stop at {listed(hard, 3)} where their density does not vanish, so Stein's identity "
            "lacks its boundary term: say where the model ends with bounds= "
            f'(--bounds "{_bounds(x, edges)}"), and it is tested in coordinates without bounds.'
        )
    if (hard or slow) and len(x) >= _ENOUGH:
        return "warning", (
            f"Near {listed(hard + slow, 3)} the density of the draws falls to zero slowly or not at all: the "
            "score may have no variance there; with bounds= (--bounds) the model is tested in coordinates "
            "without edges."
        )
    return "passed", "The density of the draws vanishes at the ends of every column."


def _bounds(x: Points, edges: list[tuple[float, int, float]]) -> str:
    """Hard edges as --bounds has them; edges come as the low and the high one of each column."""
    bounds = []
    for (a, j, low), (b, _, high) in zip(edges[::2], edges[1::2], strict=True):
        ends = [
            round_number(edge, x[:, j]) if exponent < _HARD else default
            for exponent, edge, default in ((a, low, "-inf"), (b, high, "inf"))
        ]
        if min(a, b) < _HARD:
            bounds.append(f"x{j + 1} {' '.join(ends)}")
    return ", ".join(bounds)


def _edge_exponent(distances: Tensor) -> float:
    """Hill's estimate of a from the distances of draws to the outermost one, the larger of two scales."""
    exponents = []
    for count in (max(200, len(distances) // 100), max(250, len(distances) // 20)):
        near = distances[1:count]
        if not float(near[-1]) > 0:
            return 0.0  # many draws on the edge itself
        logs = (near[-1] / near[near > 0]).log()
        exponents.append(len(logs) / max(float(logs.sum()), 1e-12))
    return max(exponents)


def check_space(patient: Patient) -> Verdict:
    """Where the identity fails, does it hold for another space, as the score may be meant for it?"""
    if patient.scored_draws is None:
        return "skipped", "The model cannot be sampled, so there are no draws to compare the space with."
    if not _disagree(patient):
        return "passed", "Nothing in Stein's identity says that draws and score live in two spaces."
    for columns in _suspects(patient.scored_draws.x):
        for story, points in _other_spaces(patient, columns):
            if _explains(points):
                return "failed", f"Of {listed([f'x_{j + 1}' for j in columns], 3)}, {story}"
    return "skipped", "No logarithm or exponential of the columns explains why the identity fails."


def _disagree(patient: Patient) -> bool:
    """Is the score not finite at the draws, or does Stein's identity fail?"""
    assert patient.scored_draws is not None
    if not bool(patient.scored_draws.score.isfinite().all()):
        return True
    return not (patient.identity.holds or patient.identity.heavy or patient.too_slow)


def _explains(points: ScoredPoints) -> bool:
    """Does Stein's identity hold here? Where it does not, a few draws mostly show it."""
    if not (bool(points.x.isfinite().all()) and bool(points.score.isfinite().all())):
        return False
    slowness = autocorrelation_time(points.x[:_GLANCE, :32])
    return all(stein_identity(part, slowness).holds for part in (points[:_GLANCE], points))


def _suspects(x: Points) -> list[list[int]]:
    """Sets of columns that may be in another space: all positive ones, all, and each of a few alone."""
    d = x.shape[1]
    positive = [j for j in range(d) if bool((x[:, j] > 0).all())]
    sets = [positive, list(range(d)), *([j] for j in range(d if d <= 8 else 0))]
    return [s for k, s in enumerate(sets) if s and s not in sets[:k]]


def _other_spaces(patient: Patient, columns: list[int]) -> Iterator[tuple[str, ScoredPoints]]:
    """Draws and score as they would be if one of the usual mix-ups had happened in these columns."""
    assert patient.scored_draws is not None
    x, s = patient.scored_draws.x, patient.scored_draws.score
    chosen = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
    chosen[columns] = True
    constrained = (
        "the score fits the {} of the draws: it lives in the unconstrained space, the sampler returns "
        "constrained values; transform the draws, and the data likewise."
    )
    if bool((x[:, columns] > 0).all()):
        free = torch.where(chosen, x.log(), x)
        yield constrained.format("logarithms"), _scored_at(patient, free)
        yield (
            "the score is the derivative by log x, the draws are x: subtract 1 and divide by x, or pass the "
            "logarithms of draws and data.",
            ScoredPoints(free, s),
        )
        yield (
            "the log-density is that of log x without the Jacobian: subtract log x from it (1/x from the "
            "score).",
            ScoredPoints(free, torch.where(chosen, x * s, s)),
        )
        if bool((x[:, columns] < 1).all()):
            yield constrained.format("logits"), _scored_at(patient, torch.where(chosen, x.logit(), x))
    for name, function in (("exponentials", torch.exp), ("sigmoids", torch.sigmoid)):
        yield (
            f"the score fits the {name} of the draws: the sampler returns unconstrained values, the score "
            "lives in the constrained space; bring both into one.",
            _scored_at(patient, torch.where(chosen, function(x), x)),
        )


def _scored_at(patient: Patient, x: Points) -> ScoredPoints:
    """The model's score at other points than its draws; what it refuses counts as not finite."""
    assert patient.draws is not None
    try:
        return ScoredPoints(x, patient.score(x.to(patient.draws)).double())
    except ModelError:
        return ScoredPoints(x, torch.full_like(x, math.nan))


# Of a model of y given x, at the rows of a dataset.


def check_seeds_at_rows(model: AtRows, seed: int) -> Verdict:
    first, again, other = (model.sample(len(model), seed=derive(seed, s)) for s in ("one", "one", "two"))
    if not torch.equal(first, again):
        return "failed", "The same seed gave other draws of y: let the seed alone decide."
    if torch.equal(first, other):
        return "failed", "Two seeds gave the same draws of y: the sampler does not use its seed."
    return "passed", "The same seed gives the same draws of y, another seed others."


def check_score_at_rows(model: AtRows, seed: int) -> Verdict:
    x = model.sample(len(model), seed=seed)
    score = checked_score(model, x)
    first_row = checked_score(model, x[:1])
    if not bool(score.isfinite().all()):
        return "failed", "The score is not finite at some of the model's own draws."
    if not torch.allclose(first_row, score[:1], rtol=1e-3, atol=1e-5):
        return "failed", "The score of a row depends on the other rows: score(x, y) must go row by row."
    return "passed", "score(x, y) keeps the shape of y and goes row by row."


def check_use_of_x(model: AtRows, seed: int) -> Verdict:
    rows = torch.arange(len(model)).roll(1)
    draws, moved = model.sample(len(model), seed=seed), model.at(rows).sample(len(model), seed=seed)
    if torch.equal(draws[:, model.covariates :], moved[:, model.covariates :]):
        return "warning", (
            "The draws of y do not change with x: sample(x, seed) must draw y at each row of its x."
        )
    return "passed", "The draws of y change with x."


def check_identity_at_rows(model: AtRows, seed: int) -> Verdict:
    """In the model's own location and spread at each row, over all rows; from other draws."""
    part = model.at(torch.arange(min(_ROWS, len(model))))
    first, second = (part.sample(_TIMES * len(part), seed=derive(seed, name)) for name in ("frame", "own"))
    p, frame = model.covariates, RowFrame.of(first.view(_TIMES, len(part), -1), model.covariates)
    points = frame.enter(score_points(part, second)).to(torch.float64)
    test = stein_identity(ScoredPoints(points.x[:, p:], points.score[:, p:]), 1.0)
    mean = f"{test.worst:+.3g} standard errors for f = {test.function}, bound {test.bound:.1f}"
    if test.holds or test.heavy:
        return "passed", f"E[T f | x] = 0 on the model's own draws of y (worst {mean})."
    hint = f"; the score looks {test.ratio:.3g} times as large as it should be"
    return "failed", f"Score and sampler of y disagree: {mean}{hint if abs(test.ratio - 1) > 0.02 else ''}."


AT_ROWS: dict[str, Callable[[AtRows, int], Verdict]] = {
    "seeded sampling": check_seeds_at_rows,
    "shape": check_score_at_rows,
    "draws at x": check_use_of_x,
    "Stein's identity": check_identity_at_rows,
}
