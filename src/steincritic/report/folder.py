"""The files of a check, in one folder: report, result, witness values and critic."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steincritic.data.layout import Rows
from steincritic.diagnosis.check_result import CheckResult
from steincritic.errors import InputError
from steincritic.files import csv_text, write_atomically, write_json
from steincritic.report.page import About, save_report

_BESIDE = ".unfinished-"
FILES = ("report.html", "result.json", "witness.csv", "critic.safetensors")


def save_check(
    result: CheckResult,
    folder: Path,
    *,
    about: About | None = None,
    content: dict[str, Any] | None = None,
    image_shape: tuple[int, ...] | None = None,
) -> list[Path]:
    """Report, result, witness and critic, all four or none.

    Args:
        about: how the check was run, for the report.
        content: of result.json; by default that of the result.
    """
    if folder.is_file():
        raise InputError(f"cannot write into {folder}: it is a file; name a folder")
    with _together(folder) as beside:
        report, summary, witness, critic = (beside / name for name in FILES)
        save_report(result, report, about=about, image_shape=image_shape)
        write_json(summary, content or result.to_dict())
        write_atomically(witness, _witness_csv(result).encode())
        if not result.covariates:  # one of residuals, which new data do not have
            result.critic.save(critic)
    return [folder / name for name in (FILES[:-1] if result.covariates else FILES)]


@contextmanager
def _together(folder: Path) -> Iterator[Path]:
    """A folder inside to write into; what is there when the block ends well moves up."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for remnant in folder.glob(f"{_BESIDE}*"):  # by a process that was killed
            shutil.rmtree(remnant, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_BESIDE, dir=folder) as beside:
            yield Path(beside)
            for file in Path(beside).iterdir():
                file.replace(folder / file.name)
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # one that holds something stays
            folder.rmdir()


def _witness_csv(result: CheckResult) -> str:
    """One line per point: row, line and id where known, witness, p-value and whether it is flagged."""
    points = result.points
    flagged = torch.zeros(len(points.witness), dtype=torch.int64)
    flagged[points.flagged] = 1
    rows = result.rows or Rows(np.arange(len(points.witness)))
    columns = rows.cells() | {"witness": [f"{w:.9g}" for w in points.witness.tolist()]}
    if points.pvalues is not None:
        columns |= {"pvalue": [f"{p:.6g}" for p in points.pvalues.tolist()], "flagged": flagged.tolist()}
    return csv_text(columns)
