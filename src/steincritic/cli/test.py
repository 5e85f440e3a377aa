"""test: the p-value alone."""

from dataclasses import dataclass

from steincritic.cli.guard import FITS, REJECTED, described, print_json
from steincritic.cli.options import (
    AsJson,
    Common,
    Data,
    Model,
    OptionalPath,
    TestOptions,
    dropped_line,
    model_named,
    prepare,
)


@dataclass(frozen=True, kw_only=True)
class Test(Common, AsJson, TestOptions, Model, Data):
    """Test whether data could come from a model, without looking for where it fails.

    Exit code 0: not rejected, 1: rejected, 2: error.
    """

    drop_nan: bool = False
    """Leave out rows with NaN or infinite values."""
    out: OptionalPath = None
    """Folder for result.json."""

    def check(self) -> None:
        super().check()
        if self.out is not None:
            prepare(self.out)

    def __call__(self) -> int:
        from steincritic.cli.printing import print_verdict
        from steincritic.data.points import scored
        from steincritic.data.tables import read_table
        from steincritic.files import write_json

        table = read_table(self.data, drop_nan=self.drop_nan)
        model = model_named(self.model)
        result = self.run(model, scored(model, table.x), table.columns)
        about = {"model": self.model, "data": str(self.data), "dropped": table.dropped}
        content = described(result.to_dict(), command="test", **about)
        if self.out is not None:
            write_json(self.out / "result.json", content)
        if self.json:
            print_json(content)
        else:
            lines = [result.summary(), *dropped_line(table.dropped)]
            print_verdict(lines, title=f"{self.data.name} against {self.model}", rejected=result.rejected)
        return REJECTED if result.rejected else FITS
