"""Processes: the command line, where exit codes, signals and pipes are the system's; Dask workers."""

import os
import subprocess
import sys
from pathlib import Path

import steincritic

PATIENCE = 120.0  # seconds, on a busy machine


def started(line, folder, **changes):
    """The process, at work in the folder, with what it prints in pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "steincritic", *line.split()],
        cwd=folder,
        env=environment(folder, **changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )


def finished(line, folder, **changes):
    """Exit code, standard output and standard error."""
    process = started(line, folder, **changes)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def environment(folder, **changes):
    return os.environ | {
        "PYTHONPATH": str(Path(steincritic.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(Path(folder) / "cache"),
        **changes,
    }


def cluster_of(workers):
    """Dask workers of one thread each, on the loopback interface alone."""
    import dask
    from distributed import LocalCluster

    loopback = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):  # each new worker loads torch
        return LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=None, **loopback)


def files(folder):
    """Names of all files below the folder, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
