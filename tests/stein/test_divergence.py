"""Exact divergence and Hutchinson's estimate against the trace of the Jacobian."""

import pytest
import torch

from reference import Z_MAX, jacobian_trace, twisted_field, z_of_mean
from steincritic.errors import InputError
from steincritic.rng import generator
from steincritic.stein import Probes, exact

KINDS = ("gaussian", "rademacher", "orthogonal")


def points(n, d, *, seed=0):
    return torch.randn(n, d, generator=generator(seed, "points"), dtype=torch.float64)


def linear(d, *, seed=0):
    matrix = points(d, d, seed=seed)
    return matrix, lambda x: x @ matrix.T


@pytest.mark.parametrize("d", [1, 2, 7, 20])
def test_exact_divergence_is_the_trace_of_the_jacobian(d):
    x = points(6, d)
    f, div_f = exact(twisted_field, x)
    assert torch.equal(f, twisted_field(x))
    torch.testing.assert_close(div_f, jacobian_trace(twisted_field, x), rtol=1e-12, atol=1e-12)  # rounding


@pytest.mark.parametrize("d", [1, 3, 8])
def test_as_many_orthogonal_probes_as_dimensions_are_exact(d):
    x = points(5, d)
    estimate = Probes(kind="orthogonal", count=d, seed=2)(twisted_field, x)[1]
    torch.testing.assert_close(estimate, exact(twisted_field, x)[1], rtol=1e-10, atol=1e-10)  # rounding of QR


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3])
def test_probes_are_unbiased(kind, count):
    matrix, field = linear(4)
    estimates = Probes(kind=kind, count=count, seed=1)(field, torch.zeros(20_000, 4, dtype=torch.float64))[1]
    assert abs(z_of_mean(estimates, float(matrix.trace()))) < Z_MAX
    # the twin: a trace of one more is not what they estimate
    assert abs(z_of_mean(estimates, float(matrix.trace()) + 1)) > Z_MAX


@pytest.mark.parametrize("kind", KINDS)
def test_probes_have_identity_covariance_and_follow_their_seed(kind):
    x = torch.zeros(20_000, 3, dtype=torch.float64)
    z = Probes(kind=kind, seed=0).draw(x)[0]
    for j in range(3):
        if kind != "rademacher":  # the squares of signs are 1 exactly
            assert abs(z_of_mean(z[:, j] ** 2, 1.0)) < Z_MAX
        assert abs(z_of_mean(z[:, j] * z[:, (j + 1) % 3])) < Z_MAX
    assert torch.equal(z, Probes(kind=kind, seed=0).draw(x)[0])
    assert not torch.equal(z, Probes(kind=kind, seed=1).draw(x)[0])


def test_a_field_of_another_dimension_is_refused():
    with pytest.raises(InputError, match=r"\(4, 3\) in, \(4, 2\) out"):
        exact(lambda x: x[:, :2], points(4, 3))


def test_more_orthogonal_probes_than_dimensions_are_refused():
    with pytest.raises(InputError, match="at most 3 orthogonal probes"):
        Probes(kind="orthogonal", count=4)(twisted_field, points(2, 3))
