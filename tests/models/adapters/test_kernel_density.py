"""Kernel densities, whichever library they are from."""

import torch

from steincritic.models.adapters.kernel_density import KernelDensity


def test_equal_weights_of_a_kernel_density_are_exact():
    points = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    given, equal = (KernelDensity(points, [[1.0]], w) for w in ([1.0, 1.0, 1.0], None))
    torch.testing.assert_close(given.log_prob(points), equal.log_prob(points), rtol=0, atol=1e-15)
