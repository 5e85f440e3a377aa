"""Modules of torch: energies, and log-densities."""

import torch
from torch import nn

from model_contract import QUICK, ModelContract, cases, own
from reference import seeded
from steincritic.models import EnergyModel, LangevinModel, as_model


class Bowl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x) + x.square().sum(-1, keepdim=True)


def energy_network():
    return own(LangevinModel(EnergyModel(seeded(Bowl, seed=0)), dim=2, settings=QUICK), 2_000)


CASES = {"energy network": energy_network}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


def test_a_module_with_a_log_density_is_no_energy():
    class Normal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Parameter(torch.ones(2))

        def log_prob(self, x):
            return -0.5 * (x - self.mean).square().sum(-1)

    score = as_model(Normal()).score(torch.zeros(3, 2, dtype=torch.float64))
    torch.testing.assert_close(score, torch.ones(3, 2, dtype=torch.float64))
