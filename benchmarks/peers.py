"""Seconds and memory of what people use to test a model, ours among them, in one run.

    python benchmarks/peers.py --out results/benchmarks/peers-cpu.json --figure docs/_static/peers.png
    python benchmarks/peers.py --redraw results/benchmarks/peers-cpu.json --figure docs/_static/peers.png

The model is a standard normal, the data are draws of it. Rows grow at 10 columns, columns at 1,000 rows, and
banks of critics (20 steps at batch 40) in members. Each way runs in a process of its own, on one thread,
with a bound on time and memory; a way that was over it is not asked for more. Seconds are those that the
process worked, so that other programs on the machine count little. A small test beforehand, not timed, loads
libraries; memory is what the timed test adds at its peak. Speed is no power: each way also has 20 datasets of
500 x 10 with a mean shifted by 0.3, or a spread of 1.3, in one column, or as many as it does in twice
the bound on time; ours share null sets there. A run that was stopped goes on where it was; `peer_ways.py` has
the ways.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import steincritic as sc
from kernel import peak_mib, start_of_peak
from steincritic.errors import InputError
from steincritic.files import package_version
from studies.record import Record, environment

LARGE = {"rows": [100, 1000, 10_000, 100_000, 1_000_000], "columns": [2, 10, 100, 1000]}
TINY = {"rows": [100, 200], "columns": [2, 3]}
BANKS = [1, 10, 100, 300]
FAULTS = {"shifted mean": (0.3, 1.0), "wrong spread": (0.0, 1.3)}
BANK_WAYS = ("steincritic, bank", "plain critics, one by one")
_WORTH = 0.05  # seconds from which on growth is fitted
_ANSWER = "answer: "
_SIZES = ("fault", "rows", "columns", "members")
_START = 5  # seconds for libraries and the small test
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_ALONE = dict.fromkeys(_THREADS, "1") | {"JAX_PLATFORMS": "cpu"}


def data(n: int, dim: int, seed: int, shift: float = 0.0, spread: float = 1.0) -> torch.Tensor:
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[:, 0] = x[:, 0] * spread + shift
    return x


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """Runs in the process of the way."""
    import peer_ways

    worked = int(time.process_time()) + 1
    most = case["limit"] * {"power": 3, "bank": 12}.get(case["along"], 1) + _START  # what is not timed too
    resource.setrlimit(resource.RLIMIT_CPU, (worked + most, resource.RLIM_INFINITY))
    if case["along"] == "bank":
        return _of_bank(case)
    test = peer_ways.WAYS[case["way"]].test
    if case["along"] == "power":
        return _power(_sharing(case["way"], test), case)
    dim = case["columns"]
    test(data(60, dim, 0), 0)
    before, x = start_of_peak(torch.device("cpu")), data(case["rows"], dim, 1)
    start = time.process_time()
    pvalue = test(x, 1)
    seconds = time.process_time() - start
    if seconds > case["limit"]:
        return {"over": f"over {case['limit']} s"}
    return {"seconds": seconds, "mib": peak_mib(torch.device("cpu"), before), "pvalue": pvalue}


def _sharing(way: str, test: Any) -> Any:
    """Ours with null sets that many tests share."""
    import peer_ways

    if way != "steincritic, default":
        return test
    return peer_ways.ours(sc.Combined(cache=Path(tempfile.mkdtemp())))


def _power(test: Any, case: dict[str, Any]) -> dict[str, Any]:
    end, (shift, spread) = time.process_time() + 2 * case["limit"], FAULTS[case["fault"]]
    pvalues: list[float | None] = []
    for seed in range(100, 120):
        if time.process_time() < end:
            pvalues.append(test(data(500, 10, seed, shift, spread), seed))
    if None in pvalues:
        return {"found": None, "of": 0}
    return {"found": sum(p is not None and p <= 0.05 for p in pvalues), "of": len(pvalues)}


def _of_bank(case: dict[str, Any]) -> dict[str, Any]:
    from training import STEPS, Case, bank_way, plain_way

    size = Case(width=128, batch=40, dim=10, members=case["members"])
    cpu = torch.device("cpu")
    before = start_of_peak(cpu)
    if case["way"] == BANK_WAYS[0]:
        work = bank_way(size, cpu)  # ten epochs of ten batches
        work()
        start = time.process_time()
        work()
        seconds = (time.process_time() - start) * STEPS / 100
    else:
        work = plain_way(size, cpu)
        work()
        start = time.process_time()
        for _ in range(case["members"]):
            work()
        seconds = time.process_time() - start
    return {"seconds": seconds, "mib": peak_mib(cpu, before)}


def fresh(cases: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Answers to cases of one way, from a process of its own; the one it dies of is over its bounds."""
    bytes_ = cases[0]["gib"] * 2**30
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__, "--cases", json.dumps(cases)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_)),
        env=os.environ | _ALONE,
    )
    assert child.stdout is not None and child.stderr is not None
    answered = 0
    try:
        for line in child.stdout:
            if line.startswith(_ANSWER):
                answered += 1
                yield json.loads(line.removeprefix(_ANSWER))
        said = child.stderr.read()
    finally:
        if sys.exc_info()[0] is not None:  # no more answers are wanted
            child.kill()
    if child.wait() and answered < len(cases):
        case, memory = cases[answered], "llocat" in said or "emory" in said
        if child.returncode == -signal.SIGXCPU:
            yield {"over": f"over {case['limit']} s"}
        elif memory or child.returncode < 0:
            yield {"over": f"over {case['gib']} GiB"}
        else:
            yield {"over": f"failed: {(said.strip().splitlines() or ['?'])[-1][:120]}"}


def cases(sizes: dict[str, list[int]], limit: int, gib: int) -> list[dict[str, Any]]:
    """In an order in which sizes grow."""
    from peer_ways import WAYS

    bound = {"limit": limit, "gib": gib}
    sizes_of_each = [
        *({"along": "power", "fault": fault} for fault in FAULTS),
        *({"along": "columns", "rows": 1000, "columns": d} for d in sizes["columns"]),
        *({"along": "rows", "rows": n, "columns": 10} for n in sizes["rows"]),
    ]
    found = [{"way": way, "along": "bank", "members": e, **bound} for way in BANK_WAYS for e in BANKS]
    ways = [way for way, about in WAYS.items() if about.installed]
    return found + [{"way": way, **size, **bound} for way in ways for size in sizes_of_each]


def growth(rows: list[dict[str, Any]], along: str) -> dict[str, float]:
    """Exponents of the time, by way: a line through the logarithms of the last three sizes."""
    exponents = {}
    for way in dict.fromkeys(row["way"] for row in rows):
        points = [
            (np.log(row["members" if along == "bank" else along]), np.log(row["seconds"]))
            for row in rows
            if row["way"] == way and row["along"] == along and row.get("seconds", 0) > _WORTH
        ][-3:]
        if len(points) > 1:
            exponents[way] = float(np.polyfit(*zip(*points, strict=True), 1)[0])
    return exponents


def run(options: argparse.Namespace) -> Record:
    wanted = cases(TINY if options.tiny else LARGE, options.limit, options.gib)
    try:
        kept = list(Record.load(options.out).results["rows"])
    except InputError:
        kept = []
    left = [case for case in wanted if not any(case.items() <= row.items() for row in kept)]
    print(
        f"{len(left)} of {len(wanted)} cases, at most {options.limit} s each: about 15 min on a quiet machine"
    )
    began = time.perf_counter()
    record = _recorded(options, kept, began)
    while left:
        together = [case for case in left if case["way"] == left[0]["way"]]
        for case, answer in zip(together, fresh(together), strict=False):
            kept.append(case | answer)
            print(f"{case['way']:26s} { {k: case[k] for k in _SIZES if k in case} } {answer}", flush=True)
            left.remove(case)
            if "over" in answer and case["along"] != "power":
                more = [c for c in left if (c["way"], c["along"]) == (case["way"], case["along"])]
                kept += [c | answer for c in more]
                left = [c for c in left if c not in more]
                if more:
                    break  # the process would go on with these
            record = _recorded(options, kept, began)
            record.save(options.out)
    return record


def _recorded(options: argparse.Namespace, rows: list[dict[str, Any]], began: float) -> Record:
    from peer_ways import WAYS

    packages = {about.package for about in WAYS.values() if about.installed}
    return Record(
        name="benchmark-peers",
        command=f"python benchmarks/peers.py --limit {options.limit} --gib {options.gib}",
        config={"limit": options.limit, "gib": options.gib, "cores": os.cpu_count()},
        seed=1,
        results={
            "rows": rows,
            "growth": {along: growth(rows, along) for along in ("rows", "columns", "bank")},
            "versions": {package: package_version(package) for package in sorted(packages)},
            "left_out": [way for way, about in WAYS.items() if not about.installed],
            "load": os.getloadavg()[1],
        },
        seconds={"total": time.perf_counter() - began},
        environment=environment(torch.device("cpu")),
    )


def draw(record: Record, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(12, 7), sharex="col")
    kinds = {"rows": "rows (10 columns)", "columns": "columns (1,000 rows)", "bank": "critics in the bank"}
    ways = list(dict.fromkeys(row["way"] for row in record.results["rows"]))
    for column, (along, label) in enumerate(kinds.items()):
        for k, way in enumerate(ways):
            mine = [
                r for r in record.results["rows"] if (r["way"], r["along"]) == (way, along) and "seconds" in r
            ]
            sizes = [row["members" if along == "bank" else along] for row in mine]
            style = {"color": pyplot.get_cmap("tab20")(2 * k % 19), "marker": "o", "markersize": 3.5}
            style |= {"linewidth": 2.4 if way.startswith("steincritic") else 1.2}
            for ax, key in zip(axes[:, column], ("seconds", "mib"), strict=True):
                ax.plot(
                    sizes, [max(row[key], 1.0 if key == "mib" else 1e-3) for row in mine], label=way, **style
                )
        for ax in axes[:, column]:
            ax.grid(alpha=0.3)
            if any(len(line.get_xdata()) for line in ax.lines):
                ax.set(xscale="log", yscale="log")
        axes[1, column].set_xlabel(label)
    axes[0, 0].axhline(record.config["limit"], color="gray", linestyle=":")
    axes[0, 0].set_ylabel("seconds of one thread")
    axes[1, 0].set_ylabel("MiB added")
    names = dict(zip(*reversed(axes[0, 0].get_legend_handles_labels()), strict=True))
    names |= dict(zip(*reversed(axes[0, 2].get_legend_handles_labels()), strict=True))
    figure.legend(names.values(), names.keys(), loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(path, dpi=110)
    print(f"figure: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--limit", type=int, default=60, help="seconds per case")
    parser.add_argument("--gib", type=int, default=8, help="memory per case, of addresses")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("out/peers-benchmark.json"))
    parser.add_argument("--figure", type=Path, default=Path("out/peers.png"))
    parser.add_argument("--redraw", type=Path, help="a record to draw, without running anything")
    parser.add_argument("--cases", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cases is not None:
        for case in options.cases:
            print(_ANSWER + json.dumps(measure(case)), flush=True)
        return
    options.figure.parent.mkdir(parents=True, exist_ok=True)
    draw(Record.load(options.redraw) if options.redraw else run(options), options.figure)


if __name__ == "__main__":
    main()
