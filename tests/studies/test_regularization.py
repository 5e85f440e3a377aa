"""Penalties beside slow references, the slope rule on made-up monitors, the choice by tuning."""

import math
from dataclasses import replace

import pytest
import torch

import steincritic as sc
from steincritic.data import problem
from steincritic.training.objective import monitor
from studies.paper.compared import ERROR, LOWEST, POWER, STAGED, beside_staged, sides
from studies.paper.penalties import (
    BySlope,
    Scheme,
    field_and_tangents,
    fitted_scale,
    penalized_loss,
    trained,
)
from studies.paper.regularization import by_scheme, chosen

TRAINING = sc.Training(epochs=3, batch_size=40, learning_rate=1e-2, dtype="float64")
NETWORK = sc.MLP(hidden=(12, 12))


def points_of(name, n, seed=0):
    pair = problem(name)
    return sc.data.scored(pair.model, pair.data.sample(n, seed=seed))


def parameters_of(dim, hidden=(7, 9)):
    return sc.MLP(hidden=hidden).init(dim, [3], dtype=torch.float64, device=torch.device("cpu"))


def jacobians(parameters, x, hidden):
    """(n, d, d), one point at a time."""
    network = sc.MLP(hidden=hidden)

    def at(point):
        return network.field(parameters, point[None, None])[0, 0]

    return torch.stack([torch.autograd.functional.jacobian(at, point) for point in x])


@pytest.mark.parametrize("hidden", [(7,), (7, 9)])
@pytest.mark.parametrize("name", ["gm-1d", "gm-2d"])
def test_with_unit_vectors_the_penalized_loss_is_that_of_the_explicit_jacobian(name, hidden):
    points, lam = points_of(name, 6), torch.tensor([0.3], dtype=torch.float64)
    dim, parameters = points.dim, parameters_of(points.dim, hidden)
    scheme = Scheme(staging=sc.fixed(0.3), sobolev=0.2, gradient=0.05)
    units = torch.eye(dim, dtype=torch.float64)[None, :, None].expand(1, -1, 6, -1)
    loss = penalized_loss(parameters, points.alone(), units, lam, scheme)
    f = sc.MLP(hidden=hidden).field(parameters, points.x[None])[0]
    jacobian = jacobians(parameters, points.x, hidden)
    stein = (points.score * f).sum(-1) + jacobian.diagonal(dim1=1, dim2=2).sum(-1)
    norm = jacobian.square().sum((1, 2))
    expected = (-stein + 0.3 / 2 * (f.square().sum(-1) + 0.2 * norm) + 0.05 / 2 * norm).mean()
    torch.testing.assert_close(loss[0], expected, rtol=1e-10, atol=1e-12)  # float64 rounding


def test_a_gaussian_probe_has_the_squared_norm_of_the_jacobian_as_its_mean():
    parameters, x = parameters_of(5), points_of("gm-10d", 1).x[:, :5]
    probes = torch.randn(1, 1, 20_000, 5, dtype=torch.float64, generator=sc.rng.generator(0, "probes"))
    _, tangents = field_and_tangents(parameters, x.expand(1, 20_000, 5), probes)
    values = tangents.square().sum((1, -1))[0]
    error = float(values.mean() - jacobians(parameters, x, (7, 9)).square().sum())
    assert abs(error) < 5 * float(values.std()) / math.sqrt(20_000)  # standard errors


@pytest.mark.parametrize("name", ["gm-1d", "gm-2d", "gm-10d"])
def test_without_a_penalty_the_critic_is_that_of_fit_bank(name):
    points, staging = points_of(name, 90), sc.Staged(initial=0.5, floor=0.2, decay=0.7)
    expected = sc.fit_bank(points, staging=staging, seeds=[5], network=NETWORK, training=TRAINING)
    *_, last = trained(points, points, Scheme(staging=staging), NETWORK, TRAINING, seed=5)
    for key, value in expected.bank.parameters.items():  # Adam makes rounding of float64 somewhat larger
        torch.testing.assert_close(last.parameters[key], value, rtol=1e-6, atol=1e-8)


def test_a_staging_by_slope_sees_the_monitor_of_the_critic_as_it_is():
    points, seen = points_of("gm-2d", 80), []

    class Watching(BySlope):
        def advance(self, stage, observe):
            seen.append((stage.lam, observe("monitor")))
            return super().advance(stage, observe)

    staging = Watching(initial=0.5, floor=0.1, decay=0.5, share=10.0)  # every second look is too slow
    banks = trained(points, points, Scheme(staging=staging), NETWORK, TRAINING, seed=5)
    values = [bank.clone() for bank in banks]
    assert [lam for lam, _ in seen] == [0.5, 0.5]
    for (lam, value), bank in zip(seen, values, strict=False):
        assert value == float(monitor(bank, points, torch.tensor([lam], dtype=torch.float64)))


def lams_of(staging, values):
    stage, lams = staging.begin(), []
    for value in values:
        stage = staging.advance(stage, lambda quantity, value=value: {"monitor": value}[quantity])
        lams.append(stage.lam)
    return lams


@pytest.mark.parametrize(
    ("values", "lams"),
    [
        ([0.0, -0.5, -1.0, -1.5], [1, 1, 1, 1]),  # falls fast
        ([-1.0, -1.05, -1.05, -1.06], [1, 0.5, 0.5, 0.25]),  # slow; a new stage begins; slow again
        ([-1.0, -0.5, -0.4, -0.8], [1, 0.5, 0.5, 0.5]),  # a rise is slow, and a recovery is not
        ([-1.0] * 8, [1, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]),  # down to the floor
        ([1.0, 0.5, 0.48], [1, 1, 0.5]),  # the size counts, whatever the sign
    ],
)
def test_lambda_falls_when_the_monitor_falls_by_less_than_a_tenth(values, lams):
    assert lams_of(BySlope(initial=1.0, floor=0.2, decay=0.5, share=0.1), values) == lams


def test_the_scale_of_a_critic_does_not_matter_once_it_is_fitted():
    points = points_of("gm-2d", 200)
    *_, bank = trained(points, points, Scheme(staging=sc.fixed(0.5)), NETWORK, TRAINING, seed=5)
    scale, value = fitted_scale(bank, points)
    last = {name: 3 * bank.parameters[name] for name in ("w3", "b3")}
    larger = replace(bank, parameters={**bank.parameters, **last})
    torch.testing.assert_close(fitted_scale(larger, points), (scale / 3, value))
    for factor in (0.9, 1.0, 1.1):  # the monitor of λ = a has its minimum at the fitted scale
        assert float(monitor(bank, points, factor * scale)) >= float(value) - 1e-12
    assert float(monitor(bank, points, scale)) == pytest.approx(float(value))


def test_the_candidate_of_the_lowest_error_beside_staging_is_chosen():
    errors = {
        ("a", STAGED, ""): 2.0,
        ("b", STAGED, ""): 10.0,
        ("a", "H1", "c = 1"): 1.5,  # 0.75
        ("b", "H1", "c = 1"): 11.0,  # 1.1: 0.825 in the product
        ("a", "H1", "c = 2"): 2.0,  # 1
        ("b", "H1", "c = 2"): 8.0,  # 0.8
    }
    tuning = [
        {"problem": name, "scheme": family, "candidate": candidate, LOWEST: {"mse_q": error}}
        for (name, family, candidate), error in errors.items()
    ]
    assert chosen(tuning) == {"H1": "c = 2"}


def test_critics_of_a_scheme_become_a_row_of_lists():
    rows = [
        {"problem": "a", "scheme": scheme, LOWEST: {"mse_q": error, "power": {"9": 1.0}}, "curve": [error]}
        for error, scheme in ((0.1, "H1"), (0.2, "slope"), (0.3, "H1"))
    ]
    first, second = by_scheme(rows)
    assert first["scheme"] == "H1" and second["curve"] == [[0.2]]
    assert first[LOWEST] == {"mse_q": [0.1, 0.3], "power": {"9": [1.0, 1.0]}}


def test_a_difference_is_paired_and_sure_beyond_two_standard_errors():
    def row(name, scheme, errors, powers):
        return {
            "problem": name,
            "scheme": scheme,
            LOWEST: {"mse_q": errors, "power": {"50": powers, "100": [1]}},
        }

    rows = [
        row("a", STAGED, [1.0, 2.0, 6.0], [0.2, 0.4, 0.9]),
        row("a", "H1", [0.9, 1.8, 5.8], [0.3, 0.4, 0.8]),  # by -0.1, -0.2, -0.2; by 0.1, 0, -0.1
        row("b", STAGED, [1.0, 1.0, 1.0], [0.5, 0.5, 0.5]),
        row("b", "H1", [1.1, 1.2, 1.3], [0.5, 0.5, 0.5]),
    ]
    difference = beside_staged(rows[1], rows, ERROR)
    assert difference["mean"] == pytest.approx(-0.5 / 3) and difference["se"] == pytest.approx(0.1 / 3)
    assert sides(rows, "H1", ERROR) == (1, 1) and sides(rows, "H1", POWER) == (0, 0)
