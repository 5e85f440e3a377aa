import pytest
import torch

import steincritic as sc
from steincritic.gof.forecast import Forecast, Part, begin, duration, grown, stands_out
from steincritic.lenses import Critics, Moments
from steincritic.training.fit import Training

Q = sc.models.GaussianMixture(torch.zeros(1, 3))
SMALL = Critics(folds=2, look=1, training=Training(epochs=4, batch_size=20))
QUICK = sc.Combined(lenses=(Moments(),), critics=None, reference=40, cache=False)
DATA = Q.sample(60, seed=1)


def of(test, x=DATA, **options):
    return sc.forecast(Q, x, test, **options)


@pytest.mark.parametrize(
    "test",
    [
        QUICK,
        sc.Combined(lenses=(Moments(),), critics=SMALL, reference=40, cache=False),
        sc.Split(training=Training(epochs=2)),
        sc.CrossFit(draws=19, cache=False),
        *("ksd", "ksdagg", "fssd"),
    ],
    ids=lambda test: getattr(test, "name", test),
)
def test_every_test_is_forecast(test):
    found = of(test)
    assert (
        0 <= found.seconds <= found.most < 600 and found.most > 0 and all(part.what for part in found.parts)
    )


def test_a_tolerance_a_model_without_draws_and_dependent_rows_are_forecast():
    assert sc.forecast(Q, DATA, tolerance=0.1).seconds > 0
    assert len(sc.forecast((Q.score, None), DATA).parts) == 2
    assert of(None, dependent=True).seconds > 0


def test_what_the_forecast_makes_the_test_has():
    """Nothing is drawn twice, and no number changes."""
    points = sc.ScoredPoints(DATA, Q.score(DATA))
    begun = begin(QUICK, sc.as_model(Q), points, level=0.05, seed=0)
    begun.forecast()
    told = begun.result()
    (plain,) = QUICK.run(sc.as_model(Q), points.alone(), level=0.05, seeds=[0])
    assert told.pvalue == plain.pvalue and told.statistic == plain.statistic


def test_the_cache_makes_it_short(tmp_path):
    test = sc.Combined(lenses=(Moments(),), critics=None, reference=40, stop_early=False, cache=tmp_path)
    sc.gof_test(Q, DATA, test)
    assert of(test).most == 0


def test_data_far_from_the_model_are_expected_to_be_decided_by_quick_lenses():
    test = sc.Combined(lenses=(Moments(),), critics=SMALL, reference=40, cache=False)
    quick, critics = of(test, DATA + 3.0).parts
    assert critics.seconds == 0 < critics.most and quick.seconds == quick.most
    quick, critics = of(test).parts
    assert critics.seconds > 0 and quick.seconds < quick.most


def test_unusual_data_take_longer(monkeypatch):
    """Data that quick lenses nearly reject are looked at by critics almost to the end."""
    test = sc.Combined(lenses=(Moments(),), critics=SMALL, reference=40, cache=False)
    told = []
    for pvalue in (0.5, 0.05):
        monkeypatch.setattr("steincritic.gof.forecast._first_look", lambda *_, p=pvalue: (p, 0, 100))
        monkeypatch.setattr("steincritic.gof.forecast._seconds_of_critics", lambda *_: (0.0, 1.0))
        told.append(of(test).parts[1].seconds)
    assert told == [12, 45]


def test_standing_out_takes_the_number_of_sets_into_account():
    null = torch.randn(40, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert not stands_out(null[0], null[1:]) and stands_out(null[0] + 9.0, null[1:])
    assert not stands_out(null[0] + 9.0, null[1:3])
    assert not stands_out(torch.ones(50), torch.ones(5, 50))


def test_growth_knows_what_is_always_to_do(monkeypatch):
    """Two parts, one of them growing with the square of n; by a clock that the work moves."""
    now = [0.0]
    monkeypatch.setattr("steincritic.gof.forecast.time.perf_counter", lambda: now[0])

    def work(m):
        now[0] += 0.01 + 1e-7 * m**2

    assert grown(work, 10_000, 2) == pytest.approx(0.01 + 1e-7 * 10_000**2)


def test_words():
    forecast = Forecast((Part("999 null sets", 2.0, 6.0),)) + Part("a critic", 9.6, 40.0)
    assert str(forecast) == "about 12 s, at most 46 s: 999 null sets, a critic"
    assert str(forecast.parts[0]) == "999 null sets: about 2 s, at most 6 s"
    assert str(Part("null sets", 0.1, 0.2)) == "null sets: less than a second"
    assert forecast.to_dict()["seconds_expected"] == 11.6
    assert [duration(s) for s in (0.01, 0.7, 7.0, 200.0, 7200.0)] == [
        *("less than a second", "a second", "7 s", "3 min", "2.0 h")
    ]


def test_it_is_told_before_the_test():
    told = []
    assert sc.gof_test(Q, DATA, "ksd", before=told.append).test == "ksd" and len(told) == 1
