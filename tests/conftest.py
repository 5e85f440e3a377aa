"""Settings that every test shares."""

import signal

import matplotlib
import pytest
import torch
from hypothesis import settings

matplotlib.use("Agg")
pytest.register_assert_rewrite("model_contract", "reference")
torch.set_num_threads(1)  # the nets here are too small to share among threads
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background, and so in all it starts
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("steincritic", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("steincritic")


@pytest.fixture(autouse=True)
def _global_state_stays():
    """No test, and so no code under test, may change torch's global state."""
    before = torch.get_rng_state(), torch.get_default_dtype(), torch.get_float32_matmul_precision()
    yield
    assert torch.equal(torch.get_rng_state(), before[0]), "torch's global random state was changed"
    assert torch.get_default_dtype() == before[1], "torch's default dtype was changed"
    assert torch.get_float32_matmul_precision() == before[2], "torch's matmul precision was changed"


@pytest.fixture(scope="session")
def cluster():
    """The address of a scheduler with two workers, which some tests kill; others take their place."""
    pytest.importorskip("distributed", reason="engine dask is an extra: pip install 'steincritic[dask]'")
    from processes import cluster_of

    with cluster_of(2) as local:
        yield local.scheduler_address


@pytest.fixture
def run(capfd, monkeypatch):
    """Runs a command line in this process: (exit code, standard output, standard error)."""

    from steincritic import cli
    from steincritic.cli import tested

    monkeypatch.setattr(tested, "SHORT", 1e9)  # no line about how long it takes, however slow the machine is

    def command(line, *more):
        with pytest.raises(SystemExit) as exited:
            cli.main([*line.split(), *more])
        captured = capfd.readouterr()
        return exited.value.code, captured.out, captured.err

    return command
