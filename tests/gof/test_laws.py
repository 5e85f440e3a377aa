"""What every test keeps, whichever it is."""

from dataclasses import fields, is_dataclass, replace

import pytest
import torch

import steincritic as sc
from steincritic.gof.choose import TESTS, choose_test
from steincritic.gof.hypothesis import Plan
from steincritic.gof.null import draws_for, reaching, smallest_draws
from steincritic.gof.test import GofTest
from steincritic.training.critic import fit_critics

Q = sc.models.GaussianMixture([[0.0, 0.0]])
X = Q.sample(40, seed=1)
NO_SAMPLER = (Q.score, None)
SMALL = {
    "network": sc.MLP(hidden=(6,)),
    "training": sc.Training(epochs=8, batch_size=10, learning_rate=5e-2, dtype="float64"),
}
LENSES = {"reference": 20, "cache": False, "draws": 39}
VALUES = {
    "combined": sc.Combined(critics=sc.lenses.Critics(folds=2, look=1, **SMALL), **LENSES),
    "combined, quick alone": sc.Combined(critics=None, lenses=(sc.lenses.Moments(),), **LENSES),
    "crossfit": sc.CrossFit(folds=2, draws=19, look=1, cache=False, **SMALL),
    "crossfit, early stop": sc.CrossFit(folds=2, draws=39, look=1, cache=False, stop_early=3, **SMALL),
    "split, fresh": sc.Split(threshold="fresh", draws=39, **SMALL),
    "split, permutation": sc.Split(threshold="permutation", draws=39, pool=5, **SMALL),
    "split, pooled": sc.Split(threshold="pooled", draws=39, pool=20, **SMALL),
    "split, bootstrap-t": sc.Split(threshold="bootstrap-t", draws=39, **SMALL),
    "split, early stopping, fresh": sc.Split(
        threshold="fresh",
        draws=39,
        network=SMALL["network"],
        training=replace(SMALL["training"], selection="monitor"),
    ),
    "split, adaptive, bootstrap-t": sc.Split(
        threshold="bootstrap-t", draws=39, staging=sc.Adaptive(initial=1.0, floor=0.1, decay=0.5), **SMALL
    ),
    "ksd, wild": sc.Ksd(draws=39),
    "ksd, fresh": sc.Ksd(draws=39, threshold="fresh"),
    "ksdagg, wild": sc.KsdAgg(draws=39, reference=99),
    "ksdagg, fresh": sc.KsdAgg(draws=39, threshold="fresh"),
}
EXACT = {"combined", "combined, quick alone", "crossfit", "crossfit, early stop"} | {
    name for name in VALUES if name.endswith(("fresh", "permutation"))
}
every = pytest.mark.parametrize("test", VALUES.values(), ids=VALUES)
quiet = pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
pytestmark = quiet


def test_every_named_test_is_among_the_values():
    assert {test.name for test in VALUES.values()} == set(TESTS)


@every
def test_a_test_is_a_frozen_value_that_prints_what_it_is(test: GofTest):
    assert is_dataclass(test) and test.__dataclass_params__.frozen
    assert replace(test) == test and repr(test).startswith(type(test).__name__)
    assert "name" not in {field.name for field in fields(test)}  # of the kind, not a setting


@every
def test_the_seed_decides_the_result(test):
    one, same = (sc.gof_test(Q, X, test, seed=3).to_dict() for _ in range(2))
    assert one == same
    assert one != sc.gof_test(Q, X, test, seed=4).to_dict()


@every
def test_the_device_may_be_said(test):
    assert sc.gof_test(Q, X, test, device="cpu").to_dict() == sc.gof_test(Q, X, test).to_dict()


@every
def test_a_stack_gives_what_each_dataset_gives_alone(test):
    points = sc.ScoredPoints(X, Q.score(X))
    stack = sc.ScoredPoints.stack([points, points, points])
    together = test.run(Q, stack, level=0.05, seeds=[1, 2, 3])
    alone = [test.run(Q, points.alone(), level=0.05, seeds=[seed])[0] for seed in (1, 2, 3)]
    assert [result.pvalue for result in together] == [result.pvalue for result in alone]


@every
def test_scored_points_are_the_same_as_model_and_points(test):
    assert sc.gof_test(Q, sc.ScoredPoints(X, Q.score(X)), test).to_dict() == sc.gof_test(Q, X, test).to_dict()


@every
def test_far_data_are_rejected_and_the_result_is_whole(test):
    result = sc.gof_test(Q, X + 4.0, test)
    assert result.rejected and result.test == test.name and 0 < result.pvalue <= 0.05
    assert len(result.null_distribution) <= (test.draws or 0)
    assert result.settings["draws"] == test.draws


@pytest.mark.parametrize("name", VALUES)
def test_the_exactness_flag_is_true_to_its_word(name):
    """Exact is what compares with draws of the model afresh, or with labels permuted; nothing else."""
    assert sc.gof_test(Q, X, VALUES[name]).exact == (name in EXACT)


@pytest.mark.parametrize("name", VALUES)
def test_without_a_sampler_what_draws_from_the_model_is_refused(name):
    drawn = (name in EXACT or name == "split, pooled") and "combined" not in name
    if drawn:
        with pytest.raises(sc.ModelError, match=r"no sample\(n, seed=0\)"):
            sc.gof_test(NO_SAMPLER, X, VALUES[name])
    else:
        assert sc.gof_test(NO_SAMPLER, X, VALUES[name]).n > 0
        assert sc.gof_test(None, sc.ScoredPoints(X, Q.score(X)), VALUES[name]).n > 0


@every
@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_few_points_give_a_result_or_one_line(test, n):
    try:
        result = sc.gof_test(Q, X[:n], test)
    except sc.InputError as error:
        assert "point" in str(error) and "\n" not in str(error)
    else:
        assert 0 < result.pvalue <= 1 and result.n <= n


@every
def test_a_level_out_of_reach_names_the_draws_that_would_reach_it(test):
    with pytest.raises(sc.InputError, match=r"null draws cannot reach level 0\.001: use at least 999"):
        sc.gof_test(Q, X, test, level=0.001)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (sc.Combined, {"reference": 5}),
        (sc.Combined, {"lenses": ()}),
        (sc.Combined, {"draws": 0}),
        (sc.CrossFit, {"folds": 1}),
        (sc.CrossFit, {"look": 30}),
        (sc.CrossFit, {"stop_early": 0}),
        (sc.Split, {"train": 1.0}),
        (sc.Split, {"threshold": "normal"}),
        (sc.Split, {"pool": 0}),
        (sc.Ksd, {"statistic": "w"}),
        (sc.Ksd, {"threshold": "permutation"}),
        (sc.Ksd, {"flip": 0.7}),
        (sc.KsdAgg, {"kernels": ()}),
        (sc.KsdAgg, {"reference": 1}),
        (sc.Sequential, {"etas": (0.0,)}),
        (sc.Sequential, {"first": 1}),
        (sc.Sequential, {"growth": 1.0}),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(kind, settings):
    (name,) = settings
    with pytest.raises(sc.InputError, match=name):
        kind(**settings)


@pytest.mark.parametrize(
    ("kind", "name"), [(sc.Combined, "first"), (sc.CrossFit, "memory_gib"), (sc.Sequential, "bets")]
)
def test_settings_that_are_gone_say_what_to_do_instead(kind, name):
    with pytest.raises(sc.InputError, match=f"{name}= is gone: "):
        kind(**{name: 1})


@pytest.mark.parametrize("name", TESTS)
def test_a_name_stands_for_the_default_value(name):
    assert choose_test(name, None, 10) == (TESTS[name], None)
    assert type(TESTS[name])() == TESTS[name]


@pytest.mark.parametrize("n", [12, 60])
def test_none_is_what_it_says_it_chose(n):
    """The default equals its explicit value, at every n."""
    x = Q.sample(n, seed=2)
    chosen, reason = choose_test(None, Q, n)
    sc.gof_test(Q, x)  # null sets are in the cache from here on
    automatic, explicit = sc.gof_test(Q, x), sc.gof_test(Q, x, chosen)
    assert automatic.notes == (f"Test {chosen.name}: {reason}.", *explicit.notes)
    assert automatic.pvalue == explicit.pvalue and automatic.statistic == explicit.statistic


def test_split_trains_alike_behind_every_door():
    """The default value is the default: however it is asked for, the same training follows from n."""
    x = Q.sample(300, seed=2)
    by_name, by_value = sc.gof_test(Q, x, "split"), sc.gof_test(Q, x, sc.Split())
    assert by_name.to_dict() == by_value.to_dict()
    many = sc.Split(draws=19, pool=1)._paced(20_000).training
    assert many is not None and many.batch_size > sc.Training().batch_size
    stopped = sc.Split(draws=19, pool=1, training=sc.Training(selection="monitor"))._paced(20_000).training
    assert stopped == replace(many, selection="monitor")


def test_rows_held_out_of_the_split_are_neither_trained_on_nor_tested(monkeypatch):
    seen = {}

    def fit(model, trained, *, validation, **rest):
        seen.update(trained=trained.x[0], held_out=validation.x[0])
        return fit_critics(model, trained, validation=validation, **rest)

    monkeypatch.setattr("steincritic.gof.split.fit_critics", fit)
    result = sc.gof_test(Q, X, VALUES["split, early stopping, fresh"])
    assert (len(seen["trained"]), len(seen["held_out"]), result.n) == (16, 4, 20)
    both = torch.cat([seen["trained"], seen["held_out"]])
    assert len(torch.cat([both, X[:0]]).unique(dim=0)) == 20
    assert all((row == X).all(-1).any() for row in both)


def test_a_test_of_ones_own_goes_wherever_a_test_goes():
    class Mean:
        name = "mean"
        draws = 99

        def run(self, model, datasets, *, level, seeds):
            null = torch.stack([model.sample(len(datasets), seed=k).mean().abs() for k in range(99)])
            return [
                sc.GofResult(
                    statistic=float(points.x.mean().abs()),
                    null_distribution=null,
                    level=level,
                    test=self.name,
                    threshold="fresh",
                    exact=True,
                    n=len(points),
                    seed=seed,
                )
                for points, seed in zip(datasets.each(), seeds, strict=True)
            ]

    assert sc.gof_test(Q, X + 1, Mean()).rejected
    assert sc.power(Q, sc.models.GaussianMixture([[1.0, 1.0]]), 40, Mean(), trials=5).rate().value == 1.0


@pytest.mark.parametrize("level", [0.05, 0.01, 0.0004])
@pytest.mark.parametrize("name", ["ksd", "ksdagg"])
def test_the_usual_draws_of_a_test_reach_any_level(name, level):
    far = sc.gof_test(Q, X + 5, name, level=level)
    assert far.rejected and len(far.null_distribution) >= smallest_draws(level)


@pytest.mark.parametrize("name", TESTS)
def test_so_many_draws_that_nobody_would_wait_for_them_are_not_made_unasked(name):
    with pytest.raises(sc.InputError, match=r"level 1e-06 wants \d+ null draws, .* draws=\d+ .*--draws"):
        sc.gof_test(Q, X, name, level=1e-6)


@pytest.mark.parametrize(("level", "draws"), [(0.05, 59), (0.01, 199), (0.002, 999)])
def test_the_usual_draws_follow_from_the_level(level, draws):
    assert draws_for(level, 59) == draws
    split = reaching(sc.Split(), level)
    assert split.draws == 999 and reaching(sc.Split(draws=99), 0.05).draws == 99
    plan = Plan.of(sc.Combined(critics=None), 100, 2, level / 50, "cpu")
    assert plan.sets >= smallest_draws(level / 50)
