"""Settings that every test shares."""

import importlib
import inspect
import signal

import matplotlib
import pytest
import torch
from hypothesis import settings

from steincritic.gof import choose
from steincritic.training import Training

matplotlib.use("Agg")
pytest.register_assert_rewrite("model_contract", "reference")
torch.set_num_threads(1)  # the nets here are too small to share among threads
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background, and so in all it starts
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("steincritic", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("steincritic")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """With --dist loadgroup a file goes to one process; only the tiny studies, which are long, are spread."""
    for item in items:
        if item.path.name != "test_study.py":
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.fixture(autouse=True)
def _global_state_stays():
    """No test, and so no code under test, may change torch's global state."""
    before = torch.get_rng_state(), torch.get_default_dtype(), torch.get_float32_matmul_precision()
    yield
    assert torch.equal(torch.get_rng_state(), before[0]), "torch's global random state was changed"
    assert torch.get_default_dtype() == before[1], "torch's default dtype was changed"
    assert torch.get_float32_matmul_precision() == before[2], "torch's matmul precision was changed"


QUICK = {  # defaults of settings, for a run of seconds; the numbers that come out mean nothing
    "steincritic.CrossFit": {"draws": 19},
    "steincritic.Training": {"epochs": 15},
    "steincritic.MLP": {"hidden": (16,)},
    "steincritic.lenses.Critics": {
        "training": Training(epochs=6, batch_size=80, learning_rate=4e-3),
        "look": 2,
    },
}


@pytest.fixture
def quick(monkeypatch):
    """Smaller defaults, for what is run to see that it runs: pages and the gallery."""
    for path, smaller in QUICK.items():
        module, _, name = path.rpartition(".")
        init = inspect.unwrap(getattr(importlib.import_module(module), name).__init__)  # past `without`
        for key, value in smaller.items():
            assert key in init.__kwdefaults__, f"QUICK names {path}({key}=...), which is no longer there"
            monkeypatch.setitem(init.__kwdefaults__, key, value)
    for name, test in choose.TESTS.items():  # made when the package was imported: once more, smaller
        monkeypatch.setitem(choose.TESTS, name, type(test)())


@pytest.fixture(scope="session")
def cluster():
    """The address of a scheduler with two workers, which no test may kill."""
    yield from _address_of_two_workers()


@pytest.fixture
def doomed_cluster():
    """One for a test alone, which may kill the workers."""
    yield from _address_of_two_workers()


def _address_of_two_workers():
    pytest.importorskip("distributed", reason="engine dask is an extra: pip install 'steincritic[dask]'")
    from processes import cluster_of

    with cluster_of(2) as local:
        yield local.scheduler_address


@pytest.fixture
def run(capfd):
    """Runs a command line in this process: (exit code, standard output, standard error)."""

    from steincritic import cli

    def command(line, *more):
        with pytest.raises(SystemExit) as exited:
            cli.main([*line.split(), *more])
        captured = capfd.readouterr()
        return exited.value.code, captured.out, captured.err

    return command
