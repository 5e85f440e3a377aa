"""How long a test takes, said before it starts; with --dry-run that alone."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steincritic.cli.guard import FITS, described, print_json
from steincritic.cli.options import Advanced, ModelOfData, TestOptions

if TYPE_CHECKING:
    from steincritic.gof.forecast import Forecast, Part

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
class DryRun(TestOptions, ModelOfData):
    dry_run: Advanced[bool] = False
    """Say how long it would take and what would be done, and stop there; exit code 0."""

    @property
    def folder(self) -> Path | None:
        return None if self.dry_run else super().folder

    def about(self, dropped: int) -> dict[str, Any]:
        return {"model": self.model, "data": str(self.data), "dropped": dropped}

    def teller(self) -> Teller:
        return Teller(alone=self.dry_run)

    def foretold(self, teller: Teller, command: str) -> int:
        """The forecast and its plan, in lines or as an object."""
        from steincritic.cli.printing import print_lines

        assert teller.told is not None
        if getattr(self, "json", False):
            about = {"model": self.model, "data": str(self.data)}
            print_json(described(teller.told.to_dict(), command=command, **about))
        else:
            print_lines(str(teller.told).capitalize() + ".", *(f"  {part}" for part in teller.told.parts))
        return FITS
