"""One door to every test: which one "auto" takes, and that the result says why."""

import pytest
import torch

from steincritic import gof_test
from steincritic.critics import MLP
from steincritic.data import scored
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.gof import choose
from steincritic.gof.aggregated import KsdAgg
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.fssd import Fssd
from steincritic.gof.kernel import Ksd
from steincritic.gof.result import GofResult
from steincritic.gof.split import Split
from steincritic.models import GaussianMixture
from steincritic.training import Training, fixed

Q = GaussianMixture([[0.0, 0.0]])
X = Q.sample(60, seed=1)
NO_SAMPLER = (Q.score, None)
TRAINING = Training(epochs=4, batch_size=20, learning_rate=5e-2, dtype="float64")


@pytest.fixture
def asked(monkeypatch):
    """Methods that only note that they were asked, and with what."""
    calls = []

    def noting(name):
        def method(model, x, *, level, seed, **options):
            calls.append((name, x, options))
            return GofResult(
                statistic=0.0,
                null_distribution=torch.ones(19),
                level=level,
                method=name,
                threshold="none",
                exact=True,
                n=len(x),
                seed=seed,
                notes=("A note of its own.",),
            )

        return method

    monkeypatch.setattr(choose, "_METHODS", {name: noting(name) for name in choose._METHODS})
    return calls


@pytest.mark.parametrize(
    ("model", "x", "method", "reason"),
    [
        (Q, X, "crossfit", "the model can be sampled, so every point is tested and the level is exact"),
        (Q, Q.sample(100, seed=2), "split", "100 points are plenty"),
        (Q, Q.sample(99, seed=2), "crossfit", "every point is tested"),
        (Q, X[:19], "ksdagg", "19 points are too few to train critics on"),
        (Q, X[:20], "crossfit", "every point is tested"),
        (NO_SAMPLER, X, "split", "the model cannot be sampled, so the threshold is a bootstrap"),
        (NO_SAMPLER, X[:39], "ksd", "the model cannot be sampled, so the threshold is a wild bootstrap"),
        (None, scored(Q, X), "ksd", "the model cannot be sampled, so the threshold is a wild bootstrap"),
        (Q, scored(Q, X), "crossfit", "every point is tested"),
    ],
)
def test_the_choice_follows_the_model_and_the_number_of_points(asked, monkeypatch, model, x, method, reason):
    monkeypatch.setattr(choose, "PLENTIFUL", 100)
    result = gof_test(model, x)
    assert result.method == method and [name for name, *_ in asked] == [method]
    assert result.notes[0].startswith(f"Method {method}: ") and reason in result.notes[0]
    assert result.notes[1:] == ("A note of its own.",)
    assert result.notes[0] in result.summary()


@pytest.mark.parametrize(
    ("config", "method"),
    [
        (Split(), "split"),
        (CrossFit(), "crossfit"),
        (Ksd(), "ksd"),
        (KsdAgg(), "ksdagg"),
        (Fssd(), "fssd"),
    ],
)
def test_settings_that_are_given_decide_by_their_kind(asked, config, method):
    result = gof_test(Q, X, test=config)
    assert result.notes[0] == f"Method {method}: its settings were given."
    assert asked[0][2] == {"config": config}


def test_points_are_scored_once():
    calls = []

    class Counted(GaussianMixture):
        def score(self, x):
            calls.append(len(x))
            return super().score(x)

    gof_test(Counted([[0.0, 0.0]]), X[:15], seed=0)
    assert calls.count(15) == 1  # the rest are draws of the model


@pytest.mark.parametrize("rejects", [True, False])
def test_the_chosen_tests_run(rejects, tmp_path):
    shift = 1.5 * rejects
    small = {"network": MLP(hidden=(4,)), "training": TRAINING}
    crossfit = CrossFit(folds=2, draws=19, look=1, cache=tmp_path, **small)
    split = Split(draws=99, staging=fixed(1.0), **small)
    for model, x, options, method in [
        (Q, X, {"config": crossfit}, "crossfit"),
        (NO_SAMPLER, Q.sample(160, seed=3), {"config": split, "callbacks": []}, "split"),
        (Q, X[:19], {}, "ksdagg"),
        (NO_SAMPLER, X[:39], {}, "ksd"),
    ]:
        result = gof_test(model, x + shift, **options)
        assert (result.method, result.rejected) == (method, rejects)
    assert gof_test(None, scored(Q, X + shift)).rejected == rejects


def test_a_bootstrap_of_few_points_comes_with_a_warning():
    config = Split(draws=99, staging=fixed(1.0), network=MLP(hidden=(4,)), training=TRAINING)
    with pytest.warns(DoubtfulWarning):
        result = gof_test(
            NO_SAMPLER,
            X[:40],
            test=config,
        )
    assert len(result.notes) > 1


@pytest.mark.parametrize("method", ["crossfit", "split", "ksd", "ksdagg", "fssd"])
def test_every_method_goes_by_its_name_and_takes_settings_of_its_own_kind_alone(asked, method):
    result = gof_test(Q, X, method)
    assert result.method == method and result.notes == ("A note of its own.",)
    wrong = Ksd() if method != "ksd" else Split()
    with pytest.raises(InputError, match=f"the settings of method '{method}' are a"):
        gof_test(Q, X, method, test=wrong)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((Q, X, "magic"), {}, "method must be one of auto, crossfit, split, ksd, ksdagg, fssd; got 'magic'"),
        ((Q, X), {"level": 1.0}, "level must lie"),
        ((Q, X), {"seed": "a"}, "seed must be a whole number"),
        ((Q, X), {"config": 3}, "the settings of method 'crossfit' are a CrossFit, got 3"),
        ((None, X), {}, "a model must have score"),
    ],
)
def test_a_question_that_is_none_is_refused(arguments, options, words):
    with pytest.raises(InputError, match=words):
        gof_test(*arguments, **options)
