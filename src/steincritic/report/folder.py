"""The files of a check, in one folder: report, result, witness values and critic."""

import csv
import io
from pathlib import Path

import torch

from steincritic.diagnosis.check import CheckResult
from steincritic.errors import InputError
from steincritic.files import write_atomically, write_json
from steincritic.report.page import About, save_report

FILES = ("report.html", "result.json", "witness.csv", "critic.safetensors")


def save_check(
    result: CheckResult,
    folder: Path,
    *,
    title: str | None = None,
    command: str = "",
    image_shape: tuple[int, ...] | None = None,
) -> list[Path]:
    """Report, result, witness and critic, each written whole or not at all."""
    if folder.is_file():
        raise InputError(f"cannot write into {folder}: it is a file; name a folder")
    report, summary, witness, critic = (folder / name for name in FILES)
    usual = About()
    about = About(title=title or usual.title, command=command or usual.command)
    save_report(result, report, about=about, image_shape=image_shape)
    write_json(summary, result.to_dict())
    write_atomically(witness, _witness_csv(result).encode())
    result.critic.save(critic)
    return [report, summary, witness, critic]


def _witness_csv(result: CheckResult) -> str:
    """One line per point: row, witness, p-value where there is one, and whether it is flagged."""
    points = result.points
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
