"""On a GPU: steps replayed from CUDA graphs, compiled or not, train the critics of a CPU."""

from dataclasses import replace

import pytest
import torch

from reference import Z_MAX, small_module
from steincritic.critics import MLP, ModuleNetwork
from steincritic.data.points import ScoredPoints
from steincritic.gof.choose import gof_test
from steincritic.gof.crossfit import CrossFit, panel
from steincritic.models import GaussianMixture
from steincritic.models.rbm import random_rbm
from steincritic.rng import generator
from steincritic.training import Staged, Training, fit_bank, steps

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

STAGING = Staged(initial=1.0, floor=1e-2, decay=0.8)
TRAINING = Training(epochs=6, batch_size=40, learning_rate=5e-3, tensor_cores=False)
# Rounding of another order of summation, grown by thirty steps of Adam.
CLOSE = {"float32": {"rtol": 2e-3, "atol": 1e-4}, "float64": {"rtol": 1e-9, "atol": 1e-11}}


def sample(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "gpu tests"), dtype=torch.float64)


def trained(dim, *, device="cuda", training=TRAINING, network=None, members=3, **options):
    """Two batches of 40 and one of 20 an epoch: two graphs, each replayed."""
    x = sample(100, dim)
    return fit_bank(
        ScoredPoints(x, -x + 0.3),
        staging=STAGING,
        seeds=list(range(members)),
        network=network or MLP(hidden=(16, 16)),
        training=training,
        device=device,
        **options,
    )


def assert_same_training(one, other, dtype):
    assert set(one.history) == set(other.history)
    for name, value in one.history.items():
        torch.testing.assert_close(value.cpu(), other.history[name].cpu(), **CLOSE[dtype])
    if dtype == "float32":
        return  # Adam takes whole steps along gradients that are nothing but rounding
    weights = other.bank.parameters
    for name, value in one.bank.parameters.items():
        torch.testing.assert_close(value.cpu(), weights[name].cpu(), **CLOSE[dtype])


NETWORKS = {
    "two layers": lambda: MLP(hidden=(16, 16)),
    "one layer, held": lambda: MLP(hidden=(8,), fixed=1),
    "module": lambda: ModuleNetwork(*(small_module(5, seed=k) for k in range(3))),
}
WAYS = {"recorded": {}, "compiled": {"_COMPILING": 0.0}, "launched": {"_EAGER_CALLS": 10**9}}


@pytest.mark.parametrize("divergence", ["exact", "gaussian", "rademacher"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_taking_a_step_trains_the_critics_of_a_cpu(monkeypatch, way, network, divergence):
    training = replace(TRAINING, dtype="float64", divergence=divergence)
    make = NETWORKS[network]
    on_cpu = trained(5, training=training, network=make(), device="cpu")
    for name, value in WAYS[way].items():
        monkeypatch.setattr(steps, name, value)
    assert_same_training(trained(5, training=training, network=make()), on_cpu, "float64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", [2, 5])
def test_a_gpu_trains_the_critics_that_a_cpu_trains(dtype, dim):
    training = replace(TRAINING, dtype=dtype)
    on_gpu, on_cpu = (trained(dim, training=training, device=device) for device in ("cuda", "cpu"))
    assert_same_training(on_gpu, on_cpu, dtype)
    points = ScoredPoints(sample(50, dim, seed=1), -sample(50, dim, seed=1))
    torch.testing.assert_close(on_gpu.witness(points).cpu(), on_cpu.witness(points), **CLOSE[dtype])


def test_a_critic_is_the_same_alone_and_in_a_bank():
    training = replace(TRAINING, dtype="float64")
    bank, alone = trained(5, training=training), trained(5, training=training, members=1)
    for name, value in alone.history.items():
        torch.testing.assert_close(value, bank.history[name][:, :1], **CLOSE["float64"])


def test_rounding_to_tf32_changes_little():
    plain, rounded = (trained(5, training=replace(TRAINING, tensor_cores=cores)) for cores in (False, True))
    # TF32 keeps ten bits of a factor: a part in a thousand, grown by thirty steps of Adam
    torch.testing.assert_close(plain.history["loss"], rounded.history["loss"], rtol=5e-2, atol=1e-2)


def test_interrupted_training_goes_on_where_it_was(tmp_path):
    training, path = replace(TRAINING, dtype="float64"), tmp_path / "critics.safetensors"

    def stop(epoch, epochs, row):
        if epoch == 3:  # both graphs are recorded by then
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(5, training=training, checkpoint=path, callbacks=[stop])
    resumed = trained(5, training=training, checkpoint=path)
    assert_same_training(resumed, trained(5, training=training), "float64")


CROSSFIT = CrossFit(
    folds=3,
    draws=19,
    look=1,
    network=MLP(hidden=(8,)),
    training=replace(TRAINING, dtype="float64"),
    cache=False,
)


@pytest.mark.parametrize("dim", [2, 5])
def test_the_panel_of_a_dataset_is_that_of_a_cpu_alone_and_among_others(dim):
    x = sample(4, 31, dim)
    sets, seeds = ScoredPoints(x, -x), [3, 4, 5, 6]
    on_cpu, on_gpu = panel(sets, seeds, CROSSFIT), panel(sets.to(device="cuda"), seeds, CROSSFIT)
    alone = panel(ScoredPoints(x[2:3], -x[2:3]).to(device="cuda"), [5], CROSSFIT)
    assert on_gpu.device.type == "cpu"
    torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-7, atol=1e-8)  # rounding, by Adam
    torch.testing.assert_close(alone, on_gpu[2:3], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("shift", "rejects"), [(0.0, False), (1.0, True)])
def test_a_wrong_model_is_rejected_and_the_right_one_is_not(tmp_path, shift, rejects):
    q = GaussianMixture([[0.0, 0.0]])
    config = replace(CROSSFIT, cache=tmp_path)
    x = q.sample(60, seed=1) + shift
    result = gof_test(q, x, test=config, device="cuda")
    assert result.rejected == rejects and result.null_distribution.device.type == "cpu"
    again = gof_test(q, x.cuda(), test=config)
    assert again.statistic == pytest.approx(result.statistic, rel=1e-9)  # rounding
    assert again.notes != ()  # from the cache
    assert gof_test(q, x, test=config, device="cpu").notes == ()  # a GPU's runs are not a CPU's


def test_a_machine_is_sampled_where_its_weights_are():
    rbm = random_rbm(3, 2, seed=0, sweeps=50)
    x = rbm.to("cuda", torch.float32).sample(20_000, seed=1)
    y = rbm.sample(20_000, seed=1)
    assert x.device.type == "cuda" and x.dtype == torch.float32
    one, other = x.cpu().double(), y
    error = (one.var(0) / len(one) + other.var(0) / len(other)).sqrt()
    assert float(((one.mean(0) - other.mean(0)) / error).abs().max()) < Z_MAX
