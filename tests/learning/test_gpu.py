"""Learning on a GPU: recorded critic steps give what the CPU gives, and a break changes no bit."""

from dataclasses import replace

import pytest
import torch

from steincritic.critics import MLP
from steincritic.learning import EnergyMLP, Learning, first_machine, fit_energy
from steincritic.models import random_rbm
from steincritic.training.staging import Staged

pytestmark = pytest.mark.gpu

X = random_rbm(5, 3, seed=0, sweeps=100).sample(600, seed=1)
SETTINGS = Learning(
    steps=12,
    critic_steps=3,
    batch_size=40,
    staging=Staged(initial=1.0, floor=0.2, decay=0.5, every=3),
    critic=MLP(hidden=(16, 16)),
    log_every=4,
    dtype="float64",
)
STARTS = {"machine": first_machine(X, 4, seed=0), "perceptron": EnergyMLP(hidden=(8, 8))}


def parameters(model):
    return {k: v for k, v in vars(model).items() if isinstance(v, torch.Tensor)} | dict(
        model.weights if isinstance(model.weights, dict) else {}
    )


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("divergence", ["exact", "gaussian"])
def test_the_gpu_learns_what_the_cpu_learns(start, divergence):
    settings = replace(SETTINGS, divergence=divergence)
    cpu, gpu = (
        parameters(fit_energy(STARTS[start], X, learning=settings, seed=0, device=device).model)
        for device in ("cpu", "cuda")
    )
    for name, value in cpu.items():
        assert gpu[name].device.type == "cuda"
        # Adam divides by small gradients, so rounding grows step by step
        torch.testing.assert_close(gpu[name].cpu(), value, rtol=1e-5, atol=1e-7)


def test_a_resumed_run_ends_in_the_same_bits(tmp_path):
    def stop(step, steps, row):
        if step + 1 == 8:
            raise InterruptedError

    start, path = STARTS["machine"], tmp_path / "state"
    whole = fit_energy(start, X, learning=SETTINGS, seed=0, device="cuda").model
    with pytest.raises(InterruptedError):
        fit_energy(start, X, learning=SETTINGS, seed=0, device="cuda", callbacks=[stop], checkpoint=path)
    resumed = fit_energy(start, X, learning=SETTINGS, seed=0, device="cuda", checkpoint=path).model
    assert torch.equal(whole.weights, resumed.weights)
