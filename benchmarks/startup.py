"""Start-up: seconds of a fresh process, each beside `import torch` in the same round.

    python benchmarks/startup.py [--rounds 9] [--out results/benchmarks/startup-cpu.json]

The ratio is the median over rounds of (command's seconds / seconds of `import torch` in that round).
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from studies.record import Record, environment

PYTHON = {
    "import torch": "import torch",
    "import steincritic": "import steincritic",
    "import steincritic, first name used": "import steincritic; steincritic.gof_test",
}
COMMANDS = {
    "steincritic --help": ["--help"],
    "steincritic --version": ["--version"],
    "steincritic check --help": ["check", "--help"],
    "missing data file": ["check", "missing.npy", "--model", "gm-2d"],
    "unknown option": ["check", "--metod", "x"],
}


def seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    work = {name: ["-c", code] for name, code in PYTHON.items()}
    work |= {name: ["-m", "steincritic", *given] for name, given in COMMANDS.items()}
    began = time.perf_counter()
    for arguments in work.values():
        seconds(arguments)  # files into the cache of the system
    rounds = [{name: seconds(arguments) for name, arguments in work.items()} for _ in range(options.rounds)]
    rows = [
        {
            "name": name,
            "seconds": statistics.median(one[name] for one in rounds),
            "times_torch": statistics.median(one[name] / one["import torch"] for one in rounds),
        }
        for name in work
    ]
    for row in rows:
        print(f"{row['name']:38s} {row['seconds']:6.3f} s   {row['times_torch']:5.2f} x import torch")
    if options.out is not None:
        Record(
            name="startup",
            command=f"python benchmarks/startup.py --rounds {options.rounds}",
            config={"rounds": options.rounds},
            seed=0,
            results={"rows": rows},
            seconds={"total": time.perf_counter() - began},
            environment=environment(torch.device("cpu")),
        ).save(options.out)


if __name__ == "__main__":
    main()
