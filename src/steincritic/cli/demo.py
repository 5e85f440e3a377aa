"""demo: check a model on built-in data."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from steincritic.cli.check import command_line, show, told, write_all
from steincritic.cli.guard import FITS, described, print_json
from steincritic.cli.options import AsJson, Common, TestOptions, prepare
from steincritic.errors import InputError, check_count

if TYPE_CHECKING:
    from steincritic.models.base import ScoreModel
    from steincritic.shapes import Points


@dataclass(frozen=True, kw_only=True)
class Demo(Common, AsJson, TestOptions):
    """Check a model on built-in data: one report for data that it does not fit, one for its own draws."""

    problem: Literal["mixture", "digits"] = "mixture"
    """The paper's 2-D mixture, or scikit-learn's digits against a mixture fitted to half of them."""
    n: int = 300
    """Number of points from the 2-D mixture."""
    out: Path = Path("out/demo")
    """Folder for the reports."""

    def check(self) -> None:
        super().check()
        check_count(self.n, name="n")
        prepare(self.out)

    def __call__(self) -> int:
        from steincritic.data.points import scored
        from steincritic.diagnosis import diagnose
        from steincritic.report.page import About

        model, cases, image_shape = _digits() if self.problem == "digits" else _mixture(self.n)
        options = replace(self, test="split") if self.problem == "digits" and self.test is None else self
        found = {}
        for name, title, x in cases:
            test = options.run(model, scored(model, x))
            diagnosis = diagnose(model, x, level=self.level, seed=self.seed, test=test)
            about = About(title=title, command=command_line(), config=asdict(self))
            content = described(diagnosis.to_dict(), command="demo", problem=self.problem, case=name)
            files = write_all(diagnosis, self.out / name, content, about=about, image_shape=image_shape)
            found[name] = diagnosis.to_dict() | {"files": [str(file) for file in files]}
            if not self.json:
                show(told(diagnosis), title=title, rejected=diagnosis.rejected, files=files)
        self._end(found, first=self.out / cases[0][0] / "report.html")
        return FITS

    def _end(self, found: dict[str, Any], *, first: Path) -> None:
        if self.json:
            print_json(described({"cases": found}, command="demo", problem=self.problem))
            return
        from steincritic.cli.printing import print_lines

        print_lines(f"Open {first} in a browser.")


Cases = list[tuple[str, str, "Points"]]


def _mixture(n: int) -> tuple["ScoreModel", Cases, None]:
    from steincritic.data import problem

    pair = problem("gm-2d")
    cases = [
        ("data", "Data from p: the model misses a correlation", pair.data.sample(n, seed=1)),
        ("control", "Control: the model's own draws", pair.model.sample(n, seed=2)),
    ]
    return pair.model, cases, None


def _digits() -> tuple["ScoreModel", Cases, tuple[int, int]]:
    """Gray levels are whole numbers, so noise of one level makes them continuous."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.mixture import GaussianMixture as Fitted
    except ImportError:
        raise InputError("the digits come with scikit-learn: pip install 'steincritic[sklearn]'") from None
    import torch

    from steincritic.models import GaussianMixture
    from steincritic.rng import generator

    levels = torch.tensor(load_digits().data, dtype=torch.float64)
    x = levels + torch.rand(levels.shape, generator=generator(0, "digits"), dtype=torch.float64)
    x = x[torch.randperm(len(x), generator=generator(0, "order"))]
    half = len(x) // 2
    fitted = Fitted(n_components=10, reg_covar=0.3, random_state=0).fit(x[:half].numpy())
    model = GaussianMixture(fitted.means_, fitted.covariances_, fitted.weights_)
    cases = [
        ("digits", "Digits not used in the fit, against a mixture of ten Gaussians", x[half:]),
        ("control", "Control: the mixture's own draws", model.sample(len(x) - half, seed=2)),
    ]
    return model, cases, (8, 8)
