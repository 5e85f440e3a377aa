"""check_draws: chains are judged and thinned, and what is wrong with draws is found by the score alone."""

import numpy as np
import pytest
import torch

import steincritic as sc
from steincritic.diagnosis.draws import judge_chains
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.models.base import SamplingModel
from steincritic.rng import generator
from steincritic_studies.posteriors.models import POSTERIORS, CollinearRegression, EightSchools

Z_MAX = 5.0  # standard errors


class ScoreOnly:
    """A posterior as people have it: no sampler."""

    def __init__(self, model):
        self.score, self.dim, self.names = model.score, model.dim, model.names


def moving_average(chains, steps, rho, seed=0, dim=2):
    """Chains with autocorrelation rho^lag and standard normal draws."""
    noise = torch.randn(chains, steps, dim, generator=generator(seed, "chain"), dtype=torch.float64)
    x = noise.clone()
    for t in range(1, steps):
        x[:, t] = rho * x[:, t - 1] + (1 - rho**2) ** 0.5 * noise[:, t]
    return x


@pytest.mark.parametrize("kind", POSTERIORS.values())
def test_exact_draws_obey_steins_identity(kind):
    """E_q[s x' + I] = 0 ties the sampler to the density written down."""
    q = kind()
    x = q.sample(20_000, seed=1)
    values = q.score(x)[:, :, None] * x[:, None, :] + torch.eye(q.dim, dtype=x.dtype)
    z = values.mean(0) / (values.std(0) / len(x) ** 0.5)
    assert float(z.abs().max()) < Z_MAX
    narrow = x.mean(0) + 0.9 * (x - x.mean(0))  # the twin that must fail
    values = q.score(narrow)[:, :, None] * narrow[:, None, :] + torch.eye(q.dim, dtype=x.dtype)
    assert float((values.mean(0) / (values.std(0) / len(x) ** 0.5)).abs().max()) > Z_MAX


def test_independent_draws_are_all_kept_and_chains_are_thinned():
    assert judge_chains(moving_average(4, 500, 0.0), ["a", "b"]).thin == 1
    slow = judge_chains(moving_average(4, 1000, 0.8), ["a", "b"])
    # 0.8^lag falls below 0.05 at lag 13; the noise of an autocorrelation here is 0.05
    assert 8 <= slow.thin <= 20 and slow.kept == 4 * -(-1000 // slow.thin)
    # worth 4000 (1 - rho) / (1 + rho) = 444 draws
    assert 250 < slow.effective < 700 and slow.rhat < 1.1


@pytest.mark.parametrize("steps", [60, 100, 1000])
@pytest.mark.parametrize("coefficient", [0.6, 0.9])
def test_no_more_draws_are_kept_than_the_chains_are_worth(steps, coefficient):
    """Of short chains the noise of a correlation would hide it."""
    mixing = judge_chains(moving_average(2, steps, coefficient), ["a", "b"])
    assert mixing.thin == 1 or mixing.kept <= mixing.effective + 2  # one a chain, for the first draw


def test_draws_that_alternate_are_thinned_by_their_squares():
    """The sign alternates, so the mean is found too well; the size moves slowly."""
    size = moving_average(4, 1000, 0.9, dim=1).abs()
    sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(500)[None, :, None]
    assert judge_chains(size * sign, ["a"]).thin > 5


def test_chains_apart_are_doubted():
    apart = moving_average(2, 500, 0.0) + torch.tensor([0.0, 3.0], dtype=torch.float64)[:, None, None]
    mixing = judge_chains(apart, ["a", "b"], thin=1)
    assert mixing.rhat > 1.5 and "have not met" in mixing.doubts[0]


def test_exact_draws_pass_and_mean_field_draws_do_not():
    q = EightSchools()
    exact = q.sample(300, seed=3).view(2, 150, -1).float()
    check = sc.check_draws(ScoreOnly(q), exact, seed=0)
    assert not check.rejected and check.names[1] == "log tau"
    assert check.test.threshold == "bootstrap-t" and check.test.settings["mixing"]["chains"] == 2
    assert "2 chains of 150 draws, worth 300 independent ones" in check.summary()
    narrow = exact.clone()
    narrow[..., 1] = exact[..., 1].mean() + 0.3 * (exact[..., 1] - exact[..., 1].mean())
    check = sc.check_draws(ScoreOnly(q), narrow, seed=0)
    assert check.rejected and check.wrong_coordinates[0].name == "log tau"


def test_collinear_coordinates_are_named_and_the_rule_tells_where():
    q = CollinearRegression()
    assert isinstance(q, SamplingModel)  # so the diagnosis has regions
    x = q.sample(300, seed=4).float()
    shuffled = torch.stack([x[torch.randperm(300, generator=generator(j)), j] for j in range(q.dim)], 1)
    check = sc.check_draws(q, shuffled, seed=0)
    assert {"beta[1]", "beta[2]"} <= {c.name for c in check.wrong_coordinates}
    assert any("beta[1]" in region.rule for region in check.regions)


def test_named_draws_go_through_the_model():
    class Named(ScoreOnly):
        def unconstrain(self, draws):
            return torch.as_tensor(np.stack([draws["mu"], np.log(draws["tau"])], 1))

    q = sc.models.GaussianMixture([[0.0, 0.0]])
    q.names = ["mu", "log tau"]
    x = q.sample(200, seed=5).numpy()
    check = sc.check_draws(Named(q), {"mu": x[:, 0], "tau": np.exp(x[:, 1])}, chains=2, seed=0)
    assert check.names == ("mu", "log tau") and not check.rejected
    with pytest.raises(InputError, match="unconstrain"):
        sc.check_draws(q, {"mu": x[:, 0]})


def test_what_cannot_be_judged_is_refused_or_doubted():
    q = sc.models.GaussianMixture([[0.0, 0.0]])
    stuck = moving_average(1, 200, 0.999)
    with pytest.raises(InputError, match="too few to test"):
        sc.check_draws(q, stuck)
    with pytest.warns(DoubtfulWarning, match="Only 90 draws"):
        sc.check_draws(q, q.sample(90, seed=0).float(), thin=1)
    with pytest.raises(InputError, match="cannot be 3 chains"):
        sc.check_draws(q, q.sample(100, seed=0), chains=3)
    with pytest.raises(InputError, match="are 4 chains"):
        sc.check_draws(q, moving_average(4, 100, 0.0), chains=2)
    with pytest.raises(InputError, match="3 coordinates, the model has 2"):
        sc.check_draws(q, moving_average(4, 100, 0.0, dim=3))
    with pytest.raises(InputError, match="never moved"):
        sc.check_draws(q, torch.zeros(100, 2))
    with pytest.raises(InputError, match="at least 8 draws"):
        sc.check_draws(q, torch.randn(4, 6, 2, generator=generator(0)))


@pytest.fixture
def double_precision():
    jax = pytest.importorskip("jax")
    pytest.importorskip("numpyro")
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("name", POSTERIORS)
def test_the_posteriors_are_those_of_their_numpyro_programs(name):
    from steincritic_studies.posteriors.draws import posterior

    q = POSTERIORS[name]()
    x = q.sample(50, seed=6)
    gap = q.log_prob(x) - posterior(name).log_prob(x)
    assert float(gap.std()) < 1e-10  # a constant up to rounding
    torch.testing.assert_close(posterior(name).score(x), q.score(x))


@pytest.mark.parametrize("n", [8, 10, 13])
def test_a_handful_of_draws_is_refused_in_words(n):
    with pytest.raises(InputError, match="too few"):
        sc.check_draws(sc.models.GaussianMixture([[0.0, 0.0]]), np.random.default_rng(0).normal(size=(n, 2)))
