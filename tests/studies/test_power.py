"""Power measured as the paper does, with trained banks and with the best critic there is."""

import pytest

from reference import Z_MAX, z_of_mean
from steincritic.critics import MLP
from steincritic.data import problem, scored
from steincritic.models import GaussianMixture
from steincritic.training import Training, fit_bank, fixed
from studies.paper.power import SplitPower, ceiling, optimal_witness, split_power

Q = GaussianMixture([[0.0, 0.0, 0.0]])
FAR = GaussianMixture([[0.8, 0.0, 0.0]])
PAIR = problem("gm-2d")


def trained(data, members=2, dtype="float64"):
    return fit_bank(
        scored(Q, data.sample(60, seed=0)),
        staging=fixed(1.0),
        seeds=list(range(members)),
        network=MLP(hidden=(6,)),
        training=Training(epochs=10, batch_size=20, learning_rate=2e-2, dtype=dtype),
    )


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("probe", [False, True])
def test_power_is_the_level_under_the_model_and_one_far_from_it(fresh, probe):
    runs, draws = 200, 199
    config = SplitPower(n=40, runs=runs, draws=draws, fresh=fresh, probe=probe)
    bank = trained(FAR)
    for rate in split_power(bank, FAR, Q, config, seed=1):
        assert rate.trials == runs and rate.value > 0.9
    # binomial(200, 5 %): standard deviation 3.1; draws shared by the runs add one more such error at most
    for rate in split_power(bank, Q, Q, config, seed=2):
        assert rate.rejections < 10 + Z_MAX * 3.1 * 2**0.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_probe_follows_the_dtype_of_the_bank(dtype):
    config = SplitPower(n=10, runs=3, draws=19, probe=True)
    assert len(split_power(trained(Q, dtype=dtype), Q, Q, config, seed=0)) == 2


def test_power_of_a_member_does_not_depend_on_the_bank_and_follows_its_seed():
    config = SplitPower(n=20, runs=50, draws=99)
    bank = trained(FAR)
    rates = split_power(bank, GaussianMixture([[0.25, 0.0, 0.0]]), Q, config, seed=3)
    assert rates == split_power(bank, GaussianMixture([[0.25, 0.0, 0.0]]), Q, config, seed=3)
    assert rates[0] == split_power(bank[:1], GaussianMixture([[0.25, 0.0, 0.0]]), Q, config, seed=3)[0]


def test_the_optimal_mean_witness_is_the_fisher_divergence_under_the_data_and_vanishes_under_the_model():
    under_model, under_data = (
        scored(PAIR.model, law.sample(20_000, seed=1)) for law in (PAIR.model, PAIR.data)
    )
    assert abs(z_of_mean(optimal_witness(PAIR, under_model))) < Z_MAX
    witness, gap = optimal_witness(PAIR, under_data), PAIR.gap(under_data.x)
    assert z_of_mean(witness) > Z_MAX
    assert abs(z_of_mean(witness - (gap * gap).sum(-1))) < Z_MAX


def test_no_critic_is_better_than_the_likelihood_ratio():
    """Neyman and Pearson; at n = 75 the powers are .84 and .91."""
    config = SplitPower(n=75, runs=400, draws=199)
    best, optimal = (ceiling(name, PAIR, config, seed=0) for name in ("likelihood ratio", "optimal critic"))
    assert 0.7 < optimal.value < best.value
