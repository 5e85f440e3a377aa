"""One door to every test: which one is taken where none is named, and that the result says why."""

import pytest

from steincritic.errors import InputError
from steincritic.gof.choose import choose_test, gof_test
from steincritic.gof.hypothesis import PLENTIFUL
from steincritic.gof.kernel import Ksd
from steincritic.models import GaussianMixture, as_model

Q = GaussianMixture([[0.0, 0.0]])
X = Q.sample(60, seed=1)
NO_SAMPLER = (Q.score, None)


@pytest.mark.parametrize(
    ("model", "n", "name", "reason"),
    [
        (Q, 60, "combined", "the model can be sampled, so every lens looks"),
        (Q, PLENTIFUL, "combined", "every lens looks"),
        (Q, 19, "combined", "19 points are too few to train critics on, so quick lenses alone"),
        (Q, 20, "combined", "every lens looks"),
        (
            NO_SAMPLER,
            60,
            "combined",
            "the model cannot be sampled, so lenses look at its scores under random",
        ),
        (None, 60, "combined", "the model cannot be sampled, so lenses look at its scores under random"),
        (NO_SAMPLER, 19, "ksd", "the model cannot be sampled, so the threshold is a wild bootstrap"),
    ],
)
def test_the_choice_follows_the_model_and_the_number_of_points(model, n, name, reason):
    chosen, why = choose_test(None, None if model is None else as_model(model), n)
    assert chosen.name == name and why is not None and reason in why


def test_the_result_says_what_was_chosen_and_why():
    result = gof_test(Q, X[:15])
    assert result.test == "combined" and result.notes[0].startswith("Test combined: 15 points are too few")
    assert result.notes[0] in result.summary()
    assert not any(note.startswith("Test ") for note in gof_test(Q, X[:15], "ksdagg").notes)


def test_points_are_scored_once_and_the_model_is_adapted_once(monkeypatch):
    calls = []

    class Counted(GaussianMixture):
        def score(self, x):
            calls.append(len(x))
            return super().score(x)

    gof_test(Counted([[0.0, 0.0]]), X[:15], seed=0)
    assert calls.count(15) == 1  # the rest are draws of the model


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (
            (Q, X, "magic"),
            {},
            "test must be one of combined, crossfit, split, ksd, ksdagg or a value of one",
        ),
        ((Q, X), {"level": 1.0}, "level must lie"),
        ((Q, X, "ksd"), {"seed": "a"}, "seed must be a whole number"),
        (
            (Q, X, 3),
            {},
            "test must be a name or a value of Combined, CrossFit, Split, Ksd, KsdAgg; got 3",
        ),
        ((Q, X, Ksd), {}, "test must be a value such as Ksd"),
        ((None, X), {}, "a model must have score"),
        ((Q, X, "ksd"), {"device": "cuda:99"}, "device 'cuda:99' cannot be used here"),
    ],
)
def test_a_question_that_is_none_is_refused(arguments, options, words):
    with pytest.raises(InputError, match=words):
        gof_test(*arguments, **options)
