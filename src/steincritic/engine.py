"""Where independent pieces of work run: this process and its threads, processes, or a Dask cluster.

Workers compute on one thread each, so they do not fight for cores, and all engines give the same numbers to
the last bit. Only the calling thread writes files. A piece of work should last a second or more.
"""

import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Literal, TypeVar, get_args

import torch

from steincritic.cluster import Cluster, check_address, opened
from steincritic.errors import InputError, WorkerError, check_choice

EngineName = Literal["serial", "threads", "local", "dask"]
Item = TypeVar("Item")
Made = TypeVar("Made")


def spread(
    function: Callable[[Item], Made],
    items: Iterable[Item],
    engine: EngineName | None = None,
    *,
    address: str | None = None,
    workers: int | None = None,
) -> Generator[tuple[int, Made], None, None]:
    """The number of an item and the function's value for it, as they are ready.

    Args:
        function: importable by its name where processes are used.
        items: plain data and tensors, which travel between processes.
        engine: "serial", this thread, right for a GPU; "threads" of this process, which share its memory;
            "local", processes of this machine; "dask". By default the one that is in use, else "serial".
        address: of a Dask scheduler; without it the Dask client that is open in this process is used, else a
            cluster is started on the loopback interface.
        workers: threads or processes to start; by default as many threads as torch computes on, and one
            process per core.
    """
    place = _IN_USE.get() if engine is None else None
    place = place or _Place(engine or "serial", address, workers)
    engine = place.engine
    if engine == "serial":
        return ((k, function(item)) for k, item in enumerate(items))
    if engine == "threads":
        return _threads(function, items, workers or torch.get_num_threads())
    if engine == "local":
        return _local(function, items, workers or cores())
    return _dask(function, items, place)


def in_order(made: Iterable[tuple[int, Made]]) -> Iterator[Made]:
    """What `spread` gives, by number: each as soon as those before it are ready."""
    ready: dict[int, Made] = {}
    wanted = 0
    for k, one in made:
        ready[k] = one
        while wanted in ready:
            yield ready.pop(wanted)
            wanted += 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes on the calling thread alone: for many operations too small to be shared.

    Sharing them gains little, and loses much where another program holds one of the cores.
    """
    before = torch.get_num_threads()
    if before == 1:  # as in the threads of `spread`
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_that_help() -> int:
    """Torch's threads, or one where the machine has no more cores free at the moment.

    Torch's threads wait for each other in every operation, so one busy core makes all of them slow. Measured
    in a few milliseconds, at most once in some seconds; never more than `OMP_NUM_THREADS` or
    `torch.set_num_threads` allow.
    """
    threads, now = torch.get_num_threads(), time.monotonic()
    if threads == 1:
        return 1
    if threads not in _HELPED or now > _HELPED[threads][0]:
        together = _timed()
        with one_thread():
            alone = _timed()
        _HELPED[threads] = time.monotonic() + _AGAIN, _GAIN * together < alone
    return threads if _HELPED[threads][1] else 1


_AGAIN, _GAIN = 2.0, 1.25  # seconds until free cores are looked for again; less gain is not worth the risk
_HELPED: dict[int, tuple[float, bool]] = {}  # by threads: until when it holds, and whether they helped


def _timed() -> float:
    """Seconds of some operations of the size that threads share."""
    x = torch.ones(2**17)
    x.sigmoid_()  # wakes the threads
    start = time.perf_counter()
    for _ in range(20):
        x.sigmoid_()
    return time.perf_counter() - start


def _threads(
    function: Callable[[Item], Made], items: Iterable[Item], workers: int
) -> Generator[tuple[int, Made], None, None]:
    """Items are made in the calling thread, each when a thread is about to be free for it.

    Torch's own threads wait for each other in every operation; where another program holds a core they all
    wait for it. These wait for nobody, and the one on the free core takes more of the items.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # here too: torch's other threads go on spinning after every operation
    pool = ThreadPoolExecutor(workers, "steincritic", torch.set_num_threads, (1,))  # of the thread it is in
    pending: dict[Future[Made], int] = {}
    try:
        for k, item in enumerate(items):
            pending[pool.submit(function, item)] = k
            if len(pending) > workers:  # one waits, so that no thread has to
                yield from _done(pending)
        while pending:
            yield from _done(pending)
    finally:
        pool.shutdown(cancel_futures=True)  # after what has begun
        torch.set_num_threads(before)  # for threads to come, which would take over the last number set


def _done(pending: dict[Future[Made], int]) -> Iterator[tuple[int, Made]]:
    """At least one; what is done is no longer pending."""
    for future in wait(pending, return_when=FIRST_COMPLETED).done:
        yield pending.pop(future), future.result()


def _alone(function: Callable[[Item], Made], index: int, item: Item) -> tuple[int, Made]:
    """In a worker."""
    torch.set_num_threads(1)
    return index, function(item)


def _local(
    function: Callable[[Item], Made], items: Iterable[Item], workers: int
) -> Generator[tuple[int, Made], None, None]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):  # OMP_NUM_THREADS and its kin
        parallel = Parallel(return_as="generator_unordered", batch_size=1, max_nbytes=None)
    made = parallel(delayed(_alone)(function, k, item) for k, item in enumerate(items))
    try:
        for one in made:  # noqa: UP028, `yield from` would close it outside the filter below
            yield one
    except BrokenProcessPool:
        raise WorkerError("a worker died, perhaps of memory: run again, with fewer workers") from None
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # joblib's, on what it cancels: we stop on purpose
            made.close()


def _dask(
    function: Callable[[Item], Made], items: Iterable[Item], place: "_Place"
) -> Generator[tuple[int, Made], None, None]:
    with place.cluster() as cluster:
        yield from cluster.spread(function, items)


class _Place:
    """An engine with the cluster that it keeps while it is in use."""

    def __init__(self, engine: EngineName, address: str | None, workers: int | None = None) -> None:
        self.engine, self.address, self.workers = engine, address, workers
        self.kept: ExitStack | None = None
        self._open: Cluster | None = None

    @contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """Kept open where the place is in use, else for this once."""
        if self.kept is None:
            with opened(self.address, self.workers) as cluster:
                yield cluster
            return
        if self._open is None:
            self._open = self.kept.enter_context(opened(self.address, self.workers))
        yield self._open


_IN_USE: ContextVar[_Place | None] = ContextVar("engine", default=None)


@contextmanager
def using(engine: EngineName | None, address: str | None = None) -> Iterator[None]:
    """What is spread in here without an engine of its own goes to this one, by one cluster all the while.

    None leaves things as they are. Workers do not know of it: there every piece of work is on its own.
    """
    if engine is None and address is None:
        yield
        return
    check_engine(engine or "serial", address)
    place, before = _Place(engine or "serial", address), _IN_USE.get()
    if before is not None and (before.engine, before.address) == (place.engine, place.address):
        yield
        return
    with ExitStack() as place.kept:
        if address is not None:  # a wrong one is told before anything else is done
            with place.cluster():
                pass
        token = _IN_USE.set(place)
        try:
            yield
        finally:
            _IN_USE.reset(token)


def in_use() -> EngineName | None:
    place = _IN_USE.get()
    return None if place is None else place.engine


def cluster_in_use() -> Cluster | None:
    """Kept open by who uses it."""
    place = _IN_USE.get()
    if place is None or place.engine != "dask":
        return None
    with place.cluster() as cluster:
        return cluster


def at_a_time() -> int:
    """Pieces of work that the engine in use does at the same time."""
    place = _IN_USE.get()
    if place is None or place.engine == "serial":
        return 1
    if place.engine != "dask":
        return cores() if place.engine == "local" else torch.get_num_threads()
    cluster = cluster_in_use()
    assert cluster is not None
    return cluster.threads


def cores() -> int:
    from joblib import cpu_count

    return int(cpu_count())  # those that this process may use


def check_engine(engine: str, address: str | None) -> None:
    check_choice(engine, name="engine", choices=get_args(EngineName))
    if address is not None and engine != "dask":
        raise InputError(f"address is for engine dask, not for {engine}: got {address!r}")
    if address is not None:
        check_address(address)
