"""Training in banks: independence, schedules, failures."""

import threading
from dataclasses import replace

import pytest
import torch

from reference import Z_MAX, small_module, z_of_mean
from steincritic.critics import MLP, ModuleNetwork
from steincritic.data import ScoredPoints, problem, scored
from steincritic.errors import DivergedError, InputError
from steincritic.models import GaussianMixture
from steincritic.rng import Streams
from steincritic.training import Adaptive, Gap, Staged, Training, Yardsticks, always, fit_bank, fixed
from steincritic.training import fit as fit_module
from steincritic.training.fit import monitor_probe
from steincritic.training.objective import monitor
from steincritic.training.steps import Lane, written_gradient

PAIR = problem("gm-2d")
Q3 = GaussianMixture([[0.0, 0.0, 0.0]])
NET = MLP(hidden=(6, 5))
TRAINING = Training(epochs=3, batch_size=8, learning_rate=1e-2, dtype="float64")
STAGINGS = [
    fixed(0.5),
    Staged(initial=1.0, floor=0.1, decay=0.5, every=3),
    Adaptive(initial=1.0, floor=0.1, decay=0.5),
]


def settings(**changes):
    return replace(TRAINING, **changes)


def data(n=20, *, dim=2, seed=0):
    if dim == 2:
        return scored(PAIR.model, PAIR.data.sample(n, seed=seed))
    return scored(Q3, Q3.sample(n, seed=seed) + 0.5)


def weights(fitted):
    return list(fitted.bank.parameters.values())


def assert_same(one, other, **tolerance):
    assert set(one.history) == set(other.history)
    for name in one.history:
        torch.testing.assert_close(one.history[name], other.history[name], **tolerance)
    for a, b in zip(weights(one), weights(other), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


EXACTLY = {"rtol": 0, "atol": 0}
# batched products may add in another order: 1e-16 a step, enlarged by Adam's division over 9 steps
TO_ROUNDING = {"rtol": 1e-8, "atol": 1e-10}


@pytest.mark.parametrize("divergence", ["exact", "gaussian", "rademacher"])
@pytest.mark.parametrize("budget", [2**19, 1], ids=["one group", "a group a member"])
@pytest.mark.parametrize("looks", [True, False], ids=["a staging looks", "none looks"])
def test_a_member_is_the_same_alone_and_among_others(divergence, budget, looks, monkeypatch):
    monkeypatch.setattr(fit_module, "tile_budget", lambda device: budget)
    monkeypatch.setattr(fit_module, "_LANE", budget)
    stagings = STAGINGS if looks else [STAGINGS[1], fixed(0.3), STAGINGS[0]]
    sets = [data(20, dim=3, seed=k) for k in range(3)]
    validation = always(data(15, dim=3, seed=9))
    training, yardsticks = settings(divergence=divergence), Yardsticks(validation=validation)
    rest = {"network": NET, "training": training, "yardsticks": yardsticks}
    bank = fit_bank(ScoredPoints.stack(sets), staging=stagings, seeds=[4, 5, 6], **rest)
    for k in range(3):
        alone = fit_bank(sets[k], staging=stagings[k], seeds=[4 + k], **rest)
        assert_same(bank[k : k + 1], alone, **TO_ROUNDING)


def test_a_module_member_is_the_same_alone_and_among_others():
    modules = [small_module(2, seed=k) for k in range(2)]
    bank = fit_bank(
        data(), staging=fixed(0.5), seeds=[0, 1], network=ModuleNetwork(*modules), training=TRAINING
    )
    alone = fit_bank(
        data(), staging=fixed(0.5), seeds=[1], network=ModuleNetwork(modules[1]), training=TRAINING
    )
    assert_same(bank[1:2], alone, **TO_ROUNDING)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", [2, 3])
def test_a_rerun_is_the_same_run(dtype, dim):
    def run(seed):
        training = settings(dtype=dtype)
        return fit_bank(data(dim=dim), staging=fixed(0.5), seeds=[seed], network=NET, training=training)

    assert_same(run(1), run(1), **EXACTLY)
    assert weights(run(1))[0].dtype == getattr(torch, dtype)
    assert not torch.equal(weights(run(1))[0], weights(run(2))[0])


@pytest.mark.parametrize("network", [NET, MLP(hidden=(6,)), ModuleNetwork(small_module(2, seed=0))])
@pytest.mark.parametrize("divergence", ["exact", "gaussian"])
def test_the_loss_decreases(network, divergence):
    training = settings(epochs=15, divergence=divergence)
    loss = fit_bank(data(60), staging=fixed(0.5), seeds=[0], network=network, training=training).history[
        "loss"
    ]
    assert float(loss[-3:].mean()) < float(loss[0])


def test_the_fitted_field_comes_nearer_to_the_gap_than_zero_is():
    training = settings(epochs=40, batch_size=50)
    fitted = fit_bank(data(500), staging=fixed(1.0), seeds=[0], network=NET, training=training)
    x = PAIR.data.sample(4_000, seed=8)
    gap = PAIR.gap(x)
    gain = (gap**2).sum(-1) - ((fitted.field(x)[0] - gap) ** 2).sum(-1)
    assert z_of_mean(gain) > Z_MAX


@pytest.mark.parametrize("divergence", ["exact", "gaussian", "rademacher"])
def test_training_is_adam_on_the_loss_with_counted_batches_and_probes(divergence):
    points, staging, seed = data(20, dim=3), Staged(initial=1.0, floor=0.1, decay=0.7, every=2), 11
    training = settings(divergence=divergence)
    fitted = fit_bank(points, staging=staging, seeds=[seed], network=NET, training=training)

    weights_by_hand = NET.init(3, [seed], dtype=torch.float64, device=torch.device("cpu"))
    leaves = {name: value.requires_grad_() for name, value in weights_by_hand.items()}
    adam = torch.optim.Adam(leaves.values(), lr=training.learning_rate)
    streams, step = Streams.from_seeds([seed]), 0
    for epoch in range(training.epochs):
        for rows in streams.permutations(epoch, 20)[0].split(training.batch_size):
            probe = {
                "exact": lambda step, shape, dtype: None,
                "gaussian": streams.normals,
                "rademacher": streams.signs,
            }[divergence](step, (len(rows), 3), torch.float64)
            f, div_f = NET.field_and_divergence(leaves, points.x[None, rows], probe)
            witness = (points.score[rows] * f[0]).sum(-1) + div_f[0]
            loss = (-witness + staging.at(step // 2) / 2 * (f[0] ** 2).sum(-1)).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            step += 1
    for name, value in fitted.bank.parameters.items():
        torch.testing.assert_close(value, leaves[name].detach(), **TO_ROUNDING)


def watch_steps(monkeypatch, note):
    """Call it with the points of every step."""
    gradient = Lane._gradient
    monkeypatch.setattr(Lane, "_gradient", lambda self, x, *rest: note(x) or gradient(self, x, *rest))


@pytest.mark.parametrize(("batch", "sizes"), [(7, [7, 7, 6]), (30, [20]), (10, [10, 10]), (1, [1] * 20)])
@pytest.mark.parametrize("staging", [STAGINGS[0], STAGINGS[2], replace(STAGINGS[2], every=2)])
def test_every_point_is_seen_once_an_epoch(batch, sizes, staging, monkeypatch):
    seen, points = [], data(20)
    watch_steps(monkeypatch, lambda x: seen.append(x[0].clone()))
    training, yardsticks = settings(epochs=2, batch_size=batch), Yardsticks(validation=always(points))
    fit_bank(points, staging=staging, seeds=[3], network=NET, training=training, yardsticks=yardsticks)
    order = Streams.from_seeds([3]).permutations(1, 20)[0]
    assert [len(part) for part in seen] == sizes * 2
    assert torch.equal(torch.cat(seen[len(sizes) :]), points.x[order])


@pytest.mark.parametrize("every", [None, 1, 2, 3, 5, 100])
def test_lambda_in_the_history_is_the_formula(every):
    staging = Staged(initial=1.0, floor=0.2, decay=0.8, every=every)
    training = settings(epochs=5)  # 20 points in batches of 8: three steps an epoch
    lam = fit_bank(data(), staging=staging, seeds=[0], network=NET, training=training).history["lam"][:, 0]
    last_step = [3 * epoch + 2 for epoch in range(5)]
    assert lam.tolist() == [max(0.2, 1.0 * 0.8 ** (step // (every or 3))) for step in last_step]


@pytest.mark.parametrize("divergence", ["exact", "gaussian"])
def test_adaptive_staging_follows_the_monitor_of_the_history(divergence):
    staging = Adaptive(initial=1.0, floor=0.05, decay=0.5)
    yardsticks = Yardsticks(validation=always(data(10, seed=7)))
    training = settings(epochs=25, learning_rate=5e-2, monitor=divergence)
    history = fit_bank(
        data(), staging=staging, seeds=[0], network=NET, training=training, yardsticks=yardsticks
    ).history
    stage, wanted = staging.begin(), [1.0]
    for value in history["monitor"][:-1, 0].tolist():
        stage = staging.advance(stage, lambda quantity, value=value: value)
        wanted.append(stage.lam)
    assert history["lam"][:, 0].tolist() == wanted
    assert len(set(wanted)) > 2  # it was lowered more than once, or this test says nothing


def test_adaptive_staging_may_follow_the_true_error():
    x = PAIR.data.sample(200, seed=1)
    yardsticks = Yardsticks(gap_p=always(Gap(x, PAIR.gap(x))), gap_q=Gap(x, PAIR.gap(x)))
    staging = Adaptive(initial=1.0, floor=0.05, decay=0.5, on="mse_p")
    history = fit_bank(
        data(), staging=staging, seeds=[0], network=NET, training=TRAINING, yardsticks=yardsticks
    ).history
    assert torch.equal(history["mse_p"], history["mse_q"])


def exploding(k, sets):
    """The same sets, one of them scaled beyond what float64 can square."""
    return [ScoredPoints(s.x * 1e200, s.score * 1e200) if j == k else s for j, s in enumerate(sets)]


@pytest.mark.parametrize("selection", ["last", "monitor"])
def test_a_member_that_fails_leaves_its_neighbors_untouched(selection):
    sets = [data(20, dim=3, seed=k) for k in range(3)]
    training = settings(selection=selection)
    rest = {"network": NET, "training": training, "yardsticks": Yardsticks(validation=always(data(9, dim=3)))}
    staging = {"staging": Staged(initial=1.0, floor=0.1, decay=0.5), "seeds": [1, 2, 3]}
    sound = fit_bank(ScoredPoints.stack(sets), **staging, **rest)
    partly = fit_bank(ScoredPoints.stack(exploding(1, sets)), **staging, **rest)
    assert partly.failures[0] is None and partly.failures[2] is None
    assert "non-finite loss at step 0 (epoch 1, lambda 1, seed 2)" in partly.failures[1]
    for k in (0, 2):
        assert_same(partly[k : k + 1], sound[k : k + 1], **EXACTLY)
    for use in (lambda: partly.witness(sets[0]), lambda: partly[1:2].field(sets[0].x)):
        with pytest.raises(DivergedError, match="non-finite loss"):
            use()
    assert bool(partly[2:].witness(sets[0]).isfinite().all())


@pytest.mark.parametrize("selection", ["last", "monitor"])
def test_a_bank_that_fails_as_a_whole_stops_and_says_so(selection):
    points = exploding(0, [data()])[0]
    training, yardsticks = settings(epochs=50, selection=selection), Yardsticks(validation=always(data(9)))
    fitted = fit_bank(
        points, staging=fixed(1.0), seeds=[0], network=NET, training=training, yardsticks=yardsticks
    )
    assert fitted.history.epochs == 1
    with pytest.raises(DivergedError, match="critic 0"):
        fitted.require_success()


def test_the_monitor_picks_for_each_member_the_epoch_where_it_was_lowest():
    def run(selection, epochs):
        yardsticks = Yardsticks(validation=always(data(25, seed=1)))
        training = settings(selection=selection, epochs=epochs, learning_rate=5e-2)
        rest = {"network": MLP(hidden=(6,)), "training": training, "yardsticks": yardsticks}
        return fit_bank(data(), staging=STAGINGS[1], seeds=[0, 1, 2], **rest)

    fitted, epochs = run("monitor", 6), 6
    best = fitted.history["monitor"].argmin(0)
    assert len(set(best.tolist())) > 1 and int(best.min()) < epochs - 1  # else this test says little
    for k, epoch in enumerate(best.tolist()):
        stopped = run("last", epoch + 1)  # training does not know how long it will be
        assert fitted.lam[k] == stopped.lam[k] == fitted.history["lam"][epoch, k]
        assert torch.equal(fitted.witness(data())[k], stopped.witness(data())[k])


@pytest.mark.parametrize("kind", ["gaussian", "rademacher"])
def test_a_probed_monitor_is_the_exact_one_in_the_mean_and_can_be_had_again(kind):
    points, held_out, critics = data(dim=3), data(30, dim=3, seed=1), []
    kept = {"network": NET, "yardsticks": Yardsticks(validation=always(held_out))}
    fitted = fit_bank(
        points,
        staging=fixed(0.5),
        seeds=[0, 1],
        training=settings(monitor=kind),
        observers=[lambda epoch, bank, lam: critics.append((bank.clone(), lam.clone()))],
        **kept,
    )
    plain = fit_bank(points, staging=fixed(0.5), seeds=[0, 1], training=TRAINING, **kept)
    for a, b in zip(weights(fitted), weights(plain), strict=True):
        assert torch.equal(a, b)  # no gradient knows of it
    for epoch, (bank, lam) in enumerate(critics):
        probe = monitor_probe(kind, 3 * (epoch + 1), held_out, [0, 1], bank)  # three steps an epoch
        again = monitor(bank, held_out, lam, probe)
        torch.testing.assert_close(again, fitted.history["monitor"][epoch], **EXACTLY)
        assert not torch.equal(again, plain.history["monitor"][epoch])
    bank, lam = critics[-1]
    draws = [
        monitor(bank, held_out, lam, monitor_probe(kind, step, held_out, [0, 1], bank)) for step in range(400)
    ]
    gap = torch.stack(draws) - monitor(bank, held_out, lam)
    assert all(abs(z_of_mean(member)) < Z_MAX for member in gap.T)


def test_callbacks_see_every_epochs_row():
    rows = []
    fitted = fit_bank(
        data(),
        staging=fixed(0.5),
        seeds=[0, 1],
        network=NET,
        training=TRAINING,
        callbacks=[lambda epoch, epochs, row: rows.append((epoch, epochs, row["loss"].clone()))],
    )
    assert [row[:2] for row in rows] == [(0, 3), (1, 3), (2, 3)]
    assert torch.equal(torch.stack([row[2] for row in rows]), fitted.history["loss"])


def test_the_points_are_left_as_they_were():
    points = data()
    before = points.x.clone(), points.score.clone()
    fit_bank(points, staging=fixed(0.5), seeds=[0], network=NET, training=TRAINING)
    assert torch.equal(points.x, before[0]) and torch.equal(points.score, before[1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": []}, "one staging per seed"),
        ({"staging": [fixed(1.0)] * 3}, "one staging per seed"),
        ({"staging": "auto"}, "staging must be"),
        ({"points": ScoredPoints.stack([data()] * 3)}, "points for 3 members but 2 seeds"),
        ({"training": settings(selection="monitor")}, "selection by the monitor needs validation"),
        ({"staging": STAGINGS[2]}, "adaptive staging by the monitor needs validation"),
        ({"staging": Adaptive(initial=1.0, floor=0.1, decay=0.5, on="mse_p")}, "mse_p"),
    ],
)
def test_training_that_cannot_be_done_is_refused_before_it_starts(change, words, monkeypatch):
    monkeypatch.delattr(fit_module._Run, "fit")
    call = {"points": data(), "staging": fixed(1.0), "seeds": [0, 1], "network": NET, "training": TRAINING}
    call |= change
    with pytest.raises(InputError, match=words):
        fit_bank(call.pop("points"), **call)


def test_trained_critics_print_in_one_short_line():
    fitted = fit_bank(data(), staging=fixed(1.0), seeds=[0, 1], network=NET, training=TRAINING)
    assert repr(fitted) == "FittedBank(2 critics, 3 epochs)"
    assert repr(fitted.bank) == "Bank(2 MLP critics)"
    assert repr(fitted.history) == "History(3 rows of loss, stein, penalty, lam)"


def fails(*_):
    raise RuntimeError("no compiler")


@pytest.mark.parametrize("divergence", ["exact", "gaussian"])
@pytest.mark.parametrize("network", [NET, MLP(hidden=(6, 5), fixed=1)])
@pytest.mark.parametrize("step", [written_gradient, fails], ids=["functional", "no compiler"])
def test_the_step_for_compilers_trains_the_same_critics(step, network, divergence, monkeypatch):
    def run():
        training = settings(divergence=divergence)
        return fit_bank(data(dim=3), staging=fixed(0.5), seeds=[0, 1], network=network, training=training)

    by_hand, init = run(), Lane.__init__

    def compiled(self, *arguments, **options):
        init(self, *arguments, **options)
        self._compiled = step

    monkeypatch.setattr(Lane, "__init__", compiled)
    assert_same(run(), by_hand, **(TO_ROUNDING if step is written_gradient else EXACTLY))


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


@pytest.mark.parametrize("divergence", ["exact", "gaussian"])
def test_lanes_on_threads_give_the_bits_of_one_thread(divergence, monkeypatch, request):
    monkeypatch.setattr(fit_module, "_LANE", 300)  # numbers: a member has 2 x 8 x 6
    seen = set()
    watch_steps(monkeypatch, lambda x: seen.add((threading.get_ident(), torch.get_num_threads())))
    rest = {"staging": fixed(0.5), "seeds": range(40), "network": NET, "training": settings(dtype="float32")}
    alone = fit_bank(data(dim=3), **rest)
    assert seen == {(threading.get_ident(), 1)}
    seen.clear()
    request.getfixturevalue("two_threads")
    assert_same(fit_bank(data(dim=3), **rest), alone, **EXACTLY)
    assert {threads for _, threads in seen} == {1} and threading.get_ident() not in dict(seen)


@pytest.mark.parametrize(("small", "helps", "threads"), [(10**6, True, 1), (100, True, 2), (100, False, 1)])
def test_one_critic_has_torchs_threads_where_they_gain(small, helps, threads, monkeypatch, two_threads):
    seen = set()
    watch_steps(monkeypatch, lambda x: seen.add(torch.get_num_threads()))
    monkeypatch.setattr(fit_module, "_SMALL", small)
    monkeypatch.setattr(fit_module, "threads_that_help", lambda: 2 if helps else 1)
    fit_bank(data(), staging=fixed(0.5), seeds=[0], network=MLP(hidden=(20,)), training=TRAINING)
    assert seen == {threads}
