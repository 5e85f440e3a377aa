"""test: the p-value alone."""

from dataclasses import asdict, dataclass
from pathlib import Path

from steincritic.cli.dry_run import DryRun
from steincritic.cli.guard import FITS, REJECTED, described
from steincritic.cli.options import (
    AsJson,
    Common,
    ModelOfData,
    parse_bounds,
)


@dataclass(frozen=True, kw_only=True)
class Test(Common, AsJson, DryRun, ModelOfData):
    """Test whether data could come from a model, without looking for where it fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    out: Path | None = None
    """Folder for result.json."""

    def __call__(self) -> int:
        from steincritic.cli.printing import print_verdict
        from steincritic.data.points import model_and_points
        from steincritic.diagnosis.doctor.doctor import glance

        named, table, notes = self.load()
        limits = parse_bounds(self.bounds)
        model, points = model_and_points(named, table, device="cpu", bounds=limits)
        assert model is not None
        about = {"model": self.model, "data": str(self.data), "dropped": table.dropped}
        teller = self.teller(model, points)
        if self.dry_run:
            return self.foretell(teller, described({}, command="test", **about))
        result = self.run(model, points, table.columns, notes, before=teller)
        checkup = glance(model, points.x, seed=self.seed)
        about |= teller.expected
        found = result.to_dict() | {"model_problems": [asdict(problem) for problem in checkup.problems]}
        content = described(found, command="test", **about)
        lines, title = [result.summary(), *checkup.problem_lines], f"{self.data.name} against {self.model}"
        show = lambda: print_verdict(lines, title=title, rejected=result.rejected)  # noqa: E731
        self.tell(content, show, "result.json")
        return REJECTED if result.rejected else FITS
