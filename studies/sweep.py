"""Sweeps: many runs of one function, each kept in a file of its own.

The file of a job is named by a hash of the function's name and the job's text, so a finished job is never run
again and an interrupted sweep goes on where it was. The hash does not see the function's code: after a change
to it, take another folder.

Only the calling process writes. Workers send their result back as JSON text, so they need no disk in common,
and no two processes write one file. A job runs on one thread in every engine.
"""

import json
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from steincritic.engine import EngineName, check_engine, cores, one_thread, spread
from steincritic.errors import DoubtfulWarning, WorkerError
from steincritic.files import json_digest
from steincritic.training.progress import StepBar
from studies.record import UNREADABLE, load_sealed, save_sealed

Result = dict[str, Any]
Job = TypeVar("Job")

_FORMAT = "steincritic-job-3"


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
) -> list[Result]:
    """The function's result for every job, in the order of the jobs; what the folder holds is not rerun.

    Args:
        function: importable by its name; takes a job and returns a dict of JSON values. Its randomness
            comes from a seed in the job.
        jobs: frozen dataclasses whose repr says all that they hold.
        folder: gets one `<key>.json` a job: what was run, the result and the seconds it took.
        engine: "local", processes on this machine (but this one if a single job is left to run);
            "serial", this process, for jobs that share a GPU; "dask", the processes of a cluster.
        address: the Dask scheduler's; without it a cluster is started on the loopback interface.
        workers: processes to start, by default one a core.

    Raises:
        JobError: naming the job that failed. Results that came before it stay in the folder, as they do
            after an interrupt; the same call goes on from there.
    """
    check_engine(engine, address)
    name = f"{function.__module__}.{function.__qualname__}"
    order = [{"format": _FORMAT, "function": name, "job": repr(job)} for job in jobs]
    keys = [json_digest(about) for about in order]
    results = _finished(folder, dict(zip(keys, order, strict=True)))
    unfinished = {key: k for k, key in enumerate(keys) if key not in results}
    pending = list(unfinished.values())
    workers = min(workers or cores(), max(1, len(pending)))
    if not pending or (engine == "local" and workers == 1):
        engine, address = "serial", None
    kept = f"results of jobs are kept in {folder}, run again to go on"
    outcomes = spread(
        partial(_perform, function), [jobs[k] for k in pending], engine, address=address, workers=workers
    )
    with StepBar("sweep", len({*keys}), unit="jobs") as bar, closing(outcomes):
        bar.move(len(results))
        try:
            for j, outcome in outcomes:
                k = pending[j]
                if "failure" in outcome:
                    error = JobError(f"{jobs[k]!r} failed: {outcome['failure']}; {kept}")
                    error.add_note(outcome["traceback"])
                    raise error
                result = json.loads(outcome["result"])  # as a later run will read it
                about = {**order[k], "result": result, "seconds": outcome["seconds"]}
                save_sealed(folder / f"{keys[k]}.json", about)
                results[keys[k]] = result
                bar.move(len(results))
        except WorkerError as error:
            job = "" if error.index is None else f"{jobs[pending[error.index]]!r} failed: "
            raise JobError(f"{job}{error}; {kept}") from None
    return [results[key] for key in keys]


def _perform(function: Callable[[Job], Result], job: Job) -> dict[str, Any]:
    """Run one job in whatever process this is. A failure is returned, so that it comes with its job."""
    start = time.perf_counter()
    try:
        with one_thread():
            text = json.dumps(function(job), allow_nan=False)
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    return {"result": text, "seconds": time.perf_counter() - start}


def _finished(folder: Path, jobs: Mapping[str, Mapping[str, str]]) -> dict[str, Result]:
    """What is kept; a file that does not hold what its name promises is told, and counts as not there."""
    results: dict[str, Result] = {}
    for key, about in jobs.items():
        path = folder / f"{key}.json"
        try:
            content = load_sealed(path)
            if any(content[name] != value for name, value in about.items()):
                raise ValueError
            results[key] = content["result"]
        except FileNotFoundError:
            continue
        except UNREADABLE:
            words = f"{path} does not hold the result that its name promises: computing it again"
            warnings.warn(words, DoubtfulWarning, stacklevel=3)
    return results
