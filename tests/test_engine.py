"""Every engine gives the numbers of one thread, whatever ends first or dies, and leaves nothing behind."""

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import steincritic as sc
from steincritic import engine as engine_module
from steincritic.engine import at_a_time, check_engine, in_use, one_thread, spread, threads_that_help, using
from steincritic.errors import InputError, WorkerError, check_address
from steincritic.models.spec import load_object
from steincritic.rng import generator

Q = sc.models.GaussianMixture([[0.0, 0.0]])
X = Q.sample(60, seed=1) + torch.tensor([0.15, 0.0])


@pytest.fixture(params=["threads", "local", "dask"])
def engine(request):
    """Each engine in use, two workers at a time."""
    address = request.getfixturevalue("cluster") if request.param == "dask" else None
    before = threading.enumerate() if request.param == "threads" else None
    torch.set_num_threads(2)
    try:
        with using(request.param, address):
            yield request.param
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert before is None or [t for t in threading.enumerate() if t not in before] == []


def numbers_of(seed):
    """Products, a reduction over an array that torch shares among its threads, and an optimizer."""
    x = torch.randn(40, 64, 64, generator=generator(seed))
    weight = torch.zeros(40, 64, 64)
    weight.grad = torch.bmm(x, x.mT).sigmoid_()
    torch.optim.Adam([weight], fused=True).step()
    return torch.stack([weight.sum(), x.mean(), x.std()]), torch.get_num_threads()


def test_workers_give_the_bits_of_one_thread(engine):
    made = dict(spread(numbers_of, range(7)))
    assert sorted(made) == list(range(7))
    with one_thread():
        for k, (wanted, _) in spread(numbers_of, range(7), "serial"):
            assert torch.equal(made[k][0], wanted) and made[k][1] == 1
    assert list(spread(numbers_of, [])) == []


def test_null_runs_are_the_same_bits_wherever_they_are_made(engine):
    test = sc.Combined(critics=None, draws=39, reference=20, cache=False)
    apart = sc.gof_test(Q, X, test)
    with using("serial"):
        alone = sc.gof_test(Q, X, test)
    assert torch.equal(apart.null_distribution, alone.null_distribution)
    assert apart.to_dict() == alone.to_dict()


def test_items_are_made_in_the_calling_thread_and_only_when_they_are_needed(engine):
    made_in = []

    def items():
        for k in range(50):
            made_in.append(threading.current_thread())
            yield k

    results = spread(slow_square, items())
    next(results)
    assert len(made_in) == 3  # one waits while two are at work
    results.close()
    assert set(made_in) == {threading.current_thread()}


def slow_square(k):
    time.sleep(0.05)
    return k**2


def test_an_error_is_raised_here(engine):
    def items():
        yield 0
        raise ValueError("no more")

    def refuse(k):
        raise InputError(f"no {k}")

    with pytest.raises(InputError, match=r"no [0-2]"):
        dict(spread(refuse, range(20)))
    with pytest.raises(ValueError, match="no more"):
        list(spread(slow_square, items()))


def test_an_interrupt_ends_what_has_begun_and_begins_nothing_else():
    """The signal of Ctrl-C, sent while the first result is awaited."""
    begun = []

    def work(k):
        begun.append(k)
        time.sleep(0.5)

    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(spread(work, range(20), "threads", workers=2))
    timer.join()
    assert begun == [0, 1]


# What travels to processes.


@pytest.mark.parametrize("engine", ["local", "dask"], indirect=True)
def test_a_model_of_a_file_travels_and_what_cannot_is_one_line(engine, tmp_path):
    (tmp_path / "file.py").write_text(
        "import torch\nclass Bowl:\n    def score(self, x):\n        return -x\nq = Bowl()\n"
    )
    model, lock = load_object(f"{tmp_path}/file.py:q"), threading.Lock()
    assert dict(spread(lambda k: float(model.score(torch.tensor(k))), [1.0, 2.0])) == {0: -1.0, 1: -2.0}
    with pytest.raises(InputError, match=r"cannot be sent to them .*lock") as told:
        dict(spread(lambda k: lock, range(2)))
    assert "\n" not in str(told.value)


def dies_once(item):
    """The square of a number; at 2, kills its own process the first time."""
    mark, number = item
    if number == 2 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def test_a_dask_worker_that_is_killed_changes_no_number(doomed_cluster, tmp_path):
    items = [(str(tmp_path / "mark"), k) for k in range(6)]
    assert dict(spread(dies_once, items, "dask", address=doomed_cluster)) == {k: k**2 for k in range(6)}
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("engine", ["local", "dask"])
def test_work_that_kills_every_worker_is_one_line(engine, request):
    address = request.getfixturevalue("doomed_cluster") if engine == "dask" else None
    with pytest.raises(WorkerError, match="worker") as lost:
        dict(spread(lambda k: os.kill(os.getpid(), signal.SIGKILL), range(2), engine, address=address))
    assert "\n" not in str(lost.value)


# Dask.


@pytest.mark.parametrize(
    "address", ["nowhere", "tcp://host", "", "host:99999", "tcp://a b:1", "http://a:1", "inproc://a:1"]
)
def test_an_address_that_is_none_is_told(address):
    with pytest.raises(InputError, match="such as tcp:"):
        check_address(address)
    with pytest.raises(InputError, match="address is for engine dask"):
        check_engine("threads", "tcp://127.0.0.1:1")
    assert check_address("here:8786") == "tcp://here:8786"


@pytest.mark.parametrize("listens", [True, False])
def test_where_no_scheduler_answers_one_line_says_so_soon(listens, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(engine_module, "_PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"tcp://127.0.0.1:{door.getsockname()[1]}"
        if not listens:
            door.close()
        with pytest.raises(InputError, match=f"no Dask scheduler with workers answers at {address}") as told:
            sc.gof_test(Q, X, engine="dask", address=address)
    assert "\n" not in str(told.value)


def test_the_open_client_is_used_and_without_one_workers_are_started(cluster):
    from distributed import Client

    with Client(cluster) as client, using("dask"):
        assert at_a_time() == sum(client.nthreads().values()) == 2 and in_use() == "dask"
        assert dict(spread(slow_square, range(3))) == {0: 0, 1: 1, 2: 4}
    assert in_use() is None
    assert dict(spread(slow_square, range(3), "dask", workers=1)) == {0: 0, 1: 1, 2: 4}


def test_dask_that_is_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'steincritic\[dask\]'"):
        dict(spread(slow_square, range(2), "dask"))


# Torch's own threads.


def test_one_thread_is_for_the_block_alone_whatever_happens_there():
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="inside"), one_thread():
            assert torch.get_num_threads() == 1
            with one_thread():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1
            raise ValueError("inside")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def timed_as(monkeypatch, *, together, alone):
    """Torch's threads and one thread take so many seconds; says how often was measured."""
    measured = []

    def timed():
        measured.append(torch.get_num_threads())
        return alone if torch.get_num_threads() == 1 else together

    monkeypatch.setattr(engine_module, "_timed", timed)
    monkeypatch.setattr(engine_module, "_HELPED", {})
    return measured


@pytest.mark.parametrize(("together", "threads"), [(0.55, 2), (0.95, 1), (20.0, 1)])
def test_threads_are_taken_where_they_help(together, threads, monkeypatch):
    measured = timed_as(monkeypatch, together=together, alone=1.0)
    torch.set_num_threads(2)
    try:
        assert [threads_that_help() for _ in range(3)] == [threads] * 3
        assert measured == [2, 1] and torch.get_num_threads() == 2  # once
        monkeypatch.setattr(engine_module, "_HELPED", {2: (0.0, True)})  # long ago
        assert threads_that_help() == threads
    finally:
        torch.set_num_threads(1)


def test_one_thread_needs_no_measuring(monkeypatch):
    measured = timed_as(monkeypatch, together=0.5, alone=1.0)
    assert threads_that_help() == 1 and measured == []
