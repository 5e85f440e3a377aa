"""The contract that every model keeps (tests/models), the library's own and those of other libraries.

A test file states its cases and runs the contract on each:

    CASES = {"normal": lambda: own(normal)}
    given, case = cases(CASES)


    class TestContract(ModelContract):
        pass
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from reference import Z_MAX, z_of_mean
from steincritic.data import sample_points
from steincritic.models import GaussianMixture, Langevin, NumericDensity, SamplingModel, as_model
from steincritic.models.base import DensityModel, Model, dimension

MEAN = np.array([1.0, -2.0, 0.5])
COVARIANCE = np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 2.0]])
SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0]) / 10, np.array([15.0, 10.0, 16.0, 11.0]) / 10  # effects, errors
TWO = GaussianMixture([[-1.0, 0.0], [1.0, 0.5]], [[1.0, 0.25], [0.5, 1.0]])  # two components in the plane
QUICK = Langevin(warmup=100, steps=40, pilots=16)


@dataclass(frozen=True)
class Case:
    """A model and points that are its draws: its own, or those of its library."""

    model: Model
    draws: Tensor
    thinned: float = 1.0  # by how much the draws' standard errors exceed those of independent ones
    mean: object = None  # of each coordinate, where they are known
    variance: object = None
    rounding: float = 1e-9  # of one row's score, alone or among others
    single: float = 1e-3  # the same in float32, of the largest score


def own(model: object, n: int = 20_000, **known: object) -> Case:
    """A model with draws of its own."""
    model = as_model(model)
    return Case(model, model.sample(n, seed=4), **known)


def cases(makers: Mapping[str, Callable[[], Case]]):
    """A fixture `given` that goes through the cases, and `case(name)` for one of them; each is made once."""

    @functools.cache
    def case(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on first use, some libraries warn of others
            return makers[name]()

    @pytest.fixture(params=makers, name="given", scope="module")
    def given(request):
        return case(request.param)

    return given, case


def points(case: Case, n: int) -> Tensor:
    return case.draws[:n].double()


class ModelContract:
    """Laws for any model; `given` is a Case."""

    def test_score_is_the_gradient_of_the_log_density(self, given):
        if not isinstance(given.model, DensityModel):
            pytest.skip("no log-density")
        x = points(given, 8)
        by_differences = NumericDensity(
            lambda rows: given.model.log_prob(torch.as_tensor(rows)).detach().numpy(),
            x.shape[1],
            scale=given.draws.double().std(0).numpy(),
        )
        wanted = by_differences.score(x)
        assert given.model.log_prob(x).shape == (8,)
        # rounding of the log-density over a thousandth of the density's width, and h⁴
        largest = float(wanted.abs().max())
        torch.testing.assert_close(given.model.score(x), wanted, rtol=1e-6, atol=1e-6 * largest)

    def test_draws_and_score_belong_together(self, given):
        """Stein's identity for constants and coordinates: E s_i = 0 and -E s_i (x_j - c) = [i = j]."""
        x, score = given.draws, given.model.score(given.draws)
        away = x - x.mean(0)
        bound = Z_MAX * given.thinned
        for i in range(x.shape[1]):
            assert abs(z_of_mean(score[:, i])) < bound
            for j in range(x.shape[1]):
                assert abs(z_of_mean(score[:, i] * away[:, j], -float(i == j))) < bound
        # the twin: draws that are too wide by half do not belong to this score
        wide = 1.5 * away + x.mean(0)
        scores = given.model.score(wide) * 1.5 * away
        assert max(abs(z_of_mean(scores[:, i], -1.0)) for i in range(x.shape[1])) > bound

    def test_moments_of_the_draws_are_those_of_the_model(self, given):
        if given.mean is None:
            pytest.skip("no moments known")
        bound = Z_MAX * given.thinned
        for j in range(len(given.mean)):
            mean = float(given.mean[j])
            assert abs(z_of_mean(given.draws[:, j], mean)) < bound
            if given.variance is not None:
                squares = (given.draws[:, j] - mean) ** 2
                assert abs(z_of_mean(squares, float(given.variance[j]))) < bound

    def test_a_row_has_one_score_and_a_batch_of_one_keeps_its_axis(self, given):
        x = given.draws[:5]
        alone = given.model.score(x[2:3])
        assert alone.shape == (1, x.shape[1])
        among = given.model.score(x)[2:3]
        torch.testing.assert_close(alone, among, rtol=given.rounding, atol=given.rounding)
        if isinstance(given.model, DensityModel):
            assert given.model.log_prob(x[2:3]).shape == (1,)
        assert dimension(given.model) in (None, x.shape[1])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dtype_and_device_follow_the_points(self, given, dtype):
        x = given.draws[:6].to(dtype)
        score = given.model.score(x)
        assert score.dtype == dtype and score.device == x.device and not score.requires_grad
        wanted = given.model.score(x.double())
        largest = float(wanted.abs().max())
        torch.testing.assert_close(score.double(), wanted, rtol=given.single, atol=given.single * largest)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dtype_of_the_log_density_follows_the_points(self, given, dtype):
        if not isinstance(given.model, DensityModel):
            pytest.skip("no log-density")
        assert given.model.log_prob(given.draws[:6].to(dtype)).dtype == dtype

    def test_points_that_need_a_gradient_are_taken(self, given):
        x = given.draws[:2].clone().requires_grad_()
        assert torch.equal(given.model.score(x).detach(), given.model.score(x.detach()).detach())

    def test_the_seed_alone_decides_the_draws(self, given):
        if not isinstance(given.model, SamplingModel):
            pytest.skip("no sampler")
        before = np.random.get_state()[1].copy()
        draws = given.model.sample(6, seed=1)
        assert draws.shape == (6, given.draws.shape[1]) and not draws.requires_grad
        assert torch.equal(draws, given.model.sample(6, seed=1))
        assert not torch.equal(draws, given.model.sample(6, seed=2))
        assert given.model.sample(1, seed=3).shape == (1, draws.shape[1])
        assert np.array_equal(before, np.random.get_state()[1])
        assert len(sample_points(given.model, 4, seed=0)) == 4

    def test_a_model_is_a_model(self, given):
        assert as_model(given.model) is given.model

    def test_a_model_prints_short_and_without_its_numbers(self, given):
        text = repr(given.model)
        assert "tensor(" not in text and " at 0x" not in text and "\n" not in text and len(text) <= 80
