"""Options of tests; and what `check` and `test` share: a word on the time it takes, data that go by."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from steincritic.cli.guard import FITS, described, print_json
from steincritic.cli.options import (
    Advanced,
    ModelOfData,
    OnDevice,
    OnEngine,
    Seeded,
    object_named,
    parse_bounds,
)
from steincritic.errors import (
    DoubtfulWarning,
    InputError,
    check_choice,
    check_count,
    check_level,
    did_you_mean,
)

if TYPE_CHECKING:
    from steincritic.data.layout import Table
    from steincritic.data.points import ScoredPoints
    from steincritic.data.source import Source
    from steincritic.gof.forecast import Forecast, Part
    from steincritic.gof.large import WentBy
    from steincritic.gof.result import GofResult
    from steincritic.gof.test import GofTest
    from steincritic.models import base

TESTS = ("combined", "crossfit", "split", "ksd", "ksdagg", "fssd")
TOLERANCES = ("moments", "fisher", "foreign")
SHORT = 2.0  # seconds that need no announcement


@dataclass(frozen=True, kw_only=True)
class TestOptions(OnEngine, OnDevice, Seeded):
    """Which test, and its settings: all that the command line knows about tests is here."""

    __test__: ClassVar[bool] = False  # not one for pytest

    test: str | None = None
    """combined, crossfit, split, ksd, ksdagg or fssd; by default the program decides and says why."""
    level: float = 0.05
    """Accepted probability of a false alarm."""
    tolerance: Advanced[str | None] = None
    """Ask "wrong by more than this?": 0.05 for means and spreads of columns, fisher:0.1 or foreign:0.03."""
    draws: Advanced[int | None] = None
    """Number of null draws B; by default that of the test."""
    precision: Advanced[float | None] = None
    """Smallest p-value that is wanted of the combined test, such as 0.001; decides the null draws."""
    dependent: Advanced[bool] = False
    """Rows are in time order and depend on each other: test by scores alone, with a random sign per
    block."""
    cache: Advanced[bool] = True
    """Keep null runs on disk and use them again."""

    tests: ClassVar[tuple[str, ...]] = TESTS

    @property
    def kept(self) -> str:
        if not self.cache:
            return super().kept
        return "no result was written; null runs that are in the cache by now are used by the next run"

    def check(self) -> None:
        super().check()
        check_level(self.level)
        if self.test is not None:
            check_choice(self.test, name="test", choices=self.tests)
        if self.tolerance is not None:
            _check_tolerance(self.tolerance)
            if self.test is not None:
                raise InputError("pass --test or --tolerance, not both: a tolerance has a test of its own")
        if self.draws is not None:
            check_count(self.draws, name="draws")
        if self.precision is not None and not 0 < self.precision < 1:
            raise InputError(f"precision is a p-value in (0, 1), such as 0.001: got {self.precision!r}")
        if self.precision is not None and self.draws is not None:
            raise InputError("pass --draws or --precision, not both: the precision decides the draws")

    def run(
        self,
        model: "base.Model",
        points: "ScoredPoints",
        names: Sequence[str] | None = None,
        notes: tuple[str, ...] = (),
        before: "Callable[[Forecast], None] | None" = None,
    ) -> "GofResult":
        """Test the model on the points, with these settings; the notes go with the result."""
        from steincritic.gof.choose import choose_test, gof_test
        from steincritic.gof.tolerance import as_tolerance

        asked = self.test if self.tolerance is None else as_tolerance(self.tolerance)
        chosen, reason = choose_test(asked, model, len(points))
        test = self.with_settings(chosen)
        with doubts_in_the_result():
            result = gof_test(
                model,
                points,
                test,
                self.level,
                self.seed,
                self.device,
                dependent=self.dependent,
                names=names,
                before=before,
            )
        why = (f"Test {chosen.name}: {reason}.",) if reason and not self.dependent else ()
        return replace(result, notes=(*why, *result.notes, *notes))

    def for_each(self) -> "GofTest | Literal['none'] | None":
        """The same for functions that test several models themselves."""
        from steincritic.gof.choose import TESTS as VALUES

        if self.dependent:
            raise InputError("--dependent is for check and test, which look at one model")
        if self.tolerance is not None:
            raise InputError("--tolerance is for check and test, which look at one model")
        if self.test == "none":
            return "none"
        if self.test is not None:
            return self.with_settings(VALUES[self.test])
        if (self.draws, self.precision) != (None, None) or not self.cache:
            raise InputError("--draws, --precision and --no-cache set up one test: name it with --test")
        return None

    def with_settings(self, test: "GofTest") -> "GofTest":
        """The test with what these options change of it."""
        from steincritic.gof.combined import Combined
        from steincritic.gof.crossfit import CrossFit

        if isinstance(test, Combined | CrossFit):
            test = replace(test, cache=self.cache)
        elif self.engine is not None:
            raise InputError(f"--engine spreads null runs of combined and crossfit; {test.name} has none")
        if isinstance(test, Combined):
            return replace(test, draws=self.draws, precision=self.precision)
        if self.precision is not None:
            raise InputError(f"--precision is for the combined test; for {test.name} pass --draws")
        return test if self.draws is None else replace(test, draws=self.draws)  # type: ignore[type-var]


@contextmanager
def doubts_in_the_result() -> Iterator[None]:
    """What is printed with a result is not warned of as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)
        yield


def _check_tolerance(text: str) -> None:
    """As `gof.tolerance` has it, without torch."""
    kind, _, size = text.rpartition(":")
    try:
        value = float(size)
    except ValueError:
        value = 0.0
    share = kind.strip() != "fisher"
    if kind.strip() not in ("", *TOLERANCES) or not (0 < value < 1 if share else 0 < value < float("inf")):
        raise InputError(
            "tolerance is a share such as 0.05, or fisher:0.1, or foreign:0.03; "
            f"got {text!r}{did_you_mean(kind, TOLERANCES)}"
        )


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

    def afterward(self, model: "base.Model", source: "Source") -> "Callable[[], Part] | None":
        """How long what follows the test takes."""
        return None

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
        teller.then = self.afterward(model, source)
        options: dict[str, Any] = {"bounds": parse_bounds(self.bounds), "before": teller, "names": None}
        with doubts_in_the_result():
            test = self.with_settings(chosen)
            by = in_one_pass(model, source, test, self.level, self.seed, self.device, **options)
        if by is None or reason is None:
            return by
        notes = (f"Test {chosen.name}: {reason}.", *by.result.notes)
        return replace(by, result=replace(by.result, notes=notes))
