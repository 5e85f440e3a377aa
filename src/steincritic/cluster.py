"""A Dask cluster: reached or started, its workers looked at, and work spread over them.

The function is sent once, each item with its task, and few tasks are under way at a time. Until a result is
here, the scheduler keeps all that is needed to make it: another worker does the work of one that died.
"""

import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from hashlib import sha256
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from steincritic.errors import InputError, WorkerError, first_line, listed

Item = TypeVar("Item")
Made = TypeVar("Made")

FILE_MODULE = "steincritic_model_"  # begins the names of modules that workers cannot import
_ANSWER = 6.0  # seconds for a scheduler to answer; with what is imported before, ten
_FIRST = 20.0  # seconds for a first worker to be there, and for workers to tell their versions
_ALONE = 60.0  # seconds without any worker until a run is given up
_BEAT = 2.0  # seconds between two looks at the cluster
_AHEAD = 2  # tasks under way for each thread of a worker
_TOLD = 3  # workers that a message names
_PACKAGES = ("steincritic", "torch")


def check_address(address: str) -> str:
    """The address of a scheduler with its protocol, which is tcp where none is named."""
    found = re.fullmatch(r"((?:tcp|tls)://)?[^\s/]+:\d+", address)
    if found is None or int(address.rpartition(":")[2]) > 65535:
        raise InputError(f"address is that of a Dask scheduler, such as tcp://10.0.0.5:8786; got {address!r}")
    return address if found[1] else f"tcp://{address}"


@contextmanager
def opened(address: str | None, workers: int | None = None) -> Iterator["Cluster"]:
    """The scheduler at the address; without one that of the Dask client that is open in this process.

    Without either, workers are started on the loopback interface, one per GPU where there are several and one
    per core otherwise; they end with the block.
    """
    try:
        import distributed
    except ImportError:
        raise InputError("engine dask needs distributed: pip install 'steincritic[dask]'") from None
    with ExitStack() as stack:
        client = None if address or workers else _open_client()
        if client is None and address is None:
            local = stack.enter_context(_started(workers))
            client = stack.enter_context(distributed.Client(local, set_as_default=False, timeout=_FIRST))
        elif client is None:
            client = stack.enter_context(_reached(check_address(str(address))))
        cluster = Cluster(client)
        cluster.check()
        yield cluster


class Cluster:
    """Workers behind a client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._seen = 0.0  # when it was last looked at
        self._alive = time.monotonic()  # when there was last a worker
        self._threads = 1

    @property
    def address(self) -> str:
        return str(self._client.scheduler.address)

    @property
    def threads(self) -> int:
        """Of all workers, and so the tasks that run at the same time."""
        self._look()
        return self._threads

    def check(self) -> None:
        """Refuse workers that would compute other numbers, or none."""
        try:
            self._client.sync(self._client.wait_for_workers, 1, timeout=_FIRST)
            found = self._client.sync(
                self._client.get_versions, packages=list(_PACKAGES), callback_timeout=_FIRST
            )
        except TimeoutError:
            raise InputError(
                f"the Dask scheduler at {self.address} has no worker that answers within {_FIRST:g} s: start "
                f"some (dask worker {self.address} --nthreads 1) and run again"
            ) from None
        check_versions(found["client"], found["workers"] | {"the scheduler": found["scheduler"]})

    def spread(
        self, function: Callable[[Item], Made], items: Iterable[Item]
    ) -> Generator[tuple[int, Made], None, None]:
        """The number of an item and the function's value for it, as they are ready."""
        finished: SimpleQueue[Any] = SimpleQueue()
        pending: dict[str, tuple[int, Any]] = {}
        content = packed(function)
        # a task of its own: what is scattered would be lost with the worker that it is on
        work = self._submit(_same, content, key=f"steincritic-{sha256(content).hexdigest()}")
        try:
            for k, item in enumerate(items):
                future = self._submit(_perform, work, _version(), item, pure=False)
                pending[future.key] = k, future
                future.add_done_callback(finished.put)
                if len(pending) >= _AHEAD * self.threads:
                    yield self._next(finished, pending)
            while pending:
                yield self._next(finished, pending)
        finally:
            for _, future in pending.values():
                future.release()

    def compute(self, delayed: Any) -> Any:
        """What Dask was told to do later, as a future; items may hold such, in tuples and lists."""
        return self._client.compute(delayed)

    def _submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):  # few at a time
            return self._client.submit(function, *arguments, **options)

    def _next(self, finished: "SimpleQueue[Any]", pending: dict[str, tuple[int, Any]]) -> tuple[int, Any]:
        while True:
            try:
                future = finished.get(timeout=_BEAT)
                break
            except Empty:
                self._look()
        k, _ = pending.pop(future.key)
        if future.status == "cancelled":
            raise WorkerError(f"the Dask scheduler at {self.address} is gone: run again", k)
        error = future.exception()
        if error is None:
            return k, future.result()
        if type(error).__name__ == "KilledWorker":
            raise WorkerError(
                "one piece of work took several Dask workers down with it, perhaps for memory: give workers "
                "more, or run it on this machine to see why",
                k,
            )
        if isinstance(error, ModuleNotFoundError):
            raise InputError(f"a Dask worker cannot take the work: {first_line(error)}; install it there")
        raise error

    def _look(self) -> None:
        """How many threads there are, now and then; give up where there have been none for long."""
        now = time.monotonic()
        if now - self._seen < _BEAT:
            return
        self._seen = now
        try:
            self._threads = sum(self._client.sync(self._client.nthreads, callback_timeout=_ANSWER).values())
        except (TimeoutError, OSError):
            self._threads = 0
        if self._threads:
            self._alive = time.monotonic()
        elif time.monotonic() - self._alive > _ALONE:
            raise WorkerError(
                f"the Dask scheduler at {self.address} has had no worker for {_ALONE:g} s: start some and "
                "run again"
            )
        self._threads = max(1, self._threads)


def check_versions(here: Mapping[str, Any], workers: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse workers with another steincritic, torch or Python than those of this process."""
    wanted = _versions(here)
    wrong = []
    for address, about in workers.items():
        differ = {name: has for name, has in _versions(about).items() if has != wanted[name]}
        if differ:
            wrong.append(f"{address} has {', '.join(f'{name} {has}' for name, has in differ.items())}")
    if wrong:
        own = ", ".join(f"{name} {has}" for name, has in wanted.items())
        raise InputError(
            f"Dask workers and their scheduler must have what this process has, {own}; "
            f"{listed(wrong, _TOLD)}: install the same there"
        )


def _versions(about: Mapping[str, Any]) -> dict[str, str]:
    minor = ".".join(about["host"]["python"].split(".")[:2])
    return {"Python": minor} | {name: about["packages"].get(name) or "missing" for name in _PACKAGES}


def packed(function: Callable[..., Any]) -> bytes:
    """The function with all that it holds, as it travels."""
    import cloudpickle

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


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("steincritic")
    except PackageNotFoundError:  # a source tree
        return "of a source tree"


def _same(content: bytes) -> bytes:
    return content


def _perform(work: bytes, wanted: str, item: Any) -> Any:
    """In a worker."""
    import torch

    torch.set_num_threads(1)
    if _version() != wanted:  # of one that came later than the others
        raise InputError(f"a Dask worker has steincritic {_version()}, not {wanted}: install the same there")
    return _unpacked(work)(item)


@lru_cache(maxsize=2)
def _unpacked(work: bytes) -> Callable[[Any], Any]:
    import cloudpickle

    function: Callable[[Any], Any] = cloudpickle.loads(work)
    return function


def _open_client() -> Any:
    """The client that the user has opened in this process, if any."""
    from distributed import default_client

    try:
        client = default_client()
    except ValueError:
        return None
    return None if client.asynchronous or client.status != "running" else client


def _reached(address: str) -> Any:
    from distributed import Client, Security

    if address.startswith("tls") and not Security().get_connection_args("client").get("ssl_context"):
        raise InputError(
            f"{address} needs certificates: set distributed.comm.tls in the configuration of Dask, or "
            "name a tcp:// address"
        )
    try:
        _check_speaks(address)
        return Client(address, set_as_default=False, timeout=_ANSWER)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {address}: {first_line(error)}") from None


def _check_speaks(address: str) -> None:
    """Refuse what takes connections and is no scheduler: Dask would wait for its greeting without end."""
    protocol, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    try:
        door = socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER)
    except OSError:
        return  # perhaps not there yet: Dask tries again for a while
    with door:
        if protocol == "tcp" and not door.recv(1):
            raise OSError("what listens there is no scheduler")


def _started(workers: int | None) -> Any:
    """Processes of one thread on the loopback interface, one per GPU where there are several."""
    from distributed import Nanny, Scheduler, SpecCluster

    own = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}  # else at 8787
    options = own | {
        "nthreads": 1,
        "memory_limit": None,
        "silence_logs": logging.CRITICAL,
        "preload": "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",  # Ctrl-C is the client's
    }
    places = environments(workers)
    try:
        return SpecCluster(
            scheduler={"cls": Scheduler, "options": own | {"port": 0}},
            workers={k: {"cls": Nanny, "options": options | {"env": env}} for k, env in enumerate(places)},
            silence_logs=logging.CRITICAL,
        )
    except RuntimeError as error:  # of Dask, whatever it was
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise InputError(
            f"no Dask workers can be started on this machine: {first_line(cause)}; make room for them, or "
            "take another engine"
        ) from None


def environments(workers: int | None = None) -> list[dict[str, str]]:
    """Of each worker on this machine: one per GPU where there are several, else one per core."""
    import torch
    from joblib import cpu_count

    count = torch.cuda.device_count()
    if count < 2:
        return [{}] * (workers or int(cpu_count()))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible.split(",") if visible else list(map(str, range(count)))
    return [{"CUDA_VISIBLE_DEVICES": devices[k % count]} for k in range(workers or count)]
