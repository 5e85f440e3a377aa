"""Perceptrons: closed forms against autograd."""

import itertools

import pytest
import torch

from reference import jacobian_diagonal, jacobian_trace
from steincritic.critics import MLP
from steincritic.critics.network import Buffers, autograd_pullback
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.rng import derive, generator
from steincritic.training.fit import Training, fit_bank
from steincritic.training.staging import Staged

KINDS = list(itertools.product((1, 2), ("silu", "softplus", "tanh"), (False, True)))
NETS_A_KIND = 17  # 12 kinds, 204 random nets
ACTIVATION = {"silu": torch.nn.functional.silu, "softplus": torch.nn.functional.softplus, "tanh": torch.tanh}


def normal(source, *shape):
    return torch.randn(*shape, generator=source, dtype=torch.float64)


def random_net(layers, activation, learnable, *, seed):
    """A network with biases and slopes away from their initial values, its dimension and its parameters."""
    source = generator(seed, "net")
    dim = int(torch.randint(1, 33, (), generator=source))
    wide = seed % NETS_A_KIND == 0
    hidden = tuple(512 if wide else int(torch.randint(1, 65, (), generator=source)) for _ in range(layers))
    net = MLP(hidden=hidden, activation=activation, learnable_slope=learnable)
    parameters = net.init(dim, [seed], dtype=torch.float64, device=torch.device("cpu"))
    for name, value in parameters.items():
        if name.startswith("b"):
            value += normal(source, *value.shape)
        if name.startswith("slope"):
            value += torch.rand(value.shape, generator=source, dtype=torch.float64) * 1.5 - 0.5
    return net, dim, parameters


def relative_error(got, wanted):
    return float((got - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("layers", "activation", "learnable"), KINDS)
def test_closed_form_divergence_is_the_trace_of_the_jacobian(layers, activation, learnable):
    for k in range(NETS_A_KIND):
        net, dim, parameters = random_net(layers, activation, learnable, seed=k)
        x = normal(generator(k, "x"), 1, 6, dim)
        wanted = jacobian_trace(lambda y, net=net, p=parameters: net.field(p, y[None])[0], x[0])
        f, div_f = net.field_and_divergence(parameters, x)
        assert torch.allclose(f, net.field(parameters, x), rtol=1e-12, atol=1e-12)
        assert relative_error(div_f[0], wanted) < 1e-10  # float64 rounding
        single = {name: value.float() for name, value in parameters.items()}
        in_single = net.field_and_divergence(single, x.float())[1]
        assert relative_error(in_single[0].double(), wanted) < 1e-4  # float32 rounding, some cancellation


@pytest.mark.parametrize(("layers", "activation", "learnable"), KINDS)
def test_the_field_is_the_formula(layers, activation, learnable):
    net, dim, parameters = random_net(layers, activation, learnable, seed=5)
    x = normal(generator(5, "x"), 4, dim)
    z = x
    for layer in range(1, layers + 1):
        pre = z @ parameters[f"w{layer}"][0] + parameters[f"b{layer}"][0]
        slope = parameters[f"slope{layer}"][0] if learnable else 1.0
        z = ACTIVATION[activation](slope * pre) / slope
    wanted = z @ parameters[f"w{layers + 1}"][0] + parameters[f"b{layers + 1}"][0]
    torch.testing.assert_close(net.field(parameters, x[None])[0], wanted, rtol=1e-12, atol=1e-12)  # rounding


@pytest.mark.parametrize(("layers", "activation", "learnable"), KINDS)
def test_probed_divergence_is_the_quadratic_form_of_the_jacobian(layers, activation, learnable):
    net, dim, parameters = random_net(layers, activation, learnable, seed=2)
    x, z = normal(generator(2, "x"), 1, 3, dim), normal(generator(2, "z"), 1, 3, dim)
    _, estimate = net.field_and_divergence(parameters, x, z)

    def one_point(y):
        return net.field(parameters, y[None, None])[0, 0]

    for i in range(3):
        jacobian = torch.autograd.functional.jacobian(one_point, x[0, i])
        wanted = z[0, i] @ jacobian @ z[0, i]
        torch.testing.assert_close(estimate[0, i], wanted, rtol=1e-10, atol=1e-10)  # rounding


@pytest.mark.parametrize(("layers", "activation", "learnable"), KINDS)
def test_parts_of_the_divergence_are_sums_over_the_diagonal_of_the_jacobian(layers, activation, learnable):
    for k in range(1, 4):
        net, dim, parameters = random_net(layers, activation, learnable, seed=k)
        x = normal(generator(k, "x"), 1, 5, dim)
        wanted = jacobian_diagonal(lambda y, net=net, p=parameters: net.field(p, y[None])[0], x[0])
        singly = [slice(j, j + 1) for j in range(dim)]
        blocks = [slice(0, dim // 3), slice(dim // 3, dim)]
        f, parts = net.field_and_parts(parameters, x, singly)
        torch.testing.assert_close(f, net.field(parameters, x), rtol=1e-12, atol=1e-12)  # rounding
        torch.testing.assert_close(parts[0], wanted, rtol=1e-10, atol=1e-10)  # rounding, here and below
        _, parts = net.field_and_parts(parameters, x, blocks)
        by_block = torch.stack([wanted[:, block].sum(-1) for block in blocks], dim=-1)
        torch.testing.assert_close(parts[0], by_block, rtol=1e-10, atol=1e-10)
        _, div_f = net.field_and_divergence(parameters, x)
        torch.testing.assert_close(parts.sum(-1), div_f, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("layers", "activation", "learnable"), KINDS)
def test_the_pullback_by_hand_is_that_of_autograd(layers, activation, learnable, exact):
    for k in range(1, 4):
        net, dim, one = random_net(layers, activation, learnable, seed=k)
        members = {name: torch.cat([value, 1.1 * value]) for name, value in one.items()}
        source = generator(k, "pullback")
        x, probe, f_cotangent = (normal(source, 2, 7, dim) for _ in range(3))
        div_cotangent = normal(source, 2, 7)
        probe = None if exact else probe
        f, div_f, pull = net.pullback(members, x, probe, Buffers())
        wanted_f, wanted_div, wanted_pull = autograd_pullback(net, members, x, probe)
        torch.testing.assert_close(f, wanted_f, rtol=1e-10, atol=1e-10)  # rounding, here and below
        torch.testing.assert_close(div_f, wanted_div, rtol=1e-10, atol=1e-10)
        gradient, wanted = (
            {name: torch.full_like(value, torch.nan) for name, value in members.items()} for _ in range(2)
        )
        pull(f_cotangent, div_cotangent, gradient)
        wanted_pull(f_cotangent, div_cotangent, wanted)
        for name in members:
            assert relative_error(gradient[name], wanted[name]) < 1e-10, name


@pytest.mark.parametrize("exact", [False, True])
def test_the_pullback_leaves_points_probes_and_weights_as_they_were(exact):
    net, dim, parameters = random_net(2, "silu", True, seed=3)
    source = generator(3, "x")
    given = [normal(source, 1, 5, dim) for _ in range(3)] + [normal(source, 1, 5), *parameters.values()]
    before = [value.clone() for value in given]
    into = {name: torch.empty_like(value) for name, value in parameters.items()}
    net.pullback(parameters, given[0], None if exact else given[1], Buffers())[2](given[2], given[3], into)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


@pytest.mark.parametrize("exact", [False, True])
def test_buffers_are_used_again_without_a_trace_of_the_last_step(exact):
    net, dim, parameters = random_net(2, "silu", True, seed=4)
    buffers, source, answers = Buffers(), generator(4, "x"), []
    steps = [[normal(source, 1, n, dim) for _ in range(3)] + [normal(source, 1, n)] for n in (5, 5, 3)]
    for store in (buffers, None):
        for x, probe, f_cotangent, div_cotangent in steps:
            into = {name: torch.empty_like(value) for name, value in parameters.items()}
            f, div_f, pull = net.pullback(parameters, x, None if exact else probe, store or Buffers())
            pull(f_cotangent, div_cotangent, into)
            answers.append([f.clone(), div_f, *into.values()])
    for shared, own in zip(answers[:3], answers[3:], strict=True):
        assert all(torch.equal(a, b) for a, b in zip(shared, own, strict=True))


def test_members_depend_on_their_own_seed_alone():
    net, cpu = MLP(hidden=(3, 4)), torch.device("cpu")
    bank = net.init(2, [7, 8], dtype=torch.float64, device=cpu)
    alone = net.init(2, [8], dtype=torch.float64, device=cpu)
    assert all(torch.equal(bank[name][1:], alone[name]) for name in bank)
    assert not torch.equal(bank["w1"][0], bank["w1"][1])


def test_weights_start_as_pytorch_starts_them_with_biases_zero():
    parameters = MLP(hidden=(400,)).init(
        25, [derive(0, "start")], dtype=torch.float64, device=torch.device("cpu")
    )
    for name, fan_in in (("w1", 25), ("w2", 400)):
        weights = parameters[name]
        assert float(weights.abs().max()) <= fan_in**-0.5
        # uniform: variance 1/(3 fan_in); that of 10 000 draws is right to 0.9 %, so 5 % is over five of these
        assert abs(float(weights.var()) * 3 * fan_in - 1) < 0.05
    assert not parameters["b1"].any() and not parameters["b2"].any()


@pytest.mark.parametrize("layers", [1, 2])
def test_a_zero_start_is_the_zero_field(layers):
    net = MLP(hidden=(5,) * layers, start="zero", learnable_slope=True)
    parameters = net.init(3, [0], dtype=torch.float64, device=torch.device("cpu"))
    f, div_f = net.field_and_divergence(parameters, normal(generator(0), 1, 4, 3))
    assert not f.any() and not div_f.any()


@pytest.mark.parametrize(
    "bad",
    [
        {"hidden": ()},
        {"hidden": (4, 4, 4)},
        {"hidden": (0,)},
        {"hidden": (4.0,)},
        {"hidden": 4},
        {"activation": "relu"},
        {"start": "ones"},
    ],
)
def test_perceptrons_without_a_closed_form_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        MLP(**bad)


def test_a_list_of_widths_becomes_a_tuple_so_that_settings_compare():
    assert MLP(hidden=[3, 4]) == MLP(hidden=(3, 4))


@pytest.mark.parametrize("divergence", ["exact", "gaussian"])
def test_fixed_coordinates_are_seen_and_never_moved(divergence):
    points = ScoredPoints(torch.randn(2, 40, 3, generator=generator(0, "x")), torch.zeros(2, 40, 3))
    points.score[..., 2:] = -points.x[..., 2:] + points.x[..., :1]
    training = Training(epochs=3, batch_size=20, divergence=divergence)
    bank = fit_bank(
        points,
        staging=Staged(initial=1.0, floor=0.1, decay=0.9),
        seeds=[0, 1],
        network=MLP(fixed=2),
        training=training,
    ).snapshots.banks[0]
    f, parts = bank.field_and_parts(points.x, (slice(0, 2), slice(2, 3)))
    assert bool((f[..., :2] == 0).all()) and bool((parts[..., 0] == 0).all()) and bool((f[..., 2] != 0).any())
    moved = points.x.clone()
    moved[..., 0] += 1
    assert not torch.equal(bank.field(moved), bank.field(points.x))
