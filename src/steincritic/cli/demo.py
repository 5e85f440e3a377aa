"""demo: the same on an embedded problem."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from steincritic.cli.check import write_json
from steincritic.cli.common import FITS, Common, prepare, print_verdict
from steincritic.data import problem
from steincritic.gof import GofResult, gof_test


@dataclass(frozen=True, kw_only=True)
class Demo(Common):
    """Test the 2-D mixture of the paper: data from p against the model q, and q's own draws against q."""

    out: Path = Path("out/demo")
    """Folder for the results."""
    n: int = 300
    seed: int = 0

    def __call__(self) -> int:
        prepare(self.out)
        pair = problem("gm-2d")
        for name, title, x in (
            ("data", "Data from p: the model misses a correlation", pair.data.sample(self.n, seed=1)),
            ("control", "Control: the model's own draws", pair.model.sample(self.n, seed=2)),
        ):
            result = gof_test(pair.model, x, seed=self.seed)
            print_verdict(result, title=title)
            write_json(result, self.out / f"{name}.json")
            _write_null_figure(result, self.out / f"{name}.png")
        Console().print(f"Files: {self.out}/data.json, data.png, control.json, control.png")
        return FITS


def _write_null_figure(result: GofResult, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from steincritic.report.style import save, styled

    with styled():
        save(result.plot().figure, path)
