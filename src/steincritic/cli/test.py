"""test: the p-value alone."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from steincritic.cli.guard import FITS, REJECTED, described
from steincritic.cli.options import AsJson, Common
from steincritic.cli.tested import Enough, Teller, Tested


@dataclass(frozen=True, kw_only=True)
class Test(Common, AsJson, Tested):
    """Test whether data could come from a model, without looking for where it fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    out: Path | None = None
    """Folder for result.json."""

    def __call__(self) -> int:
        from steincritic.cli.printing import print_verdict
        from steincritic.diagnosis.doctor.doctor import glance

        teller = Teller(alone=self.dry_run)
        try:
            if (by := self.went_by(teller)) is not None:
                passed = by.result.examined.passed
                model, points, result, dropped = by.model, passed.sample, by.result, passed.dropped
            else:
                named, table, notes = self.load()
                model, points = self.scored(named, table)
                result, dropped = self.run(model, points, table.columns, notes, teller), table.dropped
        except Enough:
            return self.foretold(teller, "test")
        checkup = glance(model, points.x, seed=self.seed)
        about = self.about | {"dropped": dropped} | teller.expected
        found = result.to_dict() | {"model_problems": [asdict(problem) for problem in checkup.problems]}
        content = described(found, command="test", **about)
        lines = [result.summary(), *checkup.problem_lines]
        show = partial(print_verdict, lines, title=self.title, rejected=result.rejected)
        self.tell(content, show, "result.json")
        return REJECTED if result.rejected else FITS
