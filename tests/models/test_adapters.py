"""The contract that every adapter keeps, and what is special to each.

Cases of libraries that are not installed are skipped; `make test-adapters` installs them all.
"""

import functools
import math
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from reference import Z_MAX, seeded, z_of_mean
from steincritic.data import sample_points
from steincritic.errors import InputError, ModelError
from steincritic.models import (
    DiffusionModel,
    EnergyModel,
    GaussianMixture,
    JaxDensity,
    Langevin,
    LangevinModel,
    NumericDensity,
    NumPyroPosterior,
    OpenMMModel,
    PyMCPosterior,
    SamplingModel,
    StanPosterior,
    as_model,
)
from steincritic.models.adapters import outside
from steincritic.models.adapters.kernel_density import KernelDensity
from steincritic.models.adapters.stan import _coordinate_names
from steincritic.models.base import DensityModel, Model, dimension
from steincritic.rng import generator

pytestmark = pytest.mark.filterwarnings("ignore:It is recommended to use web.AppKey")  # of PyStan's server

MEAN = np.array([1.0, -2.0, 0.5])
COVARIANCE = np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 2.0]])
SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0]) / 10, np.array([15.0, 10.0, 16.0, 11.0]) / 10  # effects, errors
NOISE = GaussianMixture([[-1.0, 0.0], [1.0, 0.5]], [[1.0, 0.25], [0.5, 1.0]])
QUICK = Langevin(warmup=100, steps=40, pilots=16)


@dataclass(frozen=True)
class Case:
    """A model and points that are its draws: its own, or those of its library."""

    model: Model
    draws: Tensor
    thinned: float = 1.0  # by how much the draws' standard errors exceed those of independent ones


def own(model, n=20_000):
    model = as_model(model)
    return Case(model, model.sample(n, seed=4))


# scikit-learn


def sklearn_data():
    return NOISE.sample(400, seed=0).numpy()


def sklearn_mixture(kind, name="GaussianMixture"):
    mixture = pytest.importorskip("sklearn.mixture")
    return getattr(mixture, name)(n_components=3, covariance_type=kind, random_state=0).fit(sklearn_data())


def sklearn_kernels():
    neighbors = pytest.importorskip("sklearn.neighbors")
    weights = np.linspace(0.5, 2.0, 400)
    return neighbors.KernelDensity(bandwidth=0.4).fit(sklearn_data(), sample_weight=weights)


# torch modules


class Bowl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x) + x.square().sum(-1, keepdim=True)


def energy_network():
    return own(LangevinModel(EnergyModel(seeded(Bowl, seed=0)), dim=2, settings=QUICK), 2_000)


def noisy_mixture(sigma, alpha):
    return GaussianMixture(alpha * NOISE.means, alpha**2 * NOISE.covariances + sigma**2 * torch.eye(2))


def diffusion(prediction):
    """The best net there is for the mixture, at one noise level."""
    sigma, alpha = 0.6, 0.8
    level = noisy_mixture(sigma, alpha)
    nets = {
        "epsilon": lambda x, t: -sigma * level.score(x),
        "score": lambda x, t: level.score(x),
        "denoised": lambda x, t: (x + sigma**2 * level.score(x)) / alpha,
    }
    model = DiffusionModel(nets[prediction], sigma=sigma, alpha=alpha, time=7, prediction=prediction)
    return Case(model, model.noised(NOISE.sample(20_000, seed=0), seed=1))


def zuko_flow(name):
    zuko = pytest.importorskip("zuko")
    flow = seeded(lambda: getattr(zuko.flows, name)(3, transforms=2, hidden_features=(16,)), seed=1)
    return own(flow, 5_000)


def zuko_distribution():
    zuko = pytest.importorskip("zuko")
    flow = seeded(lambda: zuko.flows.MAF(2, 4, transforms=2, hidden_features=(16,)), seed=1)
    return own(flow(torch.ones(4, dtype=torch.float64)), 5_000)


def normflows_flow():
    nf = pytest.importorskip("normflows")

    def make():
        layers = []
        for _ in range(4):
            layers += [
                nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 16, 2])),
                nf.flows.Permute(2, mode="swap"),
            ]
        return nf.NormalizingFlow(nf.distributions.DiagGaussian(2, trainable=False), layers)

    return own(seeded(make, seed=0), 5_000)


# JAX and the posteriors


def import_jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


def jax_density():
    jax = import_jax()
    mean = jax.numpy.asarray(MEAN)
    return JaxDensity(lambda v: -jax.numpy.sum((v - mean) ** 2 + 0.5 * jax.numpy.cos(v) ** 2), dim=3)


def jax_normal():
    jax = import_jax()
    log_prob = jax.jit(lambda v: -0.5 * jax.numpy.sum(v**2))
    assert isinstance(as_model(log_prob), JaxDensity)
    return own(JaxDensity(log_prob, dim=2, draw=lambda key, n: jax.random.normal(key, (n, 2))))


def numpyro_distribution():
    import_jax()
    dist = pytest.importorskip("numpyro.distributions")
    return own(dist.MultivariateStudentT(5.0, MEAN, np.linalg.cholesky(COVARIANCE)))


def numpyro_schools(effects, errors):
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("schools", len(effects)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    theta = numpyro.deterministic("theta", mu + tau * z)
    numpyro.sample("y", dist.Normal(theta, errors), obs=effects)


def numpyro_posterior():
    jax = import_jax()
    pytest.importorskip("numpyro")
    from numpyro.infer import MCMC, NUTS

    model = NumPyroPosterior(numpyro_schools, *SCHOOLS)
    mcmc = MCMC(NUTS(numpyro_schools), num_warmup=500, num_samples=8_000, thinning=4, progress_bar=False)
    mcmc.run(jax.random.key(1), *SCHOOLS)
    return Case(model, model.unconstrain(mcmc.get_samples()), thinned=1.5)


def pymc_model():
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 2.0)
        tau = pm.HalfNormal("tau", 1.0)
        rate = pm.Uniform("rate", 0.0, tau)  # bounds that are parameters
        z = pm.Normal("z", 0.0, 1.0, shape=4)
        pm.Normal("y", mu + rate * z, SCHOOLS[1], observed=SCHOOLS[0])
    return model


def pymc_posterior():
    model = pymc_model()
    import pymc as pm

    quiet = {"progressbar": False, "compute_convergence_checks": False}
    with model:
        draws = pm.sample(4_000, tune=500, chains=1, cores=1, random_seed=1, **quiet)
    posterior = as_model(model)
    assert isinstance(posterior, PyMCPosterior)
    return Case(posterior, posterior.unconstrain(draws)[::4], thinned=1.5)


STAN = """
data { int n; vector[n] y; vector[n] errors; }
parameters { real mu; real<lower=0> tau; vector[n] z; }
transformed parameters { vector[n] theta = mu + tau * z; }
model { mu ~ normal(0, 2); tau ~ normal(0, 1); z ~ normal(0, 1); y ~ normal(theta, errors); }
"""


def stan_posterior():
    stan = pytest.importorskip("stan", exc_type=ImportError)
    if not shutil.which("c++"):
        pytest.skip("Stan models need a C++ compiler")
    data = {"n": 4, "y": SCHOOLS[0].tolist(), "errors": SCHOOLS[1].tolist()}
    built = stan.build(STAN, data=data, random_seed=1)
    model = as_model(built)
    assert isinstance(model, StanPosterior)
    fit = built.sample(num_chains=1, num_samples=2_000, num_thin=4)
    return Case(model, model.unconstrain(fit), thinned=1.5)


def openmm_context(constrained=False, integrator=None, mass=12.0):
    openmm = pytest.importorskip("openmm")
    system = openmm.System()
    for _ in range(2):
        system.addParticle(mass)
    bond = openmm.HarmonicBondForce()
    bond.addBond(0, 1, 0.2, 5_000.0)  # nm, kJ/mol/nm²
    hold = openmm.CustomExternalForce("100*(x^2 + y^2 + z^2)")
    for i in range(2):
        hold.addParticle(i)
    if constrained:
        system.addConstraint(0, 1, 0.2)
    system.addForce(bond)
    system.addForce(hold)
    integrator = integrator or openmm.LangevinMiddleIntegrator(300.0, 1.0, 0.001)
    return openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))


def openmm_pair():
    model = as_model(openmm_context())
    assert isinstance(model, OpenMMModel) and model.temperature == 300.0
    sampler = LangevinModel(model, settings=Langevin(warmup=160, steps=60, pilots=16), start=near_zero)
    return own(sampler, 300)


def near_zero(n, source):
    return 0.1 * torch.randn(n, 6, generator=source, dtype=torch.float64)


CASES = {
    **{
        f"sklearn mixture, {k}": lambda k=k: own(sklearn_mixture(k))
        for k in ("full", "tied", "diag", "spherical")
    },
    "sklearn bayesian mixture": lambda: own(sklearn_mixture("full", "BayesianGaussianMixture")),
    "sklearn kernel density": lambda: own(sklearn_kernels(), 5_000),
    "scipy normal": lambda: own(stats.multivariate_normal(MEAN, COVARIANCE)),
    "scipy normal, a number": lambda: own(stats.multivariate_normal(1.0, 4.0)),
    "scipy t": lambda: own(stats.multivariate_t(MEAN, COVARIANCE, df=5)),
    "scipy t, no limit": lambda: own(stats.multivariate_t(MEAN, COVARIANCE, df=np.inf)),
    "scipy kernel density": lambda: own(
        stats.gaussian_kde(sklearn_data().T, weights=np.linspace(1, 2, 400)), 5_000
    ),
    "scipy skewed numbers": lambda: own(stats.skewnorm(3.0, loc=100.0, scale=0.01)),
    "energy network": energy_network,
    "diffusion, noise": lambda: diffusion("epsilon"),
    "diffusion, score": lambda: diffusion("score"),
    "diffusion, denoised": lambda: diffusion("denoised"),
    "zuko NSF": lambda: zuko_flow("NSF"),
    "zuko MAF": lambda: zuko_flow("MAF"),
    "zuko distribution": zuko_distribution,
    "normflows": normflows_flow,
    "jax with draws": jax_normal,
    "jax by langevin": lambda: own(LangevinModel(jax_density(), settings=QUICK), 3_000),
    "numpyro distribution": numpyro_distribution,
    "numpyro posterior": numpyro_posterior,
    "pymc posterior": pymc_posterior,
    "stan posterior": stan_posterior,
    "openmm": openmm_pair,
}


@functools.cache
def case(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on import, some libraries warn of others
        return CASES[name]()


@pytest.fixture(params=CASES)
def given(request):
    return case(request.param)


def test_score_is_the_gradient_of_the_log_density(given):
    if not isinstance(given.model, DensityModel):
        pytest.skip("no log-density")
    x = given.draws[:8].double()
    by_differences = NumericDensity(
        lambda rows: given.model.log_prob(torch.as_tensor(rows)).detach().numpy(),
        x.shape[1],
        scale=given.draws.double().std(0).numpy(),
    )
    wanted = by_differences.score(x)
    assert given.model.log_prob(x).shape == (8,)
    # rounding of the log-density over a thousandth of the density's width, and h⁴
    torch.testing.assert_close(given.model.score(x), wanted, rtol=1e-6, atol=1e-6 * float(wanted.abs().max()))


def test_draws_and_score_belong_together(given):
    """Stein's identity for constants and coordinates: E s_i = 0 and E s_i (x_j - c) = -1 if i = j, else 0."""
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


def test_a_row_has_one_score_and_a_batch_of_one_keeps_its_axis(given):
    x = given.draws[:5]
    alone = given.model.score(x[2:3])
    assert alone.shape == (1, x.shape[1])
    torch.testing.assert_close(alone, given.model.score(x)[2:3], rtol=1e-9, atol=1e-9)  # rounding
    assert dimension(given.model) in (None, x.shape[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_follow_the_points(given, dtype):
    x = given.draws[:6].to(dtype)
    score = given.model.score(x)
    assert score.dtype == dtype and score.device == x.device and not score.requires_grad
    wanted = given.model.score(x.double())
    torch.testing.assert_close(
        score.double(), wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max())
    )  # float32
    if isinstance(given.model, DensityModel):
        assert given.model.log_prob(x).dtype == dtype


def test_points_that_need_a_gradient_are_taken(given):
    x = given.draws[:2].clone().requires_grad_()
    assert torch.equal(given.model.score(x).detach(), given.model.score(x.detach()).detach())


def test_the_seed_alone_decides_the_draws(given):
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


# What is special to each


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_a_mixture_of_scikit_learn_keeps_its_log_density(kind):
    fitted = sklearn_mixture(kind)
    x = NOISE.sample(50, seed=1)
    wanted = torch.as_tensor(fitted.score_samples(x.numpy()))
    torch.testing.assert_close(as_model(fitted).log_prob(x), wanted)


def test_a_kernel_density_of_scikit_learn_keeps_its_log_density():
    fitted = sklearn_kernels()
    x = NOISE.sample(50, seed=1)
    torch.testing.assert_close(as_model(fitted).log_prob(x), torch.as_tensor(fitted.score_samples(x.numpy())))


def test_scikit_learn_without_a_score_is_refused():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LinearRegression
    from sklearn.mixture import GaussianMixture as Mixture
    from sklearn.neighbors import KernelDensity

    with pytest.raises(InputError, match=r"is not fitted: call fit\(x\) first"):
        as_model(Mixture(2))
    with pytest.raises(InputError, match="is not fitted"):
        as_model(KernelDensity())
    with pytest.raises(InputError, match="needs kernel='gaussian'"):
        as_model(KernelDensity(kernel="tophat").fit(sklearn_data()))
    with pytest.raises(InputError, match="Euclidean"):
        as_model(KernelDensity(metric="manhattan").fit(sklearn_data()))
    with pytest.raises(InputError, match="got LinearRegression"):
        as_model(LinearRegression())


@pytest.mark.parametrize(
    "frozen",
    [stats.multivariate_normal(MEAN, COVARIANCE), stats.multivariate_t(MEAN, COVARIANCE, df=5)],
)
def test_scipy_keeps_its_log_density(frozen):
    x = torch.as_tensor(frozen.rvs(size=20, random_state=0))
    torch.testing.assert_close(as_model(frozen).log_prob(x), torch.as_tensor(frozen.logpdf(x.numpy())))


def test_a_kernel_density_of_scipy_keeps_its_log_density():
    kernels = stats.gaussian_kde(sklearn_data().T, weights=np.linspace(1, 2, 400))
    x = NOISE.sample(20, seed=1)
    torch.testing.assert_close(as_model(kernels).log_prob(x), torch.as_tensor(kernels.logpdf(x.numpy().T)))


@pytest.mark.parametrize(
    ("thing", "word"),
    [
        (stats.multivariate_normal, "has no parameters yet"),
        (stats.norm, "has no parameters yet"),
        (stats.dirichlet([1.0, 2.0]), "got dirichlet_frozen"),
        (stats.wishart(3, np.eye(2)), "got wishart_frozen"),
        (stats.expon(), r"expon lives on \(0, inf\)"),
        (stats.poisson(3.0), "poisson is discrete"),
        (stats.norm([0.0, 1.0]), "freeze one at a time"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_scipy_without_a_score_on_all_of_space_is_refused(thing, word):
    with pytest.raises(InputError, match=word):
        as_model(thing)


def test_differences_are_as_good_as_a_formula():
    model = as_model(stats.norm(5.0, 1e-3))
    x = model.sample(100, seed=0)
    torch.testing.assert_close(model.score(x), (5.0 - x) / 1e-6, rtol=1e-7, atol=1e-5)  # of up to 3,000
    with pytest.raises(ModelError, match=r"must return shape \(100,\)"):
        NumericDensity(lambda rows: rows, 1).log_prob(x)
    with pytest.raises(InputError, match="scale must be positive"):
        NumericDensity(lambda rows: rows, 1, scale=0.0)


def test_a_diffusion_net_is_asked_with_its_time_and_shape():
    asked = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x, t):
            asked.append((x.shape, x.dtype, t.tolist()))
            return type("Output", (), {"sample": self.weight * x})()

    model = DiffusionModel.at_step(Net(), 1, [0.9, 0.36], shape=(1, 2, 2))
    x = torch.ones(3, 4, dtype=torch.float64)
    torch.testing.assert_close(model.score(x), -x / 0.8)
    assert asked == [(torch.Size([3, 1, 2, 2]), torch.float32, [1, 1, 1])]
    assert model.dim == 4 and (model.alpha, model.sigma) == (0.6, 0.8)


def test_a_module_with_a_log_density_is_no_energy():
    class Normal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Parameter(torch.ones(2))

        def log_prob(self, x):
            return -0.5 * (x - self.mean).square().sum(-1)

    score = as_model(Normal()).score(torch.zeros(3, 2, dtype=torch.float64))
    torch.testing.assert_close(score, torch.ones(3, 2, dtype=torch.float64))


def test_bad_diffusion_settings_are_refused():
    with pytest.raises(InputError, match="sigma must be a positive"):
        DiffusionModel(lambda x: x, sigma=0.0)
    with pytest.raises(InputError, match="prediction must be one of epsilon, score, denoised"):
        DiffusionModel(lambda x: x, sigma=1.0, prediction="v")
    with pytest.raises(InputError, match="steps 0 to 1, got 2"):
        DiffusionModel.at_step(lambda x, t: x, 2, [0.9, 0.5])
    with pytest.raises(ModelError, match="must return the shape"):
        DiffusionModel(lambda x: x[:, :1], sigma=1.0).score(torch.zeros(2, 3))


def test_levels_of_a_diffusion_net_are_a_ladder_for_langevin():
    levels = [
        DiffusionModel(noisy_mixture(s, 1.0).score, sigma=s, prediction="score") for s in (3.0, 1.0, 0.3)
    ]
    x = LangevinModel(levels[-1], dim=2, settings=Langevin(warmup=80, steps=80), ladder=levels[:-1]).sample(
        1_000, seed=0
    )
    target = noisy_mixture(0.3, 1.0)
    for j in range(2):
        assert abs(z_of_mean(x[:, j], float(target.means[:, j].mean()))) < Z_MAX


def test_a_flow_follows_its_weights_and_needs_its_context():
    zuko = pytest.importorskip("zuko")
    flow = seeded(lambda: zuko.flows.MAF(2, transforms=1), seed=0)
    model = as_model(flow)
    x = model.sample(3, seed=0)
    with torch.no_grad():
        for weight in flow.parameters():
            weight.add_(0.1)
    assert not torch.equal(x, model.sample(3, seed=0))
    with pytest.raises(InputError, match=r"pass flow\(context\)"):
        as_model(seeded(lambda: zuko.flows.MAF(2, 4), seed=0))
    with pytest.raises(InputError, match="fix its context to one row"):
        as_model(seeded(lambda: zuko.flows.MAF(2, 4), seed=0)(torch.zeros(5, 4, dtype=torch.float64)))
    net = as_model(seeded(lambda: zuko.nn.MLP(2, 1), seed=0))  # no flow: an energy
    assert isinstance(net, EnergyModel)


def test_jax_in_single_precision_refuses_double_points():
    jax = import_jax()
    model = JaxDensity(lambda v: -jax.numpy.sum(v**2), dim=2)
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ModelError, match=r"jax_enable_x64.*or pass float32 points"):
            model.score(torch.ones(2, 2, dtype=torch.float64))
        assert model.score(torch.ones(2, 2)).tolist() == [[-2.0, -2.0]] * 2
    finally:
        jax.config.update("jax_enable_x64", True)


def test_a_jax_density_of_batches_is_refused():
    jax = import_jax()
    with pytest.raises(ModelError, match=r"takes one point \(2,\) and returns a number"):
        JaxDensity(lambda v: -(v**2)).score(torch.ones(3, 2))
    assert not as_model(jax.jit(lambda v: -(v**2).sum())).score(torch.ones(3, 2)[:, ::2]).isnan().any()


def test_numpyro_draws_go_both_ways():
    model = case("numpyro posterior").model
    x = case("numpyro posterior").draws[:10]
    assert model.names == ["mu", "log tau", "z[0]", "z[1]", "z[2]", "z[3]"]
    draws = model.constrain(x)
    assert (draws["tau"] > 0).all() and draws["theta"].shape == (10, 4)
    torch.testing.assert_close(model.unconstrain(draws), x)
    with pytest.raises(InputError, match="draws lack tau"):
        model.unconstrain({k: v for k, v in draws.items() if k != "tau"})
    with pytest.raises(InputError, match="as many draws"):
        model.unconstrain(draws | {"tau": draws["tau"][:3]})


def test_a_bounded_numpyro_distribution_is_refused():
    import_jax()
    dist = pytest.importorskip("numpyro.distributions")
    with pytest.raises(InputError, match="HalfNormal has"):
        as_model(dist.HalfNormal(1.0))
    assert as_model(dist.Normal(0.0, 1.0)).sample(3, seed=0).shape == (3, 1)


def test_pymc_names_its_coordinates_and_refuses_discrete_ones():
    model = case("pymc posterior").model
    assert model.names[:3] == ["mu", "tau_log__", "rate_interval__"] and model.dim == 7
    point = {"mu": [0.5], "tau": [2.0], "rate": [0.5], "z": [[0.1, 0.2, 0.3, 0.4]]}
    wanted = [0.5, math.log(2.0), math.log(0.5 / 1.5), 0.1, 0.2, 0.3, 0.4]
    torch.testing.assert_close(model.unconstrain(point)[0], torch.tensor(wanted, dtype=torch.float64))
    import pymc as pm

    with pm.Model() as discrete:
        pm.Poisson("count", 3.0)
    with pytest.raises(InputError, match="discrete parameters have no score: count"):
        as_model(discrete)


def test_stan_draws_that_lack_a_parameter_are_refused():
    model = case("stan posterior").model
    with pytest.raises(InputError, match="PyStan cannot read these draws of mu, z"):
        model.unconstrain({"mu": np.zeros(2), "z": np.zeros((2, 4))})
    values = model.unconstrain({"mu": np.zeros(2), "z": np.zeros((2, 4)), "tau": np.full(2, 3.0)})
    assert values.shape == (2, 6) and float(values[0, 1]) == pytest.approx(math.log(3.0))
    assert model.names == ["mu", "log tau", "z[0]", "z[1]", "z[2]", "z[3]"] and model.dim == 6


def test_coordinates_of_a_simplex_have_no_names():
    weights = np.array([[0.2, 0.3, 0.5], [0.5, 0.4, 0.1], [0.1, 0.6, 0.3]])
    points = np.array([[0.1, 2.0], [0.4, 1.0], [0.2, 3.0]])
    assert _coordinate_names({"w": weights}, ["w"], points) is None
    one = {"mu": points[:, 0], "tau": np.exp(points[:, 1]), "sum": points.sum(1)}
    assert _coordinate_names(one, list(one), points) == ["mu", "log tau"]


def test_openmm_refuses_what_has_no_density():
    openmm = pytest.importorskip("openmm")
    with pytest.raises(InputError, match="1 constraints"):
        as_model(openmm_context(constrained=True))
    with pytest.raises(InputError, match="particle 0 has no mass"):
        as_model(openmm_context(mass=0.0))
    with pytest.raises(InputError, match="pass temperature="):
        as_model(openmm_context(integrator=openmm.VerletIntegrator(0.001)))
    warm = OpenMMModel(openmm_context(integrator=openmm.VerletIntegrator(0.001)), temperature=600.0)
    cold = OpenMMModel(openmm_context())
    x = near_zero(4, generator(0, "positions"))
    torch.testing.assert_close(2 * warm.score(x), cold.score(x))


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (lambda: JaxDensity(lambda v: v), "jax"),
        (lambda: NumPyroPosterior(lambda: None), "numpyro"),
        (lambda: PyMCPosterior(None), "pymc"),
        (lambda: StanPosterior(None), "stan"),
        (lambda: OpenMMModel(None), "openmm"),
    ],
    ids=["jax", "numpyro", "pymc", "stan", "openmm"],
)
def test_a_missing_library_is_one_line_with_the_command(make, extra, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(outside, "import_module", missing)
    with pytest.raises(InputError, match=rf"pip install 'steincritic\[{extra}\]'") as raised:
        make()
    assert "\n" not in str(raised.value)


def test_no_optional_library_is_imported_before_one_of_its_objects_is_at_hand():
    code = (
        "import sys, torch, steincritic as sc\n"
        "sc.as_model(torch.nn.Linear(2, 1)); sc.as_model(lambda x: -x.square().sum(-1))\n"
        "names = 'jax numpyro pymc stan openmm zuko normflows sklearn'.split()\n"
        "assert not [n for n in names if n in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_what_lives_on_a_circle_or_in_a_box_is_refused():
    with pytest.raises(InputError, match="vonmises lives on"):
        as_model(stats.vonmises(1.0))
    zuko = pytest.importorskip("zuko")
    circle = seeded(lambda: zuko.flows.NCSF(2), seed=0)
    for bounded in (circle, zuko.distributions.BoxUniform(torch.zeros(2), torch.ones(2))):
        with pytest.raises(InputError, match="vanishes where its support ends"):
            as_model(bounded)


def test_a_conditional_flow_is_refused():
    nf = pytest.importorskip("normflows")
    flow = nf.ConditionalNormalizingFlow(nf.distributions.DiagGaussian(2), [])
    with pytest.raises(InputError, match="for each context"):
        as_model(flow)


def test_numpyro_refuses_what_has_no_score_or_another_shape():
    import_jax()
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    def discrete():
        numpyro.sample("a", dist.Normal(numpyro.sample("k", dist.Bernoulli(0.5)), 1.0))

    def model(y):
        scale = numpyro.sample("s", dist.HalfNormal(1.0))
        numpyro.sample("L", dist.LKJCholesky(3, 1.0))
        numpyro.sample("y", dist.Normal(0.0, scale), obs=y)

    with pytest.raises(InputError, match="have no score: k"):
        NumPyroPosterior(discrete)
    with pytest.raises(InputError, match="cannot be called with the given arguments"):
        NumPyroPosterior(model)
    q = NumPyroPosterior(model, np.ones(3))
    assert q.score(torch.zeros(4, q.dim)).dtype == torch.float32  # among arrays of double precision
    draws = {"s": np.ones(6), "L": np.tile(np.eye(3), (6, 1, 1))}
    assert q.unconstrain(draws).shape == (6, q.dim)
    with pytest.raises(
        InputError, match=r"draws of s must have shape \(n\), got \(2, 3\); flatten its chains"
    ):
        q.unconstrain({k: v.reshape(2, 3, *v.shape[1:]) for k, v in draws.items()})
    with pytest.raises(InputError, match="no finite log s, the first in row 0"):
        q.unconstrain(draws | {"s": -draws["s"]})
    for without_density in (dist.Delta(0.0), dist.ImproperUniform(dist.constraints.real, (), ())):
        with pytest.raises(InputError, match="no density"):
            as_model(without_density)


def test_pymc_draws_of_another_shape_or_outside_are_refused():
    model = case("pymc posterior").model
    draws = {"mu": np.zeros(2), "tau": np.ones(2), "rate": np.full(2, 0.5), "z": np.zeros((2, 4))}
    assert model.unconstrain(draws).shape == (2, 7)
    with pytest.raises(InputError, match=r"draws of z must have shape \(n, 4\), got \(2, 1\)"):
        model.unconstrain(draws | {"z": np.zeros((2, 1))})
    with pytest.raises(InputError, match="no finite tau_log__"):
        model.unconstrain(draws | {"tau": -np.ones(2)})


def test_a_diffusion_net_takes_numbers_of_numpy_and_torch():
    seen = []
    net = DiffusionModel(
        lambda x, time: seen.append(time) or x,
        sigma=np.float32(0.5),
        alpha=torch.tensor(0.8),
        time=np.int64(3),
    )
    net.score(net.noised(np.ones((3, 2))))
    assert seen[0].dtype == torch.long and seen[0].tolist() == [3, 3, 3]
    with pytest.raises(InputError, match="sigma must be a number"):
        DiffusionModel(lambda x: x, sigma=torch.ones(2))


def test_equal_weights_of_a_kernel_density_are_exact():
    points = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    given, equal = (KernelDensity(points, [[1.0]], w) for w in ([1.0, 1.0, 1.0], None))
    torch.testing.assert_close(given.log_prob(points), equal.log_prob(points), rtol=0, atol=1e-15)
