"""test: the p-value alone."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from steincritic.cli.dry_run import Enough, Teller
from steincritic.cli.guard import FITS, REJECTED, described
from steincritic.cli.large import LargeData
from steincritic.cli.options import AsJson, Common, parse_bounds

if TYPE_CHECKING:
    from steincritic.data.points import ScoredPoints
    from steincritic.gof.large import WentBy
    from steincritic.gof.result import GofResult
    from steincritic.models.base import Model

    Tested = tuple[
        Model, ScoredPoints, GofResult, int
    ]  # the points, or some of them, and how many were left out


@dataclass(frozen=True, kw_only=True)
class Test(Common, AsJson, LargeData):
    """Test whether data could come from a model, without looking for where it fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    out: Path | None = None
    """Folder for result.json."""

    def __call__(self) -> int:
        from steincritic.cli.printing import print_verdict
        from steincritic.diagnosis.doctor.doctor import glance

        teller = self.teller()
        try:
            by = self.went_by(teller)
            model, points, result, dropped = self._of_loaded(teller) if by is None else self._of_passed(by)
        except Enough:
            return self.foretold(teller, "test")
        checkup = glance(model, points.x, seed=self.seed)
        about = self.about(dropped) | teller.expected
        found = result.to_dict() | {"model_problems": [asdict(problem) for problem in checkup.problems]}
        content = described(found, command="test", **about)
        lines, title = [result.summary(), *checkup.problem_lines], f"{self.data.name} against {self.model}"
        show = lambda: print_verdict(lines, title=title, rejected=result.rejected)  # noqa: E731
        self.tell(content, show, "result.json")
        return REJECTED if result.rejected else FITS

    def _of_loaded(self, teller: Teller) -> "Tested":
        from steincritic.data.points import model_and_points

        named, table, notes = self.load()
        model, points = model_and_points(named, table, device="cpu", bounds=parse_bounds(self.bounds))
        assert model is not None
        return model, points, self.run(model, points, table.columns, notes, before=teller), table.dropped

    def _of_passed(self, by: "WentBy") -> "Tested":
        passed = by.result.examined.passed
        return by.model, passed.sample, by.result, passed.dropped
