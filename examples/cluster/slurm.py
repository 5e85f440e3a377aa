"""A check on a SLURM cluster, by dask-jobqueue; without SLURM the same on this machine.

    python examples/cluster/slurm.py --queue short --workers 20 --out out/slurm
    python examples/cluster/slurm.py --local --out out/slurm

Each worker is a job of one core. Jobs that end before the check is done are made up for by others.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch

import steincritic as sc

_PATIENCE = 3600  # seconds for a first job to begin


def cluster(*, local: bool, workers: int, queue: str | None) -> Any:
    from distributed import LocalCluster

    if local or shutil.which("sbatch") is None:
        options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        return LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=None, **options)
    from dask_jobqueue import SLURMCluster

    jobs = SLURMCluster(queue=queue, cores=1, processes=1, memory="4GB", walltime="02:00:00")
    jobs.scale(jobs=workers)
    return jobs


def main(
    out: Path, *, local: bool, workers: int = 2, queue: str | None = None, n: int = 300
) -> sc.CheckResult:
    from distributed import Client

    model = sc.models.GaussianMixture([[0.0, 0.0, 0.0]])
    x = model.sample(n, seed=1) * torch.tensor([1.0, 1.3, 1.0])
    with cluster(local=local, workers=workers, queue=queue) as jobs, Client(jobs) as client:
        client.wait_for_workers(1, timeout=_PATIENCE)
        result = sc.check(model, x, engine="dask")  # the client that is open
    result.save(out)
    print(result.summary())
    return result


if __name__ == "__main__":  # processes that are started here read this file again
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--local", action="store_true", help="on this machine, even where SLURM is there")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--queue")
    parser.add_argument("--out", type=Path, default=Path("out/slurm"))
    main(**vars(parser.parse_args()))
