"""How long a test takes, said before it starts; with --dry-run that alone."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steincritic.cli.guard import FITS, print_json
from steincritic.cli.options import Advanced, TestOptions, device_named

if TYPE_CHECKING:
    from torch import Tensor

    from steincritic.data.points import ScoredPoints
    from steincritic.gof.forecast import Forecast, Part
    from steincritic.models.base import Model

    Then = Callable[[Model | None, Tensor], Part]

_SHORT = 2.0  # seconds that need no announcement


class _Enough(Exception):
    """The forecast was asked for alone."""


@dataclass
class Teller:
    """Says on standard error how long the work takes, unless it is short."""

    model: "Model"
    points: "ScoredPoints"
    then: "Then | None" = None  # what follows the test
    alone: bool = False
    told: "Forecast | None" = None

    def __call__(self, forecast: "Forecast") -> None:
        if self.then is not None:
            forecast += self.then(self.model, self.points.x)
        self.told = forecast
        if self.alone:
            raise _Enough
        if forecast.most >= _SHORT:
            print(f"steincritic: {forecast}", file=sys.stderr, flush=True)

    @property
    def expected(self) -> dict[str, Any]:
        """For the JSON object."""
        return {} if self.told is None else {"seconds_expected": round(self.told.seconds, 3)}


@dataclass(frozen=True, kw_only=True)
class DryRun(TestOptions):
    dry_run: Advanced[bool] = False
    """Say how long it would take and what would be done, and stop there; exit code 0."""

    @property
    def folder(self) -> Path | None:
        return None if self.dry_run else super().folder

    def teller(self, model: "Model", points: "ScoredPoints", then: "Then | None" = None) -> Teller:
        return Teller(model, points.to(device_named(self.device)), then, alone=self.dry_run)

    def foretell(self, teller: Teller, content: dict[str, Any]) -> int:
        """The forecast and its plan, in lines or as an object."""
        from steincritic.cli.printing import print_lines

        try:
            self.run(teller.model, teller.points, before=teller)
        except _Enough:
            pass
        assert teller.told is not None
        if getattr(self, "json", False):
            print_json(content | teller.told.to_dict())
        else:
            print_lines(str(teller.told).capitalize() + ".", *(f"  {part}" for part in teller.told.parts))
        return FITS
