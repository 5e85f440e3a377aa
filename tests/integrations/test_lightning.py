"""The callback of Lightning: on a stand-in, and in Lightning itself where there is one."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

import steincritic as sc
import steincritic.integrations.lightning as ours

Q = sc.models.GaussianMixture([[0.0, 0.0]])
HELD_OUT = Q.sample(100, seed=1)


class Energy(torch.nn.Module):
    """A bowl whose width is learned; log q = -energy."""

    def __init__(self):
        super().__init__()
        self.log_width = torch.nn.Parameter(torch.tensor(1.5))
        self.frozen = torch.nn.Dropout(0.5).eval()
        self.device, self.logged = torch.device("cpu"), {}

    def forward(self, x):
        return self.frozen(x).square().sum(-1) / (2 * torch.exp(2 * self.log_width))

    def log_dict(self, metrics, rank_zero_only):
        self.logged |= metrics


@pytest.fixture
def stand_in(monkeypatch):
    """Our file with a Lightning that has nothing but the base class."""
    fake = ModuleType("lightning.pytorch")
    fake.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", fake)
    yield importlib.reload(ours)
    monkeypatch.undo()
    importlib.reload(ours)


def test_every_so_many_epochs_the_model_is_checked_and_left_as_it_was(stand_in):
    told, energy = [], Energy().train()
    energy.frozen.eval()
    log = lambda name, result, *, step: told.append((name, result.rejected, step))  # noqa: E731
    callback = stand_in.CheckCallback(HELD_OUT, every=2, test="ksd", loggers=[log])
    for epoch in range(4):
        trainer = SimpleNamespace(current_epoch=epoch, is_global_zero=True, global_step=10 * epoch)
        with torch.no_grad():
            callback.on_train_epoch_end(trainer, energy)
        if epoch == 1:
            energy.log_width.data.zero_()  # right from the third epoch on
    assert list(callback.results) == [1, 3] and told == [("check", True, 10), ("check", False, 30)]
    assert energy.training and not energy.frozen.training and energy.log_width.grad is None
    assert energy.logged["check/rejected"] == 0.0


def test_without_lightning_one_line_says_what_to_install(monkeypatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    plain = importlib.reload(ours)
    with pytest.raises(sc.InputError, match="pip install lightning"):
        plain.CheckCallback(HELD_OUT)
    monkeypatch.undo()
    importlib.reload(ours)


@pytest.mark.filterwarnings("ignore")  # its own
def test_in_lightning_itself(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    importlib.reload(ours)

    class Learner(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.log_width = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            return x.square().sum(-1) / (2 * torch.exp(2 * self.log_width))

        def training_step(self, batch, _):  # maximum likelihood, whose normalizing constant is known
            (x,) = batch
            return self(x).mean() + 2 * self.log_width

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    state = torch.get_rng_state()
    rows = torch.utils.data.TensorDataset(Q.sample(400, seed=2).float())
    callback = ours.CheckCallback(HELD_OUT.float(), every=4)
    trainer = lightning.Trainer(
        max_epochs=8,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[callback],
    )
    trainer.fit(Learner(), torch.utils.data.DataLoader(rows, batch_size=50))
    torch.set_rng_state(state)  # Lightning draws from it
    assert list(callback.results) == [3, 7] and not callback.results[7].rejected
    assert float(trainer.callback_metrics["check/pvalue"]) == pytest.approx(callback.results[7].test.pvalue)
