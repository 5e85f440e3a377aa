"""Laws of critics: closed forms and hand-written gradients against automatic differentiation."""

import pytest
import torch
from torch import nn

from reference import Z_MAX, jacobian_diagonal, seeded, small_module, z_of_mean
from steincritic.critics import MLP, Bank, ModuleNetwork, bank
from steincritic.critics.network import Buffers, autograd_pullback
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.rng import derive, generator
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Staged
from steincritic.training.steps import written_gradient

CPU = torch.device("cpu")
ROUNDING = {"rtol": 1e-10, "atol": 1e-10}
NORMALIZED = [nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 4)]
NETWORKS = {  # of two members in four dimensions
    "one layer": MLP(hidden=(9,)),
    "two layers": MLP(hidden=(7, 5)),
    "fixed coordinates": MLP(hidden=(7, 5), fixed=2),
    "module": ModuleNetwork(*(small_module(4, seed=k) for k in range(2))),
    "layer norm": ModuleNetwork(*(seeded(lambda: nn.Sequential(*NORMALIZED), seed=k) for k in range(2))),
}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "critics"), dtype=torch.float64)


@pytest.fixture(params=NETWORKS)
def members(request):
    """Two members whose biases are no longer zero."""
    network = NETWORKS[request.param]
    parameters = network.init(4, [3, 4], dtype=torch.float64, device=CPU)
    for k, (name, value) in enumerate(parameters.items()):
        if name.startswith("b"):
            value += normal(*value.shape, seed=k)
    if isinstance(network, MLP) and network.fixed:
        parameters["b3"][..., : network.fixed] = 0
    return Bank(network, parameters)


@pytest.mark.parametrize("shared", [True, False])
def test_divergences_and_parts_are_those_of_each_members_jacobian(members, shared):
    x = normal(6, 4) if shared else normal(2, 6, 4)
    z = normal(2, 6, 4, seed=1)
    f, div_f = members.field_and_divergence(x)
    _, singly = members.field_and_parts(x, [slice(j, j + 1) for j in range(4)])
    _, blocks = members.field_and_parts(x, [slice(0, 3), slice(3, 4)])
    _, estimate = members.field_and_divergence(x.expand(2, 6, 4), z)
    torch.testing.assert_close(members.field(x), f, rtol=1e-12, atol=1e-12)
    for k in range(2):
        own, one = (x if shared else x[k]), members[k : k + 1]
        wanted = jacobian_diagonal(lambda y, one=one: one.field(y)[0], own)
        torch.testing.assert_close(singly[k], wanted, **ROUNDING)
        torch.testing.assert_close(div_f[k], wanted.sum(-1), **ROUNDING)
        torch.testing.assert_close(blocks[k, :, 0], wanted[:, :3].sum(-1), **ROUNDING)
        if not getattr(members.network, "fixed", 0):  # there the probe has no part in what is held
            _, moved = torch.func.jvp(lambda y, one=one: one.field(y)[0], (own,), (z[k],))
            torch.testing.assert_close(estimate[k], (moved * z[k]).sum(-1), **ROUNDING)


def test_a_probe_estimates_the_divergence(members):
    x = normal(1, 4).expand(2, 20_000, 4)
    estimate = members.field_and_divergence(x, normal(2, 20_000, 4, seed=2))[1]
    exact = members.field_and_divergence(x[:, :1])[1]
    for k in range(2):
        assert abs(z_of_mean(estimate[k], float(exact[k, 0]))) < Z_MAX


def test_a_member_is_the_same_alone_and_among_others_in_any_tiles(members, monkeypatch):
    x, z = normal(2, 7, 4), normal(2, 7, 4, seed=1)
    calls = (
        lambda some, k: some.field(x[k]),
        lambda some, k: some.field_and_divergence(x[k])[1],
        lambda some, k: some.field_and_divergence(x[k], z[k])[1],
        lambda some, k: some.field_and_parts(x[k], [slice(0, 2), slice(2, 4)])[1],
    )
    for call in calls:
        whole = call(members, slice(0, 2))
        alone = torch.cat([call(members[k : k + 1], slice(k, k + 1)) for k in range(2)])
        torch.testing.assert_close(alone, whole, **ROUNDING)
        for budget in (1, 14, 70):  # tiles of a row, of some rows, of members
            with monkeypatch.context() as patch:
                patch.setattr(bank, "tile_budget", lambda device, budget=budget: budget)
                torch.testing.assert_close(call(members, slice(0, 2)), whole, **ROUNDING)


def losses_of(network, parameters, points, *, probed, buffers):
    """What a step of training asks for, by the network and by automatic differentiation."""
    x, z, cotangent, weight = points
    z = z if probed else None
    written = [{k: torch.full_like(v, torch.nan) for k, v in parameters.items()} for _ in range(2)]
    f, div_f, pull = network.pullback(parameters, x, z, buffers)
    f, div_f = f.clone(), div_f.clone()
    pull(cotangent + weight * f, torch.full_like(div_f, -1 / x.shape[1]), written[0])
    answers = written_gradient(network, parameters, x, z, cotangent, weight, written[1])
    return (f, div_f), answers, written


@pytest.mark.parametrize("probed", [True, False])
def test_a_gradient_is_that_of_automatic_differentiation_and_buffers_leave_no_trace(members, probed):
    network, parameters, buffers = members.network, members.parameters, Buffers()
    for n in (5, 5, 3):
        points = [normal(2, n, 4, seed=k) for k in range(3)] + [normal(2, 1, 1).abs()]
        before = [value.clone() for value in (*points, *parameters.values())]
        answers, wanted, written = losses_of(network, parameters, points, probed=probed, buffers=buffers)
        fresh = losses_of(network, parameters, points, probed=probed, buffers=Buffers())[2][0]
        for got, want in zip(answers, wanted, strict=True):
            torch.testing.assert_close(got, want, **ROUNDING)
        for name, got in written[0].items():
            torch.testing.assert_close(got, written[1][name], **ROUNDING, msg=name)
            assert torch.equal(got, fresh[name])
        assert all(torch.equal(a, b) for a, b in zip(before, (*points, *parameters.values()), strict=True))


@pytest.mark.parametrize("probed", [True, False])
def test_any_cotangents_are_pulled_back(members, probed):
    network, parameters = members.network, members.parameters
    if getattr(network, "fixed", 0):
        parameters = network.init(4, [3, 4], dtype=torch.float64, device=CPU)
    x, z, cotangent = (normal(2, 5, 4, seed=k) for k in range(3))
    into, wanted = ({k: torch.empty_like(v) for k, v in parameters.items()} for _ in range(2))
    z = z if probed else None
    network.pullback(parameters, x, z, Buffers())[2](cotangent, normal(2, 5, seed=4), into)
    autograd_pullback(network, parameters, x, z)[2](cotangent, normal(2, 5, seed=4), wanted)
    for name in parameters:
        torch.testing.assert_close(into[name], wanted[name], **ROUNDING, msg=name)


def test_members_depend_on_their_own_seed_alone():
    net = MLP(hidden=(3, 4))
    whole = net.init(2, [7, 8], dtype=torch.float64, device=CPU)
    alone = net.init(2, [8], dtype=torch.float64, device=CPU)
    assert all(torch.equal(whole[name][1:], alone[name]) for name in whole)
    assert not torch.equal(whole["w1"][0], whole["w1"][1])


def test_weights_start_as_pytorch_starts_them_with_biases_zero():
    parameters = MLP(hidden=(400,)).init(25, [derive(0, "start")], dtype=torch.float64, device=CPU)
    for name, fan_in in (("w1", 25), ("w2", 400)):
        weights = parameters[name]
        assert float(weights.abs().max()) <= fan_in**-0.5
        # uniform: variance 1/(3 fan_in); that of 10 000 draws is right to 0.9 %, so 5 % is over five of these
        assert abs(float(weights.var()) * 3 * fan_in - 1) < 0.05
    assert not parameters["b1"].any() and not parameters["b2"].any()
    zero = MLP(hidden=(5, 5), start="zero")
    f, div_f = zero.field_and_divergence(zero.init(3, [0], dtype=torch.float64, device=CPU), normal(1, 4, 3))
    assert not f.any() and not div_f.any()


@pytest.mark.parametrize("divergence", ["exact", "gaussian"])
def test_fixed_coordinates_are_seen_and_never_moved(divergence):
    points = ScoredPoints(torch.randn(2, 40, 3, generator=generator(0, "x")), torch.zeros(2, 40, 3))
    points.score[..., 2:] = -points.x[..., 2:] + points.x[..., :1]
    trained = fit_bank(
        points,
        staging=Staged(initial=1.0, floor=0.1, decay=0.9),
        seeds=[0, 1],
        network=MLP(fixed=2),
        training=Training(epochs=3, batch_size=20, divergence=divergence),
    ).bank
    f, parts = trained.field_and_parts(points.x, (slice(0, 2), slice(2, 3)))
    assert bool((f[..., :2] == 0).all()) and bool((parts[..., 0] == 0).all()) and bool((f[..., 2] != 0).any())
    moved = points.x.clone()
    moved[..., 0] += 1
    assert not torch.equal(trained.field(moved), trained.field(points.x))


@pytest.mark.parametrize(
    "bad",
    [{"hidden": ()}, {"hidden": (4, 4, 4)}, {"hidden": (4.0,)}, {"hidden": 4}, {"start": "ones"}],
)
def test_perceptrons_without_a_closed_form_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        MLP(**bad)


def test_settings_compare_whatever_holds_the_widths_and_whichever_version_wrote_them():
    assert MLP(hidden=[3, 4]) == MLP(hidden=(3, 4))
    older = {"hidden": [3, 4], "activation": "silu", "learnable_slope": False, "start": "random", "fixed": 0}
    assert MLP.of_file(older) == MLP(hidden=(3, 4))
    with pytest.raises(InputError, match="learnable_slope= is gone"):
        MLP.of_file({**older, "learnable_slope": True})


def test_a_module_is_copied_and_prints_without_addresses():
    module = small_module(3, seed=0)
    before = [p.detach().clone() for p in module.parameters()]
    for value in ModuleNetwork(module).init(3, [0], dtype=torch.float64, device=CPU).values():
        value += 1
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))
    assert repr(ModuleNetwork(small_module(3, seed=0))) == repr(ModuleNetwork(small_module(3, seed=1)))


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ([], r"nn\.Module"),
        ([nn.Identity()], "no parameters"),
        ([nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))], "Dropout"),
        ([nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))], "BatchNorm1d"),
        ([nn.Linear(3, 2)], r"must map \(n, 3\) to \(n, 3\).*returned"),
        ([nn.Linear(2, 3)], r"must map \(n, 3\) to \(n, 3\).*raised RuntimeError"),
        ([nn.Linear(3, 3)] * 2, "a bank of 1 members needs as many modules"),
    ],
)
def test_modules_that_are_no_critics_are_refused(modules, words):
    with pytest.raises(InputError, match=words):
        ModuleNetwork(*modules).init(3, [0], dtype=torch.float32, device=CPU)


def test_a_bank_copies_picks_members_and_takes_points_of_any_precision(members):
    copy = members.clone()
    name = next(iter(copy.parameters))
    copy.parameters[name] += 1
    assert not torch.equal(copy.parameters[name], members.parameters[name])
    assert torch.equal(members[[1, 0]].parameters[name], members.parameters[name][[1, 0]])
    assert len(members[torch.tensor([True, False])]) == 1
    assert members.field(normal(4, 4).float()).dtype == torch.float64
