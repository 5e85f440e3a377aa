"""Posteriors of the benchmark are what torch.distributions says; files of draws are read, never unpickled."""

import bz2
import math
import zipfile

import pytest
import torch
from torch.distributions import Bernoulli, MultivariateNormal, Normal

from steincritic.errors import InputError
from steincritic.rng import generator
from studies.laws import stein_z
from studies.lc2st import data
from studies.lc2st.experiment import DrawsCell, count, task_and_draws
from studies.lc2st.tasks import BernoulliGlm, GaussianLinearUniform, Slcp, TwoMoons, smooth_precision

FAR = 5.0  # standard errors
GAP, HEIGHT = 0.4, 0.3  # of two moons: x = (0.25 - GAP, HEIGHT)


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "normals"), dtype=torch.float64)


def uniforms(*shape, seed=0):
    return torch.rand(*shape, generator=generator(seed, "uniforms"), dtype=torch.float64)


DESIGN, SPIKES = normals(12, 4), (normals(12, seed=1) > 0).double()
FOUR_POINTS, MEAN = normals(8, seed=2), torch.tensor([0.7, -0.2, 0.0], dtype=torch.float64)


def glm(theta):
    prior = MultivariateNormal(torch.zeros(4, dtype=torch.float64), precision_matrix=smooth_precision(4))
    return Bernoulli(logits=theta @ DESIGN.T).log_prob(SPIKES).sum(1) + prior.log_prob(theta)


def gaussian(theta):
    return Normal(theta, math.sqrt(0.1)).log_prob(MEAN).sum(1)


def slcp(theta):
    s = theta[:, 2:4].square()
    covariance = torch.diag_embed(s.square() + 1e-6)
    covariance[:, 0, 1] = covariance[:, 1, 0] = theta[:, 4].tanh() * s[:, 0] * s[:, 1]
    law = MultivariateNormal(theta[:, None, :2], covariance[:, None])
    return law.log_prob(FOUR_POINTS.view(4, 2)).sum(1)


def two_moons(theta):
    """The density of (r cos a, r sin a) is that of r over r."""
    t1, t2 = theta.unbind(1)
    r = torch.hypot((t1 + t2).abs() / math.sqrt(2) - GAP, HEIGHT - (t2 - t1) / math.sqrt(2))
    return Normal(torch.full_like(r, 0.1), 0.01).log_prob(r) - r.log()


def moons(n, *, radius=1.0, seed=0):
    """Draws of the posterior of two moons; with another radius, wrong ones."""
    r = radius * (0.1 + 0.01 * normals(n, seed=seed))
    angle = math.pi * (uniforms(n, seed=seed) - 0.5)
    side = torch.where(uniforms(n, seed=seed + 1) < 0.5, -1.0, 1.0)
    z1, z2 = side * (GAP + r * angle.cos()), HEIGHT - r * angle.sin()
    return torch.stack([z1 - z2, z1 + z2], 1) / math.sqrt(2)


MOONS = TwoMoons(torch.tensor([0.25 - GAP, HEIGHT], dtype=torch.float64))
CASES = {
    "glm": (BernoulliGlm(SPIKES, DESIGN), glm, normals(50, 4, seed=3), []),
    "gaussian": (GaussianLinearUniform(MEAN), gaussian, 1.9 * uniforms(50, 3) - 0.95, [[0.0, 1.0, 0.0]]),
    "slcp": (Slcp(FOUR_POINTS), slcp, 5.8 * uniforms(50, 5) - 2.9, [[3.0] * 5]),
    "two moons": (MOONS, two_moons, moons(50), [[0.0, 0.0], [1.2, 0.0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_density_is_that_of_theta_less_the_change_of_coordinates(name):
    q, log_posterior, theta, outside = CASES[name]
    assert q.inside(theta).all() and not any(q.inside(torch.tensor([place])) for place in outside)
    slopes = torch.func.vmap(torch.func.jacrev(lambda row: q.unconstrain(row[None])[0]))(theta)
    wanted = log_posterior(theta) - torch.linalg.slogdet(slopes).logabsdet
    shift = q.log_prob(q.unconstrain(theta)) - wanted  # a constant: both are unnormalized
    size = 1 + wanted.abs()
    assert float(((shift - shift.median()) / size).abs().max()) < 1e-8  # rounding of exponents up to 1e8


@pytest.mark.parametrize(("radius", "is_posterior"), [(1.0, True), (1.02, False)])
def test_stein_moments_of_the_joined_moons_vanish_for_their_draws_alone(radius, is_posterior):
    y = MOONS.unconstrain(moons(20_000, radius=radius))
    assert bool((stein_z(y, MOONS.score(y)).abs() < FAR).all()) == is_posterior


def test_files_are_read_as_they_are_published(tmp_path, monkeypatch):
    """Both repositories, as far as they are read, with made-up numbers."""
    monkeypatch.setenv(data.FOLDER_VARIABLE, str(tmp_path))
    place = tmp_path / "sbibm/sbibm/tasks/bernoulli_glm/files/num_observation_2"
    place.mkdir(parents=True)
    (place / "observation_raw.csv").write_text("a,b\n" + ",".join(["1.0", "0.0"] * 50) + "\n")
    (place / "reference_posterior_samples.csv.bz2").write_bytes(bz2.compress(b"a,b\n1.0,2.0\n3.0,4.0\n"))
    design = torch.arange(1000, dtype=torch.float32).numpy().astype("<f4").tobytes()
    (place.parent / "design_matrix.pt").write_bytes(b"\x80\x02" + (1000).to_bytes(8, "little") + design)
    published = tmp_path / "lc2st/saved_experiments/neurips2023/exp_2/bernoulli_glm/npe_100"
    published.mkdir(parents=True)
    with zipfile.ZipFile(published / "npe_samples_obs_n_eval_10000.pkl", "w") as archive:
        for k in range(10):
            archive.writestr(f"archive/data/{k}", torch.full((3, 10), float(k)).numpy().tobytes())
    q = data.posterior("bernoulli_glm", 2)
    assert q.design[3, 4] == 34 and q.observation[:3].tolist() == [1, 0, 1]
    assert data.draws("bernoulli_glm", 2, 0).tolist() == [[1, 2], [3, 4]]
    assert torch.equal(data.draws("bernoulli_glm", 2, 100), torch.ones(3, 10, dtype=torch.float64))
    with pytest.raises(InputError, match=r"slcp.*clone JuliaLinhart/lc2st and .* STEINCRITIC_SBI"):
        data.posterior("slcp", 1)


def test_subsets_end_with_the_draws():
    common = {"problem": "any", "observation": 1, "simulations": 100, "n": 300, "method": "ksd", "tiny": True}
    cells = [DrawsCell(part=part, runs=2, **common) for part in (0, 1)]
    q, theta = task_and_draws(cells[0])
    runs = [count(cell)["rows"][0]["runs"]["1"] for cell in cells]
    assert sum(runs) == int(q.inside(theta).sum()) // 300 and runs[1] < 2 == runs[0]
