"""check: test data against a model, show where it fails, leave a report."""

import csv
import io
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steincritic.cli.guard import FITS, REJECTED, described, print_json
from steincritic.cli.options import (
    AsJson,
    Common,
    Data,
    Model,
    OptionalPath,
    OptionalText,
    TestOptions,
    dropped_line,
    model_named,
    parse_shape,
    prepare,
    write_json,
)
from steincritic.errors import InputError

if TYPE_CHECKING:
    from steincritic.diagnosis import Diagnosis
    from steincritic.report.page import About

FILES = ("report.html", "result.json", "witness.csv", "critic.safetensors")
_FINDINGS = 3


@dataclass(frozen=True, kw_only=True)
class Check(Common, AsJson, TestOptions, Model, Data):
    """Test whether data could come from a model, and show where the model fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    fdr: float = 0.1
    """Accepted share of false discoveries in the list of points."""
    image_shape: OptionalText = None
    """Rows are images of this size, for example 28x28 or 32x32x3."""
    drop_nan: bool = False
    """Leave out rows with NaN or infinite values."""
    out: OptionalPath = None
    """Folder for report.html, result.json, witness.csv and critic.safetensors."""
    overwrite: bool = False
    """Replace a report that is there."""

    def check(self) -> None:
        super().check()
        if not 0 < self.fdr < 1:
            raise InputError(f"fdr must lie in (0, 1), for example 0.1: got {self.fdr!r}")
        parse_shape(self.image_shape)
        if self.out is not None:
            check_free(self.out, overwrite=self.overwrite)

    def __call__(self) -> int:
        from steincritic.data.points import scored
        from steincritic.data.tables import read_table
        from steincritic.diagnosis import diagnose
        from steincritic.diagnosis.halves import FEWEST
        from steincritic.report.page import check_shape

        shape = parse_shape(self.image_shape)
        table = read_table(self.data, drop_nan=self.drop_nan)
        check_shape(shape, table.x.shape[1])
        model = model_named(self.model)
        points = scored(model, table.x)
        test = self.run(model, points)
        diagnosis = None  # few points can be tested, but not searched for where a model fails
        if len(points) >= FEWEST:
            diagnosis = diagnose(
                model, points, level=self.level, fdr=self.fdr, seed=self.seed, test=test, names=table.columns
            )
        about = {"model": self.model, "data": str(self.data), "dropped": table.dropped}
        content = described((diagnosis or test).to_dict(), command="check", **about)
        files = [] if self.out is None else self._written(diagnosis, content, self.out)
        if self.json:
            print_json(content | {"files": [str(file) for file in files]})
        else:
            lines = [test.summary()] if diagnosis is None else told(diagnosis)
            show(
                [*lines, *dropped_line(table.dropped)], title=self._title, rejected=test.rejected, files=files
            )
        return REJECTED if test.rejected else FITS

    @property
    def _title(self) -> str:
        return f"{self.data.name} against {self.model}"

    def _written(self, diagnosis: "Diagnosis | None", content: dict[str, Any], folder: Path) -> list[Path]:
        from steincritic.report.page import About

        if diagnosis is None:
            write_json(folder / "result.json", content)
            return [folder / "result.json"]
        about = About(title=self._title, command=command_line(), config=asdict(self))
        shape = parse_shape(self.image_shape)
        return write_all(diagnosis, folder, content, about=about, image_shape=shape)


def check_free(folder: Path, *, overwrite: bool) -> None:
    """The folder can be written, and no earlier report would be lost."""
    prepare(folder)
    there = [name for name in FILES if (folder / name).exists()]
    if there and not overwrite:
        raise InputError(f"{folder} holds {there[0]} already; choose another --out, or pass --overwrite")


def write_all(
    diagnosis: "Diagnosis",
    folder: Path,
    content: dict[str, Any],
    *,
    about: "About",
    image_shape: tuple[int, ...] | None = None,
) -> list[Path]:
    """Report, result, witness and critic, each written whole or not at all."""
    from steincritic.files import write_atomically
    from steincritic.report.page import save_report

    report, result, witness, critic = (folder / name for name in FILES)
    save_report(diagnosis, report, about=about, image_shape=image_shape)
    write_json(result, content)
    write_atomically(witness, _witness_csv(diagnosis).encode())
    diagnosis.critic.save(critic)
    return [report, result, witness, critic]


def _witness_csv(diagnosis: "Diagnosis") -> str:
    """One line per point: row, witness, p-value where there is one, and whether it is flagged."""
    points = diagnosis.points
    flagged = set(points.flagged.tolist())
    columns: list[Sequence[Any]] = [range(len(points.witness)), [f"{w:.9g}" for w in points.witness.tolist()]]
    header = ["row", "witness"]
    if points.pvalues is not None:
        columns += [[f"{p:.6g}" for p in points.pvalues.tolist()], [int(k in flagged) for k in columns[0]]]
        header += ["pvalue", "flagged"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()


def told(diagnosis: "Diagnosis") -> list[str]:
    """What a person reads first: verdict, size, the most telling findings."""
    numbered = [f"{k}. {sentence}" for k, sentence in enumerate(diagnosis.findings[:_FINDINGS], start=1)]
    return [diagnosis.test.summary(), diagnosis.how_wrong, *numbered]


def show(lines: list[str], *, title: str, rejected: bool, files: list[Path]) -> None:
    from steincritic.cli.printing import print_files, print_lines, print_verdict

    print_verdict(lines, title=title, rejected=rejected)
    if files:
        print_files(files)
    else:
        print_lines("For the report pass --out DIR.")


def command_line() -> str:
    """As it was typed, so that it can be typed again."""
    return shlex.join(["steincritic", *sys.argv[1:]])
