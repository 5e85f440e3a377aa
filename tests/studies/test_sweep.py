"""Sweeps give the same numbers on every engine, run each job once, and lose nothing that was finished."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from steincritic.errors import DoubtfulWarning, InputError
from steincritic.rng import generator
from steincritic_studies import sweep
from steincritic_studies.sweep import JobError, run_sweep


@dataclass(frozen=True)
class Nested:
    scale: float


@dataclass(frozen=True)
class Draw:
    """A job; `log` is a file that gets a line each time the job runs, where one is named."""

    seed: int
    nested: Nested = Nested(0.1)
    sizes: tuple[int, ...] = (40, 30)
    log: str = ""


def draw(job):
    """Reductions and a product; on large sizes the last bits of the mean depend on the number of threads."""
    _count(job.log, job.seed)
    x = torch.randn(*job.sizes, generator=generator(job.seed), dtype=torch.float64) * job.nested.scale
    return {"mean": float(x.mean()), "norm": float((x @ x.T).norm()), "rows": x.sum(1).tolist(), 7: (1, 2)}


def draw_unless_forbidden(job):
    forbidden = Path(job.log + ".forbidden")
    if job.seed == 2 and forbidden.exists():
        while len(lines(job.log)) < 2:
            time.sleep(0.02)
        time.sleep(0.3)  # so two others are finished
        raise ValueError("two is forbidden")
    return draw(job)


def slow_draw(job):
    """Tells its process; job 0 hangs the first time, until that process is killed."""
    _count(job.log, f"{job.seed}:{os.getpid()}")
    if job.seed == 0 and sum(line.startswith("0:") for line in lines(job.log)) == 1:
        time.sleep(60)
    return draw(Draw(job.seed))


def wait(job):
    if job.log:
        time.sleep(60)
    return {"seed": job.seed}


def threads(job):
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    time.sleep(0.05)
    return {
        "torch": torch.get_num_threads(),
        "pid": os.getpid(),
        **{name: os.environ[name] for name in names},
    }


def die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def nothing(job):
    return None


def infinity(job):
    return {"value": float("inf")}


def tensor(job):
    return {"value": torch.ones(2)}


def _count(log, line):
    if log:
        with open(log, "a") as file:
            file.write(f"{line}\n")


def lines(log):
    return Path(log).read_text().split() if Path(log).exists() else []


def jobs_of(count, **options):
    return [Draw(seed, **options) for seed in range(count)]


EXTRA = "engine dask is an extra: pip install 'steincritic[dask]'"
JOBS = [Draw(5), Draw(3), Draw(3, Nested(0.2)), Draw(4, sizes=(300, 400)), Draw(0), Draw(1)]


@pytest.fixture(scope="module")
def expected():
    """Computed without an engine, as a file gives it back."""
    return [json.loads(json.dumps(draw(job))) for job in JOBS]


def test_results_come_in_the_order_of_the_jobs(tmp_path, expected):
    assert run_sweep(draw, JOBS, folder=tmp_path, engine="serial") == expected


def test_local_workers_give_the_same_bits(tmp_path, expected):
    assert run_sweep(draw, JOBS, folder=tmp_path, engine="local", workers=2) == expected


def test_a_dask_cluster_gives_the_same_bits(tmp_path, expected, cluster):
    assert run_sweep(draw, JOBS, folder=tmp_path, engine="dask", address=cluster) == expected


def test_dask_without_an_address_starts_its_own_cluster(tmp_path, expected):
    pytest.importorskip("distributed", reason=EXTRA)
    assert run_sweep(draw, JOBS, folder=tmp_path, engine="dask", workers=1) == expected


def test_a_finished_job_is_not_run_again(tmp_path):
    log = str(tmp_path / "log")
    first = run_sweep(draw, jobs_of(3, log=log), folder=tmp_path / "jobs", engine="serial")
    more = run_sweep(draw, jobs_of(5, log=log)[::-1], folder=tmp_path / "jobs", engine="local", workers=2)
    assert more[::-1][:3] == first
    assert sorted(lines(log)) == ["0", "1", "2", "3", "4"]
    assert len(list((tmp_path / "jobs").glob("*.json"))) == len(os.listdir(tmp_path / "jobs")) == 5


def test_workers_run_one_thread_each(tmp_path):
    results = run_sweep(threads, jobs_of(6), folder=tmp_path, workers=2)
    assert all(result["torch"] == 1 for result in results)
    assert all(
        value == "1" for result in results for name, value in result.items() if name.endswith("THREADS")
    )
    assert os.getpid() not in {result["pid"] for result in results}


@pytest.mark.parametrize("name", ["serial", "local"])
def test_an_interrupt_keeps_what_is_finished(tmp_path, name):
    """The signal of Ctrl-C, sent while the second result is awaited."""
    begin = time.perf_counter()

    def interrupt(done, total):
        if done == 1:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    jobs = [Draw(0), *(Draw(seed, log="wait") for seed in (1, 2, 3))]
    with pytest.raises(KeyboardInterrupt):
        run_sweep(wait, jobs, folder=tmp_path, engine=name, workers=2, progress=interrupt)
    assert time.perf_counter() - begin < 30
    [path] = tmp_path.iterdir()
    assert json.loads(path.read_text())["result"] == {"seed": 0}


def test_equal_jobs_run_once(tmp_path):
    log = str(tmp_path / "log")
    results = run_sweep(draw, jobs_of(2, log=log) * 2, folder=tmp_path / "jobs", engine="serial")
    assert results[:2] == results[2:] and lines(log) == ["0", "1"]


def test_no_jobs_no_results(tmp_path):
    assert [run_sweep(draw, [], folder=tmp_path, engine=name) for name in ("serial", "local", "dask")] == [
        []
    ] * 3


def test_a_file_tells_job_and_result(tmp_path):
    [result] = run_sweep(draw, [Draw(3)], folder=tmp_path)
    [path] = tmp_path.glob("*.json")
    content = json.loads(path.read_text())
    assert content["function"].endswith("test_sweep.draw")
    assert content["config"]["seed"] == 3 and content["config"]["nested"]["scale"] == 0.1
    assert content["result"] == result and content["seconds"] > 0


@dataclass(frozen=True)
class Scaled:
    """The same field as Nested, and another meaning."""

    scale: float


def test_keys_differ_in_function_class_and_every_value():
    jobs = [Draw(1), Draw(2), Draw(1, Nested(0.1 + 1e-16)), Draw(1, Scaled(0.1)), Draw(1, sizes=(40,))]
    keys = {sweep._Task.of(function, job).key for function in (draw, threads) for job in jobs}
    assert len(keys) == 10
    assert sweep._Task.of(draw, Draw(1)).key == sweep._Task.of(draw, Draw(1)).key


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: "[" * 100_000,
        lambda text: text.replace('"seed": 1', '"seed": 11'),
        lambda text: text.replace('"mean": ', '"mean": 1'),
        lambda text: text.encode().replace(b"seed", b"s\xffed").decode(errors="surrogateescape"),
    ],
    ids=["cut", "empty", "a list", "nested without end", "another job", "another result", "not utf-8"],
)
def test_a_damaged_file_is_told_and_computed_again(tmp_path, damage):
    log, folder = str(tmp_path / "log"), tmp_path / "jobs"
    first = run_sweep(draw, jobs_of(3, log=log), folder=folder, engine="serial")
    path = folder / f"{sweep._Task.of(draw, Draw(1, log=log)).key}.json"
    path.write_bytes(damage(path.read_text()).encode(errors="surrogateescape"))
    with pytest.warns(DoubtfulWarning, match=path.name) as told:
        assert run_sweep(draw, jobs_of(3, log=log), folder=folder, engine="serial") == first
    assert len(told) == 1 and lines(log) == ["0", "1", "2", "1"]
    assert run_sweep(draw, jobs_of(3, log=log), folder=folder, engine="serial") == first  # mended, no warning


@pytest.mark.parametrize("name", ["serial", "local", "dask"])
def test_a_job_that_fails_is_named_and_the_finished_are_kept(tmp_path, name, request):
    address = request.getfixturevalue("cluster") if name == "dask" else None
    log, folder = str(tmp_path / "log"), tmp_path / "jobs"
    options = dict(folder=folder, engine=name, address=address, workers=2)
    (tmp_path / "log.forbidden").touch()
    with pytest.raises(
        JobError, match=r"Draw\(seed=2, .*ValueError: two is forbidden; \d results are kept"
    ) as told:
        run_sweep(draw_unless_forbidden, jobs_of(5, log=log), **options)
    assert "in draw_unless_forbidden" in told.value.__notes__[0]
    kept = len(os.listdir(folder))
    assert kept >= 2 and "2" not in lines(log)
    (tmp_path / "log.forbidden").unlink()
    before = len(lines(log))
    results = run_sweep(draw_unless_forbidden, jobs_of(5, log=log), folder=folder, engine="serial")
    assert results == run_sweep(draw, jobs_of(5), folder=tmp_path / "quiet", engine="serial")
    assert len(lines(log)) == before + 5 - kept


def test_a_local_worker_that_dies_is_told(tmp_path):
    with pytest.raises(JobError, match="a worker died"):
        run_sweep(die, jobs_of(3), folder=tmp_path, workers=2)


def test_a_dask_worker_killed_in_the_middle_costs_nothing(tmp_path, cluster):
    """Job 0 hangs until its worker is killed; the cluster starts another worker and runs the job again."""
    log = str(tmp_path / "log")
    jobs = jobs_of(5, log=log)

    def kill():
        while not (pids := [int(line[2:]) for line in lines(log) if line.startswith("0:")]):
            time.sleep(0.02)
        time.sleep(0.3)  # the other worker finishes some jobs
        assert pids[0] != os.getpid()
        os.kill(pids[0], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    results = run_sweep(slow_draw, jobs, folder=tmp_path / "jobs", engine="dask", address=cluster)
    assert results == run_sweep(draw, jobs_of(5), folder=tmp_path / "quiet", engine="serial")
    assert len(os.listdir(tmp_path / "jobs")) == 5
    runs = [line.split(":") for line in lines(log)]
    assert len({pid for seed, pid in runs if seed == "0"}) == 2  # killed in one process, run in another


@pytest.mark.parametrize(
    ("function", "why"),
    [(nothing, "returns a dict"), (infinity, "JSON compliant"), (tensor, "Tensor is not JSON")],
)
def test_results_that_are_no_json_object_are_refused(tmp_path, function, why):
    with pytest.raises(JobError, match=why):
        run_sweep(function, [Draw(0)], folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_serial_jobs_run_one_thread_and_leave_the_callers_setting(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        [result] = run_sweep(threads, [Draw(0)], folder=tmp_path)  # one job: in this process
        assert result["torch"] == 1 and result["pid"] == os.getpid() and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_dask_workers_run_one_thread_each(tmp_path, cluster):
    results = run_sweep(threads, jobs_of(2), folder=tmp_path, engine="dask", address=cluster)
    assert all(str(value) == "1" for result in results for name, value in result.items() if name != "pid")


def test_progress_counts_what_was_there(tmp_path):
    run_sweep(draw, jobs_of(2), folder=tmp_path, engine="serial")
    seen = []
    run_sweep(draw, jobs_of(4), folder=tmp_path, engine="serial", progress=lambda *at: seen.append(at))
    assert seen == [(2, 4), (3, 4), (4, 4)]


def test_a_bar_is_drawn_on_a_terminal_only(tmp_path, monkeypatch, capsys):
    run_sweep(draw, jobs_of(2), folder=tmp_path, engine="serial")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run_sweep(draw, jobs_of(3), folder=tmp_path, engine="serial")
    assert "3/3" in capsys.readouterr().err


def test_wrong_use_is_refused(tmp_path, monkeypatch):
    def inner(job):
        return {}

    @dataclass
    class Thawed:
        seed: int

    for message, function, jobs, options in (
        ("engine must be one of serial, threads, local, dask", draw, JOBS, {"engine": "ray"}),
        ("workers must be a whole number", draw, JOBS, {"workers": 0}),
        ("address is for engine dask", draw, JOBS, {"address": "tcp://127.0.0.1:1"}),
        ("top of a module", inner, JOBS, {}),
        ("top of a module", lambda job: {}, JOBS, {}),
        (r"job is .*Thawed", draw, [Thawed(1)], {}),
        (r"job is .*Draw", draw, [Draw], {}),
        (r"job.nested.scale is inf", draw, [Draw(0, Nested(float("inf")))], {}),
        (r"job.sizes\[1\] is tensor", draw, [Draw(0, sizes=(1, torch.ones(1)))], {}),
    ):
        with pytest.raises(InputError, match=message):
            run_sweep(function, jobs, folder=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_dask_that_is_missing_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'steincritic\[dask\]'"):
        run_sweep(draw, JOBS, folder=tmp_path, engine="dask")


def test_an_address_without_a_scheduler_is_one_line(tmp_path):
    pytest.importorskip("distributed", reason=EXTRA)
    with pytest.raises(InputError, match="no Dask scheduler answers at tcp"):
        run_sweep(draw, JOBS, folder=tmp_path, engine="dask", address="tcp://127.0.0.1:1")
