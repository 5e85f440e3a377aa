"""Power and level over many datasets: the same tests, batched."""

import pytest
import torch
from scipy import stats

import steincritic as sc
from steincritic.data import Frame, ScoredPoints
from steincritic.gof.choose import gof_test
from steincritic.gof.power import Trials, trials_of
from steincritic.learning import EnergyMLP
from steincritic.models.density import PairModel
from steincritic.rng import derive, generator

Q = sc.models.GaussianMixture([[0.0]])
SHIFTED = sc.models.GaussianMixture([[3.0]])
TRAINING = sc.Training(epochs=12, batch_size=10, dtype="float64")
NETWORK = sc.MLP(hidden=(8, 8))
CROSSFIT = sc.CrossFit(folds=2, draws=19, look=1, training=TRAINING, network=NETWORK, cache=False)
CONFIGS = {
    "crossfit": CROSSFIT,
    "split": sc.Split(draws=19, training=TRAINING, network=NETWORK),
    "ksd": sc.Ksd(draws=19),
    "ksdagg": sc.KsdAgg(draws=19),
    "fssd": sc.Fssd(draws=19, choice="random"),
}


def datasets(model, count, n, seed):
    return torch.stack([model.sample(n, seed=derive(seed, t)) for t in range(count)])


@pytest.mark.parametrize("method", CONFIGS)
def test_a_clear_alternative_is_rejected_more_often_than_the_model_itself(method):
    wrong = sc.power(Q, SHIFTED, 30, trials=12, test=CONFIGS[method], seed=1)
    right = sc.calibrate(Q, 30, test=CONFIGS[method], runs=12, seed=1, null_pool=19)
    assert wrong.rate().rejections >= 9  # shift of 3 sd at n = 30: each test's power is near one
    assert right.rate().rejections <= 5  # binomial(12, 0.05) exceeds 5 once in 10^5


@pytest.mark.parametrize("method", CONFIGS)
def test_the_same_seed_gives_the_same_pvalues(method):
    x = datasets(Q, 4, 24, seed=3)
    once, again = (trials_of(Q, x, seed=5, test=CONFIGS[method]).pvalues for _ in range(2))
    assert torch.equal(once, again)


def test_a_trial_of_a_kernel_test_is_that_test():
    x = datasets(Q, 3, 20, seed=4)
    pvalues = trials_of(Q, x, seed=7, test=CONFIGS["ksd"]).pvalues
    for t in range(3):
        points = ScoredPoints(x[t], Q.score(x[t]))
        one = gof_test(Q, points, seed=derive(7, "test", t), test=CONFIGS["ksd"])
        assert one.pvalue == pytest.approx(float(pvalues[t]), abs=1e-12)  # the same draws, to rounding


def test_a_trial_of_the_crossfit_test_ranks_among_the_same_null_runs():
    """A pool as large as the draws is the null of the test itself, whatever order it is drawn in."""
    x = datasets(SHIFTED, 2, 20, seed=6)
    pvalues = trials_of(Q, x, seed=8, test=CROSSFIT).pvalues
    alone = gof_test(Q, x[0], seed=8, test=CROSSFIT)
    assert alone.pvalue == pytest.approx(1 / 20)  # a clear alternative is the largest of the twenty
    assert float(pvalues[0]) == pytest.approx(1 / 20)


def test_uniformity_accepts_uniform_ranks_and_refuses_small_ones():
    draws = 99
    ranks = torch.randint(1, draws + 2, (2000,), generator=torch.Generator().manual_seed(0))
    uniform = sc.gof.Trials(method="m", n=1, pvalues=ranks / (draws + 1.0), draws=draws)
    small = sc.gof.Trials(method="m", n=1, pvalues=uniform.pvalues**1.5, draws=draws)
    assert uniform.uniformity() > 1e-3  # a false alarm once in a thousand seeds; this seed is fixed
    assert small.uniformity() < 1e-6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sc.power(Q, Q, 1), "n must be"),
        (lambda: sc.power(Q, Q, 10, trials=0), "trials must be"),
        (lambda: sc.power(Q, Q, 10, test="chi"), "method must be one of"),
        (lambda: trials_of(Q, torch.zeros(3, 2), test="ksd"), "datasets must have shape"),
        (lambda: sc.calibrate(lambda x: -(x**2).sum(-1), 10, test="ksd"), "calibration draws"),
        (lambda: sc.power(Q, Q, 3, test="crossfit", trials=2), "folds need"),
    ],
)
def test_bad_requests_are_refused_in_one_line(call, message):
    with pytest.raises(sc.InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_without_a_sampler_every_dataset_is_standardized_by_itself():
    """One trial is the test of its dataset; neighbors change nothing, nor do unequal halves."""
    q = PairModel(lambda x: -x / 4)
    x = 2 * torch.randn(3, 40, 2, generator=generator(0, "x")) + torch.tensor([0.5, 0.0])
    config = sc.Split(train=0.7, draws=99, threshold="z", training=sc.Training(epochs=5))
    together = trials_of(q, x, seed=1, test=config).pvalues
    alone = trials_of(q, x[:1], seed=1, test=config).pvalues
    assert torch.equal(together[:1], alone)
    frame = Frame.of(x[:, :28])
    inside = frame.enter(ScoredPoints(x[:, :28], -x[:, :28] / 4)).x
    torch.testing.assert_close(inside.mean(1), torch.zeros(3, 2), atol=1e-6, rtol=0)
    torch.testing.assert_close(inside.std(1), torch.ones(3, 2))


def test_uniformity_allows_for_a_shared_pool():
    """Ranks among a pool of the tests' own size vary twice as much as independent p-values."""
    values = torch.randn(2, 400, generator=generator(3, "null"), dtype=torch.float64) + torch.tensor(
        [[0.12], [0.0]]
    )
    pvalues = ((values[1] >= values[0][:, None]).sum(-1) + 1) / 401
    apart = Trials(method="crossfit", n=10, pvalues=pvalues, draws=400)
    shared = Trials(method="crossfit", n=10, pvalues=pvalues, draws=400, null_pool=400)
    wanted = stats.ks_2samp(values[0], values[1]).pvalue
    assert apart.uniformity() < shared.uniformity()
    assert shared.uniformity() == pytest.approx(wanted, abs=0.05)


def test_a_learned_energy_can_be_calibrated():
    model = EnergyMLP(hidden=(4,)).begin(torch.randn(50, 2, generator=generator(0, "rows")), seed=0)
    assert len(sc.calibrate(model, 20, test=sc.Ksd(draws=19), runs=3).pvalues) == 3
