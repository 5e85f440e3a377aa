"""Models with bounds from end to end: tests in coordinates without bounds, words in the columns."""

import numpy as np
import pytest
import torch
import torch.distributions as td

import steincritic as sc
from steincritic.models import GaussianMixture, LangevinModel, PairModel

pytestmark = pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")
QUICK = sc.Combined(critics=None, draws=99, reference=60, cache=False)
N = 200


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


EXPONENTIAL = td.Exponential(double(1.0, 2.0))
DIRICHLET = td.Dirichlet(double(2.0, 3.0, 4.0))


def draws(distribution, n=N, seed=1):
    return sc.as_model(distribution).sample(n, seed=seed)


@pytest.fixture(scope="module")
def longer():
    x = draws(EXPONENTIAL) * double(1.6, 1.0)
    return sc.check(EXPONENTIAL, x, test=QUICK, names=["age", "rate"], seed=1), x


def test_findings_are_about_the_columns_in_their_own_units(longer):
    found, x = longer
    assert found.rejected and found.names == ("age", "rate")
    first = found.seen[0]
    assert first.names == ("age",) and first.sentence.startswith("age ")
    ratio = float(x[:, 0].mean()) / 1.0  # the model's mean
    assert "times as large on average" in first.sentence
    assert float(first.sentence.split()[2]) == pytest.approx(ratio, rel=0.1)  # by 4,000 draws
    words = found.summary()
    assert (
        f"mean {float(x[:, 0].mean()):.2f}" in words
        and "Tested in coordinates without bounds: log age" in words
    )
    torch.testing.assert_close(found.data.x, x)
    assert all(bool((part.points.x > 0).all()) for part in found.halves)
    assert bool((found.halves.draws.x > 0).all())
    assert all(c.cut > 0 for region in found.regions for c in region.conditions)


def test_the_size_is_that_in_coordinates_without_bounds(longer):
    found, _ = longer
    assert "without bounds" in found.how_wrong or "cannot tell" in found.how_wrong


def test_the_report_and_the_files_show_the_columns(longer, tmp_path):
    found, x = longer
    found.save(tmp_path)
    page = (tmp_path / "report.html").read_text()
    worst = int(found.points.worst(1)[0])
    assert (
        f"{float(x[worst, 0]):.4g}" in page
        and "log age" in page
        and "nan" not in page.lower().split("<script")[0]
    )
    again = sc.load_critic(tmp_path / "critic.safetensors", EXPONENTIAL)
    torch.testing.assert_close(again.witness(x), found.critic.witness(x))
    assert again.score_gap(x).shape == x.shape


def test_the_parts_of_a_simplex_keep_their_names():
    x = draws(td.Dirichlet(double(4.0, 3.0, 4.0)))
    found = sc.check(DIRICHLET, x, test=QUICK, names=["a", "b", "c"])
    assert found.rejected and found.data.x.shape == (N, 3)
    assert {c.name for c in found.coordinates} == {"a", "b"}
    assert found.seen[0].names == ("a",) and "mean" in found.seen[0].sentence
    assert "logit of a among a, b, c" in found.summary()


def test_without_draws_the_coordinates_themselves_are_named():
    score = sc.as_model(EXPONENTIAL).score
    x = draws(EXPONENTIAL) * 1.6
    found = sc.check((score, None), x, bounds={0: (0, None), 1: (0, None)}, names=["age", "rate"])
    assert found.rejected and any(
        seen.sentence.startswith(("log age", "log rate", "Every")) for seen in found.seen
    )


def test_bounds_of_a_pair_give_what_the_distribution_gives():
    q, x = sc.as_model(EXPONENTIAL), draws(EXPONENTIAL)
    pair = (q.score, lambda n, seed: q.sample(n, seed=seed))
    results = [
        sc.gof_test(EXPONENTIAL, x, QUICK),
        sc.gof_test(pair, x, QUICK, bounds=[(0, None)] * 2),
        sc.gof_test(pair, x, QUICK, bounds={"a": (0, None), "b": (0, np.inf)}, names=["a", "b"]),
    ]
    assert len({result.pvalue for result in results}) == 1 and not results[0].rejected
    assert any("log a, log b" in note for note in results[2].notes)


def test_scores_alone_in_raw_columns_reject_right_data_and_the_caveat_says_what_to_do():
    q, x = sc.as_model(EXPONENTIAL), draws(EXPONENTIAL)
    raw = sc.gof_test((q.score, None), x, "ksd", names=["age", "rate"])
    assert raw.rejected and '--bounds "age 0 inf, rate 0 inf"' in str(raw.caveats[-1])
    assert not sc.gof_test((q.score, None), x, "ksd", bounds=[(0, None)] * 2).rejected


def test_a_model_that_is_cut_off_is_told_so():
    normal = GaussianMixture([[0.0]])
    x = draws(td.HalfNormal(double(1.0)))
    result = sc.gof_test(normal, x, QUICK, bounds=[(0, None)])
    assert not result.rejected and any("lie outside of the bounds: it was cut off" in n for n in result.notes)
    assert sc.gof_test(normal, x, QUICK).rejected


def test_power_and_calibration_are_in_columns():
    kernel = sc.Ksd(draws=99)
    assert sc.calibrate(EXPONENTIAL, 50, kernel, runs=60).rate().value < 0.2
    assert sc.power(EXPONENTIAL, td.Exponential(double(3.0, 2.0)), 50, kernel, trials=20).rate().value == 1.0


def test_a_stream_a_critic_and_a_chain_take_columns():
    x = draws(EXPONENTIAL, 300)
    states = list(sc.watch(EXPONENTIAL, [x[:150] * 2, x[150:] * 2]))
    assert states[-1].points == 300 and bool((states[-1].past.x < 0).any())  # logarithms
    critic = sc.fit_critic(EXPONENTIAL, 2 * x, training=sc.Training(epochs=3))
    assert critic.witness(x).shape == (300,)
    chain = LangevinModel(PairModel(sc.as_model(EXPONENTIAL).score, dim=2))
    assert not hasattr(chain, "coordinates")
    within = LangevinModel(EXPONENTIAL)
    mean = within.coordinates.constrain(within.sample(500, seed=0))[0].mean(0)
    torch.testing.assert_close(mean, double(1.0, 0.5), rtol=0.25, atol=0.0)  # 5 standard errors


def test_models_are_compared_within_the_same_bounds():
    x = draws(EXPONENTIAL, 300)
    models = [EXPONENTIAL, td.Gamma(double(2.0, 2.0), double(2.0, 4.0)), GaussianMixture([[1.0, 0.5]])]
    found = sc.compare(models, x, names=["right", "gamma", "normal"], test="none")
    assert found.ranking[0] == ("right",)
    with pytest.raises(sc.InputError, match="different bounds"):
        sc.compare([EXPONENTIAL, td.Uniform(double(0.0, 0.0), double(9.0, 9.0))], x, test="none")


def test_draws_of_a_bounded_density_are_checked():
    assert not sc.check_draws(EXPONENTIAL, draws(EXPONENTIAL), test="ksd").rejected
    assert sc.check_draws(EXPONENTIAL, 2 * draws(EXPONENTIAL), test="ksd").rejected


def test_the_level_holds_for_a_uniform_and_its_half():
    uniform = td.Uniform(double(0.0), double(1.0))
    test = sc.Combined(critics=None, draws=99, reference=60, null_pool=400, cache=False)
    rate = sc.calibrate(uniform, 40, test, runs=400).rate()
    assert 3 <= rate.rejections <= 44  # one in a million beyond
    assert sc.power(uniform, td.Uniform(double(0.25), double(0.75)), 40, test, trials=20).rate().value == 1.0
