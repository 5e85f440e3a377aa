"""Banks: stacked members, chunks and parts."""

import pytest
import torch

from reference import small_module
from steincritic.critics import MLP, Bank, ModuleNetwork, bank
from steincritic.rng import generator

CPU = torch.device("cpu")


def mlp_bank(members=3, dim=2):
    network = MLP(hidden=(5, 4))
    return Bank(network, network.init(dim, list(range(members)), dtype=torch.float64, device=CPU))


def module_bank(members=3, dim=2):
    network = ModuleNetwork(*(small_module(dim, seed=k) for k in range(members)))
    return Bank(network, network.init(dim, list(range(members)), dtype=torch.float64, device=CPU))


BANKS = {"mlp": mlp_bank, "module": module_bank}


def points(*shape):
    return torch.randn(*shape, generator=generator(0, "bank test"), dtype=torch.float64)


@pytest.mark.parametrize("kind", BANKS)
def test_a_member_is_the_same_alone_and_in_the_bank(kind):
    whole, x = BANKS[kind](), points(3, 6, 2)
    f, div_f = whole.field_and_divergence(x)
    for k in range(3):
        one = whole[k : k + 1]
        alone = one.field_and_divergence(x[k : k + 1])
        assert len(one) == 1
        torch.testing.assert_close(alone[0], f[k : k + 1], rtol=1e-12, atol=1e-12)  # rounding
        torch.testing.assert_close(alone[1], div_f[k : k + 1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", BANKS)
def test_shared_points_are_the_same_points_for_each(kind):
    whole, x = BANKS[kind](), points(6, 2)
    torch.testing.assert_close(whole.field(x), whole.field(x.repeat(3, 1, 1)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", BANKS)
@pytest.mark.parametrize("probed", [False, True])
@pytest.mark.parametrize("budget", [1, 10, 70])  # a row costs 5: tiles of one row, two rows, two members
def test_tiles_do_not_change_the_result(kind, probed, budget, monkeypatch):
    whole, x = BANKS[kind](), points(3, 7, 2)
    probe = points(3, 7, 2) if probed else None
    f, div_f = whole.field_and_divergence(x, probe)
    monkeypatch.setattr(bank, "tile_budget", lambda device: budget)
    chunked = whole.field_and_divergence(x, probe)
    torch.testing.assert_close(chunked[0], f, rtol=1e-12, atol=1e-12)  # rounding
    torch.testing.assert_close(chunked[1], div_f, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(whole.field(x), f, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", BANKS)
@pytest.mark.parametrize("budget", [1, 10, 70])
def test_parts_of_the_divergence_add_up_in_tiles_too(kind, budget, monkeypatch):
    whole, x = BANKS[kind](dim=3), points(7, 3)  # shared points
    f, div_f = whole.field_and_divergence(x)
    monkeypatch.setattr(bank, "tile_budget", lambda device: budget)
    got_f, parts = whole.field_and_parts(x, [slice(0, 2), slice(2, 3)])
    assert parts.shape == (3, 7, 2)
    torch.testing.assert_close(got_f, f, rtol=1e-12, atol=1e-12)  # rounding
    torch.testing.assert_close(parts.sum(-1), div_f, rtol=1e-10, atol=1e-10)


def test_points_follow_the_dtype_of_the_bank():
    assert mlp_bank().field(points(4, 2).float()).dtype == torch.float64


def test_a_clone_is_a_copy():
    original = mlp_bank()
    copy = original.clone()
    copy.parameters["w1"] += 1
    assert not torch.equal(copy.parameters["w1"], original.parameters["w1"])


def test_members_are_picked_by_list_or_mask():
    whole = mlp_bank()
    assert torch.equal(whole[[2, 0]].parameters["w1"], whole.parameters["w1"][[2, 0]])
    assert len(whole[torch.tensor([True, False, True])]) == 2
