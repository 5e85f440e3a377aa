"""check: test data against a model."""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from steincritic.cli.common import FITS, REJECTED, Common, model_named, print_verdict
from steincritic.files import write_atomically
from steincritic.gof import GofResult, gof_test


@dataclass(frozen=True, kw_only=True)
class Check(Common):
    """Test whether data could come from a model. Exit code 0: not rejected, 1: rejected, 2: error."""

    data: tyro.conf.Positional[Path]
    """npy, npz, csv or parquet, one row a point."""
    model: str
    """package.module:attr, file.py:attr, or a built-in name such as gm-2d."""
    method: str = "auto"
    level: float = 0.05
    seed: int = 0
    out: Path | None = None
    """Folder for result.json."""
    json: bool = False
    """Print one JSON object on standard output and nothing else."""

    def __call__(self) -> int:
        result = gof_test(model_named(self.model), self.data, self.method, self.level, self.seed)
        if self.out is not None:
            write_json(result, self.out / "result.json")
        if self.json:
            print(json.dumps(result.to_dict()))
        else:
            print_verdict(result, title=f"{self.data.name} against {self.model}")
        return REJECTED if result.rejected else FITS


def write_json(result: GofResult, path: Path) -> None:
    write_atomically(path, (json.dumps(result.to_dict(), indent=1) + "\n").encode())
