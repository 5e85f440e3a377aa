"""Densities of posteriordb's models on small data made up here, against scipy's and against draws."""

import json
import zipfile

import numpy as np
import pytest
import torch
from scipy import stats

from steincritic.errors import InputError
from studies.posteriordb.database import Posterior, posteriordb
from studies.posteriordb.densities import MODELS, REAL, DatabasePosterior, density, reference_points
from studies.posteriordb.experiment import subsets
from studies.posteriordb.fits import FAMILIES, early_draws, fit

SOURCE = np.random.default_rng(0)
N = 12
COLUMNS = (
    "kid_score mom_hs mom_iq earn height male weight diam1 diam2 canopy_height total_height density group "
    "partyid7 real_ideo race_adj educ1 gender income"
).split()
SERIES = {"y": SOURCE.normal(1, 1, N).tolist(), "K": 2, "sigma1": 0.5}
USUAL = {name: SOURCE.uniform(1, 3, N).tolist() for name in COLUMNS} | SERIES
USUAL |= {"mom_work": [1, 2, 3, 4] * 3, "age_discrete": [1, 2, 3, 4] * 3}
SCHOOLS = {"y": [3.0, -1.0, 5.0], "sigma": [2.0, 1.0, 3.0]}
CHANGES = {"alpha": [[4, 2], [2, 4]]}
PRIORS = {"pmualpha": 1, "psalpha": 10, "pmubeta": 0, "psbeta": 0.3}
DATA = {
    "blr": {"X": SOURCE.normal(size=(N, 3)).tolist(), "y": SERIES["y"]},
    "kilpisjarvi": {"x": list(range(N)), "y": SERIES["y"], **PRIORS},
    "diamonds": {"X": SOURCE.normal(size=(N, 4)).tolist(), "Y": SERIES["y"]},
    "eight_schools_noncentered": SCHOOLS,
    "eight_schools_centered": SCHOOLS,
    "gp_regr": {"x": [0.0, 3.0, 7.0], "y": [1.0, 0.5, -1.0]},
    "gp_pois_regr": {"x": [0.0, 3.0, 7.0], "k": [2, 5, 1]},
    "hmm_drive_0": {"u": [0.1, 0.4, 2.0], "v": [1.0, 0.5, 0.2], **CHANGES},
    "hmm_drive_1": {"u": [0.1, 0.4, 2.0], "v": [1.0, 2.5, 0.2], **CHANGES, "tau": 0.5, "rho": 0.7},
}


def published(model, draws):
    values = torch.tensor(list(draws.values())).double().T[None]
    return Posterior(f"made-{model}", model, tuple(draws), values, DATA.get(model, USUAL))


def made_up(model):
    return density(published(model, {"any": [0.0]}))


@pytest.mark.parametrize("model", MODELS)
def test_scores_are_finite_rows_are_independent_and_coordinates_named(model):
    q = made_up(model)
    x = 0.3 * torch.tensor(SOURCE.normal(size=(5, q.dim)))
    score = q.score(x)
    assert score.shape == x.shape and bool(score.isfinite().all())
    torch.testing.assert_close(score[2:3], q.score(x[2:3]))  # rounding
    assert len(set(q.names)) == len(q.names) == q.dim


# Log-densities of published parameters in place of coordinates, so that Jacobians are in them.


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def regression(b1, b2, log_sigma):
    x, y, sigma = np.array(USUAL["mom_iq"]), np.array(USUAL["kid_score"]), np.exp(log_sigma)
    return stats.norm(b1 + b2 * x, sigma).logpdf(y).sum() + stats.cauchy(0, 2.5).logpdf(sigma) + log_sigma


def hidden_states(*at):
    """The sum over all paths."""
    u, v = (np.array(DATA["hmm_drive_0"][part]) for part in "uv")
    stay, back = sigmoid(np.array(at[:2]))
    steps = np.array([[stay, 1 - stay], [back, 1 - back]])
    phi, lam = np.cumsum(np.exp(at[2:4])), np.cumsum(np.exp(at[4:]))
    total = 0.0
    for path in np.ndindex(2, 2, 2):
        seen = [stats.expon(scale=1 / r[[*path]]).pdf(w).prod() for r, w in ((phi, u), (lam, v))]
        total += steps[path[:2]] * steps[path[1:]] * np.prod(seen)
    prior = stats.beta(4, 2).logpdf(stay) + stats.beta(2, 4).logpdf(back)
    prior += sum(stats.norm([0, 3], 1).logpdf(r).sum() for r in (phi, lam))
    return np.log(total) + prior + np.log(stay * (1 - stay) * back * (1 - back)) + sum(at[2:])


@pytest.mark.parametrize(
    ("model", "expected", "names"),
    [
        ("kidscore_momiq", regression, "beta[1], beta[2], log sigma"),
        (
            "hmm_drive_0",
            hidden_states,
            "logit theta1[1], logit theta2[1], log phi[1], log phi[2]-phi[1], log lambda[1], "
            "log lambda[2]-lambda[1]",
        ),
    ],
)
def test_densities_are_those_of_scipy_up_to_a_constant(model, expected, names):
    q = made_up(model)
    x = 0.3 * torch.tensor(np.random.default_rng(1).normal(size=(4, q.dim)))
    gap = q.log_prob(x).numpy() - [expected(*row) for row in x.numpy()]
    assert ", ".join(q.names) == names
    assert np.ptp(gap) < 1e-9 * np.abs(gap).max()  # rounding


def test_both_forms_of_eight_schools_are_one_posterior():
    """The density of the coordinates differs by the Jacobian of theta = mu + tau theta_trans."""
    y = torch.tensor([[0.5, -0.3, 0.8, 1.0, 0.4], [0.1, 0.2, -0.9, 2.0, -0.6]]).double()
    theta = torch.cat([y[:, 3:4] + y[:, 4:].exp() * y[:, :3], y[:, 3:]], 1)
    gap = made_up("eight_schools_noncentered").log_prob(y) - 3 * y[:, 4]
    gap -= made_up("eight_schools_centered").log_prob(theta)
    assert float(gap[0]) == pytest.approx(float(gap[1]), rel=1e-9)  # rounding


def test_published_draws_find_their_coordinates():
    poisson = {"rho": [5.0, 6.0], "alpha": [1.0, 2.0]}
    poisson |= {"f[1]": [0.3, 0.1], "f[2]": [1.0, 2.0], "f[3]": [0.5, -1.0]}
    post = published("gp_pois_regr", poisson)
    x = reference_points(post, density(post))
    assert x.shape == (1, 2, 5)
    # the first of f is the height times the first of f_tilde
    assert x[0, 0, :3].tolist() == pytest.approx([np.log(5), 0.0, 0.3])
    mixture = {"mu[1]": [1.0], "mu[2]": [3.0], "sigma[1]": [1.0], "sigma[2]": [2.0], "theta": [0.25]}
    post = published("low_dim_gauss_mix", mixture)
    x = reference_points(post, density(post))[0, 0]
    assert x.tolist() == pytest.approx([1.0, np.log(2), 0.0, np.log(2), np.log(1 / 3)])


def test_fits_of_a_normal_posterior_are_known_and_walks_that_stop_early_too_wide():
    covariance = torch.tensor([[4.0, 1.6], [1.6, 1.0]]).double()
    precision, mean = torch.linalg.inv(covariance), torch.tensor([3.0, -1.0]).double()
    q = DatabasePosterior(
        {"a": REAL, "b": REAL}, lambda x: -0.5 * ((x - mean) @ precision * (x - mean)).sum(-1)
    )
    draws = mean + torch.tensor(SOURCE.normal(size=(2000, 2))) @ torch.linalg.cholesky(covariance).T
    for family in FAMILIES:
        center, root = fit(q, family, draws)
        wanted = torch.diag(1 / precision.diagonal()) if family == "mean field" else covariance
        torch.testing.assert_close(center, mean, rtol=0, atol=1e-5)  # where the search stops
        torch.testing.assert_close(root @ root.T, wanted, rtol=1e-4, atol=1e-5)
    x = early_draws(q, draws, 1000, seed=1)
    wide = x.std(0) / covariance.diagonal().sqrt()
    assert bool(((wide > 1.2) & (wide < 3)).all())  # standard error 0.05; begun at 3, four steps
    torch.testing.assert_close(x, early_draws(q, draws, 1000, seed=1))


def test_subsets_are_disjoint_until_there_are_no_more():
    x = subsets(torch.arange(100.0)[:, None], 20, 8, seed=0)
    assert x.shape == (8, 20, 1)
    assert x[:5].flatten().sort().values.tolist() == [*range(100)]
    assert len(x[5:].flatten().unique()) == 60


def test_draws_names_and_data_of_a_clone_are_as_published(tmp_path):
    folder = tmp_path / "posterior_database"
    about = {"model_name": "iq", "data_name": "kids", "reference_posterior_name": "kids-iq"}
    chain = {"beta[1]": [1.0, 2.0, 3.0], "sigma": [4, 5, 6]}
    contents = {
        "posteriors/kids-iq.json": about,
        "data/data/kids.json.zip": {"N": 2},
        "reference_posteriors/draws/draws/kids-iq.json.zip": [chain, chain],
    }
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(path.stem, json.dumps(content))
    p = posteriordb(tmp_path, "kids-iq")
    assert (p.name, p.model, p.names, p.data) == ("kids-iq", "iq", ("beta[1]", "sigma"), {"N": 2})
    assert p.draws.shape == (2, 3, 2) and p.draws[1, 2].tolist() == [3.0, 6.0]
    with pytest.raises(InputError, match=r"no .*kids\.json: git clone .* STEINCRITIC_POSTERIORDB"):
        posteriordb(tmp_path, "kids")
