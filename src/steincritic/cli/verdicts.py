"""check, test, demo, compare, doctor: what ends in a verdict about a model."""

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from steincritic.cli.guard import FITS, REJECTED, after, described, print_json
from steincritic.cli.options import (
    MODEL,
    Bounded,
    Common,
    Data,
    Model,
    OnDevice,
    Options,
    Seeded,
    TableOptions,
    Target,
    TestOptions,
    check_data,
    check_writable,
    doubts_in_the_result,
    model_named,
    object_named,
    parse_bounds,
    parse_shape,
)
from steincritic.cli.parse import ADVANCED
from steincritic.errors import InputError, check_count

if TYPE_CHECKING:
    from steincritic.data.source import FileSource
    from steincritic.diagnosis.check_result import CheckResult
    from steincritic.gof.large import Tested
    from steincritic.models import base
    from steincritic.shapes import Points

CHECK_FILES = ("report.html", "result.json", "witness.csv", "critic.safetensors")  # as report.folder has them
_FINDINGS = 5
_COLORS = {"passed": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


@dataclass(frozen=True, kw_only=True)
class OfData(TestOptions, Bounded, Target, Model, Data):
    """A model and the data that it is tested on."""

    fitted: Annotated[
        bool, ADVANCED, "--model is a function or estimator, fitted to the data and anew to every null set."
    ] = False

    def check(self) -> None:
        super().check()
        if self.fitted and self.target is not None:
            raise InputError("--fitted is for models of all columns; a model with --target is taken as it is")

    @property
    def title(self) -> str:
        return f"{self.data.name} against {self.model}"

    @property
    def source(self) -> "FileSource":
        from steincritic.data.source import FileSource

        return FileSource(self.data, self.chosen, self.drop_nan)

    def tested(self) -> "Tested":
        from steincritic.gof.choose import tested
        from steincritic.gof.fitted import Fitted

        model, x = object_named(self.model), self.source
        about: dict[str, Any] = {"target": self.targets, "bounds": parse_bounds(self.bounds)}
        about |= {"dependent": self.dependent, **self.settings}
        with doubts_in_the_result():
            if self.fitted:
                table = self.read(self.data)
                return tested(Fitted(model, table), table, self.asked, **about)
            return tested(model, x, self.asked, **about)

    def about(self, outcome: "Tested") -> dict[str, Any]:
        return {"model": self.model, "data": str(self.data), "dropped": outcome.question.dropped}


@dataclass(frozen=True, kw_only=True)
class Test(Common, OfData):
    """Test whether data could come from a model, without looking for where it fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    out: Annotated[Path | None, "Folder for result.json."] = None

    def __call__(self) -> int:
        from steincritic.cli.out import print_verdict
        from steincritic.diagnosis.doctor.doctor import glance

        outcome = self.tested()
        result = outcome.result
        checkup = glance(outcome.question.model, outcome.question.points.x, seed=self.seed)
        problems = {"model_problems": [asdict(problem) for problem in checkup.problems]}
        content = described(result.to_dict() | problems, command="test", **self.about(outcome))
        lines = [result.summary(), *checkup.problem_lines]
        self.tell(
            content,
            lambda: print_verdict(lines, title=self.title, rejected=result.decided),
            "result.json",
        )
        return REJECTED if result.rejected else FITS


@dataclass(frozen=True, kw_only=True)
class Check(Common, OfData):
    """Test whether data could come from a model, and show where the model fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    fdr: Annotated[float, ADVANCED, "Accepted share of false discoveries in the list of points."] = 0.1
    image_shape: Annotated[
        str | None, ADVANCED, "Rows are images of this size, for example 28x28 or 32x32x3."
    ] = None
    out: Annotated[
        Path | None, "Folder for report.html, result.json, witness.csv and critic.safetensors."
    ] = None
    overwrite: Annotated[bool, "Replace a report that is there."] = False
    junit: Annotated[Path | None, ADVANCED, "File for the verdict as JUnit XML, for CI servers."] = None

    def check(self) -> None:
        super().check()
        if not 0 < self.fdr < 1:
            raise InputError(f"fdr must lie in (0, 1), for example 0.1: got {self.fdr!r}")
        parse_shape(self.image_shape)
        if self.junit is not None:
            check_writable(self.junit)
        existing = [] if self.out is None else [name for name in CHECK_FILES if (self.out / name).exists()]
        if existing and not self.overwrite:
            raise InputError(
                f"{self.out} holds {existing[0]} already; choose another --out, or pass --overwrite"
            )

    def __call__(self) -> int:
        from steincritic.cli.out import print_files, print_lines, print_verdict
        from steincritic.data.source import first_row
        from steincritic.diagnosis.check import diagnosed
        from steincritic.diagnosis.halves import FEWEST
        from steincritic.report.page import check_shape

        if (shape := parse_shape(self.image_shape)) is not None:
            check_shape(shape, first_row(self.source).x.shape[1])  # before hours of work
        outcome, result = self.tested(), None
        test, about = outcome.result, self.about(outcome)
        content = described(test.to_dict(), command="check", **about)
        if len(outcome.question.points) >= FEWEST:  # fewer can be tested, but not searched
            with after(content):
                result = diagnosed(outcome, level=self.level, fdr=self.fdr, seed=self.seed)
            content = described(result.to_dict(), command="check", **about)
        lines = [test.summary()] if result is None else reading(result, saved=self.out is not None)
        if not self.json:
            print_verdict(lines, title=self.title, rejected=test.decided)
        with after(content):
            files = self._written(result, content, lines)
        if self.json:
            print_json(content | {"files": [str(file) for file in files]})
        elif files:
            print_files(files)
        else:
            print_lines("For the report pass --out DIR.")
        return REJECTED if test.rejected else FITS

    def _written(self, result: "CheckResult | None", content: dict[str, Any], lines: list[str]) -> list[Path]:
        from steincritic.cli.out import junit
        from steincritic.files import write_atomically, write_json
        from steincritic.report.folder import save_check
        from steincritic.report.page import About

        files = []
        if self.out is not None and result is None:
            files = [self.out / "result.json"]
            write_json(files[0], content)
        elif self.out is not None and result is not None:
            about = About(title=self.title, command=command_line(), config=asdict(self))
            shape = parse_shape(self.image_shape)
            files = save_check(result, self.out, about=about, content=content, image_shape=shape)
        if self.junit is not None:
            write_atomically(self.junit, junit(lines, content, title=self.title))
            files.append(self.junit)
        return files


@dataclass(frozen=True, kw_only=True)
class Demo(Common, TestOptions):
    """Check a model of people made up for the purpose: a report for data that it does not fit, one for its
    own draws."""

    n: Annotated[int, "Number of people."] = 300
    out: Annotated[Path, "Folder for the reports."] = Path("out/demo")

    def check(self) -> None:
        super().check()
        check_count(self.n, name="n")

    def __call__(self) -> int:
        from steincritic.cli.out import print_files, print_lines, print_verdict
        from steincritic.diagnosis.check import check
        from steincritic.report.folder import save_check
        from steincritic.report.page import About

        model, cases = _people(self.n)
        results = {}
        for name, (title, x) in cases.items():
            with doubts_in_the_result():
                result = check(
                    model,
                    x,
                    test=self.asked,
                    names=["height", "weight", "age"],
                    dependent=self.dependent,
                    **self.settings,
                )
            about = About(title=title, command=command_line(), config=asdict(self))
            content = described(result.to_dict(), command="demo", case=name)
            if not self.json:
                print_verdict(reading(result), title=title, rejected=result.test.decided)
            with after(content):
                files = save_check(result, self.out / name, about=about, content=content)
            results[name] = result.to_dict() | {"files": [str(file) for file in files]}
            if not self.json:
                print_files(files)
        first = self.out / "data" / "report.html"
        content = described({"cases": results}, command="demo")
        self.tell(content, lambda: print_lines(f"Open {first} in a browser."))
        return FITS


@dataclass(frozen=True, kw_only=True)
class _Candidates(Options):
    model: Annotated[tuple[str, ...], f"A candidate, given at least twice: {MODEL}"]
    name: Annotated[
        tuple[str, ...],
        "Name of a candidate, once per model, in their order; by default the models as given.",
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Compare(Common, TestOptions, Bounded, _Candidates, Data):
    """Rank models by their distance to the data, and test each of them.

    Exit code 0: not all models are rejected, 1: all are rejected, 2: error.
    """

    test: Annotated[
        str | None, "combined, crossfit, split, ksd or ksdagg; none skips tests; by default chosen for each."
    ] = None
    out: Annotated[Path | None, "Folder for comparison.json."] = None

    def check(self) -> None:
        super().check()
        if len(self.model) < 2:
            raise InputError(f"give --model at least twice, got {len(self.model)}; for one model use check")
        if self.name and len(self.name) != len(self.model):
            raise InputError(
                f"give --name once per model: got {len(self.name)} names for {len(self.model)} models"
            )
        for name in ("dependent", "tolerance"):
            if getattr(self, name):
                raise InputError(f"--{name} is for check and test, which look at one model")
        if self.test is None and (self.draws is not None or not self.cache):
            raise InputError("--draws and --no-cache set up one test: name it with --test")

    def __call__(self) -> int:
        from steincritic.cli.out import print_lines, print_table
        from steincritic.diagnosis.compare import compare
        from steincritic.diagnosis.comparison import COLUMNS
        from steincritic.gof.choose import choose_test

        models = [model_named(spec) for spec in self.model]
        table, test = self.read(self.data), self.test
        chosen: Any = test if test in (None, "none") else choose_test(self.asked, None, 0)[0]
        about: dict[str, Any] = {"bounds": parse_bounds(self.bounds), **self.settings}
        with doubts_in_the_result():
            result = compare(models, table, names=self.name or self.model, test=chosen, **about)
        about = {"models": list(self.model), "data": str(self.data), "dropped": table.dropped}

        def show() -> None:
            print_table(COLUMNS, result.rows(), title=self.data.name)
            print_lines(
                result.ranking_sentence(), result.verdict_sentence(), *result.caution_lines, *result.notes
            )

        self.tell(described(result.to_dict(), command="compare", **about), show, "comparison.json")
        return REJECTED if result.rejected else FITS


@dataclass(frozen=True, kw_only=True)
class Doctor(Common, OnDevice, Seeded, TableOptions, Bounded, Target, Model):
    """Check a model's score and sampler before you trust a test.

    Exit code 0: nothing failed, 1: a check failed, 2: error.
    """

    data: Annotated[
        Path | None, "Data that you will test, as for check; needed if the model cannot be sampled."
    ] = None
    n: Annotated[
        int | None, ADVANCED, "Number of model draws; by default up to 50,000, fewer for a slow model."
    ] = None
    out: Annotated[Path | None, "Folder for checkup.json."] = None

    def check(self) -> None:
        super().check()
        if self.n is not None:
            check_count(self.n, name="n")
        if self.data is not None:
            check_data(self.data)

    def __call__(self) -> int:
        from rich.text import Text

        from steincritic.cli.out import print_lines, print_table
        from steincritic.diagnosis.doctor.doctor import doctor

        device = None if self.device == "auto" else self.device
        table = None if self.data is None else self.read(self.data)
        options: dict[str, Any] = {"target": self.targets, "bounds": parse_bounds(self.bounds)}
        checkup = doctor(object_named(self.model), table, n=self.n, seed=self.seed, device=device, **options)
        about = {
            "model": self.model,
            "data": None if self.data is None else str(self.data),
            "dropped": 0 if table is None else table.dropped,
        }

        def show() -> None:
            rows = [(Text(c.status, style=_COLORS[c.status]), c.name, c.detail) for c in checkup.checks]
            print_table(("", "check", "found"), rows, title=self.model)
            print_lines(checkup.summary().splitlines()[0])

        self.tell(described(checkup.to_dict(), command="doctor", **about), show, "checkup.json")
        return FITS if checkup.ok else REJECTED


def reading(result: "CheckResult", *, saved: bool = False) -> list[str]:
    """What a person reads first: verdict, the most telling findings, size; then how the test was done."""
    findings = [f"{k}. {sentence}" for k, sentence in enumerate(result.findings, start=1)]
    more = len(findings) - _FINDINGS
    where = "in the report" if saved else "in the report (--out DIR)"
    rest = [f"{more} more finding{'s' if more > 1 else ''} {where}."] if more > 0 else []
    return result.reading([*findings[:_FINDINGS], *rest])


def command_line() -> str:
    """As it was typed, so that it can be typed again."""
    return shlex.join(["steincritic", *sys.argv[1:]])


def _people(n: int) -> "tuple[base.Model, dict[str, tuple[str, Points]]]":
    """The model has three independent columns; the data have taller people who weigh more, of more ages."""
    import torch

    from steincritic.models import GaussianMixture

    sd = torch.tensor([8.0, 12.0, 11.0], dtype=torch.float64)
    model = GaussianMixture([[171.0, 74.0, 41.0]], torch.diag(sd**2)[None])
    x = model.sample(n, seed=1)
    x[:, 1] += 0.6 * (x[:, 0] - 171)
    x[:, 2] = 41 + 1.3 * (x[:, 2] - 41)
    return model, {
        "data": ("People, and a model of independent columns", x),
        "control": ("Control: the model's own draws", model.sample(n, seed=2)),
    }
