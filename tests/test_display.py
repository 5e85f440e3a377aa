"""Every result displays itself in a notebook, and what plots takes axes and returns them."""

import inspect
import re
import typing
from functools import cache

import pytest
import torch
from matplotlib import pyplot

import steincritic as sc
from steincritic.display import panel
from steincritic.training.fitted import History

Q = sc.models.GaussianMixture([[0.0, 0.0]])
NAMES = ["<b>width</b>", "height & more"]  # a name is text, whatever it looks like
X = Q.sample(120, seed=1) + torch.tensor([0.8, 0.0])
pytestmark = pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")  # runs this short
SHORT = sc.Training(epochs=3)
NO_RESULTS = {"Model", "ConditionalModel", "Staged", "Tensor", "Progress"}  # of other kinds


def _amortized():
    draws = [Q.sample(200, seed=k) + y + torch.tensor([0.5 * k, 0.0]) for k, y in enumerate((0.0, 1.0, 2.0))]
    posterior = lambda y: sc.models.GaussianMixture([[y, y]])  # noqa: E731
    return sc.check_amortized(posterior, draws, [0.0, 1.0, 2.0], names=NAMES)


@cache
def results():
    """A result of each type, by its name."""
    critic = sc.fit_critic(Q, X, network=sc.MLP(hidden=(8,)), training=SHORT)
    check = sc.check(Q, X, names=NAMES, seed=0)
    return {
        "GofResult": check.test,
        "CheckResult": check,
        "Comparison": sc.compare({NAMES[0]: Q, "other": sc.models.GaussianMixture([[2.0, 0.0]])}, X),
        "Checkup": sc.doctor(Q, X, n=500),
        "AmortizedResult": _amortized(),
        "WatchState": list(sc.watch(Q, [X[:40], X[40:80], X[80:]]))[-1],
        "Critic": critic,
        "History": critic.history,
        "FittedBank": critic.fitted,
        "Trials": sc.power(Q, Q, 30, "ksd", trials=10),
        "Rate": sc.Rate(3, 10),
    }


PLOTTED = [
    *("GofResult", "CheckResult", "Comparison", "AmortizedResult"),
    *("WatchState", "Critic", "History", "Trials"),
]
NAMED = [*PLOTTED, "Checkup", "FittedBank", "Rate"]


def _classes(annotation):
    """Classes of the package in an annotation, those of an iterator or a union too."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("steincritic"):
        yield annotation.__name__
    for part in typing.get_args(annotation):
        yield from _classes(part)


def test_all_that_public_functions_return_is_in_the_family():
    functions = [getattr(sc, name) for name in sc.__all__ if inspect.isfunction(getattr(sc, name))]
    returned = {name for f in functions for name in _classes(typing.get_type_hints(f)["return"])}
    assert {"CheckResult", "Trials"} <= returned <= set(NAMED) | NO_RESULTS
    assert {name for name, result in results().items() if hasattr(result, "plot")} == set(PLOTTED)
    assert len({panel(["same"], rejected=verdict) for verdict in (True, False, None)}) == 3


@pytest.mark.parametrize("name", NAMED)
def test_a_result_displays_itself_as_well_formed_html_without_foreign_markup(name):
    result = results()[name]
    assert type(result).__name__ == name
    html = result._repr_html_()
    assert html.startswith("<div style=") and "<b>" not in html
    assert set(re.findall(r"</?(\w+)", html)) <= {"div", "br", "ul", "li", "table", "tr", "th", "td"}
    for tag in ("div", "ul", "li", "table", "tr", "th", "td"):
        assert html.count(f"</{tag}>") == len(re.findall(rf"<{tag}[ >]", html))
    assert "background" not in html and " color:" not in html  # a dark notebook keeps its own


def test_names_of_columns_are_escaped_where_they_are_told():
    for name in ("CheckResult", "Comparison", "AmortizedResult"):
        assert "&lt;b&gt;width" in results()[name]._repr_html_()


@pytest.mark.parametrize("name", PLOTTED)
def test_a_plot_draws_on_the_given_axes_or_on_new_ones(name):
    _, (ax, other) = pyplot.subplots(1, 2)
    assert results()[name].plot(ax=ax) is ax
    assert ax.has_data() and ax.get_xlabel() and not other.has_data()
    fresh = results()[name].plot()
    assert fresh is not ax and fresh.has_data()
    pyplot.close("all")


def test_a_finding_is_drawn_in_its_own_columns():
    check = results()["CheckResult"]
    ax = pyplot.figure().add_subplot()
    assert check.seen[0].columns == (0,)
    assert check.plot_finding(0, ax=ax) is ax and ax.get_xlabel() == NAMES[0]
    with pytest.raises(sc.InputError, match="no finding 99"):
        check.plot_finding(99)
    by_scores = sc.check((Q.score, None), X, names=NAMES)
    with pytest.raises(sc.InputError, match="no sampler"):
        by_scores.plot_finding()
    pyplot.close("all")


def test_a_critic_draws_its_witness_in_one_and_two_dimensions_alone():
    for dim in (1, 2, 3):
        q = sc.models.GaussianMixture([[0.0] * dim])
        critic = sc.fit_critic(q, q.sample(60, seed=1) + 1, network=sc.MLP(hidden=(8,)), training=SHORT)
        if dim == 3:
            with pytest.raises(sc.InputError, match="in 3 dimensions has no picture"):
                critic.plot()
        else:
            assert critic.plot(x=q.sample(30, seed=2)).has_data()
    pyplot.close("all")


def test_a_history_without_discrepancies_says_so_and_an_empty_one_displays_itself():
    with pytest.raises(sc.InputError, match="no picture"):
        History({"step": torch.arange(3)}).plot()
    assert "nothing" in History()._repr_html_()


def test_the_wealth_of_a_stream_is_kept_after_each_point_and_in_the_file(tmp_path):
    batches = [X[:40], X[40:80], X[80:]]
    *_, whole = sc.watch(Q, batches)
    assert whole.log_path.shape == (120,) and float(whole.log_path[-1]) == pytest.approx(whole.log_wealth)
    assert float(whole.log_path.max()) == pytest.approx(whole.log_maximum)
    *_, half = sc.watch(Q, batches[:2])
    half.save(tmp_path / "half")
    (end,) = sc.watch(Q, batches[2:], state=sc.load_watch(tmp_path / "half"))
    assert torch.equal(end.log_path, whole.log_path)
