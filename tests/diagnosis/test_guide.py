"""A guide, watched while it is trained."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch

import steincritic as sc
from steincritic.errors import InputError
from steincritic.rng import generator

COVARIANCE = torch.tensor([[1.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
POSTERIOR = torch.distributions.MultivariateNormal(
    torch.tensor([2.0, 0.0], dtype=torch.float64), covariance_matrix=COVARIANCE
)


def trained(watch, steps=401):
    """A normal law with independent coordinates, by reparametrized gradients."""
    mean = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    log_sd = torch.full((2,), -2.0, dtype=torch.float64, requires_grad=True)
    optimizer, source = torch.optim.Adam([mean, log_sd], lr=0.05), generator(0)
    for step in range(steps):
        noise = torch.randn(200, 2, generator=source, dtype=torch.float64)
        draws = mean + log_sd.exp() * noise
        loss = -POSTERIOR.log_prob(draws).mean() - log_sd.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        watch(step, draws)
    return watch


def test_a_mean_field_guide_finds_the_mean_and_stays_too_narrow(capsys):
    watch = trained(sc.watch_guide(POSTERIOR, names=["a", "b"]))
    assert [reading.step for reading in watch.history] == [0, 100, 200, 300, 400]
    first, last = watch.history[0], watch.history[-1]
    assert first.name == "a" and first.shift == pytest.approx(-2.0, abs=0.3)  # of the start, in its units
    # the best independent law has variances 1 / precision, 0.44 of the posterior's spread; 200 draws: 5 %
    assert last.z > 5 and last.ratio == pytest.approx((1 - 0.9**2) ** 0.5, rel=0.3)
    assert abs(last.shift) < 0.3
    assert watch.summary().startswith("Step 0: largest z") and "Step 400" in watch.summary()
    assert repr(watch).startswith("GuideWatch(every 100 steps, 5 readings") and not capsys.readouterr().out


def test_right_draws_have_small_z():
    watch = sc.watch_guide(POSTERIOR, every=1)
    model = sc.as_model(POSTERIOR)
    for step in range(20):
        watch(step, model.sample(500, seed=step))
    assert max(reading.z for reading in watch.history) < 6  # of 20 times 14 numbers, t with 31 degrees
    assert all(0.85 < reading.ratio < 1.15 for reading in watch.history)


def test_draws_are_made_only_where_a_reading_is_due(capsys):
    watch = sc.watch_guide(POSTERIOR, every=10, verbose=True)
    made = []
    for step in range(25):
        watch(step, lambda k=step: made.append(k) or torch.arange(60.0).view(30, 2).sin())
    assert made == [0, 10, 20] and len(capsys.readouterr().out.splitlines()) == 3
    assert sc.watch_guide(POSTERIOR).summary() == "No reading yet."


def test_plot_has_a_point_per_reading():
    watch = trained(sc.watch_guide(POSTERIOR, every=50), steps=101)
    ax = watch.plot()
    assert len(ax.lines[0].get_xdata()) == 3
    assert watch.plot(ax) is ax


def test_what_cannot_be_used_is_refused():
    watch = sc.watch_guide(POSTERIOR)
    with pytest.raises(InputError, match="at least 20 draws"):
        watch(0, torch.zeros(5, 2))
    with pytest.raises(InputError, match="unconstrain"):
        watch(0, {"a": torch.zeros(50)})
    with pytest.raises(InputError, match="every"):
        sc.watch_guide(POSTERIOR, every=0)


def test_a_guide_of_numpyro():
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
        numpyro.sample("y", dist.Normal(mu, sigma), obs=y)

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = np.random.default_rng(0).normal(3.0, 1.0, 40)
            guide = AutoNormal(model)
            svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO(num_particles=10))
            state, update = svi.init(jax.random.key(0), y), jax.jit(svi.update)
            watch = sc.watch_guide(sc.models.NumPyroPosterior(model, y), every=1000)
            for step in range(2001):
                state, _ = update(state, y)
                key, params = jax.random.key(step), svi.get_params(state)
                watch(step, partial(guide.sample_posterior, key, params, sample_shape=(300,)))
    finally:
        jax.config.update("jax_enable_x64", before)
    first, last = watch.history[0], watch.history[-1]
    assert first.z > 20 > last.z and {first.name, last.name} <= {"mu", "log sigma"}
    assert abs(last.shift) < 1 and 0.5 < last.ratio < 2  # nearly normal, nearly independent
