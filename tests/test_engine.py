"""Threads give the numbers of one thread, whatever ends first, and leave nothing running behind."""

import os
import signal
import threading
import time

import pytest
import torch

from steincritic import engine as engine_module
from steincritic.engine import check_engine, one_thread, spread, threads_that_help
from steincritic.errors import InputError
from steincritic.rng import generator


@pytest.fixture(autouse=True)
def _no_thread_stays():
    before = threading.enumerate(), torch.get_num_threads()
    yield
    assert [t for t in threading.enumerate() if t not in before[0]] == []
    assert torch.get_num_threads() == before[1]


def numbers_of(seed):
    """Products, a reduction over an array that torch shares among its threads, and an optimizer."""
    x = torch.randn(40, 64, 64, generator=generator(seed))
    weight = torch.zeros(40, 64, 64)
    weight.grad = torch.bmm(x, x.mT).sigmoid_()
    torch.optim.Adam([weight], fused=True).step()
    return torch.stack([weight.sum(), x.mean(), x.std()])


@pytest.mark.parametrize("workers", [None, 1, 2, 5])
def test_threads_give_the_bits_of_one_thread(workers):
    made = dict(spread(numbers_of, range(7), "threads", workers=workers))
    assert sorted(made) == list(range(7))
    for k, wanted in spread(numbers_of, range(7)):
        assert torch.equal(made[k], wanted)


def test_every_thread_computes_on_one_thread_and_there_are_as_many_as_torch_has():
    meet = threading.Barrier(3, timeout=30)
    torch.set_num_threads(3)
    try:
        made = list(spread(lambda k: (meet.wait(), torch.get_num_threads()), range(3), "threads"))
        assert [threads for _, (_, threads) in made] == [1, 1, 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)


def test_a_slow_item_holds_up_no_other():
    others_are_done = threading.Event()

    def work(k):
        if k == 0:
            assert others_are_done.wait(timeout=30)
        return k

    order = []
    for k, _ in spread(work, range(6), "threads", workers=2):
        order.append(k)
        if len(order) == 5:
            others_are_done.set()
    assert order[-1] == 0


def test_items_are_made_in_the_calling_thread_and_only_when_they_are_needed():
    made_in = []

    def items():
        for k in range(10):
            made_in.append(threading.current_thread())
            yield k

    results = spread(lambda k: k, items(), "threads", workers=2)
    next(results)
    assert len(made_in) == 3  # one waits while two are at work
    results.close()
    assert set(made_in) == {threading.current_thread()}


def test_no_items_give_nothing():
    assert list(spread(numbers_of, [], "threads")) == []


def test_an_error_of_an_item_is_raised_after_what_has_begun():
    begun, ended = [], []

    def work(k):
        begun.append(k)
        if k == 1:
            raise ValueError("one is forbidden")
        time.sleep(0.05)
        ended.append(k)

    with pytest.raises(ValueError, match="one is forbidden"):
        list(spread(work, range(20), "threads", workers=2))
    assert sorted(ended) == [k for k in sorted(begun) if k != 1]
    assert len(begun) < 10


def test_an_error_in_making_items_is_raised():
    def items():
        yield 0
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        list(spread(numbers_of, items(), "threads", workers=2))


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


def test_an_address_is_for_dask():
    check_engine("threads", None)
    with pytest.raises(InputError, match="address is for engine dask"):
        check_engine("threads", "tcp://127.0.0.1:1")


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
