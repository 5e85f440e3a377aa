"""Clusters on the loopback interface: the numbers of one machine, whatever happens to workers."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

import steincritic as sc
from processes import cluster_of
from steincritic import cluster as clusters
from steincritic.cluster import check_address, check_versions, environments
from steincritic.engine import at_a_time, in_use, spread, using
from steincritic.errors import InputError, WorkerError
from steincritic.lenses.moments import Moments

Q = sc.models.GaussianMixture([[0.0, 0.0]])
X = Q.sample(60, seed=1) + torch.tensor([0.15, 0.0])


def square(k):
    return k**2


def waits(k):
    time.sleep(0.05)
    return k


@dataclass(frozen=True)
class DeadlyOnce:
    """Moments; the first worker that looks through it dies."""

    mark: str
    safe: int  # a process
    name: ClassVar[str] = "moments"
    whitened: ClassVar[bool] = False

    def prepare(self, draws, *, n, seed):
        return Deadly(self.mark, self.safe, Moments().prepare(draws, n=n, seed=seed))


@dataclass(frozen=True)
class Deadly:
    mark: str
    safe: int
    inside: object

    @property
    def size(self):
        return self.inside.size

    def entries(self, datasets, seeds):
        if os.getpid() != self.safe and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inside.entries(datasets, seeds)

    def numbers(self, seen):
        return self.inside.numbers(seen)


def same(a, b):
    assert a.statistic == b.statistic and a.pvalue == b.pvalue
    assert torch.equal(a.null_distribution, b.null_distribution)


@pytest.mark.parametrize(
    "address",
    ["nowhere", "tcp://host", "", "host:99999", "tcp://a b:1", "tcp://:x", "http://a:1", "inproc://a:1"],
)
def test_an_address_that_is_none_is_told(address):
    with pytest.raises(InputError, match="such as tcp:"):
        check_address(address)


def test_an_address_without_a_protocol_is_one_of_tcp():
    assert (
        check_address("here:8786") == "tcp://here:8786" and check_address("tls://[::1]:1") == "tls://[::1]:1"
    )


def test_an_address_of_tls_needs_certificates():
    pytest.importorskip("distributed")
    with pytest.raises(
        InputError, match=r"tls://127\.0\.0\.1:9 needs certificates: set distributed\.comm\.tls"
    ):
        sc.gof_test(Q, X, engine="dask", address="tls://127.0.0.1:9")


def versions(python="3.11.7.final.0", steincritic="1.0", torch="2.13.0"):
    return {"host": {"python": python}, "packages": {"steincritic": steincritic, "torch": torch}}


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        (versions(steincritic="0.9"), "tcp://w:1 has steincritic 0.9"),
        (versions(steincritic=None), "tcp://w:1 has steincritic missing"),
        (versions(torch="2.12.0", python="3.12.1.final.0"), "tcp://w:1 has Python 3.12, torch 2.12.0"),
    ],
)
def test_workers_with_other_versions_are_refused_by_name(worker, said):
    check_versions(versions(), {"tcp://w:0": versions(python="3.11.9.final.0")})
    with pytest.raises(InputError, match=f"Python 3.11, steincritic 1.0, torch 2.13.0; {said}") as told:
        check_versions(versions(), {"tcp://w:0": versions(), "tcp://w:1": worker})
    assert "\n" not in str(told.value) and "w:0" not in str(told.value)


def test_several_gpus_have_a_worker_each(monkeypatch):
    assert len(environments(3)) == 3 and environments(3)[0] == {}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert environments() == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [env["CUDA_VISIBLE_DEVICES"] for env in environments(3)] == ["5", "7", "5"]


def test_started_workers_have_a_gpu_each(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with using("dask"):
        seen = dict(spread(visible_device, range(6)))
    assert set(seen.values()) == {"0", "1"}


def visible_device(_):
    time.sleep(0.2)
    return os.environ["CUDA_VISIBLE_DEVICES"]


def test_started_workers_do_not_mind_another_cluster_on_this_machine():
    pytest.importorskip("distributed")
    with ExitStack() as stack:
        with suppress(OSError):  # held by another program: as good
            stack.enter_context(socket.create_server(("127.0.0.1", 8787)))  # Dask's usual port for its pages
        started = stack.enter_context(clusters.opened(None, 1))  # warnings are errors
        assert started.threads == 1


def test_workers_without_a_place_on_disk_are_one_line(tmp_path):
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")
    (tmp_path / "file").touch()  # where Dask wants a folder, as a disk that is full
    with dask.config.set({"temporary-directory": str(tmp_path / "file")}):
        with pytest.raises(InputError, match=r"no Dask workers can be started on this machine: .*file"):
            sc.gof_test(Q, X, sc.Combined(cache=False), engine="dask")


@pytest.mark.parametrize("listens", [False, True])
def test_where_no_scheduler_answers_one_line_says_so_soon(listens, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "_ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"tcp://127.0.0.1:{door.getsockname()[1]}"
        if not listens:
            door.close()
        start = time.perf_counter()
        with pytest.raises(InputError, match=f"no Dask scheduler answers at {address}") as told:
            sc.gof_test(Q, X, engine="dask", address=address)
    assert time.perf_counter() - start < 10 and "\n" not in str(told.value)


def test_the_default_test_gives_the_bits_of_one_thread(cluster):
    test = sc.Combined(draws=39, reference=40, cache=False)
    apart = sc.gof_test(Q, X, test, engine="dask", address=cluster)
    alone = sc.gof_test(Q, X, test, engine="serial")
    same(apart, alone)
    assert apart.readings == alone.readings and apart.notes == alone.notes
    assert "critics were trained" in " ".join(apart.notes)


def test_a_check_gives_the_bits_of_one_thread(cluster):
    test = sc.Combined(critics=None, draws=39, reference=40, cache=False)
    apart, alone = (
        sc.check(Q, X, test=test, engine=engine, address=address)
        for engine, address in (("dask", cluster), ("serial", None))
    )
    same(apart.test, alone.test)
    assert apart.fisher == alone.fisher and apart.coordinates == alone.coordinates
    for half, other in zip(apart.halves, alone.halves, strict=True):
        assert torch.equal(half.own.witness, other.own.witness)


def test_a_worker_that_dies_in_the_middle_changes_no_number(cluster, tmp_path):
    def test_with(mark):
        lens = DeadlyOnce(str(mark), os.getpid())
        return sc.Combined(lenses=(lens,), critics=None, draws=59, reference=20, cache=False)

    killed = sc.gof_test(Q, X, test_with(tmp_path / "mark"), engine="dask", address=cluster)
    assert (tmp_path / "mark").exists()
    same(killed, sc.gof_test(Q, X, test_with(tmp_path / "mark"), engine="serial"))


def test_one_cluster_serves_all_looks_of_a_test(monkeypatch):
    pytest.importorskip("distributed")
    started, spreads = [], []
    own, spreading = clusters._started, clusters.Cluster.spread
    monkeypatch.setattr(clusters, "_started", lambda workers: started.append(workers) or own(workers))
    monkeypatch.setattr(clusters.Cluster, "spread", lambda *of: spreads.append(of) or spreading(*of))
    test = sc.Combined(critics=None, draws=400, reference=40, cache=False)
    same(sc.gof_test(Q, X, replace(test, engine="dask")), sc.gof_test(Q, X, test))
    assert len(started) == 1 and len(spreads) > 1


def test_the_client_of_this_process_is_used(cluster):
    from distributed import Client

    with Client(cluster) as client, using("dask"):
        assert dict(spread(square, range(5))) == {k: k**2 for k in range(5)}
        assert at_a_time() == sum(client.nthreads().values()) and in_use() == "dask"
    assert in_use() is None


def test_items_are_made_when_they_are_needed(cluster):
    made = []

    def items():
        for k in range(50):
            made.append(k)
            yield k

    with using("dask", cluster):
        results = spread(waits, items())
        next(results)
        assert len(made) <= 2 * at_a_time() + 1
        results.close()


def test_what_cannot_travel_is_one_line(cluster):
    lock = threading.Lock()
    with using("dask", cluster), pytest.raises(InputError, match=r"cannot be sent to them .*lock") as told:
        dict(spread(lambda k: lock, range(2)))
    assert "\n" not in str(told.value)


def test_an_error_in_a_worker_is_raised_here(cluster):
    def refuse(k):
        raise InputError(f"no {k}")

    with using("dask", cluster), pytest.raises(InputError, match=r"no [01]"):
        dict(spread(refuse, range(2)))


def test_a_run_whose_workers_are_all_gone_is_given_up(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "_BEAT", 0.2)
    monkeypatch.setattr(clusters, "_ALONE", 0.5)
    with cluster_of(1) as local, using("dask", local.scheduler_address):
        made = spread(waits, range(100))
        next(made)
        local.scale(0)
        with pytest.raises(WorkerError, match="has had no worker for"):
            dict(made)


@pytest.mark.parametrize("kind", ["other", "none"])
def test_a_worker_without_this_library_is_refused(kind, tmp_path, monkeypatch):
    """A worker as it may run elsewhere."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "_FIRST", 90.0)  # on a busy machine a worker takes long to begin
    (tmp_path / "steincritic-9.9.dist-info").mkdir()
    known = "Version: 9.9" if kind == "other" else "Summary: without a version"
    (tmp_path / "steincritic-9.9.dist-info" / "METADATA").write_text(f"Name: steincritic\n{known}\n")
    with cluster_of(0) as local:
        line = [sys.executable, "-m", "distributed.cli.dask_worker", local.scheduler_address]
        line += ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1"]
        line += ["--local-directory", str(tmp_path)]
        worker = subprocess.Popen(
            line, env=os.environ | {"PYTHONPATH": str(tmp_path)}, stderr=subprocess.DEVNULL
        )
        try:
            said = "has steincritic 9.9" if kind == "other" else "has steincritic missing"
            with pytest.raises(InputError, match=said) as told, using("dask", local.scheduler_address):
                dict(spread(square, range(2)))
        finally:
            worker.kill()
            worker.wait(30)
    assert "\n" not in str(told.value)


@pytest.fixture
def many():
    """Rows that go by in one pass, and a test that takes them so."""
    x = Q.sample(9_000, seed=2)
    test = sc.Combined(critics=None, exact_up_to=3_000, draws=39, reference=40, cache=False)
    return x, test, sc.gof_test(Q, x, test, engine="serial")


@pytest.mark.parametrize("engine", [None, "dask"])
def test_a_dask_array_is_tested_by_partitions_with_the_same_bits(engine, many, request):
    array = pytest.importorskip("dask.array")
    address = None if engine is None else request.getfixturevalue("cluster")
    x, test, wanted = many
    given = array.from_array(x.numpy(), chunks=(2_501, 1))
    unknown = given[given[:, 0] > -torch.inf]  # of which Dask does not know how many rows it has
    for one in (given, unknown):
        same(sc.gof_test(Q, one, test, engine=engine, address=address), wanted)


def test_a_small_dask_array_is_data_like_any_other():
    array = pytest.importorskip("dask.array")
    given = array.from_array(X.numpy(), chunks=(17, 2))
    assert sc.gof_test(Q, given, "ksd").statistic == sc.gof_test(Q, X, "ksd").statistic
    assert sc.check(Q, given, test="ksd").test.statistic == sc.gof_test(Q, X, "ksd").statistic
    assert torch.equal(sc.ScoredPoints(given, given).x, X)
    with pytest.raises(InputError, match="float"):
        sc.gof_test(Q, given.astype(int), "ksd")
    with pytest.raises(InputError, match=r"shape \(n, d\)"):
        sc.gof_test(Q, given[:, 0], "ksd")


def test_a_dask_array_without_rows_is_refused():
    array = pytest.importorskip("dask.array")
    with pytest.raises(InputError, match=r"n and d at least 1, got \(0, 2\)"):
        sc.gof_test(Q, array.zeros((0, 2)))


def test_a_dask_frame_has_its_columns(many):
    pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    import pandas

    x, test, wanted = many
    frame = frames.from_pandas(pandas.DataFrame(x.numpy(), columns=["a", "b"]), npartitions=4)
    same(sc.gof_test(Q, frame, test), wanted)
    with pytest.raises(InputError, match="got Series of 1 dimensions"):
        sc.gof_test(Q, frame["a"], test)


def test_a_check_of_a_large_collection_looks_at_rows_chosen_at_random(many):
    array = pytest.importorskip("dask.array")
    x, test, wanted = many
    found = sc.check(Q, array.from_array(x.numpy(), chunks=(2_501, 1)), test=test)
    same(found.test, wanted)
    assert "chosen at random" in found.test.notes[-1]
