"""Noise: Stein values at noised points, for weights of separated modes."""

import pytest
import torch

import steincritic as sc
from reference import Z_MAX, jacobian_trace, z_of_mean
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.gof.combined import Combined
from steincritic.gof.power import trial_seeds
from steincritic.lenses import Moments, Noise
from steincritic.lenses.lens import by_signs, point_values
from steincritic.lenses.noise import noise_of
from steincritic.models import DiffusionModel, GaussianMixture

THREE = GaussianMixture([[0.0, 0.0], [8.0, 0.0], [0.0, 12.0]], [0.5, 1.0, 1.0], [0.5, 0.3, 0.2])
WRONG = GaussianMixture(THREE.means, THREE.covariances, [0.35, 0.45, 0.2])
QUICK = {"critics": None, "draws": 59, "reference": 40, "cache": False}


class ScoresAlone:
    """Without a sampler."""

    def __init__(self, model):
        self.score, self.with_noise = model.score, model.with_noise


def prepared(lens=Noise(), model=THREE, drawn=True):  # noqa: B008
    points = sample_points(model, 2000, seed=5)
    return lens.prepare_for(model if drawn else ScoresAlone(model), points, n=100, seed=1, drawn=drawn)


def datasets(model, sets, n, *, seed):
    x = model.sample(sets * n, seed=seed)
    return ScoredPoints(x, THREE.score(x)).cut(n)


def rejections(model, data, test, *, sets=20, n=200, seed=3):
    found = test.run(model, datasets(data, sets, n, seed=seed), level=0.05, seeds=trial_seeds(seed, sets))
    return sum(result.rejected for result in found)


def test_entries_are_stein_values_of_gradients_of_shares():
    modes, frame = prepared().modes, prepared().frame
    x = sample_points(THREE.with_noise(3.0), 30, seed=2)
    points = frame.enter(x)
    c = modes.within + 9.0

    def shares(y):
        return (modes.part.shares.log() - (y[:, None] - modes.centers).square().sum(-1) / (2 * c)).softmax(-1)

    found = modes.stein_values(points, 9.0)
    for k in range(3):

        def field(y, k=k):
            (gradient,) = torch.autograd.grad(shares(y)[:, k].sum(), y, create_graph=True)
            return gradient

        y = points.x.clone().requires_grad_()
        slow = (points.score * field(y)).sum(-1) + jacobian_trace(field, y)
        torch.testing.assert_close(found[:, k], slow.detach(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("drawn", [True, False])
def test_the_mean_vanishes_under_the_model_alone(drawn):
    lens = prepared(drawn=drawn)
    assert by_signs(lens) and lens.count == 3
    own, other = (
        point_values(lens, ScoredPoints(x := q.sample(4000, seed=6), THREE.score(x))) for q in (THREE, WRONG)
    )
    assert max(abs(z_of_mean(own[:, k])) for k in range(lens.size)) < Z_MAX
    z = max(abs(z_of_mean(other[:, k])) for k in range(lens.size))
    assert z > 2 * Z_MAX  # about 18


def test_entries_depend_on_the_points_alone():
    lens, points = prepared(), datasets(THREE, 3, 40, seed=7)
    whole = lens.entries(points, (1, 2, 3))
    torch.testing.assert_close(lens.entries(points.sets(slice(1, 2)), (9,)), whole[1:2])
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(lens.entries(points[order], ()), whole)
    values = point_values(lens, ScoredPoints(points.x[0], points.score[0]))
    torch.testing.assert_close(values.mean(0), whole[0])


def test_noise_is_normal_even_and_its_own_for_every_point():
    x = torch.randn(4000, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    z = noise_of(x, 8, seed=0)
    for part in (z[:, 0], z[:, 5], z[:, 2] * x, z[:-1, 1] * z[1:, 1]):
        assert abs(z_of_mean(part.flatten())) < Z_MAX
    assert abs(z_of_mean(z[:, 3].square().flatten(), 1.0)) < Z_MAX
    alone = torch.randn(4000, 8, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    assert float(z.mean(1).var()) < 0.3 * float(alone.mean(1).var())
    assert not torch.equal(noise_of(x[:1], 8, seed=0), noise_of(x[:1], 8, seed=1))


def test_an_estimate_from_draws_needs_null_sets():
    lens = prepared(Noise(by_draws=True))
    assert lens.size and not by_signs(lens)
    assert prepared(Noise(by_draws=True), drawn=False).size == 0


@pytest.mark.parametrize("by_draws", [False, True])
def test_wrong_weights_are_seen_where_scores_are_blind(by_draws):
    blind, noise = (
        Combined(lenses=(Moments(),), **QUICK),
        Combined(lenses=(Noise(by_draws=by_draws),), **QUICK),
    )
    assert rejections(THREE, WRONG, blind) <= 6  # of 20 at level 0.05, once in 3,000
    assert rejections(THREE, WRONG, noise) >= 17
    assert rejections(THREE, THREE, noise) <= 6


def test_without_a_sampler_the_default_looks_at_noised_scores():
    test, model = Combined(critics=None), ScoresAlone(THREE)
    (result,) = test.run(model, datasets(WRONG, 1, 300, seed=4), level=0.05, seeds=[0])
    assert "noise" in result.settings["lenses"] and result.rejected
    blind = sc.as_model((THREE.score, None))
    (other,) = test.run(blind, datasets(WRONG, 1, 300, seed=4), level=0.05, seeds=[0])
    assert "noise" not in other.settings["lenses"] and not other.rejected
    assert rejections(model, THREE, test, sets=40) <= 9  # at level 0.05, once in 20,000


def test_one_mode_leaves_nothing_to_look_at():
    one = GaussianMixture([[0.0, 0.0]])
    lens = prepared(model=one)
    assert lens.size == 0 and "one mode" in lens.left_out
    x = one.sample(60, seed=1)
    points = ScoredPoints(x, one.score(x)).alone()
    plain, with_noise = (
        Combined(critics=None).run(model, points, level=0.05, seeds=[2])[0]
        for model in (sc.as_model((one.score, None)), ScoresAlone(one))
    )
    assert plain.pvalue == with_noise.pvalue and plain.settings == with_noise.settings


def test_steps_of_a_diffusion_net_are_levels():
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64), 0)
    data = GaussianMixture([[-1.0, 0.0], [1.0, 0.5]], 0.01)

    def net(x, time):
        a = kept[int(time[0])]
        level = GaussianMixture(a.sqrt() * data.means, a * data.covariances + (1 - a) * torch.eye(2))
        return -(1 - a).sqrt() * level.score(x)

    model = DiffusionModel.at_step(net, 5, kept)
    wrong = GaussianMixture(data.means, data.covariances, [0.7, 0.3])
    for q, rejected in ((data, False), (wrong, True)):
        x = model.noised(q.sample(200, seed=9), seed=1)
        (result,) = Combined(critics=None).run(
            model, ScoredPoints(x, model.score(x)).alone(), level=0.05, seeds=[0]
        )
        assert result.rejected == rejected and "noise" in result.settings["lenses"]
