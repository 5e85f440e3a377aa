"""Every fault of the zoo is drawn as it says, and is a fault."""

import math
from dataclasses import replace

import pytest
import torch

from model_contract import ModelContract, cases, own
from steincritic.models import GaussianBernoulliRBM, GaussianMixture
from studies.laws import Banana, Student
from studies.zoo.faults import ZOO

FAR = 6.0  # standard errors, which one of 40,000 normal averages exceeds once in 12,000 times
SINGLE = {"rounding": 1e-5}  # draws are float32

given, _ = cases(
    {"student": lambda: own(Student(3, 9), **SINGLE), "banana": lambda: own(Banana(3, 0.5), **SINGLE)}
)


class TestContract(ModelContract):
    pass


def quick(fault):
    """The same fault; of the machine with a short chain and weights that are further off."""
    if not isinstance(fault.model, GaussianBernoulliRBM):
        return fault
    q = fault.model
    machine = GaussianBernoulliRBM(q.weights, q.visible_bias, q.hidden_bias, sweeps=20)
    return replace(fault, model=machine, strength=5 * fault.strength)


def many(fault):
    """Draws that show the difference: rotated modes look most like the model."""
    return 30_000 if "rotated" in fault.name else 10_000


every_fault = pytest.mark.parametrize("fault", [quick(fault) for fault in ZOO], ids=lambda fault: fault.name)


def averages(model, x, frame):
    """Means of many functions of a point, and their squared standard errors."""
    location, scale = frame
    y, s = (x - location) / scale, model.score(x) * scale
    base = torch.cat([torch.ones_like(y[:, :1]), y, y.square(), s], 1)
    others = [
        *(values.sum(1, keepdim=True) for values in (y, y**4, y * s, s * s)),
        y.sum(1, keepdim=True).square(),
        y[:, :3].prod(1, keepdim=True),
        *(torch.exp(-(x - at).square().sum(1, keepdim=True) / 0.3) for at in (0.0, 0.8)),
        *(wave(frequency * x) for wave in (torch.sin, torch.cos) for frequency in (6, 2 * math.pi / 0.3)),
    ]
    if x.shape[1] == 2:
        others.append(((x - torch.tensor([0.8, -0.4])).norm(dim=1, keepdim=True) < 0.5).double())
    if isinstance(model, GaussianMixture) and len(model.means) > 1:
        nearest = torch.cdist(x, model.means).argmin(1)
        others.append(torch.nn.functional.one_hot(nearest, len(model.means)).double())
    others.append(torch.cos(4 * torch.pi * x))  # of values that are rounded to halves
    more = torch.cat(others, 1)
    products, squares = base.T @ base / len(x), base.square().T @ base.square() / len(x)
    means = torch.cat([products.flatten(), more.mean(0)])
    mean_squares = torch.cat([squares.flatten(), more.square().mean(0)])
    return means, (mean_squares - means.square()) / len(x)


def distance(fault, x):
    """Standard errors between the points and draws of the model, for the function where they differ most."""
    draws = fault.model.sample(many(fault), seed=5).double()
    frame = draws.mean(0), draws.std(0)
    (a, u), (b, v) = averages(fault.model, x.double(), frame), averages(fault.model, draws, frame)
    error = (u + v).clamp(min=0).sqrt()
    varies = error > 1e-12
    return float(((a - b).abs() / error)[varies].max())


@every_fault
def test_the_seed_decides_datasets(fault):
    x = fault.datasets(3, seed=1, n=20)
    assert x.shape == (3, 20, fault.model.dim) and x.dtype == torch.float32 and bool(x.isfinite().all())
    assert torch.equal(x, fault.datasets(3, seed=1, n=20)) and not torch.equal(x[0], x[1])
    assert not torch.equal(x, fault.datasets(3, seed=2, n=20))


@every_fault
def test_the_truth_differs_from_the_model(fault):
    assert distance(fault, fault.datasets(1, seed=4, n=many(fault))[0]) > FAR
    assert distance(fault, fault.model.sample(many(fault), seed=6).float()) < FAR  # the twin


def test_faults_have_their_own_names():
    assert len({fault.name for fault in ZOO}) == len({fault.pattern for fault in ZOO}) == len(ZOO)


def test_another_strength_is_another_name_with_the_same_random_numbers():
    fault = next(fault for fault in ZOO if fault.name == "every mean is 0.04")
    weaker = replace(fault, strength=0.01)
    assert weaker.name == "every mean is 0.01"
    difference = fault.datasets(2, seed=0) - weaker.datasets(2, seed=0)
    torch.testing.assert_close(difference, torch.full_like(difference, 0.03), rtol=0, atol=1e-6)  # float32
