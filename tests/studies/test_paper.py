"""The paper's settings as a named value, its rules for the epoch of a critic, and where times cross."""

from dataclasses import replace

import pytest
import torch

import steincritic as sc
from steincritic.data import ScoredPoints, problem, scored
from steincritic.training import Training, Yardsticks, always, fit_bank
from studies.paper.fifty import PAPER, FiftyCell, kernel_name, trained
from studies.paper.selection import Epochs
from studies.paper.times import LOOP, NEURAL, PARTS, crossing, pool_speedup

PAIR = problem("gm-10d")
STAGING = sc.Staged(initial=1.0, floor=0.1, decay=0.7)


def test_the_papers_test_is_a_value_that_runs_as_any_other():
    network, training = sc.MLP(hidden=(6,)), replace(PAPER.training, epochs=3)
    small = replace(PAPER, network=network, training=training, draws=19, pool=20)
    result = sc.gof_test(PAIR.model, PAIR.data.sample(80, seed=0), small)
    assert result.n == 40 and result.threshold == "pooled"
    text = {"epochs": 60, "batch_size": 40, "learning_rate": 5e-3, "selection": "monitor"}
    assert {name: getattr(PAPER.training, name) for name in text} == text
    assert (PAPER.network.hidden, PAPER.draws, PAPER.pool, PAPER.train) == ((512, 512), 500, 50, 0.5)


@pytest.fixture(scope="module")
def observed():
    """Three critics, how they were after every epoch, and what a training of so many epochs gives."""
    points = ScoredPoints.stack([scored(PAIR.model, PAIR.data.sample(20, seed=k)) for k in range(3)])
    held_out, seeds = scored(PAIR.model, PAIR.data.sample(30, seed=9)), [0, 1, 2]

    def fit(epochs, observers=(), **changes):
        training = Training(epochs=epochs, batch_size=8, learning_rate=5e-2, dtype="float64", **changes)
        rest = {"network": sc.MLP(hidden=(6,)), "training": training, "observers": observers}
        return fit_bank(
            points, staging=STAGING, seeds=seeds, yardsticks=Yardsticks(validation=always(held_out)), **rest
        )

    epochs = Epochs(held_out, seeds, 3)
    return fit, epochs, fit(8, [epochs])


@pytest.mark.parametrize("kind", ["exact", "probed"])
def test_every_rule_gives_the_critics_of_a_training_that_stops_there(observed, kind):
    fit, epochs, fitted = observed
    divergence = {"exact": "exact", "probed": "gaussian"}[kind]
    selected = fit(8, selection="monitor", monitor=divergence)
    x = scored(PAIR.model, PAIR.data.sample(10, seed=3))
    assert torch.equal(epochs.at(epochs.lowest(kind), fitted).witness(x), selected.witness(x))
    history = selected.history["monitor"]
    assert torch.equal(torch.stack(epochs.monitors[kind]).double(), history.double())
    assert torch.equal(epochs.lowest(kind), history.argmin(0) + 1)
    late = epochs.lowest(kind, after=5)
    assert torch.equal(late, history[5:].argmin(0) + 6)
    common = epochs.chosen("common epoch", kind)
    assert len(common.unique()) == 1
    stopped = fit(int(common[0]))
    assert torch.equal(epochs.at(common, fitted).witness(x), stopped.witness(x))
    assert torch.equal(epochs.at(epochs.chosen("last epoch", kind), fitted).witness(x), fitted.witness(x))


def test_a_critic_in_50_dimensions_is_trained_on_its_share_less_what_is_held_out():
    cell = FiftyCell(problem="gm-50d", method="neural", n=100, share=0.4, critics=2, runs=1, tiny=True)
    fitted, epochs = trained(cell)
    assert len(fitted) == 2 and epochs.validation.x.shape == (2, 8, 50) and epochs.steps == 1
    assert [kernel_name(factor) for factor in (1.0, 2.0**-4, 4.0)] == [
        "KSD, median",
        "KSD, δ = 2^-4",
        "KSD, δ = 2^2",
    ]


def timed(neural, loop):
    def row(method, n, seconds):
        parts = {part: {"mean": seconds / len(PARTS)} for part in PARTS}
        return {"problem": "gm-50d", "method": method, "n": n, **parts, "fresh": {"mean": 10 * seconds / 3}}

    return [row(*cell) for n in neural for cell in ((NEURAL, n, neural[n]), (LOOP, n, loop[n]))]


@pytest.mark.parametrize(
    ("loop", "n"),
    [
        ({100: 0.5, 1000: 1.0, 10_000: 50.0}, 1000),
        ({100: 0.5, 1000: 0.1, 10_000: 10.0}, 10**3.5),
        ({100: 2.0, 1000: 3.0, 10_000: 4.0}, 100),
        ({100: 0.5, 1000: 0.5, 10_000: 0.5}, None),
        ({100: 2.0, 1000: 0.5, 10_000: 0.5}, None),
    ],
)
def test_times_cross_where_the_loop_is_slower_from_then_on(loop, n):
    rows = timed(dict.fromkeys(loop, 1.0), loop)
    assert crossing(rows, LOOP, PARTS) == (None if n is None else pytest.approx(n))
    assert pool_speedup(rows) == pytest.approx(dict.fromkeys(loop, 10.0))
