"""check_draws: chains are judged, and what is wrong with draws is found by the score alone."""

import numpy as np
import pytest
import torch

import steincritic as sc
from steincritic.diagnosis.draws import judge_chains
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.rng import generator
from studies.posteriors.models import POSTERIORS, CollinearRegression, EightSchools

Z_MAX = 5.0  # standard errors


class ScoreOnly:
    """A posterior as people have it: no sampler."""

    def __init__(self, model, names=None):
        self.score, self.dim, self.names = model.score, model.dim, names or model.names


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


def test_chains_are_worth_what_an_autoregression_is():
    assert judge_chains(moving_average(4, 500, 0.0), ["a", "b"]).effective == 2000
    slow = judge_chains(moving_average(4, 1000, 0.8), ["a", "b"], slowness=9.0)
    # worth 4000 (1 - rho) / (1 + rho) = 444 draws
    assert 250 < slow.effective < 700 and slow.rhat < 1.1 and not slow.doubts
    assert "all were tested, about 9.0 in a row counted as one" in str(slow)


def test_the_chain_that_stays_apart_is_named():
    apart = moving_average(4, 500, 0.0)
    apart[2, :, 1] += 3.0
    mixing = judge_chains(apart, ["a", "b"])
    assert mixing.rhat > 1.3
    (told,) = mixing.caveats(rejected=True)
    assert "R-hat of b" in told.detail and "chain 3 lies 3." in told.detail and told.grave
    assert not judge_chains(moving_average(4, 500, 0.0), ["a", "b"]).caveats(rejected=False)
    drift = moving_average(1, 500, 0.0) + torch.linspace(0, 4, 500, dtype=torch.float64)[None, :, None]
    assert "second half" in judge_chains(drift, ["a", "b"]).caveats(rejected=False)[0].detail


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
def test_chains_that_have_not_met_get_no_verdict():
    q = sc.models.GaussianMixture([[0.0, 0.0]])
    steps = moving_average(4, 500, 0.98)
    apart = sc.check_draws(q, steps / steps.std(), level=1e-3)
    assert apart.test.undecided and apart.test.decided is None and not apart.rejected
    first, second = apart.summary().splitlines()[:2]
    assert "the chains have not met" in first and second.startswith("No verdict")
    assert apart.test.to_dict()["undecided"] and "No evidence" not in apart.summary()
    assert not sc.check_draws(q, moving_average(4, 300, 0.0)).test.undecided


def test_draws_are_named_by_chain_and_place():
    q = sc.models.GaussianMixture([[0.0, 0.0]])
    x = moving_average(2, 200, 0.0)
    found = sc.check_draws(q, x, thin=3)
    assert found.row(68) == "203 (chain 2, draw 3)" and len(found.rows) == len(found.data) == 134
    torch.testing.assert_close(found.data.x[68], x[1, 3])
    assert found.rows[67:].name(0) == "200 (chain 2, draw 0)"


def test_dependent_draws_are_all_tested_and_right_ones_pass():
    q = ScoreOnly(sc.models.GaussianMixture([[0.0, 0.0]]), ["mu", "log tau"])
    x = moving_average(4, 400, 0.8, seed=1)
    check = sc.check_draws(q, x, seed=0)
    mixing = check.test.settings["mixing"]
    assert not check.rejected and mixing["kept"] == 1600 and 5 < mixing["slowness"] < 16
    assert check.test.settings["blocks"] < 400 and "all were tested" in check.summary()
    assert len(check.data) < 400  # the critics of the diagnosis see draws that hardly depend on each other
    wrong = sc.check_draws(q, x * torch.tensor([1.0, 0.5], dtype=torch.float64), seed=0)
    assert wrong.rejected and wrong.seen[0].names == ("log tau",)
    thinned = sc.check_draws(q, x, thin=10, seed=0)
    assert thinned.test.settings["mixing"]["kept"] == 160 and not thinned.rejected


@pytest.mark.parametrize("test", ["ksd", "split"])
@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
def test_other_tests_allow_for_dependence_too(test):
    q = ScoreOnly(sc.models.GaussianMixture([[0.0, 0.0]]), ["a", "b"])
    check = sc.check_draws(q, moving_average(4, 300, 0.8, seed=2), test=test, seed=0)
    assert check.test.pvalue > 0.001  # next to never below for an honest test
    assert check.test.settings["mixing"]["thin"] == 1


def test_exact_draws_pass_and_mean_field_draws_do_not():
    q = EightSchools()
    exact = q.sample(300, seed=3).view(2, 150, -1).float()
    check = sc.check_draws(ScoreOnly(q), exact, seed=0)
    assert not check.rejected and check.names[1] == "log tau"
    assert not check.test.exact and check.test.settings["mixing"]["chains"] == 2
    assert "2 chains of 150 draws, worth " in check.summary()
    narrow = exact.clone()
    narrow[..., 1] = exact[..., 1].mean() + 0.3 * (exact[..., 1] - exact[..., 1].mean())
    check = sc.check_draws(ScoreOnly(q), narrow, seed=0)
    assert check.rejected and check.wrong_coordinates[0].name == "log tau"
    assert check.summary().startswith("These draws do not match the posterior")
    assert check.findings[0].startswith("log tau is too narrow")


def test_sentences_speak_of_draws_and_have_sizes_where_coordinates_are_correlated():
    q = ScoreOnly(CollinearRegression())
    x = CollinearRegression().sample(800, seed=5)
    moved = x.clone()
    moved[:, 1] += 0.4 * x[:, 1].std()
    check = sc.check_draws(q, moved, seed=0)
    name = q.names[1]
    assert check.rejected and check.seen[0].names == (name,)
    assert check.findings[0].startswith(f"{name} is too high by about 0.")
    assert abs(check.seen[0].estimate - 0.4) < 0.25 and "of the posterior's spread" in check.findings[0]
    assert "model" not in " ".join(map(str, check.seen))
    wide = sc.check_draws(CollinearRegression(), x.mean(0) + 1.4 * (x - x.mean(0)), seed=0)  # has a sampler
    assert "of the posterior's spread" in " ".join(wide.findings)


@pytest.mark.filterwarnings("ignore:The data stop:steincritic.DoubtfulWarning")
def test_draws_in_another_space_are_told():
    q = sc.models.GaussianMixture([[0.0, 3.0]])
    x = q.sample(200, seed=1)
    x[:, 1] = x[:, 1].exp()
    with pytest.warns(DoubtfulWarning, match="did you pass tau"):
        check = sc.check_draws(ScoreOnly(q, ["mu", "log tau"]), x, seed=0)
    assert check.test.caveats[0].kind == "constrained draws" and check.summary().startswith("Read this first")
    right = sc.check_draws(ScoreOnly(q, ["mu", "log tau"]), q.sample(200, seed=1), seed=0)
    assert bool((q.sample(200, seed=1)[:, 1] > 0).all()) and not right.test.caveats  # positive, and right
    schools = EightSchools()
    far = schools.sample(200, seed=1)
    far[:, 1] = far[:, 1].exp()
    far[0, 1] = 50.0  # so far out that nothing can be computed
    with pytest.raises(InputError, match="did you pass tau"):
        sc.check_draws(ScoreOnly(schools), far, seed=0)


def test_divergent_draws_and_what_was_left_out_are_noted():
    class Fit:
        chains, divergences = 2, np.array([0, 3])

        def stan_variables(self):
            x = sc.models.GaussianMixture([[0.0, 0.0]]).sample(200, seed=5).double().numpy()
            return {"mu": x[:, 0], "lp": x[:, 0], "tau": np.exp(x[:, 1])}

    q = ScoreOnly(sc.models.GaussianMixture([[0.0, 0.0]]), ["mu", "log tau"])
    summary = sc.check_draws(q, Fit(), seed=0).summary()
    assert "3 draws came from divergent transitions (3 in chain 2)" in summary and "lp" in summary


def test_named_draws_go_through_the_model():
    class Named(ScoreOnly):
        def unconstrain(self, draws):
            return torch.as_tensor(np.stack([draws["mu"], np.log(draws["tau"])], 1))

    q = sc.models.GaussianMixture([[0.0, 0.0]])
    q.names = ["mu", "log tau"]
    x = q.sample(200, seed=5).numpy()
    check = sc.check_draws(Named(q), {"mu": x[:, 0], "tau": np.exp(x[:, 1])}, chains=2, seed=0)
    assert check.names == ("mu", "log tau") and not check.rejected
    with pytest.raises(InputError, match="draws lack log tau"):
        sc.check_draws(q, {"mu": x[:, 0]})


REFUSED = {
    "too few draws to test": (moving_average(1, 200, 0.999), {}),
    "too few": (torch.randn(10, 2, generator=generator(0)), {}),
    "cannot be 3 chains": (torch.randn(100, 2, generator=generator(0)), {"chains": 3}),
    "are 4 chains": (moving_average(4, 100, 0.0), {"chains": 2}),
    "3 coordinates, the model has 2": (moving_average(4, 100, 0.0, dim=3), {}),
    "never moved": (torch.zeros(100, 2), {}),
    "chain 2 of 3 never moved": (moving_average(3, 30, 0.0) * torch.tensor([1, 0, 1])[:, None, None], {}),
    "at least 8 draws": (torch.randn(4, 6, 2, generator=generator(0)), {}),
}


@pytest.mark.parametrize("words", REFUSED)
def test_draws_that_cannot_be_judged_are_refused(words):
    x, options = REFUSED[words]
    with pytest.raises(InputError, match=words):
        sc.check_draws(sc.models.GaussianMixture([[0.0, 0.0]]), x, **options)


def test_few_draws_are_doubted():
    q = sc.models.GaussianMixture([[0.0, 0.0]])
    with pytest.warns(DoubtfulWarning, match="counts the draws as 90 independent ones"):
        sc.check_draws(q, q.sample(90, seed=0).float())


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
    from studies.posteriors.draws import posterior

    q = POSTERIORS[name]()
    x = q.sample(50, seed=6)
    gap = q.log_prob(x) - posterior(name).log_prob(x)
    assert float(gap.std()) < 1e-10  # a constant up to rounding
    torch.testing.assert_close(posterior(name).score(x), q.score(x))


def test_more_chains_than_draws_are_asked_about_and_reports_speak_of_chains(tmp_path):
    x = torch.randn(20, 12, 2, generator=generator(3), dtype=torch.float64)
    with pytest.warns(DoubtfulWarning, match="20 chains of 12 draws: are the first two axes swapped"):
        result = sc.check_draws(lambda y: -0.5 * y.square().sum(-1), x)
    result.save(tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "check_draws(model, draws)" in page and "Rows are independent draws" not in page
