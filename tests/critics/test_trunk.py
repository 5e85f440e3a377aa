"""One trunk, a head a member: the copies stay alike, and train as plain autograd trains one module."""

import pytest
import torch
from torch.nn.functional import silu

from steincritic.critics import MLP, Bank
from steincritic.critics.trunk import SharedTrunk
from steincritic.data import ScoredPoints
from steincritic.rng import Streams, generator
from steincritic.training import Training, fit_bank, fixed
from steincritic.training import fit as fit_module

K, N, D = 3, 21, 3
NET = SharedTrunk(hidden=(7, 5))
TRUNK, HEAD = ("w1", "b1", "w2", "b2"), ("w3", "b3")
TRAINING = Training(epochs=2, batch_size=8, learning_rate=1e-2, divergence="gaussian", dtype="float64")
GROUPS = pytest.mark.parametrize("budget", [2**19, 1], ids=["one group", "a group a member"])


def data():
    source = generator(0, "trunk test")
    x = torch.randn(N, D, generator=source, dtype=torch.float64)
    shift = torch.randn(K, 1, D, generator=source, dtype=torch.float64)
    return ScoredPoints(x.expand(K, N, D), shift - x)


def fitted(network=NET, points=None, **changes):
    training = Training(**{**vars(TRAINING), **changes})
    return fit_bank(points or data(), staging=fixed(0.5), seeds=[4] * K, network=network, training=training)


def weights(result):
    return result.snapshots.banks[0].parameters


@GROUPS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("divergence", ["exact", "gaussian"])
def test_the_trunk_stays_one_and_the_heads_part(budget, dtype, divergence, monkeypatch):
    monkeypatch.setattr(fit_module, "tile_budget", lambda device: budget)
    trained = weights(fitted(dtype=dtype, divergence=divergence, epochs=5))
    for name in TRUNK:
        assert torch.equal(trained[name], trained[name][:1].expand_as(trained[name]))
    for name in HEAD:
        assert not torch.equal(trained[name][0], trained[name][1])


def test_members_that_share_nothing_part_everywhere():
    trained = weights(fitted(MLP(hidden=(7, 5))))
    assert not torch.equal(trained["w1"][0], trained["w1"][1])


def test_groups_do_not_change_the_result(monkeypatch):
    whole = weights(fitted())
    monkeypatch.setattr(fit_module, "tile_budget", lambda device: 1)
    for name, value in weights(fitted()).items():
        torch.testing.assert_close(value, whole[name], rtol=1e-8, atol=1e-10)  # sums in another order


def reference():
    """The same steps by autograd: one trunk and K heads as leaves, the probed trace by a tangent."""
    start = NET.init(D, [4] * K, dtype=torch.float64, device=torch.device("cpu"))
    leaves = {name: start[name][0] for name in TRUNK} | {name: start[name] for name in HEAD}
    leaves = {name: value.clone().requires_grad_() for name, value in leaves.items()}
    optimizer = torch.optim.Adam(list(leaves.values()), lr=TRAINING.learning_rate)
    streams, points = Streams.from_seeds([4]), data()
    step = 0
    for epoch in range(TRAINING.epochs):
        for rows in streams.permutations(epoch, N)[0].split(TRAINING.batch_size):
            x = points.x[0, rows]
            probe = streams.normals(step, (len(rows), D), torch.float64)[0]
            loss = sum(_loss(leaves, k, x, points.score[k, rows], probe) for k in range(K))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return leaves


def _loss(leaves, k, x, score, probe):
    def field(y):
        hidden = silu(silu(y @ leaves["w1"] + leaves["b1"]) @ leaves["w2"] + leaves["b2"])
        return hidden @ leaves["w3"][k] + leaves["b3"][k]

    f, tangent = torch.func.jvp(field, (x,), (probe,))
    witness = (score * f).sum(-1) + (tangent * probe).sum(-1)
    return (-witness + 0.25 * (f * f).sum(-1)).mean()  # λ/2 with λ = 0.5


@GROUPS
def test_training_is_that_of_one_trunk_with_heads(budget, monkeypatch):
    monkeypatch.setattr(fit_module, "tile_budget", lambda device: budget)
    trained, wanted = weights(fitted()), reference()
    for name in TRUNK:
        torch.testing.assert_close(trained[name][0], wanted[name].detach(), rtol=1e-7, atol=1e-9)  # rounding
    for name in HEAD:
        torch.testing.assert_close(trained[name], wanted[name].detach(), rtol=1e-7, atol=1e-9)


def test_a_bank_of_one_is_a_plain_perceptron():
    one = ScoredPoints(data().x[:1], data().score[:1])
    results = [
        fit_bank(one, staging=fixed(0.5), seeds=[4], network=network, training=TRAINING)
        for network in (NET, MLP(hidden=(7, 5)))
    ]
    for a, b in zip(weights(results[0]).values(), weights(results[1]).values(), strict=True):
        assert torch.equal(a, b)


def test_heads_of_other_seeds_differ_from_the_start_on():
    start = NET.init(D, [1, 2], dtype=torch.float64, device=torch.device("cpu"))
    assert torch.equal(start["w1"][0], start["w1"][1]) and not torch.equal(start["w3"][0], start["w3"][1])
    assert NET.shared(start) == list(TRUNK)
    bank = Bank(NET, start)
    f, parts = bank.field_and_parts(data().x[0], [slice(0, 1), slice(1, 3)])
    values, divergence = bank.field_and_divergence(data().x[0])
    torch.testing.assert_close(parts.sum(-1), divergence, rtol=1e-10, atol=1e-12)  # rounding
    torch.testing.assert_close(f, values, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(bank.field(data().x[0]), values, rtol=1e-12, atol=1e-12)


def test_training_resumes_exactly(tmp_path):
    def run(checkpoint, callbacks=()):
        return fit_bank(
            data(),
            staging=fixed(0.5),
            seeds=[4] * K,
            network=NET,
            training=TRAINING,
            checkpoint=checkpoint,
            callbacks=callbacks,
        )

    def stop(epoch, epochs, row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", [stop])
    for a, b in zip(weights(run(tmp_path / "run")).values(), weights(run(None)).values(), strict=True):
        assert torch.equal(a, b)
