"""Densities of posteriordb's models on small data made up here, against scipy's and against draws."""

import numpy as np
import pytest
import torch
from scipy import stats

from steincritic.data.posteriordb import Posterior
from steincritic.errors import InputError
from steincritic_studies.posteriordb.densities import MODELS, density, reference_points
from steincritic_studies.posteriordb.density import DatabasePosterior, Written
from steincritic_studies.posteriordb.experiment import load, subsets
from steincritic_studies.posteriordb.fits import FAMILIES, early_draws, fit

SOURCE = np.random.default_rng(0)
N = 12
COLUMNS = (
    "kid_score",
    "mom_hs",
    "mom_iq",
    "earn",
    "height",
    "male",
    "weight",
    "diam1",
    "diam2",
    "canopy_height",
)
COLUMNS += (
    "total_height",
    "density",
    "group",
    "partyid7",
    "real_ideo",
    "race_adj",
    "educ1",
    "gender",
    "income",
)
DATA = {name: SOURCE.uniform(1, 3, N).tolist() for name in COLUMNS}
DATA |= {"mom_work": [1, 2, 3, 4] * 3, "age_discrete": [1, 2, 3, 4] * 3}
SERIES = {"y": SOURCE.normal(1, 1, N).tolist(), "K": 2, "sigma1": 0.5}
CHANGES = {"alpha": [[4, 2], [2, 4]]}
OTHER = {
    "blr": {"X": SOURCE.normal(size=(N, 3)).tolist(), "y": SERIES["y"]},
    "kilpisjarvi": {
        "x": list(range(N)), "y": SERIES["y"], "pmualpha": 1, "psalpha": 10, "pmubeta": 0, "psbeta": 0.3
    },
    "diamonds": {"X": SOURCE.normal(size=(N, 4)).tolist(), "Y": SERIES["y"]},
    "eight_schools_noncentered": {"y": [3.0, -1.0, 5.0], "sigma": [2.0, 1.0, 3.0]},
    "eight_schools_centered": {"y": [3.0, -1.0, 5.0], "sigma": [2.0, 1.0, 3.0]},
    "gp_regr": {"x": [0.0, 3.0, 7.0], "y": [1.0, 0.5, -1.0]},
    "gp_pois_regr": {"x": [0.0, 3.0, 7.0], "k": [2, 5, 1]},
    "hmm_drive_0": {"u": [0.1, 0.4, 2.0], "v": [1.0, 0.5, 0.2], **CHANGES},
    "hmm_drive_1": {"u": [0.1, 0.4, 2.0], "v": [1.0, 2.5, 0.2], **CHANGES, "tau": 0.5, "rho": 0.7},
}  # fmt: skip


def made_up(model: str) -> DatabasePosterior:
    return DatabasePosterior(MODELS[model](OTHER.get(model, DATA | SERIES)))


@pytest.mark.parametrize("model", MODELS)
def test_scores_are_finite_rows_are_independent_and_coordinates_named(model):
    q = made_up(model)
    x = 0.3 * torch.tensor(SOURCE.normal(size=(5, q.dim)))
    score = q.score(x)
    assert score.shape == x.shape and bool(score.isfinite().all())
    torch.testing.assert_close(score[2:3], q.score(x[2:3]))  # rounding
    assert len(set(q.names)) == len(q.names)


def difference(q: DatabasePosterior, a: torch.Tensor, b: torch.Tensor) -> float:
    """Of the log-density, whose constant is free."""
    values = q.log_prob(torch.stack([a, b]).double())
    return float(values[1] - values[0])


def check(model, names, expected, *, values=((0.3, 0.7), (-0.2, 1.4))):
    """`expected` of published parameters in place of coordinates: Jacobians are in it."""
    q = made_up(model)
    points = torch.tensor(values).double()
    assert q.names == names
    wanted = expected(points[1].numpy()) - expected(points[0].numpy())
    assert difference(q, *points) == pytest.approx(wanted, rel=1e-9)  # rounding


def test_a_regression_against_scipy():
    x, y = np.array(DATA["mom_iq"]), np.array(DATA["kid_score"])

    def expected(at):
        sigma = np.exp(at[2])
        fit = stats.norm(at[0] + at[1] * x, sigma).logpdf(y).sum()
        return fit + stats.cauchy(0, 2.5).logpdf(sigma) + at[2]

    values = ((1.0, 0.4, 0.1), (0.5, 0.7, -0.3))
    check("kidscore_momiq", ("beta[1]", "beta[2]", "log sigma"), expected, values=values)


def test_priors_of_regressions_against_scipy():
    x, y = np.array(OTHER["diamonds"]["X"])[:, 1:], np.array(SERIES["y"])

    def expected(at):
        sigma = np.exp(at[4])
        fit = stats.norm((x - x.mean(0)) @ at[:3] + at[3], sigma).logpdf(y).sum()
        prior = (
            stats.norm.logpdf(at[:3]).sum()
            + stats.t(3, 8, 10).logpdf(at[3])
            + stats.t(3, 0, 10).logpdf(sigma)
        )
        return fit + prior + at[4]

    values = ((0.1, -0.2, 0.3, 1.0, 0.2), (0.4, 0.2, -0.3, 2.0, -0.1))
    check("diamonds", ("b[1]", "b[2]", "b[3]", "Intercept", "log sigma"), expected, values=values)


def test_a_mixture_against_scipy():
    y = np.array(SERIES["y"])

    def expected(at):
        mu, sd, theta = (at[0], at[0] + np.exp(at[1])), np.exp(at[2:4]), 1 / (1 + np.exp(-at[4]))
        parts = [stats.norm(m, s).pdf(y) for m, s in zip(mu, sd, strict=True)]
        prior = stats.norm(0, 2).logpdf([*mu, *sd]).sum() + stats.beta(5, 5).logpdf(theta)
        jacobian = at[1:4].sum() + np.log(theta * (1 - theta))
        return np.log(theta * parts[0] + (1 - theta) * parts[1]).sum() + prior + jacobian

    names = ("mu[1]", "log mu[2]-mu[1]", "log sigma[1]", "log sigma[2]", "logit theta")
    check(
        "low_dim_gauss_mix", names, expected, values=((0.1, 0.2, 0.3, -0.1, 0.5), (0.4, -0.2, 0.1, 0.1, -0.3))
    )


def test_garch_against_a_loop():
    y = np.array(SERIES["y"])

    def expected(at):
        mu, alpha0, alpha1, share = at[0], np.exp(at[1]), *(1 / (1 + np.exp(-at[2:])))
        variance, total = 0.25, 0.0
        for t, now in enumerate(y):
            if t:
                variance = alpha0 + alpha1 * (y[t - 1] - mu) ** 2 + share * (1 - alpha1) * variance
            total += stats.norm(mu, variance**0.5).logpdf(now)
        jacobian = at[1] + np.log(alpha1 * (1 - alpha1)) + np.log((1 - alpha1) * share * (1 - share))
        return total + jacobian

    names = ("mu", "log alpha0", "logit alpha1", "logit beta1/(1-alpha1)")
    check("garch11", names, expected, values=((0.9, 0.2, 0.3, -0.1), (1.1, -0.2, 0.1, 0.4)))


def test_hidden_states_against_all_paths():
    u, v = (np.array(OTHER["hmm_drive_0"][part]) for part in "uv")

    def expected(at):
        stay, back = 1 / (1 + np.exp(-at[:2]))
        steps = np.array([[stay, 1 - stay], [back, 1 - back]])
        gaps = np.exp(at[2:])
        phi, lam = np.cumsum(gaps[:2]), np.cumsum(gaps[2:])
        total = 0.0
        for path in np.ndindex(2, 2, 2):
            moves = steps[path[0], path[1]] * steps[path[1], path[2]]
            rates = phi[list(path)], lam[list(path)]
            seen = [stats.expon(scale=1 / r).pdf(w).prod() for r, w in zip(rates, (u, v), strict=True)]
            total += moves * np.prod(seen)
        prior = stats.beta(4, 2).logpdf(stay) + stats.beta(2, 4).logpdf(back)
        prior += sum(stats.norm(m, 1).logpdf(x) for r in (phi, lam) for m, x in zip((0, 3), r, strict=True))
        return np.log(total) + prior + np.log(stay * (1 - stay) * back * (1 - back)) + at[2:].sum()

    values = ((0.5, -0.5, 0.1, 0.2, -0.1, 0.3), (0.1, 0.2, -0.3, 0.1, 0.3, -0.2))
    names = ("theta1[1]", "theta2[1]", "phi[1]", "phi[2]-phi[1]", "lambda[1]", "lambda[2]-lambda[1]")
    names = tuple(("logit " if k < 2 else "log ") + name for k, name in enumerate(names))
    check("hmm_drive_0", names, expected, values=values)


def test_both_forms_of_eight_schools_are_one_posterior():
    """The density of the coordinates differs by the Jacobian of theta = mu + tau theta_trans."""
    plain, scaled = made_up("eight_schools_noncentered"), made_up("eight_schools_centered")
    y = torch.tensor([[0.5, -0.3, 0.8, 1.0, 0.4], [0.1, 0.2, -0.9, 2.0, -0.6]]).double()
    theta = torch.cat([y[:, 3:4] + y[:, 4:].exp() * y[:, :3], y[:, 3:]], 1)
    other = difference(scaled, *theta) + 3 * float(y[1, 4] - y[0, 4])
    assert difference(plain, *y) == pytest.approx(other, rel=1e-9)  # rounding


def published(model, values):
    chains = torch.tensor(list(values.values())).double().T[None]
    return Posterior(f"made-{model}", model, tuple(values), chains, OTHER.get(model, DATA | SERIES))


def test_published_draws_find_their_coordinates():
    poisson = {
        "rho": [5.0, 6.0],
        "alpha": [1.0, 2.0],
        "f[1]": [0.3, 0.1],
        "f[2]": [1.0, 2.0],
        "f[3]": [0.5, -1.0],
    }
    post = published("gp_pois_regr", poisson)
    q = density(post)
    x = reference_points(post, q)
    assert x.shape == (1, 2, 5)
    at = q.constrain(x[0])
    assert at[:, :2].tolist() == [pytest.approx([5.0, 1.0]), pytest.approx([6.0, 2.0])]
    assert float(at[0, 2]) == pytest.approx(0.3)  # the first of f is the height times the first of f_tilde
    mixture = {"mu[1]": [1.0], "mu[2]": [3.0], "sigma[1]": [1.0], "sigma[2]": [2.0], "theta": [0.25]}
    x = reference_points(post := published("low_dim_gauss_mix", mixture), density(post))[0, 0]
    assert x.tolist() == pytest.approx([1.0, np.log(2), 0.0, np.log(2), np.log(1 / 3)])


def test_a_model_without_a_density_and_draws_without_a_parameter():
    with pytest.raises(InputError, match=r"no density of model 'garch'.*did you mean garch11"):
        density(published("garch", {"mu": [1.0]}))
    post = published("arma11", {"mu": [1.0], "phi": [0.1], "theta": [0.1]})
    with pytest.raises(InputError, match="draws have no sigma; they have mu, phi, theta"):
        reference_points(post, density(post))


def normal_posterior(correlation):
    """A normal law that is called a posterior; its constant is left out."""
    covariance = torch.tensor([[4.0, 2 * correlation], [2 * correlation, 1.0]]).double()
    precision, mean = torch.linalg.inv(covariance), torch.tensor([3.0, -1.0]).double()
    written = Written({"a": "", "b": ""}, lambda x: -0.5 * ((x - mean) @ precision * (x - mean)).sum(-1))
    draws = mean + torch.tensor(SOURCE.normal(size=(2000, 2))) @ torch.linalg.cholesky(covariance).T
    return DatabasePosterior(written), mean, covariance, draws


def test_fits_of_a_normal_posterior_are_known():
    q, mean, covariance, draws = normal_posterior(0.8)
    for family in FAMILIES:
        found = fit(q, family, draws)
        wanted = (
            torch.diag(1 / torch.linalg.inv(covariance).diagonal()) if family == "mean field" else covariance
        )
        torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-5)  # where the search stops
        torch.testing.assert_close(found.root @ found.root.T, wanted, rtol=1e-4, atol=1e-5)


def test_walks_that_stop_early_are_still_too_wide_and_reproducible():
    q, _, covariance, draws = normal_posterior(0.0)
    x = early_draws(q, draws, 1000, seed=1)
    wide = x.std(0) / covariance.diagonal().sqrt()
    assert bool(((wide > 1.2) & (wide < 3)).all())  # standard error 0.05; begun at 3, four steps
    torch.testing.assert_close(x, early_draws(q, draws, 1000, seed=1))


def test_subsets_are_disjoint_until_there_are_no_more():
    points = torch.arange(100.0)[:, None]
    x = subsets(points, 20, 8, seed=0)
    assert x.shape == (8, 20, 1)
    assert x[:5].flatten().sort().values.tolist() == points.flatten().tolist()
    assert x[0].flatten().diff().unique().tolist() == [5.0]
    assert len(x[5:].flatten().unique()) == 60


def test_without_a_clone_the_way_out_is_told(tmp_path, monkeypatch):
    load.cache_clear()
    monkeypatch.setenv("STEINCRITIC_POSTERIORDB", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"clone of posteriordb.*git clone.*STEINCRITIC_POSTERIORDB"):
        load("arK-arK")
