"""A test on a Kubernetes cluster, by dask-kubernetes; without Kubernetes the same on this machine.

    python examples/cluster/kubernetes.py --image registry.example/steincritic:0.2.0 --workers 20
    python examples/cluster/kubernetes.py --local

The image has the steincritic, torch and Python of the process that calls it, and distributed. The operator of
dask-kubernetes runs in the cluster; pods that are evicted are made up for by others.
"""

import argparse
import importlib.util
from typing import Any

import torch

import steincritic as sc

_PATIENCE = 900  # seconds for a first pod to be ready


def cluster(*, local: bool, workers: int, image: str | None) -> Any:
    from distributed import LocalCluster

    if local or image is None or importlib.util.find_spec("dask_kubernetes") is None:
        options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        return LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=None, **options)
    from dask_kubernetes.operator import KubeCluster

    resources = {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"cpu": "1", "memory": "4Gi"}}
    command = ["dask", "worker", "--nthreads", "1"]
    return KubeCluster(
        name="steincritic", image=image, n_workers=workers, resources=resources, worker_command=command
    )


def main(*, local: bool, workers: int = 2, image: str | None = None, n: int = 300) -> sc.GofResult:
    from distributed import Client

    model = sc.models.GaussianMixture([[0.0, 0.0, 0.0]])
    x = model.sample(n, seed=1) + torch.tensor([0.0, 0.3, 0.0])
    with cluster(local=local, workers=workers, image=image) as pods, Client(pods) as client:
        client.wait_for_workers(1, timeout=_PATIENCE)
        result = sc.gof_test(model, x, engine="dask")  # the client that is open
    print(result.summary())
    return result


if __name__ == "__main__":  # processes that are started here read this file again
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--local", action="store_true", help="on this machine, even where Kubernetes is there"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--image")
    main(**vars(parser.parse_args()))
