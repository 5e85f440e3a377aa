"""compare: rank several models on the same data."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import tyro

from steincritic.cli.guard import FITS, REJECTED, described
from steincritic.cli.options import (
    Advanced,
    AsJson,
    Bounded,
    Common,
    Data,
    Options,
    model_named,
    parse_bounds,
)
from steincritic.cli.tested import TESTS, TestOptions, doubts_in_the_result
from steincritic.errors import InputError

if TYPE_CHECKING:
    from steincritic.diagnosis.comparison import Comparison


@dataclass(frozen=True, kw_only=True)
class _Candidates(Options):
    model: tyro.conf.UseAppendAction[tuple[str, ...]]
    """A candidate, given at least twice: package.module:attr, file.py:attr, FILE.safetensors or a built-in
    name."""
    name: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Name of a candidate, once per model and in their order; by default the models as they were given."""


@dataclass(frozen=True, kw_only=True)
class Compare(Common, AsJson, TestOptions, Bounded, _Candidates, Data):
    """Rank models by their distance to the data, and test each of them.

    Exit code 0: not all models are rejected, 1: all are rejected, 2: error.
    """

    test: str | None = None
    """combined, crossfit, split, ksd, ksdagg or fssd; none skips the tests; by default chosen for each."""
    units: Advanced[Literal["standard", "raw"]] = "standard"
    """Columns in standard deviations of the data, or in the units of the data."""
    out: Path | None = None
    """Folder for comparison.json."""

    tests: ClassVar[tuple[str, ...]] = (*TESTS, "none")

    def check(self) -> None:
        super().check()
        if len(self.model) < 2:
            raise InputError(f"give --model at least twice, got {len(self.model)}; for one model use check")
        if self.name and len(self.name) != len(self.model):
            raise InputError(
                f"give --name once per model: got {len(self.name)} names for {len(self.model)} models"
            )

    def __call__(self) -> int:
        from steincritic.diagnosis.compare import compare

        models = [model_named(spec) for spec in self.model]
        table = self.read(self.data)[0]
        options: dict[str, Any] = {"level": self.level, "seed": self.seed, "units": self.units}
        options["bounds"] = parse_bounds(self.bounds)
        with doubts_in_the_result():
            test, names = self.for_each(), self.name or self.model
            result = compare(models, table, names=names, test=test, device=self.device, **options)
        about = {"models": list(self.model), "data": str(self.data), "dropped": table.dropped}
        content = described(result.to_dict(), command="compare", **about)
        self.tell(content, lambda: _print(result, title=self.data.name), "comparison.json")
        return REJECTED if result.rejected else FITS


def _print(result: "Comparison", *, title: str) -> None:
    from steincritic.cli.printing import print_lines, print_table
    from steincritic.diagnosis.comparison import COLUMNS

    print_table(COLUMNS, result.rows(), title=title)
    print_lines(result.ranking_sentence(), result.verdict_sentence(), *result.caution_lines, *result.notes)
