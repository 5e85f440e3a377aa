"""The programs of a GPU take the steps of the plain path."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.critics.network import Buffers
from steincritic.data.points import ScoredPoints
from steincritic.rng import Streams, generator
from steincritic.training import Staged, Training, fit_bank
from steincritic.training import fused as fused_steps
from steincritic.training.fused import FusedSteps, fits
from steincritic.training.objective import loss_cotangents

RATE = 1e-3
SIZES = [  # n, d, hidden, batch, fixed
    (50, 5, (32, 32), 20, 0),
    (33, 20, (32, 16), 20, 0),
    (30, 3, (40,), 16, 0),
    (30, 18, (130, 20), 16, 2),
]


def points(members: int, n: int, d: int) -> ScoredPoints:
    x = torch.randn(members, n, d, generator=generator(0, "points"))
    return ScoredPoints(x, -x + 0.3)


def differences(
    n: int, d: int, hidden: tuple[int, ...], batch: int, fixed: int, *, normal: bool, device: str
) -> float:
    """The largest difference of a weight after an epoch, from plain steps in double precision."""
    network, seeds, lam = MLP(hidden=hidden, fixed=fixed), [0, 1], torch.tensor([0.3, 0.7], device=device)
    bank = Bank(network, network.init(d, seeds, dtype=torch.float32, device=torch.device(device)))
    plain = {name: value.double().clone() for name, value in bank.parameters.items()}
    data, streams = points(2, n, d).to(device=device), Streams.from_seeds(seeds, device=device)
    steps = FusedSteps(
        bank, torch.optim.Adam(bank.parameters.values(), lr=RATE), streams.keys, n=n, batch=batch, epochs=1
    )
    steps.begin(0, data, normal=normal)
    steps.run(lam.expand(-(-n // batch), 2))
    plain_epoch(network, plain, data.to(dtype=torch.float64), streams, lam.double(), batch, normal)
    return max(float((bank.parameters[name] - value).abs().max()) for name, value in plain.items())


def plain_epoch(network, parameters, data, streams, lam, batch, normal):
    for value in parameters.values():
        value.grad = torch.zeros_like(value)
    adam = torch.optim.Adam(parameters.values(), lr=RATE)
    order = streams.permutations(0, len(data))[..., None].expand(data.x.shape)
    batches = zip(*(t.gather(1, order).split(batch, dim=1) for t in (data.x, data.score)), strict=True)
    draw = streams.normals if normal else streams.signs
    for step, (x, score) in enumerate(batches):
        probe = draw(step, tuple(x.shape[1:]), torch.float32).double()
        f, _, pull = network.pullback(parameters, x, probe, Buffers())
        pull(*loss_cotangents(score, f, lam), {name: value.grad for name, value in parameters.items()})
        adam.step()


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, which comes with CUDA builds of torch")
def test_programs_take_the_plain_steps_as_triton_interprets_them():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, __file__], env=environment, check=True)


def test_a_cpu_has_no_such_programs():
    weights = MLP().init(3, [0], dtype=torch.float32, device=torch.device("cpu"))
    assert not fits(Bank(MLP(), weights), exact=False, tensor_cores=True)


@pytest.mark.gpu
@pytest.mark.parametrize("divergence", ["gaussian", "rademacher"])
@pytest.mark.parametrize(
    ("n", "d", "hidden"), [(90, 3, (128, 128)), (100, 25, (64, 128)), (83, 50, (300,)), (90, 10, (256, 512))]
)
def test_fused_training_is_the_plain_one(monkeypatch, divergence, n, d, hidden):
    settings = {
        "staging": Staged(initial=0.4, floor=0.01, decay=0.9, every=3),
        "seeds": [0, 1, 2],
        "network": MLP(hidden=hidden),
        "training": Training(epochs=4, batch_size=40, divergence=divergence),
        "device": "cuda",
    }
    fused = fit_bank(points(3, n, d), **settings)
    monkeypatch.setenv("STEINCRITIC_FUSED", "0")
    plain = fit_bank(points(3, n, d), **settings)
    assert torch.equal(fused.history["lam"], plain.history["lam"])
    # TF32 products round at 1e-3
    torch.testing.assert_close(fused.history["loss"], plain.history["loss"], rtol=5e-3, atol=5e-3)
    x = points(3, n, d).x.cuda()
    torch.testing.assert_close(fused.field(x), plain.field(x), rtol=0.02, atol=0.02)


@pytest.mark.gpu
def test_fused_training_resumes_from_a_checkpoint(tmp_path):
    def fit(epochs: int, **where):
        training = Training(epochs=epochs, batch_size=40)
        return fit_bank(
            points(2, 100, 25),
            staging=Staged(initial=0.4, floor=0.01, decay=0.9),
            seeds=[0, 1],
            training=training,
            device="cuda",
            **where,
        )

    class Stop(Exception):
        pass

    def stop(epoch, epochs, row):
        if epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        fit(6, checkpoint=tmp_path / "state", callbacks=[stop])
    resumed, whole = fit(6, checkpoint=tmp_path / "state"), fit(6)
    assert torch.equal(resumed.history["loss"], whole.history["loss"])


if __name__ == "__main__":  # interpreted: float32 products, so the bound is their rounding
    for size in SIZES:
        for wide in (256, 16):
            fused_steps._WIDE = wide
            assert differences(*size, normal=wide == 16, device="cpu") < 1e-6
