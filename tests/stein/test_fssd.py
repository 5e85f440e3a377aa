import pytest
import torch
from torch.func import grad, vmap

from steincritic.data import ScoredPoints
from steincritic.errors import InputError
from steincritic.rng import generator
from steincritic.stein.fssd import (
    fssd,
    gaussian_locations,
    null_weights,
    power_criterion,
    stein_features,
    stein_witness,
)
from steincritic.stein.kernels import IMQ, RBF, squared_scales

ROUNDING = {"rtol": 1e-10, "atol": 1e-10}  # float64
FORMULAS = [
    (RBF(bandwidth=1.3), lambda x, v: torch.exp(-(x - v).square().sum() / (2 * 1.3**2))),
    (IMQ(scale=0.7), lambda x, v: (0.49 + (x - v).square().sum()) ** -0.5),
]


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "test"), dtype=torch.float64)


def scored_points(n, d=3):
    x = normals(n, d)
    return ScoredPoints(x, torch.sin(x @ normals(d, d, seed=1)) - x)


def features_by_differentiation(k, points, locations):
    def one(x, s, v):
        return k(x, v) * s + grad(k)(x, v)

    over_locations = vmap(one, in_dims=(None, None, 0))
    return vmap(over_locations, in_dims=(0, 0, None))(points.x, points.score, locations)


@pytest.mark.parametrize(("kernel", "k"), FORMULAS)
def test_features_and_witness_equal_differentiation_of_the_kernel(kernel, k):
    points, v = scored_points(11), normals(4, 3, seed=2)
    expected = features_by_differentiation(k, points, v)  # (n, J, d)
    (scale,) = squared_scales([kernel], points.x)
    torch.testing.assert_close(stein_features(points, kernel, scale, v), expected, **ROUNDING)
    torch.testing.assert_close(stein_witness(points, kernel, v), expected.mean(0), **ROUNDING)
    torch.testing.assert_close(stein_witness(points, kernel, v[2:3]), expected.mean(0)[2:3], **ROUNDING)


def test_statistic_is_the_mean_over_pairs():
    points, v = scored_points(9), normals(4, 3, seed=2)
    features = features_by_differentiation(FORMULAS[0][1], points, v)
    tau = features.reshape(9, 12) / 12**0.5
    pairs = [float(tau[i] @ tau[j]) for i in range(9) for j in range(9) if i != j]
    assert float(fssd(features)) == pytest.approx(sum(pairs) / len(pairs), rel=1e-10)
    stack = torch.stack([features, 2 * features])
    torch.testing.assert_close(fssd(stack), torch.stack([fssd(features), 4 * fssd(features)]), **ROUNDING)


def test_power_criterion_is_free_of_scale_and_follows_its_formula():
    features = features_by_differentiation(FORMULAS[0][1], scored_points(30), normals(2, 3, seed=2))
    tau = features.reshape(30, 6) / 6**0.5
    sigma = 2 * (tau @ tau.mean(0)).std()
    floor = 0.01 * tau.square().sum(-1).mean()
    assert float(power_criterion(features)) == pytest.approx(
        float(fssd(features) / (sigma + floor)), rel=1e-10
    )
    assert float(power_criterion(7 * features)) == pytest.approx(float(power_criterion(features)), rel=1e-10)


def test_null_weights_are_the_same_from_either_side():
    features = features_by_differentiation(FORMULAS[0][1], scored_points(40), normals(4, 3, seed=2))
    tau = features.reshape(40, 12) / 12**0.5
    expected = torch.linalg.eigvalsh(tau.T.cov())
    torch.testing.assert_close(null_weights(features), expected, **ROUNDING)
    few = features[:8]  # fewer points than features: by the Gram matrix
    expected = torch.linalg.eigvalsh((few.reshape(8, 12) / 12**0.5).T.cov())[-8:]
    torch.testing.assert_close(null_weights(few), expected.clamp(min=0), **ROUNDING)


def test_gaussian_locations_have_the_moments_of_the_points():
    x = normals(30, 2) @ torch.tensor([[2.0, 1.0], [0.0, 0.5]]).double() + 3
    draws = gaussian_locations(x, normals(100_000, 30, seed=3))
    torch.testing.assert_close(draws.mean(0), x.mean(0), rtol=0, atol=0.04)  # 5 standard errors of 2.3/316
    torch.testing.assert_close(draws.T.cov(), x.T.cov(), rtol=0.03, atol=0.03)


def test_features_without_a_finite_spectrum_are_refused_in_words():
    features = torch.full((5, 2, 2), torch.nan, dtype=torch.float64)
    with pytest.raises(InputError, match="no finite spectrum"):
        null_weights(features)
