"""Where independent pieces of work run: this process and its threads, processes, or a Dask cluster.

Every engine is an executor of `concurrent.futures`: Python's own threads, the processes of loky (which comes
with joblib), Dask's workers. Workers compute on one thread each, so they do not fight for cores, and all
engines give the same numbers to the last bit. Only the calling thread makes items and writes files. A piece
of work should last a second or more.
"""

import logging
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args

import torch

from steincritic.errors import InputError, WorkerError, check_address, check_choice, first_line

EngineName = Literal["serial", "threads", "local", "dask"]
Item = TypeVar("Item")
Made = TypeVar("Made")
Work = Callable[[Any], Any]
Counted = Callable[[], int]

FILE_MODULE = "steincritic_model_"  # begins the names of modules that workers cannot import
_PATIENCE = 10.0  # seconds for a scheduler to answer, and for a first worker to be there
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}


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
        function: travels to processes by cloudpickle, with all that it holds.
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
    if place.engine == "serial":
        return ((k, function(item)) for k, item in enumerate(items))
    return _spread(function, items, place)


def in_order(numbered: Iterable[tuple[int, Made]]) -> Iterator[Made]:
    """What `spread` gives, by number: each as soon as those before it are ready."""
    ready: dict[int, Made] = {}
    turn = 0
    for k, value in numbered:
        ready[k] = value
        while turn in ready:
            yield ready.pop(turn)
            turn += 1


@contextmanager
def using(engine: EngineName | None, address: str | None = None) -> Iterator[None]:
    """What is spread in here without an engine of its own goes to this one, by one cluster all the while.

    None leaves things as they are. Workers do not know of it: there every piece of work is on its own.
    """
    check_engine(engine or "serial", address)
    before = _IN_USE.get()
    if engine is None or (before is not None and (before.engine, before.address) == (engine, address)):
        yield
        return
    with _Place(engine, address).opened() as place:
        token = _IN_USE.set(place)
        try:
            yield
        finally:
            _IN_USE.reset(token)


def in_use() -> EngineName | None:
    place = _IN_USE.get()
    return None if place is None else place.engine


def at_a_time() -> int:
    """Pieces of work that the engine in use does at the same time."""
    place = _IN_USE.get()
    return 1 if place is None else place.at_a_time()


def cores() -> int:
    from joblib import cpu_count

    return int(cpu_count())  # those that this process may use


def check_engine(engine: str, address: str | None) -> None:
    check_choice(engine, name="engine", choices=get_args(EngineName))
    if address is not None and engine != "dask":
        raise InputError(f"address is for engine dask, not for {engine}: got {address!r}")
    if address is not None:
        check_address(address)


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


@dataclass(frozen=True, eq=False)
class _Place:
    """An engine, with the Dask client that is kept open while it is in use."""

    engine: EngineName
    address: str | None = None
    workers: int | None = None
    client: Any = None

    def at_a_time(self) -> int:
        if self.engine == "dask":
            return max(1, int(sum(self.client.nthreads().values())))
        if self.engine == "serial":
            return 1
        return self.workers or (torch.get_num_threads() if self.engine == "threads" else cores())

    @contextmanager
    def opened(self) -> Iterator["_Place"]:
        if self.engine != "dask" or self.client is not None:
            yield self
            return
        with _dask_client(self.address, self.workers) as client:
            yield replace(self, client=client)


_IN_USE: ContextVar[_Place | None] = ContextVar("engine", default=None)


def _spread(
    function: Callable[[Item], Made], items: Iterable[Item], place: _Place
) -> Generator[tuple[int, Made], None, None]:
    """Items are made in the calling thread, each when a worker is about to be free for it."""
    pending: dict[Future[Made], int] = {}
    with place.opened() as place, _workers(function, place) as (submit, count):
        try:
            for k, item in enumerate(items):
                pending[submit(item)] = k
                if len(pending) > count():  # one waits, so that no worker has to
                    yield from _done(pending)
            while pending:
                yield from _done(pending)
        finally:
            # Processes are killed, and loky then fails what waits for them; it may not be cancelled already.
            for future in pending if place.engine != "local" else ():
                future.cancel()


def _done(pending: "dict[Future[Made], int]") -> Iterator[tuple[int, Made]]:
    """At least one; what is done is no longer pending."""
    for future in wait(pending, return_when=FIRST_COMPLETED).done:
        k = pending.pop(future)
        try:
            output = future.result()
        except BrokenProcessPool:
            raise WorkerError("a worker died, perhaps of memory: run again, with fewer workers") from None
        except CancelledError:
            raise WorkerError("the Dask scheduler is gone: run again", k) from None
        except Exception as error:
            if type(error).__name__ != "KilledWorker":
                raise
            raise WorkerError("one piece of work took several Dask workers down with it", k) from None
        yield k, output


@contextmanager
def _workers(function: Work, place: _Place) -> Iterator[tuple[Callable[[Any], "Future[Any]"], Counted]]:
    """What hands an item to a worker, and how many there are."""
    count = place.at_a_time()
    if place.engine == "threads":
        # torch's own threads wait for each other in every operation, and go on spinning after it
        with one_thread(), ThreadPoolExecutor(count, "steincritic", torch.set_num_threads, (1,)) as pool:
            yield lambda item: pool.submit(function, item), lambda: count
    elif place.engine == "local":
        from joblib.externals.loky import get_reusable_executor

        processes: Any = get_reusable_executor(count, timeout=60, env=_ONE_THREAD)
        try:
            content = _packed(function)
            yield lambda item: processes.submit(_in_worker, content, item), lambda: count
        except BaseException:  # nobody waits any more for what has begun
            processes.shutdown(kill_workers=True)
            raise
    else:
        # a task of its own, which is done again elsewhere: what is scattered would be lost with its worker
        content = place.client.submit(bytes, _packed(function))
        executor = place.client.get_executor(pure=False)
        yield lambda item: executor.submit(_in_worker, content, item), place.at_a_time  # workers come and go


def _packed(function: Work) -> bytes:
    """The function with all that it holds, also of a file that workers do not have."""
    cloudpickle = _cloudpickle()
    for name in [name for name in sys.modules if name.startswith(FILE_MODULE)]:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        content: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise InputError(
            f"what workers need cannot be sent to them ({type(error).__name__}: {first_line(error)}): models "
            "travel by cloudpickle; take another engine, or a model without what cannot be sent"
        ) from None
    return content


def _in_worker(content: bytes, item: Any) -> Any:
    torch.set_num_threads(1)
    return _unpacked(content)(item)


@lru_cache(maxsize=2)
def _unpacked(content: bytes) -> Work:
    function: Work = _cloudpickle().loads(content)
    return function


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError:  # older releases of joblib carry it inside
        from joblib.externals import cloudpickle
    return cloudpickle


@contextmanager
def _dask_client(address: str | None, workers: int | None) -> Iterator[Any]:
    """Of the scheduler at the address, else the one open in this process, else of workers of our own."""
    try:
        import dask
        from distributed import Client, LocalCluster, default_client
    except ImportError:
        raise InputError("engine dask needs distributed: pip install 'steincritic[dask]'") from None
    with ExitStack() as stack:
        # few tasks are under way at a time, so that large ones are no mistake
        stack.enter_context(dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}))
        client: Any = None
        if address is None and workers is None:
            with suppress(ValueError):  # there is none
                client = default_client()
        place: Any = address and check_address(address)
        try:
            if client is None and place is None:
                place = LocalCluster(
                    n_workers=workers or cores(),
                    threads_per_worker=1,
                    memory_limit=None,
                    host="127.0.0.1",
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                    preload="import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",  # is the client's
                )
                stack.enter_context(place)
            if client is None:
                if address is not None:
                    _check_speaks(place)
                client = stack.enter_context(Client(place, set_as_default=False, timeout=_PATIENCE))
            client.wait_for_workers(1, timeout=_PATIENCE)
        except (OSError, ValueError, RuntimeError) as error:
            where = f"at {address}" if address else "on this machine"
            raise InputError(f"no Dask scheduler with workers answers {where}: {first_line(error)}") from None
        yield client


def _check_speaks(address: str) -> None:
    """Refuse what takes connections and is no scheduler: Dask would wait for its greeting without end."""
    protocol, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    with (
        suppress(ConnectionError),
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE) as door,
    ):
        if protocol == "tcp" and not door.recv(1):
            raise OSError("what listens there is no scheduler")
