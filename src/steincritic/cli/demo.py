"""demo: check a model on built-in data."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from steincritic.cli.check import command_line, reading
from steincritic.cli.guard import FITS, after, described
from steincritic.cli.options import AsJson, Common
from steincritic.cli.tested import TestOptions
from steincritic.errors import InputError, check_count

if TYPE_CHECKING:
    from steincritic.models import base
    from steincritic.shapes import Points


@dataclass(frozen=True, kw_only=True)
class Demo(Common, AsJson, TestOptions):
    """Check a model on built-in data: one report for data that it does not fit, one for its own draws."""

    problem: Literal["people", "mixture", "digits"] = "people"
    """People made up for the purpose, the paper's 2-D mixture, or scikit-learn's digits against a mixture
    fitted to half of them."""
    n: int = 300
    """Number of people, or of points from the 2-D mixture."""
    out: Path = Path("out/demo")
    """Folder for the reports."""

    def check(self) -> None:
        super().check()
        check_count(self.n, name="n")

    def __call__(self) -> int:
        from steincritic.cli.printing import print_files, print_lines, print_verdict
        from steincritic.data.points import scored
        from steincritic.diagnosis.check import check
        from steincritic.report.folder import save_check
        from steincritic.report.page import About

        made = {"people": lambda: _people(self.n), "mixture": lambda: _mixture(self.n), "digits": _digits}
        model, cases, image_shape, names = made[self.problem]()
        options = replace(self, test="split") if self.problem == "digits" and self.test is None else self
        found = {}
        for name, title, x in cases:
            test = options.run(model, scored(model, x))
            result = check(
                model, x, test=test, level=self.level, seed=self.seed, names=names, device=self.device
            )
            about = About(title=title, command=command_line(), config=asdict(self))
            content = described(result.to_dict(), command="demo", problem=self.problem, case=name)
            if not self.json:
                print_verdict(reading(result), title=title, rejected=result.rejected)
            place = self.out / name
            with after(content):
                files = save_check(result, place, about=about, content=content, image_shape=image_shape)
            found[name] = result.to_dict() | {"files": [str(file) for file in files]}
            if not self.json:
                print_files(files)
        first = self.out / cases[0][0] / "report.html"
        content = described({"cases": found}, command="demo", problem=self.problem)
        self.tell(content, lambda: print_lines(f"Open {first} in a browser."))
        return FITS


Cases = list[tuple[str, str, "Points"]]
Made = tuple["base.Model", Cases, tuple[int, int] | None, list[str] | None]


def _people(n: int) -> Made:
    """The model has three independent columns; the data have taller people who weigh more, of more ages."""
    import torch

    from steincritic.models import GaussianMixture

    sd = torch.tensor([8.0, 12.0, 11.0], dtype=torch.float64)
    model = GaussianMixture([[171.0, 74.0, 41.0]], torch.diag(sd**2)[None])
    x = model.sample(n, seed=1)
    x[:, 1] += 0.6 * (x[:, 0] - 171)
    x[:, 2] = 41 + 1.3 * (x[:, 2] - 41)
    cases = [
        ("data", "People, and a model of independent columns", x),
        ("control", "Control: the model's own draws", model.sample(n, seed=2)),
    ]
    return model, cases, None, ["height", "weight", "age"]


def _mixture(n: int) -> Made:
    from steincritic.data import problem

    pair = problem("gm-2d")
    cases = [
        ("data", "Data from p: the model misses a correlation", pair.data.sample(n, seed=1)),
        ("control", "Control: the model's own draws", pair.model.sample(n, seed=2)),
    ]
    return pair.model, cases, None, None


def _digits() -> Made:
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
    return model, cases, (8, 8), None
