"""Any module as a critic."""

import pytest
import torch
from torch import nn

from reference import Z_MAX, jacobian_diagonal, jacobian_trace, seeded, small_module, z_of_mean
from steincritic.critics import MLP, ModuleNetwork
from steincritic.critics.network import Buffers
from steincritic.errors import InputError
from steincritic.rng import generator

CPU = torch.device("cpu")


def stacked(*modules, dim=3):
    network = ModuleNetwork(*modules)
    return network, network.init(dim, list(range(len(modules))), dtype=torch.float64, device=CPU)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "module test"), dtype=torch.float64)


def test_exact_divergence_is_the_trace_of_each_members_jacobian():
    modules = [small_module(3, seed=k) for k in range(3)]
    network, parameters = stacked(*modules)
    x = normal(3, 5, 3)
    f, div_f = network.field_and_divergence(parameters, x)
    for k, module in enumerate(modules):
        torch.testing.assert_close(f[k], module(x[k]).detach(), rtol=1e-12, atol=1e-12)  # rounding
        wanted = jacobian_trace(module, x[k])
        torch.testing.assert_close(div_f[k], wanted, rtol=1e-10, atol=1e-10)  # rounding


def test_parts_of_the_divergence_are_sums_over_the_diagonal_of_each_members_jacobian():
    modules = [small_module(4, seed=k) for k in range(2)]
    network, parameters = stacked(*modules, dim=4)
    x = normal(1, 5, 4)  # shared by the members
    f, singly = network.field_and_parts(parameters, x, [slice(j, j + 1) for j in range(4)])
    _, blocks = network.field_and_parts(parameters, x, [slice(0, 3), slice(3, 4)])
    _, div_f = network.field_and_divergence(parameters, x)
    for k, module in enumerate(modules):
        torch.testing.assert_close(f[k], module(x[0]).detach(), rtol=1e-12, atol=1e-12)  # rounding
        wanted = jacobian_diagonal(module, x[0])
        torch.testing.assert_close(singly[k], wanted, rtol=1e-10, atol=1e-10)  # rounding, here and below
        torch.testing.assert_close(blocks[k, :, 0], wanted[:, :3].sum(-1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(blocks.sum(-1), div_f, rtol=1e-10, atol=1e-10)


def test_probed_divergence_is_the_quadratic_form_and_is_unbiased():
    module = small_module(3, seed=1)
    network, parameters = stacked(module)
    point = normal(3)
    jacobian = torch.autograd.functional.jacobian(module, point)
    z = normal(1, 20_000, 3, seed=2)
    _, estimate = network.field_and_divergence(parameters, point.expand(1, 20_000, 3), z)
    wanted = torch.einsum("ni,ij,nj->n", z[0], jacobian, z[0])
    torch.testing.assert_close(estimate[0], wanted, rtol=1e-10, atol=1e-10)  # rounding
    assert abs(z_of_mean(estimate[0], float(jacobian.trace()))) < Z_MAX


def test_the_pullback_is_the_gradient_of_a_members_own_loss():
    module = small_module(2, seed=4)
    network, parameters = stacked(module, small_module(2, seed=5), dim=2)
    x, c, e = normal(2, 4, 2), normal(2, 4, 2, seed=1), normal(2, 4, seed=2)
    gradient = {name: torch.empty_like(value) for name, value in parameters.items()}
    network.pullback(parameters, x, None, Buffers())[2](c, e, gradient)

    def loss(*weights):
        def field(y):
            return torch.func.functional_call(module, dict(zip(parameters, weights, strict=True)), (y,))

        jacobian = torch.autograd.functional.jacobian(lambda y: field(y).sum(0), x[0], create_graph=True)
        return (c[0] * field(x[0])).sum() + (e[0] * jacobian.diagonal(dim1=0, dim2=2).sum(-1)).sum()

    weights = [value[0].clone().requires_grad_() for value in parameters.values()]
    wanted = torch.autograd.grad(loss(*weights), weights, allow_unused=True, materialize_grads=True)
    for name, value in zip(parameters, wanted, strict=True):
        torch.testing.assert_close(gradient[name][0], value, rtol=1e-10, atol=1e-10)  # rounding


def test_a_perceptron_written_as_a_module_is_the_perceptron():
    module = seeded(lambda: nn.Sequential(nn.Linear(3, 6), nn.SiLU(), nn.Linear(6, 3)), seed=0)
    weights = dict(module.named_parameters())
    as_mlp = {
        "w1": weights["0.weight"].T[None],
        "b1": weights["0.bias"][None, None],
        "w2": weights["2.weight"].T[None],
        "b2": weights["2.bias"][None, None],
    }
    network, parameters = stacked(module)
    x = normal(1, 5, 3)
    wanted = MLP(hidden=(6,)).field_and_divergence({k: v.detach() for k, v in as_mlp.items()}, x)
    for got, want in zip(network.field_and_divergence(parameters, x), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)  # rounding


def test_the_users_module_is_copied():
    module = small_module(3, seed=0)
    before = [p.detach().clone() for p in module.parameters()]
    _, parameters = stacked(module)
    for value in parameters.values():
        value += 1
    assert all(torch.equal(p, b) for p, b in zip(module.parameters(), before, strict=True))


def test_layer_normalization_is_fine():
    module = seeded(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.SiLU(), nn.Linear(4, 3)), seed=0
    )
    network, parameters = stacked(module)
    x = normal(1, 5, 3)
    got = network.field_and_divergence(parameters, x)[1][0]
    torch.testing.assert_close(got, jacobian_trace(module, x[0]), rtol=1e-10, atol=1e-10)  # rounding


@pytest.mark.parametrize("noise", [nn.Dropout(0.1), nn.BatchNorm1d(3), nn.AlphaDropout(0.1)])
def test_modules_that_mix_rows_or_add_noise_are_refused(noise):
    with pytest.raises(InputError, match=type(noise).__name__):
        ModuleNetwork(nn.Sequential(small_module(3, seed=0), noise))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Linear(3, 2), "returned"),
        (lambda: nn.Linear(2, 3), "raised RuntimeError"),
        (lambda: nn.Sequential(nn.Linear(3, 3), nn.Flatten(0)), "returned"),
    ],
)
def test_modules_of_another_shape_are_refused(make, words):
    with pytest.raises(InputError, match=rf"the module must map \(n, 3\) to \(n, 3\).*{words}"):
        stacked(seeded(make, seed=0))


def test_modules_and_seeds_must_be_as_many():
    with pytest.raises(InputError, match="a bank of 2 members needs as many modules"):
        ModuleNetwork(small_module(3, seed=0)).init(3, [0, 1], dtype=torch.float64, device=CPU)


@pytest.mark.parametrize("modules", [(), (nn.Identity(),)])
def test_nothing_to_train_is_refused(modules):
    with pytest.raises(InputError, match=r"nn\.Module|no parameters"):
        ModuleNetwork(*modules)


def test_the_printed_form_tells_the_architecture_and_no_address():
    assert repr(ModuleNetwork(small_module(3, seed=0))) == repr(ModuleNetwork(small_module(3, seed=1)))
