"""Workers that die: processes of this machine and of a Dask cluster."""

import os
import signal
from pathlib import Path

import pytest

from steincritic.engine import spread
from steincritic.errors import WorkerError


def dies_once(item):
    """The square of a number; at 2, kills its own process the first time."""
    mark, number = item
    if number == 2 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def always_dies(item):
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return item**2


def test_a_task_whose_dask_worker_is_killed_is_done_by_another(tmp_path):
    pytest.importorskip("distributed")
    items = [(str(tmp_path / "mark"), k) for k in range(6)]
    assert dict(spread(dies_once, items, "dask", workers=2)) == {k: k**2 for k in range(6)}


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_a_task_that_kills_every_worker_is_named_in_one_line(engine):
    if engine == "dask":
        pytest.importorskip("distributed")
    with pytest.raises(WorkerError) as lost:
        dict(spread(always_dies, range(4), engine, workers=2))
    assert "\n" not in str(lost.value)
