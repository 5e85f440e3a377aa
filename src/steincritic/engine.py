"""Where independent pieces of work run: this process and its threads, processes, or a Dask cluster.

Workers compute on one thread each, so they do not fight for cores, and all engines give the same numbers to
the last bit. Only the calling thread writes files. A piece of work should last a second or more.
"""

import logging
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, get_args

import torch

from steincritic.errors import InputError, check_choice

EngineName = Literal["serial", "threads", "local", "dask"]
Item = TypeVar("Item")
Made = TypeVar("Made")


class WorkerError(RuntimeError):
    """A worker was lost; `index` is the item it worked on, where that is known."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


def spread(
    function: Callable[[Item], Made],
    items: Iterable[Item],
    engine: EngineName = "serial",
    *,
    address: str | None = None,
    workers: int | None = None,
) -> Generator[tuple[int, Made], None, None]:
    """The number of an item and the function's value for it, as they are ready.

    Args:
        function: importable by its name where processes are used.
        items: plain data and tensors, which travel between processes.
        engine: "serial", this thread, right for a GPU; "threads" of this process, which share its memory;
            "local", processes of this machine; "dask".
        address: of a Dask scheduler; without it a cluster is started on the loopback interface.
        workers: threads or processes to start; by default as many threads as torch computes on, and one
            process per core.
    """
    if engine == "serial":
        return ((k, function(item)) for k, item in enumerate(items))
    if engine == "threads":
        return _threads(function, items, workers or torch.get_num_threads())
    if engine == "local":
        return _local(function, items, workers or cores())
    return _dask(function, items, address, workers or cores())


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
    function: Callable[[Item], Made], items: Iterable[Item], address: str | None, workers: int
) -> Generator[tuple[int, Made], None, None]:
    with _dask_client(address, workers) as client:
        from distributed import as_completed

        futures = [client.submit(_alone, function, k, item, pure=False) for k, item in enumerate(items)]
        numbers = {future.key: k for k, future in enumerate(futures)}
        for future in as_completed(futures, loop=client.loop):
            error = future.exception()
            if error is None:
                yield future.result()
            elif type(error).__module__.startswith("distributed"):  # the cluster's, such as a killed worker
                raise WorkerError(f"{type(error).__name__}: {error}", numbers[future.key])
            else:
                raise error


def _dask_client(address: str | None, workers: int) -> Any:
    """Connected to the address, or to a cluster on the loopback interface that closes with the client."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError("engine dask needs distributed: pip install 'steincritic[dask]'") from None
    own_cluster: dict[str, Any] = {
        "host": "127.0.0.1",
        "n_workers": workers,
        "threads_per_worker": 1,
        "dashboard_address": "127.0.0.1:0",  # any free port
        "memory_limit": None,
        "silence_logs": logging.ERROR,
        "preload": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",  # Ctrl-C is the client's
    }
    try:
        return Client(address, set_as_default=False, timeout=10, **({} if address else own_cluster))
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address}: {error}") from None


def cores() -> int:
    from joblib import cpu_count

    return int(cpu_count())  # those that this process may use


def check_engine(engine: str, address: str | None) -> None:
    check_choice(engine, name="engine", choices=get_args(EngineName))
    if address is not None and engine != "dask":
        raise InputError(f"address is for engine dask, not for {engine}: got {address!r}")
