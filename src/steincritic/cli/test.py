"""test: the p-value alone."""

from dataclasses import asdict, dataclass
from pathlib import Path

from steincritic.cli.guard import FITS, REJECTED, after, described, print_json
from steincritic.cli.options import (
    AsJson,
    Common,
    Data,
    Model,
    TestOptions,
    model_named,
    prepare,
)


@dataclass(frozen=True, kw_only=True)
class Test(Common, AsJson, TestOptions, Model, Data):
    """Test whether data could come from a model, without looking for where it fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    out: Path | None = None
    """Folder for result.json."""

    def check(self) -> None:
        super().check()
        if self.out is not None:
            prepare(self.out)

    def __call__(self) -> int:
        from steincritic.cli.printing import print_verdict
        from steincritic.data.points import scored
        from steincritic.diagnosis.doctor.doctor import glance
        from steincritic.files import write_json

        model = model_named(self.model)
        table, notes = self.read(self.data, model)
        points = scored(model, table)
        result = self.run(model, points, table.columns, notes)
        checkup = glance(model, points.x, seed=self.seed)
        about = {"model": self.model, "data": str(self.data), "dropped": table.dropped}
        found = result.to_dict() | {"model_problems": [asdict(problem) for problem in checkup.problems]}
        content = described(found, command="test", **about)
        if not self.json:
            title = f"{self.data.name} against {self.model}"
            print_verdict([result.summary(), *checkup.problem_lines], title=title, rejected=result.rejected)
        if self.out is not None:
            with after(content):
                write_json(self.out / "result.json", content)
        if self.json:
            print_json(content)
        return REJECTED if result.rejected else FITS
