"""Derivatives written by hand against autograd."""

import pytest
import torch

from steincritic.critics.activation import ACTIVATIONS

Z = torch.cat([torch.linspace(-12, 12, 97), torch.tensor([-300.0, 300.0])]).double()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_hand_written_derivatives_are_those_of_autograd(name):
    activation = ACTIVATIONS[name]
    z = Z.clone().requires_grad_()
    value = activation.value(z)
    (first,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z)
    written = [torch.empty_like(Z) for _ in range(4)]
    activation.into(Z, *written)
    for got, wanted in zip(written[:3], (value, first, second), strict=True):
        # rounding; torch's softplus is the identity beyond 20, so nothing is asked between 12 and 300
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-10, atol=1e-12)
    for got, wanted in zip(activation.with_first(Z), (value, first), strict=True):
        torch.testing.assert_close(got, wanted.detach(), rtol=1e-10, atol=1e-12)
