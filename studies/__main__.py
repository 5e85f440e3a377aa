"""python -m studies NAME: a study of the paper or of the library, run or drawn again from its record."""

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from steincritic import InputError
from steincritic.cli.guard import Manner, guarded
from steincritic.devices import resolve_device
from steincritic.training import ProgressBar
from studies import NAMES, load_study
from studies.study import Context

OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"help": "of a study, for example gm-2d; list shows them all, with how long they take"},
    "--tiny": {"action": "store_true", "help": "seconds that show the machinery, not the numbers"},
    "--out": {
        "type": Path,
        "help": "folder of record, table, figures; results/NAME (out/NAME when tiny)",
    },
    "--engine": {
        "choices": ("serial", "local", "dask"),
        "default": "serial",
        "help": "where the jobs of a sweep run: this process, processes, or dask",
    },
    "--address": {"help": "of a Dask scheduler; without it a cluster is started on this machine"},
    "--device": {"default": "auto", "help": "cpu, cuda, or auto: a GPU where there is one"},
    "--seed": {"type": int, "default": 0, "help": "decides every random choice"},
    "--redraw": {
        "action": "store_true",
        "help": "draw table and figures of the record in the folder",
    },
    "--overwrite": {"action": "store_true", "help": "replace a record that is there"},
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    for option, settings in OPTIONS.items():
        parser.add_argument(option, **settings)
    sys.exit(guarded(lambda _: _reproduce(parser.parse_args(arguments)), Manner()))


def _reproduce(asked: argparse.Namespace) -> int:
    if asked.name == "list":
        for name in sorted(NAMES):
            print(f"{name:20} {load_study(name).title} ({load_study(name).takes})")
        return 0
    chosen = load_study(asked.name)
    folder = asked.out or Path("out" if asked.tiny else "results") / asked.name
    record = folder / "record.json"
    if record.exists() and not (asked.redraw or asked.overwrite):
        raise InputError(f"{record} is there already: draw it with --redraw, or replace it with --overwrite")
    if asked.address is not None and asked.engine != "dask":
        raise InputError(f"--address is for --engine dask, got --engine {asked.engine}")
    device = resolve_device("cpu" if asked.redraw else asked.device, torch.empty(0))
    context = Context(
        device=device,
        seed=asked.seed,
        callbacks=[ProgressBar(f"training, {asked.name}")],
        jobs=folder / "jobs",
        engine=asked.engine,
        address=asked.address,
    )
    files = chosen.reproduce(folder, None if asked.redraw else context, tiny=asked.tiny)
    print(files[1].read_text(), *files, sep="\n")
    return 0


if __name__ == "__main__":
    main()
