"""The Gaussian-Bernoulli RBM against the Gaussian mixture that it is: one component a hidden state."""

import itertools

import pytest
import torch

from reference import Z_MAX, z_of_mean
from steincritic.errors import InputError
from steincritic.models import GaussianMixture
from steincritic.models.rbm import GaussianBernoulliRBM, block_gibbs, random_rbm
from steincritic.rng import Source, generator

SWEEPS = 100  # weights of this size let a chain forget its start within some ten sweeps
DRAWS = 20_000


def normal(*shape, seed):
    return torch.randn(*shape, generator=generator(seed, "rbm tests"), dtype=torch.float64)


def small_rbm(*, seed=0, visible=3, hidden=4):
    return GaussianBernoulliRBM(
        0.7 * normal(visible, hidden, seed=seed),
        0.5 * normal(visible, seed=seed + 1),
        0.5 * normal(hidden, seed=seed + 2),
        sweeps=SWEEPS,
    )


def as_mixture(rbm):
    """Given h, x is normal with mean b + Bh/2; integrating x out leaves exp(c'h + |b + Bh/2|²/2) for h."""
    states = [-1.0, 1.0]
    h = torch.tensor(list(itertools.product(states, repeat=len(rbm.hidden_bias))), dtype=torch.float64)
    means = rbm.visible_bias + 0.5 * h @ rbm.weights.T
    log_weight = h @ rbm.hidden_bias + 0.5 * means.square().sum(-1)
    return GaussianMixture(means, 1.0, log_weight.softmax(0))


def z_of_difference(one, other):
    """Standard errors between the means of two samples, coordinate by coordinate."""
    return (one.mean(0) - other.mean(0)) / (one.var(0) / len(one) + other.var(0) / len(other)).sqrt()


@pytest.mark.parametrize("seed", [0, 10, 20])
def test_density_and_score_are_those_of_the_mixture_over_hidden_states(seed):
    rbm = small_rbm(seed=seed)
    mixture, x = as_mixture(rbm), normal(50, 3, seed=4).mul_(3)
    torch.testing.assert_close(rbm.score(x), mixture.score(x), rtol=1e-10, atol=1e-10)  # rounding
    constant = rbm.log_prob(x) - mixture.log_prob(x)
    torch.testing.assert_close(constant, constant[:1].expand(50), rtol=1e-10, atol=1e-10)  # rounding


def test_far_points_do_not_overflow():
    rbm = small_rbm()
    for x in (torch.full((1, 3), 1e8, dtype=torch.float64), torch.full((1, 3), -1e15)):
        assert rbm.log_prob(x).isfinite().all() and rbm.score(x).isfinite().all()
        # far out the tanh is ±1, and x outweighs the rest
        torch.testing.assert_close(rbm.score(x), -x, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(("visible", "hidden"), [(3, 4), (9, 3)])  # chains in x, and in Q'x
def test_gibbs_draws_have_the_moments_of_the_enumerated_machine(visible, hidden):
    rbm = small_rbm(visible=visible, hidden=hidden)
    mixture = as_mixture(rbm)
    mean = mixture.weights @ mixture.means
    second = torch.eye(visible) + torch.einsum("k,ki,kj->ij", mixture.weights, mixture.means, mixture.means)
    x = rbm.sample(DRAWS, seed=5)
    assert float(mixture.means.std(0).max()) > 0.5  # the hidden units move the visible ones
    for i in range(visible):
        assert abs(z_of_mean(x[:, i], float(mean[i]))) < Z_MAX
        for j in range(i, visible):
            assert abs(z_of_mean(x[:, i] * x[:, j], float(second[i, j]))) < Z_MAX


def plain_gibbs(rbm, n, *, sweeps, seed):
    """The chain as it is written down: hidden units given x, x given hidden units."""
    source = generator(seed, "plain")
    x = torch.randn(n, rbm.dim, generator=source, dtype=torch.float64)
    for _ in range(sweeps):
        up = torch.sigmoid(x @ rbm.weights + 2 * rbm.hidden_bias)
        h = 2 * torch.bernoulli(up, generator=source) - 1
        noise = torch.randn(n, rbm.dim, generator=source, dtype=torch.float64)
        x = rbm.visible_bias + 0.5 * h @ rbm.weights.T + noise
    return x


@pytest.mark.parametrize(("other", "same_law"), [(2, True), (30, False)])
def test_after_few_sweeps_the_law_is_that_of_the_plain_chain(other, same_law):
    rbm = small_rbm(seed=50, visible=9, hidden=3)
    weights = rbm.weights[None]
    x = block_gibbs(weights, rbm.visible_bias, rbm.hidden_bias, DRAWS, sweeps=2, source=Source(9))[0]
    plain = plain_gibbs(rbm, DRAWS, sweeps=other, seed=10)
    products = [(t[:, :, None] * t[:, None]).flatten(1) for t in (x, plain)]
    z = torch.cat([z_of_difference(x, plain), z_of_difference(*products)])
    assert (float(z.abs().max()) < Z_MAX) == same_law  # two sweeps are too few to forget the start


def test_machines_drawn_together_have_the_laws_of_each_drawn_alone():
    machines = [small_rbm(seed=s) for s in (0, 40)]
    b, c = machines[0].visible_bias, machines[0].hidden_bias
    weights = torch.stack([rbm.weights for rbm in machines])
    together = block_gibbs(weights, b, c, DRAWS, sweeps=SWEEPS, source=Source(7))
    assert together.shape == (2, DRAWS, 3)
    for k in range(2):
        alone = block_gibbs(weights[k : k + 1], b, c, DRAWS, sweeps=SWEEPS, source=Source(8))[0]
        assert float(z_of_difference(together[k], alone).abs().max()) < Z_MAX
        assert float(z_of_difference(together[k] ** 2, alone**2).abs().max()) < Z_MAX
    assert float(z_of_difference(together[0], together[1]).abs().max()) > Z_MAX  # these two differ


def test_a_machine_moves_to_another_precision_and_takes_whole_numbers():
    moved = small_rbm().to(torch.float32)
    assert moved.sample(2, seed=0).dtype == torch.float32 and moved.sweeps == SWEEPS
    assert GaussianBernoulliRBM([[1, -1]], [0.5], [0, 0], sweeps=1).weights.dtype == torch.float64


def test_a_random_machine_has_weights_of_random_sign_and_follows_its_seed():
    rbm = random_rbm(20, 10, seed=0)
    assert rbm.weights.abs().eq(1).all() and abs(float(rbm.weights.mean())) < Z_MAX / 200**0.5
    assert (rbm.dim, len(rbm.hidden_bias), rbm.sweeps) == (20, 10, 2000)
    assert torch.equal(rbm.weights, random_rbm(20, 10, seed=0).weights)
    assert not torch.equal(rbm.weights, random_rbm(20, 10, seed=1).weights)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GaussianBernoulliRBM(torch.ones(3), torch.ones(3), torch.ones(1)), r"need weights \(d, m\)"),
        (
            lambda: GaussianBernoulliRBM(torch.ones(3, 2), torch.ones(2), torch.ones(2)),
            r"got \(3, 2\), \(2,\)",
        ),
        (lambda: GaussianBernoulliRBM([[1.0], [2.0, 3.0]], [0.0], [0.0]), "weights must be an array"),
        (lambda: GaussianBernoulliRBM([[torch.nan]], [0.0], [0.0]), "weights must be finite"),
        (lambda: random_rbm(3, 0, seed=0), "at least one visible and one hidden unit"),
    ],
)
def test_machines_that_are_none_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
