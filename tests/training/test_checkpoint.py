"""Interrupted training goes on exactly, or is refused in one line."""

import os

import pytest
import torch

from reference import small_module
from steincritic.critics import MLP, ModuleNetwork
from steincritic.data import problem, scored
from steincritic.errors import InputError
from steincritic.files import read_tensors
from steincritic.training import Adaptive, Staged, Training, Yardsticks, always, fit_bank
from steincritic.training import fit as fit_module

PAIR = problem("gm-2d")
EPOCHS = 5


class Interrupted(Exception):
    pass


def stop_after(epoch_to_stop):
    def callback(epoch, epochs, row):
        if epoch == epoch_to_stop:
            raise Interrupted

    return callback


def fit(checkpoint=None, *, callbacks=(), seed=0, validation_seed=1, network=None, **changes):
    changes = {"divergence": "gaussian", "dtype": "float64"} | changes
    return fit_bank(
        scored(PAIR.model, PAIR.data.sample(20, seed=seed)),
        staging=[
            Staged(initial=1.0, floor=0.05, decay=0.7, every=2),
            Adaptive(initial=1.0, floor=0.05, decay=0.5),
        ],
        seeds=[0, 1],
        network=network or MLP(hidden=(6,)),
        training=Training(epochs=EPOCHS, batch_size=8, learning_rate=5e-2, **changes),
        yardsticks=Yardsticks(
            validation=always(scored(PAIR.model, PAIR.data.sample(10, seed=validation_seed)))
        ),
        callbacks=callbacks,
        checkpoint=checkpoint,
    )


def assert_identical(one, other):
    assert set(one.history) == set(other.history)
    assert all(torch.equal(one.history[name], other.history[name]) for name in one.history)
    assert torch.equal(one.lam, other.lam)
    assert all(torch.equal(value, other.bank.parameters[name]) for name, value in one.bank.parameters.items())


@pytest.mark.parametrize("selection", ["last", "monitor"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_resumed_training_is_bit_identical(tmp_path, selection, dtype):
    path = tmp_path / "training.safetensors"
    how = {"selection": selection, "dtype": dtype}
    for epoch in (0, 3):  # interrupted twice
        with pytest.raises(Interrupted):
            fit(path, callbacks=[stop_after(epoch)], **how)
    assert_identical(fit(path, **how), fit(**how))


@pytest.mark.parametrize("selection", ["last", "monitor"])
def test_a_finished_training_is_read_back_without_training(tmp_path, selection, monkeypatch):
    path = tmp_path / "training.safetensors"
    first = fit(path, selection=selection)
    monkeypatch.delattr(fit_module._Run, "_train_epoch")
    assert_identical(fit(path, selection=selection), first)


def test_a_module_resumes_from_its_own_checkpoint_and_from_no_other_modules(tmp_path):
    path = tmp_path / "training.safetensors"

    def modules(seed):
        return ModuleNetwork(small_module(2, seed=seed), small_module(2, seed=seed + 1))

    with pytest.raises(Interrupted):
        fit(path, callbacks=[stop_after(2)], network=modules(0))
    assert_identical(fit(path, network=modules(0)), fit(network=modules(0)))
    with pytest.raises(InputError, match="belongs to other data or settings"):
        fit(path, network=modules(5))


@pytest.mark.parametrize(
    "other",
    [{"seed": 3}, {"validation_seed": 4}, {"selection": "monitor"}, {"network": MLP(hidden=(7,))}],
    ids=["data", "validation", "settings", "network"],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, other):
    path = tmp_path / "training.safetensors"
    with pytest.raises(Interrupted):
        fit(path, callbacks=[stop_after(0)])
    before = path.read_bytes()
    with pytest.raises(InputError, match="belongs to other data or settings"):
        fit(path, **other)
    assert path.read_bytes() == before


def test_the_old_checkpoint_survives_a_write_that_fails(tmp_path, monkeypatch):
    path = tmp_path / "training.safetensors"
    with pytest.raises(Interrupted):
        fit(path, callbacks=[stop_after(1)])
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left on device; the old file is untouched"):
            fit(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert_identical(fit(path), fit())


def test_a_checkpoint_holds_the_epoch_and_the_stages(tmp_path):
    path = tmp_path / "training.safetensors"
    with pytest.raises(Interrupted):
        fit(path, callbacks=[stop_after(2)])
    _, about = read_tensors(path, kind="training checkpoint")
    assert about["epoch"] == 2 and len(about["stages"]) == 2
