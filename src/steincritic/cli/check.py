"""check: test data against a model, show where it fails, leave a report."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from steincritic.cli.guard import FITS, REJECTED, after, described, print_json
from steincritic.cli.options import Advanced, AsJson, Common, check_writable, device_named, parse_shape
from steincritic.cli.tested import Enough, Teller, Tested
from steincritic.errors import InputError

if TYPE_CHECKING:
    from steincritic.data.source import Source
    from steincritic.diagnosis.check_result import CheckResult
    from steincritic.gof.forecast import Part
    from steincritic.gof.large import WentBy
    from steincritic.gof.result import GofResult
    from steincritic.models import base

    Told = tuple[GofResult, CheckResult | None, dict[str, Any]]

CHECK_FILES = ("report.html", "result.json", "witness.csv", "critic.safetensors")  # as report.folder has them
_FINDINGS = 5


@dataclass(frozen=True, kw_only=True)
class Check(Common, AsJson, Tested):
    """Test whether data could come from a model, and show where the model fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    fdr: Advanced[float] = 0.1
    """Accepted share of false discoveries in the list of points."""
    units: Advanced[Literal["standard", "raw"]] = "standard"
    """Of the Fisher divergence: columns in standard deviations of the model, or in the units of the data."""
    image_shape: Advanced[str | None] = None
    """Rows are images of this size, for example 28x28 or 32x32x3."""
    out: Path | None = None
    """Folder for report.html, result.json, witness.csv and critic.safetensors."""
    overwrite: bool = False
    """Replace a report that is there."""
    junit: Advanced[Path | None] = None
    """File for the verdict as JUnit XML, which CI servers show."""

    def check(self) -> None:
        super().check()
        if not 0 < self.fdr < 1:
            raise InputError(f"fdr must lie in (0, 1), for example 0.1: got {self.fdr!r}")
        parse_shape(self.image_shape)
        if self.junit is not None:
            check_writable(self.junit)
        there = [] if self.out is None else [name for name in CHECK_FILES if (self.out / name).exists()]
        if there and not self.overwrite:
            raise InputError(
                f"{self.out} holds {there[0]} already; choose another --out, or pass --overwrite"
            )

    def __call__(self) -> int:
        from steincritic.cli.printing import print_files, print_lines, print_verdict

        teller = Teller(alone=self.dry_run)
        try:
            by = self.went_by(teller)
            test, result, about = self._of_loaded(teller) if by is None else self._of_sample(by)
        except Enough:
            return self.foretold(teller, "check")
        about |= teller.expected
        content = described((result or test).to_dict(), command="check", **about)
        lines = [test.summary()] if result is None else reading(result, saved=self.out is not None)
        if not self.json:
            print_verdict(lines, title=self.title, rejected=test.decided)
        with after(content):
            files = [] if self.out is None else self._written(result, content, self.out)
            files += self._told_to_ci(lines, content)
        if self.json:
            print_json(content | {"files": [str(file) for file in files]})
        elif files:
            print_files(files)
        else:
            print_lines("For the report pass --out DIR.")
        return REJECTED if test.rejected else FITS

    def afterward(self, model: "base.Model", source: "Source") -> "Callable[[], Part]":
        from steincritic.diagnosis.forecast import part_of_diagnosis
        from steincritic.gof.one_pass import sample_like

        return lambda: part_of_diagnosis(model, sample_like(source).to(device_named(self.device)))

    def _of_loaded(self, teller: Teller) -> "Told":
        """Of a table that is held as a whole."""
        from steincritic.diagnosis.check import check
        from steincritic.diagnosis.forecast import part_of_diagnosis
        from steincritic.diagnosis.halves import FEWEST
        from steincritic.report.page import check_shape

        named, table, notes = self.load()
        check_shape(parse_shape(self.image_shape), table.x.shape[1])
        model, points = self.scored(named, table)
        teller.then = partial(part_of_diagnosis, model, points.to(device_named(self.device)).x)
        test = self.run(model, points, table.columns, notes, before=teller)
        about = self.about | {"dropped": table.dropped}
        if len(points) < FEWEST:  # few points can be tested, but not searched for where a model fails
            return test, None, about
        options: dict[str, Any] = {"level": self.level, "fdr": self.fdr, "seed": self.seed}
        options |= {"names": table.columns, "device": self.device, "units": self.units}
        with after(described(test.to_dict(), command="check", **about)):
            return test, replace(check(model, points, test=test, **options), rows=table.rows), about

    def _of_sample(self, by: "WentBy") -> "Told":
        """Of rows that went by; a sample of them is searched for where the model fails."""
        from steincritic.diagnosis.check import check_sample
        from steincritic.report.page import check_shape

        check_shape(parse_shape(self.image_shape), len(by.columns))
        about = self.about | {"dropped": by.result.examined.passed.dropped}
        with after(described(by.result.to_dict(), command="check", **about)):
            result = check_sample(by, level=self.level, fdr=self.fdr, seed=self.seed, units=self.units)
        return result.test, result, about

    def _written(self, result: "CheckResult | None", content: dict[str, Any], folder: Path) -> list[Path]:
        from steincritic.files import write_json
        from steincritic.report.folder import save_check
        from steincritic.report.page import About

        if result is None:
            write_json(folder / "result.json", content)
            return [folder / "result.json"]
        about = About(title=self.title, command=command_line(), config=asdict(self))
        shape = parse_shape(self.image_shape)
        return save_check(result, folder, about=about, content=content, image_shape=shape)

    def _told_to_ci(self, lines: list[str], content: dict[str, Any]) -> list[Path]:
        from steincritic.cli.junit import junit
        from steincritic.files import write_atomically

        if self.junit is None:
            return []
        write_atomically(self.junit, junit(lines, content, title=self.title))
        return [self.junit]


def reading(result: "CheckResult", *, saved: bool = False) -> list[str]:
    """What a person reads first: verdict, the most telling findings, size; then how the test was done."""
    found = [f"{k}. {sentence}" for k, sentence in enumerate(result.findings, start=1)]
    more = len(found) - _FINDINGS
    where = "in the report" if saved else "in the report (--out DIR)"
    told = [f"{more} more finding{'s' if more > 1 else ''} {where}."] if more > 0 else []
    return result.reading([*found[:_FINDINGS], *told])


def command_line() -> str:
    """As it was typed, so that it can be typed again."""
    return shlex.join(["steincritic", *sys.argv[1:]])
