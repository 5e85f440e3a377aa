"""The model's own draws: do they fit its score, and are they independent?"""

import math

from steincritic.data.points import ScoredPoints
from steincritic.diagnosis.doctor.identity import robust_frame, stein_identity
from steincritic.diagnosis.doctor.patient import Patient, Verdict
from steincritic.gof.thresholds import dependence

_WORTH = 0.5  # share of independent draws below which a sampler is doubtful


def check_identity(patient: Patient) -> Verdict:
    if patient.own is None:
        return "skipped", "The model cannot be sampled, so the identity cannot be looked at."
    if not bool(patient.own.score.isfinite().all()):
        return "skipped", "The score is not finite at some of the model's draws."
    found, n = patient.identity, len(patient.own)
    seen = f"{found.worst:+.3g} standard errors for f = {found.function}, bound {found.bound:.1f}, {n} draws"
    if found.holds:
        return "passed", f"E_q[T_q f] = 0 on the model's own draws (worst {seen})."
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
