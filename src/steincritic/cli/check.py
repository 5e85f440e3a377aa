"""check: test data against a model, show where it fails, leave a report."""

import csv
import io
import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from steincritic.cli.options import FITS, REJECTED, Common, model_named, prepare, print_verdict
from steincritic.data.points import ScoredPoints, scored
from steincritic.data.tables import read_table
from steincritic.diagnosis import Diagnosis, diagnose
from steincritic.diagnosis.halves import FEWEST
from steincritic.errors import InputError
from steincritic.files import write_atomically
from steincritic.gof import CrossFit, GofResult, gof_test
from steincritic.gof.choose import choose_method
from steincritic.models.base import ScoreModel
from steincritic.report.page import About, check_shape, save_report

FILES = ("report.html", "result.json", "witness.csv", "critic.safetensors")
_FINDINGS = 3


@dataclass(frozen=True, kw_only=True)
class Check(Common):
    """Test whether data could come from a model, and show where not.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    data: tyro.conf.Positional[Path]
    """npy, npz, csv or parquet, one row a point."""
    model: str
    """package.module:attr, file.py:attr, FILE.safetensors or a built-in name such as gm-2d."""
    method: str = "auto"
    """auto, crossfit, split, ksd, ksdagg or fssd."""
    level: float = 0.05
    """Accepted probability of a false alarm."""
    fdr: float = 0.1
    """Accepted share of false discoveries in the list of points."""
    seed: int = 0
    out: Path | None = None
    """Folder for report.html, result.json, witness.csv and critic.safetensors."""
    overwrite: bool = False
    """Replace a report that is there."""
    image_shape: str | None = None
    """Rows are images of this size, for example 28x28 or 32x32x3."""
    drop_nan: bool = False
    """Leave out rows with NaN or infinite values."""
    cache: bool = True
    """Keep null runs of the cross-fit test on disk and use them again."""
    json: bool = False
    """Print one JSON object on standard output and nothing else."""
    config: Path | None = None
    """TOML file with these settings by the same names; the command line has the last word."""

    def __call__(self) -> int:
        if self.out is not None:
            check_free(self.out, overwrite=self.overwrite)
        shape = parse_shape(self.image_shape)
        table = read_table(self.data, drop_nan=self.drop_nan)
        check_shape(shape, table.x.shape[1])
        model = model_named(self.model)
        points = scored(model, table.x)
        test = tested(model, points, method=self.method, level=self.level, seed=self.seed, cache=self.cache)
        if len(points) < FEWEST:
            return self._without_diagnosis(test)
        diagnosis = diagnose(
            model, points, level=self.level, fdr=self.fdr, seed=self.seed, test=test, names=table.columns
        )
        title = f"{self.data.name} against {self.model}"
        files = []
        if self.out is not None:
            about = About(title=title, command=command_line(), config=asdict(self))
            files = write_all(diagnosis, self.out, about=about, image_shape=shape)
        if self.json:
            print(json.dumps(diagnosis.to_dict() | {"files": [str(file) for file in files]}))
        else:
            print_diagnosis(diagnosis, title=title, files=files, dropped=table.dropped)
        return REJECTED if diagnosis.rejected else FITS

    def _without_diagnosis(self, test: GofResult) -> int:
        """So few points can be tested, but not searched for where a model fails."""
        if self.out is not None:
            write_atomically(self.out / "result.json", (json.dumps(test.to_dict(), indent=1) + "\n").encode())
        if self.json:
            print(json.dumps(test.to_dict()))
        else:
            print_verdict(test, title=f"{self.data.name} against {self.model}")
        return REJECTED if test.rejected else FITS


def tested(
    model: ScoreModel, points: ScoredPoints, *, method: str, level: float, seed: int, cache: bool
) -> GofResult:
    options: dict[str, Any] = {}
    if not cache and "crossfit" in (method, choose_method(model, points)[0] if method == "auto" else ""):
        method, options = "crossfit", {"config": CrossFit(cache=False)}
    return gof_test(model, points, method, level, seed, **options)


def check_free(folder: Path, *, overwrite: bool) -> None:
    """The folder can be written, and no earlier report would be lost."""
    prepare(folder)
    there = [name for name in FILES if (folder / name).exists()]
    if there and not overwrite:
        raise InputError(f"{folder} holds {there[0]} already; choose another --out, or pass --overwrite")


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) not in (2, 3) or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"image-shape is height x width, for example 28x28, or 32x32x3; got {text!r}")
    return tuple(map(int, parts))


def write_all(
    diagnosis: Diagnosis, folder: Path, *, about: About, image_shape: tuple[int, ...] | None = None
) -> list[Path]:
    """Report, result, witness and critic, each written whole or not at all."""
    report, result, witness, critic = (folder / name for name in FILES)
    save_report(diagnosis, report, about=about, image_shape=image_shape)
    write_atomically(result, (json.dumps(diagnosis.to_dict(), indent=1) + "\n").encode())
    write_atomically(witness, _witness_csv(diagnosis).encode())
    diagnosis.critic.save(critic)
    return [report, result, witness, critic]


def _witness_csv(diagnosis: Diagnosis) -> str:
    """A line a point: row, witness, p-value where there is one, and whether it is flagged."""
    points = diagnosis.points
    flagged = torch.zeros(len(points.witness), dtype=torch.int64)
    flagged[points.flagged] = 1
    columns = [range(len(points.witness)), [f"{w:.9g}" for w in points.witness.tolist()]]
    header = ["row", "witness"]
    if points.pvalues is not None:
        columns += [[f"{p:.6g}" for p in points.pvalues.tolist()], flagged.tolist()]
        header += ["pvalue", "flagged"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def print_diagnosis(diagnosis: Diagnosis, *, title: str, files: list[Path], dropped: int = 0) -> None:
    color = "red" if diagnosis.rejected else "green"
    lines = [diagnosis.test.summary(), diagnosis.how_wrong]
    lines += [f"{k}. {sentence}" for k, sentence in enumerate(diagnosis.findings[:_FINDINGS], start=1)]
    if dropped:
        lines.append(f"{dropped} rows with NaN or infinite values were left out.")
    console = Console()
    console.print(Panel(Text("\n".join(lines)), title=Text(title), border_style=color, expand=False))
    if files:
        console.print("Files:", *(str(file) for file in files), sep="\n  ", markup=False, highlight=False)
    else:
        console.print("For the report pass --out DIR.", highlight=False)


def command_line() -> str:
    """As it was typed, so that it can be typed again."""
    return shlex.join(["steincritic", *sys.argv[1:]])
