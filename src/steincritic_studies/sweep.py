"""Sweeps: many runs of one function, each kept in a file of its own.

The file of a job is named by a hash of the function's name and the job's fields, so a finished job is
never run again and an interrupted sweep goes on where it was. The hash does not see the function's
code: after a change to it, take another folder.

Only the calling process writes. Workers send their result back as JSON text, so they need no disk in
common, and no two processes write one file. A job runs on one thread in every engine.
"""

import json
import math
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import torch

from steincritic.engine import EngineName, check_engine, cores, spread
from steincritic.errors import DoubtfulWarning, FileFormatError, InputError, WorkerError, check_count
from steincritic.files import json_digest, write_atomically
from steincritic.training.progress import StepBar

Progress = Callable[[int, int], None]  # jobs done, jobs in all
Result = dict[str, Any]
Job = TypeVar("Job")

_FORMAT = "steincritic-job-1"


class JobError(RuntimeError):
    """A job of a sweep failed; what was finished before it is kept."""


def run_sweep(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    *,
    folder: Path,
    engine: EngineName = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """The function's result for every job, in the order of the jobs; what the folder holds is not rerun.

    Args:
        function: importable by its name; takes a job and returns a dict of JSON values. Its randomness
            comes from a seed in the job.
        jobs: frozen dataclasses of plain values, tuples and further frozen dataclasses.
        folder: gets one `<key>.json` a job: configuration, result and the seconds it took.
        engine: "local", processes on this machine (but this one if a single job is left to run);
            "serial", this process, for jobs that share a GPU; "dask", the processes of a cluster.
        address: the Dask scheduler's; without it a cluster is started on the loopback interface.
        workers: processes to start, by default one a core.
        progress: called as jobs finish; without it a bar is shown on a terminal.

    Raises:
        JobError: naming the job that failed. Results that came before it stay in the folder, as they do
            after an interrupt; the same call goes on from there.
    """
    check_engine(engine, address)
    if workers is not None:
        check_count(workers, name="workers")
    order = [_Task.of(function, job) for job in jobs]
    tasks = {task.key: task for task in order}
    results = _read_finished(folder, tasks)
    pending = [task for task in tasks.values() if task.key not in results]
    with (
        _watched(progress, len(tasks)) as report,
        closing(_outcomes_of(pending, engine, address, workers)) as outcomes,
    ):
        report(len(results), len(tasks))
        for outcome in outcomes:
            if outcome.failure is not None:
                raise _job_error(tasks[outcome.key], outcome, f"{len(results)} results are kept in {folder}")
            results[outcome.key] = _write(folder, tasks[outcome.key], outcome)
            report(len(results), len(tasks))
    return [results[task.key] for task in order]


@dataclass(frozen=True)
class _Task:
    """A job with its function, and the JSON values that tell it from all others."""

    function: Callable[[Any], Result]
    job: Any
    about: Mapping[str, Any]
    key: str

    @classmethod
    def of(cls, function: Callable[[Any], Result], job: Any) -> "_Task":
        about = {"format": _FORMAT, "function": _name(function), "config": _plain(job, "job")}
        return cls(function, job, about, json_digest(about))


@dataclass(frozen=True)
class _Outcome:
    """What a worker sends back: strings, which every engine carries unchanged."""

    key: str
    result: str = ""  # JSON
    seconds: float = 0.0
    failure: str | None = None
    traceback: str = ""


def _perform(task: _Task) -> _Outcome:
    """Run one job in whatever process this is. A failure is returned, so that it comes with its job."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    try:
        result = task.function(task.job)
        if not isinstance(result, dict):
            raise TypeError(f"a job returns a dict, this one returned {result!r}")
        text = json.dumps(result, allow_nan=False)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        return _Outcome(task.key, failure=failure, traceback=traceback.format_exc())
    return _Outcome(task.key, text, time.perf_counter() - start)


def _job_error(task: _Task, outcome: _Outcome, kept: str) -> JobError:
    error = JobError(f"{task.job!r} failed: {outcome.failure}; {kept}, run again to go on")
    if outcome.traceback:
        error.add_note(outcome.traceback)
    return error


def _outcomes_of(
    pending: list[_Task], engine: EngineName, address: str | None, workers: int | None
) -> Generator[_Outcome, None, None]:
    """What each job gave, in the order in which jobs end."""
    threads = torch.get_num_threads()
    workers = min(workers or cores(), max(1, len(pending)))
    alone = not pending or (engine == "local" and workers == 1)
    outcomes = spread(_perform, pending, "serial" if alone else engine, address=address, workers=workers)
    try:
        for _, outcome in outcomes:
            yield outcome
    except WorkerError as error:
        if error.index is None:
            raise JobError(f"{error}, to go on") from None
        yield _Outcome(pending[error.index].key, failure=str(error))
    finally:
        outcomes.close()
        torch.set_num_threads(threads)


def _write(folder: Path, task: _Task, outcome: _Outcome) -> Result:
    result: Result = json.loads(outcome.result)  # as a later run will read it
    content = {**task.about, "seconds": outcome.seconds, "result": result, "checksum": json_digest(result)}
    write_atomically(folder / f"{task.key}.json", (json.dumps(content, indent=1) + "\n").encode())
    return result


def _read_finished(folder: Path, keys: Iterable[str]) -> dict[str, Result]:
    results, damaged = {}, []
    for key in keys:
        try:
            results[key] = _read(folder / f"{key}.json", key)
        except FileNotFoundError:
            continue
        except FileFormatError as error:
            damaged.append(str(error))
    if damaged:
        more = f" (so do {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
        warnings.warn(f"{damaged[0]}{more}: computing it again", DoubtfulWarning, stacklevel=3)
    return results


def _read(path: Path, key: str) -> Result:
    try:
        content = json.loads(path.read_bytes())
        about = {name: content[name] for name in ("format", "function", "config")}
        result: Result = content["result"]
        whole = (json_digest(about), json_digest(result)) == (key, content["checksum"])
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise FileFormatError(f"{path} does not hold the result that its name promises")
    return result


def _plain(value: Any, where: str) -> Any:
    """As JSON values; a dataclass tells its class too, under a name that no field can have."""
    params = getattr(value, "__dataclass_params__", None)
    if params is not None and params.frozen and not isinstance(value, type):
        inside = {field.name: getattr(value, field.name) for field in fields(value)}
        return {"class": _name(type(value)), **{k: _plain(v, f"{where}.{k}") for k, v in inside.items()}}
    if isinstance(value, tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InputError(f"{where} is {value!r}: jobs hold finite numbers, strings, tuples, frozen dataclasses")


def _name(thing: Any) -> str:
    """module.name of a function or class that another process can import."""
    module, name = getattr(thing, "__module__", "__main__"), getattr(thing, "__qualname__", "<none>")
    if module == "__main__" or "<" in name:
        raise InputError(f"{thing!r} must stand at the top of a module that worker processes can import")
    return f"{module}.{name}"


@contextmanager
def _watched(progress: Progress | None, total: int) -> Iterator[Progress]:
    """The caller's callback, or a bar on standard error when it is a terminal."""
    if progress is not None:
        yield progress
        return
    with StepBar("sweep", total, unit="jobs") as bar:
        yield lambda done, total: bar.move(done)
