"""compare: rank several models on the same data."""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from steincritic.cli.options import FITS, REJECTED, Common, model_named, prepare
from steincritic.diagnosis.compare import compare_models
from steincritic.diagnosis.comparison import COLUMNS, Comparison
from steincritic.files import write_atomically


@dataclass(frozen=True, kw_only=True)
class Compare(Common):
    """Rank models by their distance to data. Exit code 0: not all are rejected, 1: all are, 2: error."""

    data: tyro.conf.Positional[Path]
    """npy, npz, csv or parquet, one row a point."""
    model: tyro.conf.UseAppendAction[tuple[str, ...]]
    """A candidate, at least two: package.module:attr, file.py:attr, FILE.safetensors or a built-in name."""
    name: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """What to call a candidate, once a model and in their order; as they were given by default."""
    test: str = "auto"
    """How each candidate is tested: auto, crossfit, split, ksd, ksdagg, fssd, or none."""
    level: float = 0.05
    seed: int = 0
    out: Path | None = None
    """Folder for comparison.json."""
    json: bool = False
    """Print one JSON object on standard output and nothing else."""

    def __call__(self) -> int:
        if self.out is not None:
            prepare(self.out)
        result = compare_models(
            [model_named(spec) for spec in self.model],
            self.data,
            names=self.name or self.model,
            level=self.level,
            seed=self.seed,
            test=None if self.test == "none" else self.test,
        )
        if self.out is not None:
            text = json.dumps(result.to_dict(), indent=1) + "\n"
            write_atomically(self.out / "comparison.json", text.encode())
        if self.json:
            print(json.dumps(result.to_dict()))
        else:
            _print(result, title=self.data.name)
        return REJECTED if result.rejected else FITS


def _print(result: Comparison, *, title: str) -> None:
    table = Table(*COLUMNS, title=Text(title))
    for row in result.rows():
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    console.print(table)
    console.print(Text(result.ranking_sentence()))
    console.print(Text(result.verdict_sentence()))
