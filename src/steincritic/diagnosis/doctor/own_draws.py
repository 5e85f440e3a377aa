"""The model's own draws: do they fit its score, are they independent, where do they end, in which space?"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.doctor.identity import robust_frame, stein_identity
from steincritic.diagnosis.doctor.patient import FEW, Patient, Verdict
from steincritic.errors import ModelError, listed
from steincritic.gof.assumptions import find_caveats, round_number, separate_groups, unseen_weights
from steincritic.gof.thresholds import dependence
from steincritic.models.base import knows_noise
from steincritic.models.mixing import autocorrelation_time
from steincritic.shapes import Points

_WORTH = 0.5  # share of independent draws below which a sampler is doubtful
_GLANCE = 2_000  # draws at which another space is looked at first
_ENOUGH = 5_000  # draws from which on the end of a second mode cannot be taken for an edge
_FLAT = 1e-10  # variance along the flattest direction, in standardized columns
_HARD, _SLOW = 1.3, 1.5  # exponent a of P(closer to the edge than t) ~ t^a; a flat density has a = 1


def check_identity(patient: Patient) -> Verdict:
    if patient.own is None:
        return _without_draws(patient)
    if not bool(patient.own.score.isfinite().all()):
        return "skipped", "The score is not finite at some of the model's draws."
    found, n = patient.identity, len(patient.own)
    seen = f"{found.worst:+.3g} standard errors for f = {found.function}, bound {found.bound:.1f}, {n} draws"
    if found.holds:
        modes = separate_groups(patient.own)
        blind = f" It cannot see weights of the {modes} separate modes that they lie in." if modes > 1 else ""
        return "passed", f"E_q[T_q f] = 0 on the model's own draws (worst {seen}).{blind}"
    if patient.too_slow:
        return "warning", (
            f"The draws are too dependent to judge: {n} of them are worth {n / patient.slowness:.0f}; thin "
            "the chain."
        )
    if found.heavy:
        return "warning", (
            f"Heavy tails: the mean is {seen}, but rests on a few draws; look at the model in a transformed "
            "space with lighter tails."
        )
    scaled = stein_identity(ScoredPoints(patient.own.x, patient.own.score / found.ratio), patient.slowness)
    hint = "either may be wrong, or the boundary of the support counts (see below)"
    if scaled.holds:
        hint = f"the score looks {found.ratio:.3f} times as large as it should be" + (
            ": its sign is wrong" if found.ratio < 0 else ""
        )
    return "failed", f"Score and sampler disagree: {seen}; {hint}."


def _without_draws(patient: Patient) -> Verdict:
    """Of a model that cannot be sampled: whether weights of modes will be seen."""
    told = ["The model cannot be sampled, so the identity cannot be looked at."]
    if patient.data is not None and not knows_noise(patient.model):
        points = ScoredPoints(patient.data, patient.score(patient.data))
        told += map(str, unseen_weights(patient.model, points))
    return "skipped", " ".join(told)


def check_independence(patient: Patient) -> Verdict:
    if patient.own is None:
        return "skipped", "The model cannot be sampled."
    if not bool(patient.own.score.isfinite().all()):
        return "skipped", "The score is not finite at some of the model's draws."
    n = len(patient.own)
    worth = n / patient.slowness
    inside = robust_frame(patient.own.x).enter(patient.own)
    doubts = dependence(patient.model, patient.own.x, (inside.x * inside.score).sum(1))
    if worth < _WORTH * n:
        return "warning", (
            f"In the order they come, {n} draws are worth {worth:.0f} independent ones: thin the chain to "
            f"every {math.ceil(patient.slowness)}th draw, or start one chain per draw."
        )
    if doubts:
        return "warning", doubts[0]
    return "passed", f"{n} draws are worth {min(worth, n):.0f} independent ones, and repeat none."


def check_edges(patient: Patient) -> Verdict:
    if patient.own is None:
        return _edges_of_data(patient)
    x = patient.own.x
    correlations = torch.atleast_2d(Frame.of(x).enter(patient.own).x.T.cov())
    if float(torch.linalg.eigvalsh(correlations)[0]) < _FLAT < len(x) - x.shape[1]:
        return "failed", (
            "The draws lie in a plane (a column is constant, or a sum of others, as on a simplex): there is "
            'no density in all columns together; leave one column out, or pass bounds="simplex".'
        )
    edges = []
    for j in range(x.shape[1]):
        column = x[:, j].sort().values
        for edge, away in ((column[0], column - column[0]), (column[-1], (column[-1] - column).flip(0))):
            edges.append((_edge_exponent(away), j, float(edge)))
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
    if beyond := _refusal(patient):
        return "warning", f"Half as far out again as its draws, {beyond}: data there cannot be tested."
    return "passed", "The density of the draws vanishes at the ends of every column; the score stays finite."


def _bounds(x: Points, edges: list[tuple[float, int, float]]) -> str:
    """Hard edges as --bounds has them; edges come as the low and the high one of each column."""
    found = []
    for (a, j, low), (b, _, high) in zip(edges[::2], edges[1::2], strict=True):
        ends = [
            round_number(edge, x[:, j]) if exponent < _HARD else default
            for exponent, edge, default in ((a, low, "-inf"), (b, high, "inf"))
        ]
        if min(a, b) < _HARD:
            found.append(f"x{j + 1} {' '.join(ends)}")
    return ", ".join(found)


def _edges_of_data(patient: Patient) -> Verdict:
    """Where data stop although the score does not say so."""
    if patient.data is not None:
        points = ScoredPoints(patient.data.double(), patient.score(patient.data).double())
        for caveat in find_caveats(patient.model, points, by_scores=True):
            if caveat.kind == "edges of the support":
                return "warning", str(caveat)
    return "skipped", "The model cannot be sampled, so the edges of its support are not known."


def _edge_exponent(away: Tensor) -> float:
    """Hill's estimate of a from the distances of draws to the outermost one, the larger of two scales."""
    exponents = []
    for count in (max(200, len(away) // 100), max(250, len(away) // 20)):
        near = away[1:count]
        if not float(near[-1]) > 0:
            return 0.0  # many draws on the edge itself
        logs = (near[-1] / near[near > 0]).log()
        exponents.append(len(logs) / max(float(logs.sum()), 1e-12))
    return max(exponents)


def _refusal(patient: Patient) -> str:
    """What the model says outside the range of its draws, where that is no number."""
    assert patient.draws is not None
    x = patient.draws[:FEW]
    low, high = patient.draws.amin(0), patient.draws.amax(0)
    outer = torch.where(x > (low + high) / 2, high + (high - low) / 2, low - (high - low) / 2)
    try:
        score = patient.score(outer)
    except ModelError:
        return "the model raises an error"
    bad = int((~score.isfinite().all(-1)).sum())
    return f"the score is not finite at {bad} of {len(outer)} points" if bad else ""


def check_space(patient: Patient) -> Verdict:
    """Where the identity fails, does it hold for another space, as the score may be meant for it?"""
    if patient.own is None:
        return "skipped", "The model cannot be sampled, so there are no draws to compare the space with."
    if not _disagree(patient):
        return "passed", "Nothing in Stein's identity says that draws and score live in two spaces."
    for columns in _suspects(patient.own.x):
        for story, points in _other_spaces(patient, columns):
            if _explains(points):
                return "failed", f"Of {listed([f'x_{j + 1}' for j in columns], 3)}, {story}"
    return "skipped", "No logarithm or exponential of the columns explains why the identity fails."


def _disagree(patient: Patient) -> bool:
    """Is the score not finite at the draws, or does Stein's identity fail?"""
    assert patient.own is not None
    if not bool(patient.own.score.isfinite().all()):
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
    assert patient.own is not None
    x, s = patient.own.x, patient.own.score
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
