"""doctor: is the model adapter right?"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steincritic.cli.guard import FITS, REJECTED, described
from steincritic.cli.options import (
    Advanced,
    AsJson,
    Bounded,
    Common,
    Model,
    OnDevice,
    Seeded,
    TableOptions,
    Target,
    check_data,
    object_named,
    parse_bounds,
)
from steincritic.errors import check_count

if TYPE_CHECKING:
    from steincritic.diagnosis.doctor.doctor import Checkup

_COLORS = {"passed": "green", "warning": "yellow", "failed": "red", "skipped": "dim", "advice": "cyan"}


@dataclass(frozen=True, kw_only=True)
class Doctor(Common, AsJson, OnDevice, Seeded, TableOptions, Bounded, Target, Model):
    """Check a model's score and sampler before you trust a test.

    Exit code 0: nothing failed, 1: a check failed, 2: error.
    """

    data: Path | None = None
    """Data that you will test: npy, npz, csv or parquet; needed if the model cannot be sampled."""
    n: Advanced[int | None] = None
    """Number of model draws; by default up to 50,000, fewer for a slow model."""
    out: Path | None = None
    """Folder for checkup.json."""

    def check(self) -> None:
        super().check()
        if self.n is not None:
            check_count(self.n, name="n")
        if self.data is not None:
            check_data(self.data)

    def __call__(self) -> int:
        from steincritic.diagnosis.doctor.doctor import doctor

        device = None if self.device == "auto" else self.device
        table = None if self.data is None else self.read(self.data)[0]
        options: dict[str, Any] = {"target": self.targets, "bounds": parse_bounds(self.bounds)}
        checkup = doctor(object_named(self.model), table, n=self.n, seed=self.seed, device=device, **options)
        about = {
            "model": self.model,
            "data": None if self.data is None else str(self.data),
            "dropped": 0 if table is None else table.dropped,
        }
        content = described(checkup.to_dict(), command="doctor", **about)
        self.tell(content, lambda: _print(checkup, title=self.model), "checkup.json")
        return FITS if checkup.ok else REJECTED


def _print(checkup: "Checkup", *, title: str) -> None:
    from rich.text import Text

    from steincritic.cli.printing import print_lines, print_table

    rows = [
        (Text(finding.status, style=_COLORS[finding.status]), finding.name, finding.detail)
        for finding in checkup.checks
    ]
    print_table(("", "check", "found"), rows, title=title)
    print_lines(checkup.summary().splitlines()[0])
