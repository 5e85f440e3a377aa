"""The score against finite differences of the log-density."""

import math

import torch
from torch import Tensor

from steincritic.diagnosis.doctor.identity import robust_frame
from steincritic.diagnosis.doctor.patient import Patient, Verdict, short
from steincritic.errors import ModelError
from steincritic.models.base import DensityModel
from steincritic.rng import generator
from steincritic.shapes import Points


def check_gradient(patient: Patient) -> Verdict:
    r"""Along a direction v: $s \cdot v = (\log q(x + hv) - \log q(x - hv)) / 2h$, up to a known error.

    The error of a step h shows in its difference from the step 2h, and comes from rounding; at a kink of
    the log-density the slopes on both sides differ by twice the error.
    """
    if not isinstance(patient.model, DensityModel):
        return "skipped", "The model has no log_prob to compare the score with."
    x = patient.precise[:: math.ceil(len(patient.precise) * min(patient.precise.shape[1], 64) / 1_000)]
    scale = robust_frame(patient.points).scale.to(x)
    v = _directions(x.shape[1], patient.seed).to(x) * scale  # (k, d)
    kind = _precision(patient.log_prob(x))
    eps = torch.finfo(kind).eps
    h = eps ** (1 / 3)
    try:
        steps = _log_probs_along(patient, x, v, h)
    except ModelError:  # at the edge of the support a step may lead out of it
        x = _away_from_edges(patient, x, 2 * h * scale)
        steps = _log_probs_along(patient, x, v, h)
    right, left, far_right, far_left, here = steps  # (m, k) each
    slope, coarse, jump = (right - left) / (2 * h), (far_right - far_left) / (4 * h), right + left - 2 * here
    claimed = (patient.score(x).to(x) @ v.T).double()
    known = slope.isfinite() & coarse.isfinite() & jump.isfinite() & claimed.isfinite()
    if not bool(known.any()):
        return "failed", "The log-density is not finite around any point, so no gradient can be compared."
    size = float(slope[known].square().mean().sqrt()) + float(claimed[known].square().mean().sqrt()) + eps
    error = (claimed - slope).abs()
    rounding = 8 * eps * (here.abs() + size * (x / scale).abs().amax(1, keepdim=True)) / h
    allowed = 4 * (slope - coarse).abs() + jump.abs() / h + rounding + 100 * h**2 * size
    wrong = known & (error > allowed)
    if bool(wrong.any()):
        ratio = float((claimed * slope)[known].sum() / slope[known].square().sum())
        rest = float((claimed - ratio * slope)[known].square().mean().sqrt()) / size
        return "failed", (
            f"The score is not the gradient of log_prob in {int(wrong.sum())} of {int(known.sum())} "
            f"derivatives (largest difference {float(error[wrong].max()) / size:.1e} of its size): "
            + (f"it is {ratio:.3f} times the gradient." if rest < 1e-2 else "one of the two is wrong.")
        )
    return "passed", (
        f"The score is the gradient of log_prob at {len(x)} points (largest difference "
        f"{float(error[known].max()) / size:.0e} of its size, {short(kind)})."
    )


def _precision(values: Tensor) -> torch.dtype:
    """float32 also for float64 numbers that are all float32 ones: some step inside rounded them."""
    return torch.float32 if torch.equal(values.float().to(values), values) else values.dtype


def _directions(dim: int, seed: int) -> Tensor:
    """Every coordinate, or random directions where there are many."""
    if dim <= 64:
        return torch.eye(dim, dtype=torch.float64)
    v = torch.randn(64, dim, generator=generator(seed, "directions"), dtype=torch.float64)
    units: Tensor = v / torch.linalg.vector_norm(v, dim=1, keepdim=True)
    return units


def _log_probs_along(patient: Patient, x: Points, v: Tensor, h: float) -> list[Tensor]:
    values = []
    for step in (h, -h, 2 * h, -2 * h, 0.0):
        moved = x[:, None] + step * v  # (m, k, d)
        values.append(patient.log_prob(moved.flatten(0, 1)).double().view(moved.shape[:2]))
    return values


def _away_from_edges(patient: Patient, x: Points, margin: Tensor) -> Points:
    """Points from which a step stays within the range of all that is known."""
    known = torch.cat([p.to(x) for p in (patient.data, patient.draws) if p is not None])
    inside = ((x - margin >= known.amin(0)) & (x + margin <= known.amax(0))).all(1)
    return x[inside] if bool(inside.any()) else x
