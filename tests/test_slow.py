"""Minutes, not seconds: the paper's staged scheme at full size, and levels with critics of full size."""

import pytest
import torch
from scipy import stats

import steincritic as sc
from steincritic.critics import MLP
from steincritic.data import ScoredPoints, problem
from steincritic.rng import derive
from steincritic.training import Gap, Training, Yardsticks, always, fit_bank
from studies.calibration.experiment import MODELS
from studies.paper.power import SplitPower, split_power
from studies.paper.published import GM_10D, MSE_SCALE

pytestmark = pytest.mark.slow


def test_the_staged_scheme_in_ten_dimensions_is_as_good_as_the_papers():
    pair = problem("gm-10d").to(torch.float32)

    def draws(n, name):
        x = torch.stack([pair.data.sample(n, seed=derive(0, name, r)) for r in range(3)])
        return ScoredPoints(x, pair.model.score(x))

    q_points = pair.model.sample(40_000, seed=1)  # the squared error has heavy tails
    fitted = fit_bank(
        draws(2000, "train"),
        staging=sc.Staged(initial=0.5, floor=1e-3, decay=0.8, every=10),
        seeds=[0, 1, 2],
        network=MLP(hidden=(512, 512)),
        training=Training(epochs=60, batch_size=200, learning_rate=1e-3, selection="monitor"),
        yardsticks=Yardsticks(
            validation=always(draws(1000, "validation")), gap_q=Gap(q_points, pair.gap(q_points))
        ),
    )
    stop = fitted.history["monitor"].argmin(0)
    mse = MSE_SCALE * fitted.history["mse_q"].gather(0, stop[None]).mean()
    published = GM_10D["staged 0.80"].mse_q
    # 15 % of it, and three standard errors of a mean of three critics whose sd was 0.012 over 12 datasets
    assert mse == pytest.approx(published, abs=0.013 + 0.021)
    rates = split_power(fitted, pair.data, pair.model, SplitPower(n=200, runs=200), seed=0)
    assert min(rate.value for rate in rates) > 0.97  # 0.999 expected; 200 tests, 5 standard errors


@pytest.mark.parametrize(
    ("method", "config"),
    [
        ("crossfit", sc.CrossFit(draws=99, cache=False)),
        ("split", sc.Split(draws=199, threshold="permutation")),
        ("split", sc.Split(draws=199, threshold="fresh")),
        ("ksd", sc.Ksd(draws=199, threshold="fresh")),
    ],
)
def test_exact_methods_keep_their_level_with_critics_of_full_size(method, config):
    runs = 300
    trials = sc.calibrate(MODELS["skewed-1d"], 20, test=config, runs=runs, seed=1)
    assert trials.rate(0.05).rejections <= stats.binom.ppf(0.99999, runs, 0.055)  # the pool's own error
    assert trials.uniformity() > 1e-4
