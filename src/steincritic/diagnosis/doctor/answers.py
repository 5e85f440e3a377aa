"""Questions with a known answer: about shapes, rows, dtypes and devices, and the score as a gradient."""

import math

import torch
from torch import Tensor

from steincritic.data.points import answer
from steincritic.diagnosis.doctor.identity import robust_frame
from steincritic.diagnosis.doctor.patient import Patient, Status, Verdict, short
from steincritic.errors import ModelError, listed
from steincritic.gof.assumptions import TURNED, discrete_columns, points_outward
from steincritic.models.base import DensityModel
from steincritic.rng import generator
from steincritic.shapes import Points

_SINGLE = 1e-5  # rounding of a score that was made in float32
_FEWEST = 50  # rows in which repeated values are counted
_LOOKED_AT = 2_000  # draws and data whose log-density is asked for


def check_shape(patient: Patient) -> Verdict:
    x = patient.points
    patient.score(x)
    patient.score(x[:1])
    detail = f"model.score keeps shape (n, {x.shape[1]}), also for n = 1"
    if isinstance(patient.model, DensityModel):
        patient.log_prob(x)
        patient.log_prob(x[:1])
        detail += "; model.log_prob gives one number per row"
    return "passed", f"{detail}."


def check_finite_values(patient: Patient) -> Verdict:
    places = []
    for name, x in (("the model's own draws", patient.draws), ("x", patient.data)):
        if x is None:
            continue
        scored = patient.scored_draws if x is patient.draws else None
        values = {"score": patient.score(x) if scored is None else scored.score}
        if isinstance(patient.model, DensityModel):
            values["log-density"] = patient.log_prob(x[:_LOOKED_AT])[:, None]
        for what, value in values.items():
            if bad := int((~value.isfinite().all(-1)).sum()):
                return "failed", (
                    f"The {what} is not finite at {bad} of {len(value)} rows of {name}: such points lie "
                    "outside the model's support, or its formula overflows."
                )
        places.append(f"{len(x)} rows of {name}")
    return "passed", f"Finite at {' and '.join(places)}."


def check_rows(patient: Patient) -> Verdict:
    x = patient.points
    together = patient.score(x)
    gap = _gap(patient.score(x), together)
    if gap > _rounding(together):
        return "failed", (
            f"The score of the same points changed by {gap:.1e} of its size from one call to the next: "
            "switch dropout and random probes off (model.eval())."
        )
    rows = torch.randperm(len(x), generator=generator(patient.seed, "rows"))[:8].to(x.device)
    by_row = torch.cat([patient.score(x[i : i + 1]) for i in rows.tolist()])
    backwards = patient.score(x.flip(0)).flip(0)
    gap = max(_gap(by_row, together[rows]), _gap(backwards, together))
    if gap > _rounding(together):
        return "failed", (
            f"The score of a row changed by {gap:.1e} of its size with the rows beside it: batch "
            "normalization in training mode, or a sum over the wrong axis (model.eval(), sum over dim=-1)."
        )
    copy = x.clone()
    answer(lambda: patient.model.score(copy), "model.score")
    if not torch.equal(copy.detach(), x):
        return "failed", "model.score changes its argument in place: let it work on a copy."
    return "passed", f"Each row has one score, alone or among others (largest difference {gap:.0e})."


def check_dtypes(patient: Patient) -> Verdict:
    x32 = patient.points.float()
    answers, refused = {}, []
    for x in (x32, x32.double()):
        try:
            answers[x.dtype] = patient.score(x)
        except ModelError as error:
            refused.append(f"{short(x.dtype)} points ({error})")
    double, single = answers.get(torch.float64), answers.get(torch.float32)
    if double is not None and double.dtype != torch.float64:
        return "failed", (
            f"float64 points got a {short(double.dtype)} score: hold the parameters in double precision "
            "(JAX: enable jax_enable_x64), or test float32 data."
        )
    if refused:
        other = "float32" if single is not None else "float64"
        return "warning", f"The model refuses {refused[0]}: pass data as {other}, or convert the model."
    assert double is not None and single is not None
    if single.dtype != torch.float32:
        return "warning", (
            f"float32 points got a {short(single.dtype)} score: harmless, for it is cast back, but slower."
        )
    if (gap := _gap(single, double)) > 1e-2:
        return "warning", (
            f"The score in float32 is off by {gap:.1%} of its size: the formula loses digits, so test in "
            "float64."
        )
    return "passed", f"float32 and float64 come back as they went in, and agree to {gap:.0e}."


def check_device(patient: Patient) -> Verdict:
    x = patient.points
    score = patient.score(x)
    if score.device != x.device:
        return "failed", f"Points on {x.device} got a score on {score.device}: return it where x is."
    if not torch.cuda.is_available():
        return "passed", f"Points on {x.device} get their score on {x.device}; there is no GPU to try."
    device = torch.device("cpu" if x.is_cuda else "cuda")
    try:
        moved = patient.score(x.to(device))
    except ModelError as error:
        return "warning", f"The model works on {x.device} alone ({error}): keep the data there."
    if moved.device.type != device.type:
        return "warning", f"Points on {device} got a score on {moved.device}: keep the data on {x.device}."
    gap = _gap(moved.to(score), score)
    status: Status = "passed" if gap < 1e-2 else "failed"
    return status, f"The score on {device} differs from that on {x.device} by {gap:.0e} of its size."


def _gap(a: Tensor, b: Tensor) -> float:
    """Largest difference, in units of the largest entry."""
    a, b = (torch.nan_to_num(value.double(), posinf=0.0, neginf=0.0) for value in (a, b))
    return float((a - b).abs().max() / b.abs().max().clamp_min(torch.finfo(torch.float64).tiny))


def _rounding(value: Tensor) -> float:
    return max(1e4 * torch.finfo(value.dtype).eps, _SINGLE)


def check_columns(patient: Patient) -> Verdict:
    """Continuous columns hardly ever repeat a value; whole numbers have no score."""
    rounded = []
    for name, x in (("the model's draws", patient.draws), ("x", patient.data)):
        whole, repeated = discrete_columns(x) if x is not None and len(x) >= _FEWEST else ([], [])
        if whole:
            columns = listed([str(j + 1) for j in whole], 6)
            which = f"column{'s' if len(whole) > 1 else ''} {columns} of {name}"
            return "failed" if x is patient.draws else "warning", (
                f"Nothing but whole numbers in {which}: discrete columns have no score; leave them out, or "
                "condition the model on them. If they are rounded measurements, many rows show the rounding."
            )
        if repeated:
            rounded.append(f"columns {listed([str(j + 1) for j in repeated], 6)} of {name}")
    if rounded:
        return "warning", f"Rounded or discrete, with the same values again and again: {'; '.join(rounded)}."
    return "passed", "No column repeats its values."


def check_sign(patient: Patient) -> Verdict:
    if patient.data is None or len(patient.data) < 2:
        return "skipped", "There are no data to see where the score should point."
    if points_outward(patient.data.double(), patient.score(patient.data).double()):
        return "failed", TURNED
    return "passed", "The score does not point away from the data."


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
    kind = _precision(patient.log_prob(x), patient.score(x))
    eps = torch.finfo(kind).eps
    h = eps ** (1 / 3)
    try:
        steps = _log_probs_along(patient, x, v, h)
    except ModelError:  # at the edge of the support a step may lead out of the range of all that is known
        known = torch.cat([p.to(x) for p in (patient.data, patient.draws) if p is not None])
        margin = 2 * h * scale
        inside = ((x - margin >= known.amin(0)) & (x + margin <= known.amax(0))).all(1)
        x = x[inside] if bool(inside.any()) else x
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


def _precision(*answers: Tensor) -> torch.dtype:
    """float32 also for float64 numbers that are all float32 ones: some step inside rounded them."""
    single = any(torch.equal(values.float().to(values), values) for values in answers)
    return torch.float32 if single else answers[0].dtype


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
