"""doctor: is the model adapter right?"""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from steincritic.cli.options import FITS, REJECTED, Common, object_named
from steincritic.diagnosis.doctor.doctor import Checkup, examine

_MARKS = {"ok": ("✓", "green"), "doubtful": ("?", "yellow"), "failed": ("✗", "red"), "skipped": ("–", "dim")}


@dataclass(frozen=True, kw_only=True)
class Doctor(Common):
    """Check a model's score and sampler before a test is trusted. Exit code 0: nothing failed, 1: a check
    failed, 2: error."""

    model: str
    """package.module:attr, file.py:attr, FILE.safetensors or a built-in name such as gm-2d."""
    data: Path | None = None
    """Data that you will test: npy, npz, csv or parquet; needed where the model cannot be sampled."""
    n: int | None = None
    """Model draws to look at; by default up to 50,000, fewer for a slow model."""
    seed: int = 0
    json: bool = False
    """Print one JSON object on standard output and nothing else."""

    def __call__(self) -> int:
        checkup = examine(object_named(self.model), x=self.data, n=self.n, seed=self.seed)
        if self.json:
            print(json.dumps(checkup.to_dict()))
        else:
            _print(checkup, title=self.model)
        return FITS if checkup.ok else REJECTED


def _print(checkup: Checkup, *, title: str) -> None:
    table = Table("", "check", "found", title=Text(title))
    for finding in checkup.checks:
        mark, color = _MARKS[finding.status]
        table.add_row(Text(mark, style=color), Text(finding.name), Text(finding.detail))
    console = Console()
    console.print(table)
    console.print(Text(checkup.summary().splitlines()[0]))
