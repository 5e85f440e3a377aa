"""Sweeps give the same numbers on every engine, run each job once, and lose nothing that was finished."""

import json
import os
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from steincritic.errors import DoubtfulWarning
from steincritic.rng import generator
from studies.sweep import JobError, run_sweep


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
    if job.log:
        with open(job.log, "a") as file:
            file.write(f"{job.seed}\n")
    x = torch.randn(*job.sizes, generator=generator(job.seed), dtype=torch.float64) * job.nested.scale
    return {"mean": float(x.mean()), "norm": float((x @ x.T).norm()), "rows": x.sum(1).tolist(), 7: (1, 2)}


def draw_unless_forbidden(job):
    if job.seed == 2 and Path(job.log + ".forbidden").exists():
        while len(lines(job.log)) < 2:
            time.sleep(0.02)
        time.sleep(0.3)  # so two others are finished
        raise ValueError("two is forbidden")
    return draw(job)


def slow_after_the_first(job):
    if job.seed:
        time.sleep(60)
    return {"seed": job.seed}


def threads(job):
    return {"torch": torch.get_num_threads(), "pid": os.getpid()}


def die(job):
    os.kill(os.getpid(), signal.SIGKILL)


def infinity(job):
    return {"value": float("inf")}


def lines(log):
    return Path(log).read_text().split() if Path(log).exists() else []


def jobs_of(count, **options):
    return [Draw(seed, **options) for seed in range(count)]


JOBS = [Draw(5), Draw(3), Draw(3, Nested(0.2)), Draw(4, sizes=(300, 400)), Draw(0), Draw(1)]


@pytest.mark.parametrize("name", ["serial", "local", "dask"])
def test_every_engine_gives_the_same_bits_in_the_order_of_the_jobs(tmp_path, name, request):
    address = request.getfixturevalue("cluster") if name == "dask" else None
    expected = [json.loads(json.dumps(draw(job))) for job in JOBS]
    assert run_sweep(draw, JOBS, folder=tmp_path, engine=name, address=address, workers=2) == expected


def test_a_finished_job_is_not_run_again_and_equal_jobs_run_once(tmp_path):
    log = str(tmp_path / "log")
    first = run_sweep(draw, jobs_of(3, log=log) * 2, folder=tmp_path / "jobs", engine="serial")
    assert first[:3] == first[3:]
    more = run_sweep(draw, jobs_of(5, log=log)[::-1], folder=tmp_path / "jobs", engine="local", workers=2)
    assert more[::-1][:3] == first[:3]
    assert sorted(lines(log)) == ["0", "1", "2", "3", "4"]
    assert len(list((tmp_path / "jobs").glob("*.json"))) == len(os.listdir(tmp_path / "jobs")) == 5
    assert run_sweep(draw, [], folder=tmp_path) == []


def test_jobs_run_on_one_thread_and_leave_the_callers_setting(tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        [alone] = run_sweep(threads, [Draw(0)], folder=tmp_path)  # one job: in this process
        assert alone["torch"] == 1 and alone["pid"] == os.getpid() and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    apart = run_sweep(threads, jobs_of(3, log="apart"), folder=tmp_path, workers=2)
    assert all(result["torch"] == 1 for result in apart)
    assert os.getpid() not in {result["pid"] for result in apart}


@pytest.mark.parametrize("name", ["serial", "local"])
def test_an_interrupt_keeps_what_is_finished(tmp_path, name):
    """The signal of Ctrl-C, sent while the second result is awaited."""
    begin = time.perf_counter()

    def interrupt():
        while not list(tmp_path.glob("*.json")):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_sweep(slow_after_the_first, jobs_of(4), folder=tmp_path, engine=name, workers=2)
    assert time.perf_counter() - begin < 30
    [path] = tmp_path.iterdir()
    assert json.loads(path.read_text())["result"] == {"seed": 0}


def test_another_value_class_or_function_is_another_job(tmp_path):
    @dataclass(frozen=True)
    class Scaled:
        """The same field as Nested, and another meaning."""

        scale: float

    jobs = [Draw(1), Draw(2), Draw(1, Nested(0.1 + 1e-16)), Draw(1, Scaled(0.1)), Draw(1, sizes=(40,))]
    for function in (threads, slow_after_the_first):
        run_sweep(function, [replace(job, seed=0) for job in jobs], folder=tmp_path, engine="serial")
    assert len(list(tmp_path.iterdir())) == 8  # of five jobs, two are the same but for the seed


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[" * 100_000,
        lambda text: text.replace("seed=1", "seed=11"),
        lambda text: text.replace('"mean": ', '"mean": 1'),
        lambda text: text.encode().replace(b"seed", b"s\xffed").decode(errors="surrogateescape"),
    ],
    ids=["cut", "nested without end", "another job", "another result", "not utf-8"],
)
def test_a_damaged_file_is_told_and_computed_again(tmp_path, damage):
    log, folder = str(tmp_path / "log"), tmp_path / "jobs"
    first = run_sweep(draw, jobs_of(3, log=log), folder=folder, engine="serial")
    path = next(path for path in folder.iterdir() if "seed=1" in path.read_text())
    path.write_bytes(damage(path.read_text()).encode(errors="surrogateescape"))
    with pytest.warns(DoubtfulWarning, match=path.name) as told:
        assert run_sweep(draw, jobs_of(3, log=log), folder=folder, engine="serial") == first
    assert len(told) == 1 and lines(log) == ["0", "1", "2", "1"]
    assert run_sweep(draw, jobs_of(3, log=log), folder=folder, engine="serial") == first  # mended, no warning


@pytest.mark.parametrize("name", ["serial", "local", "dask"])
def test_a_job_that_fails_is_named_and_the_finished_are_kept(tmp_path, name, request):
    address = request.getfixturevalue("cluster") if name == "dask" else None
    log, folder = str(tmp_path / "log"), tmp_path / "jobs"
    (tmp_path / "log.forbidden").touch()
    options = dict(folder=folder, engine=name, address=address, workers=2)
    with pytest.raises(JobError, match=r"Draw\(seed=2, .*two is forbidden; results of jobs are kept") as told:
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


def test_a_result_that_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(JobError, match="JSON compliant"):
        run_sweep(infinity, [Draw(0)], folder=tmp_path)
    assert not list(tmp_path.iterdir())
