"""What `check` and `test` share: the time it takes, said before; data that are loaded, or that go by."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steincritic.cli.guard import FITS, described, print_json
from steincritic.cli.options import (
    Advanced,
    ModelOfData,
    TestOptions,
    doubts_in_the_result,
    object_named,
    parse_bounds,
)

if TYPE_CHECKING:
    from steincritic.data.layout import Table
    from steincritic.data.points import ScoredPoints
    from steincritic.gof.forecast import Forecast, Part
    from steincritic.gof.large import WentBy
    from steincritic.models import base

SHORT = 2.0  # seconds that need no announcement


class Enough(Exception):
    """The forecast was asked for alone."""


@dataclass
class Teller:
    """Says on standard error how long the work takes, unless it is short."""

    alone: bool
    then: "Callable[[], Part] | None" = None  # what follows the test
    told: "Forecast | None" = None

    def __call__(self, forecast: "Forecast") -> None:
        self.told = forecast if self.then is None else forecast + self.then()
        if self.alone:
            raise Enough
        if self.told.most >= SHORT:
            print(f"steincritic: {self.told}", file=sys.stderr, flush=True)

    @property
    def expected(self) -> dict[str, Any]:
        """For the JSON object."""
        return {} if self.told is None else {"seconds_expected": round(self.told.seconds, 3)}


@dataclass(frozen=True, kw_only=True)
class Tested(TestOptions, ModelOfData):
    dry_run: Advanced[bool] = False
    """Say how long it would take and what would be done, and stop there; exit code 0."""

    @property
    def folder(self) -> Path | None:
        return None if self.dry_run else super().folder

    @property
    def title(self) -> str:
        return f"{self.data.name} against {self.model}"

    @property
    def about(self) -> dict[str, Any]:
        return {"model": self.model, "data": str(self.data)}

    def foretold(self, teller: Teller, command: str) -> int:
        """The forecast and its plan, in lines or as an object."""
        from steincritic.cli.printing import print_lines

        assert teller.told is not None
        if getattr(self, "json", False):
            print_json(described(teller.told.to_dict(), command=command, **self.about))
        else:
            print_lines(str(teller.told).capitalize() + ".", *(f"  {part}" for part in teller.told.parts))
        return FITS

    def scored(self, named: "base.Model", table: "Table") -> "tuple[base.Model, ScoredPoints]":
        """What was loaded, as tests take it."""
        from steincritic.data.points import model_and_points

        model, points = model_and_points(named, table, device="cpu", bounds=parse_bounds(self.bounds))
        assert model is not None
        return model, points

    def went_by(self, teller: Teller) -> "WentBy | None":
        """The result where rows are so many that they go by in one pass; None where they are loaded."""
        from steincritic.data.source import FileSource
        from steincritic.gof.choose import choose_test, in_one_pass
        from steincritic.gof.large import large_source
        from steincritic.models.base import as_model
        from steincritic.models.conditional import is_conditional

        source = large_source(FileSource(self.data, self.chosen(), self.drop_nan))
        if source is None or self.fitted or self.dependent or self.target or self.tolerance:
            return None
        named = object_named(self.model)
        if is_conditional(named):
            return None
        model = as_model(named)
        chosen, reason = choose_test(self.test, model, source.rows)
        options: dict[str, Any] = {"bounds": parse_bounds(self.bounds), "before": teller, "names": None}
        with doubts_in_the_result():
            test = self.with_settings(chosen)
            by = in_one_pass(model, source, test, self.level, self.seed, self.device, **options)
        if by is None or reason is None:
            return by
        notes = (f"Test {chosen.name}: {reason}.", *by.result.notes)
        return replace(by, result=replace(by.result, notes=notes))
