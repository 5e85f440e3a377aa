import pytest
import torch

import steincritic as sc
from steincritic.data import ScoredPoints
from steincritic.rng import Source, generator
from studies.baselines import Fssd, fssd, null_weights, stein_features, weighted_chi_square

Q = sc.models.GaussianMixture([[0.0, 0.0], [2.0, 1.0]])


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "test"), dtype=torch.float64)


@pytest.mark.parametrize("threshold", ["spectrum", "fresh"])
@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")  # one in a hundred datasets, by chance
def test_level_and_power(threshold):
    test = Fssd(steps=3, draws=99 if threshold == "spectrum" else 19, locations=2, threshold=threshold)
    x = [Q.sample(40, seed=10_000 + k) for k in range(200)]
    assert sum(sc.gof_test(Q, one, test, seed=k).rejected for k, one in enumerate(x)) <= 26  # at 5 %
    wide = [Q.sample(300, seed=k) * 2.5 for k in range(5)]
    assert all(sc.gof_test(Q, one, test, seed=k).rejected for k, one in enumerate(wide))


def test_the_statistic_is_the_mean_over_pairs_of_the_witness_at_places():
    x, v = normals(9, 3), normals(4, 3, seed=2)
    points = ScoredPoints(x, torch.sin(x))
    features = stein_features(points, torch.tensor(1.3**2, dtype=torch.float64), v)
    torch.testing.assert_close(features.mean(0), sc.stein_witness(points, sc.RBF(bandwidth=1.3), v))
    tau = features.reshape(9, 12) / 12**0.5
    pairs = [float(tau[i] @ tau[j]) for i in range(9) for j in range(9) if i != j]
    assert float(fssd(features)) == pytest.approx(sum(pairs) / len(pairs), rel=1e-10)
    torch.testing.assert_close(null_weights(features[:, :2]), torch.linalg.eigvalsh(tau[:, :6].T.cov() * 2))


def test_weighted_chi_square_has_its_moments():
    weights = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    draws = weighted_chi_square(weights, 100_000, source=Source(0, "test"))
    variance = float(2 * weights.square().sum())
    assert abs(float(draws.mean())) < 5 * (variance / 100_000) ** 0.5
    assert float(draws.var()) == pytest.approx(variance, rel=0.1)  # heavy tail: standard error 1.4 %
