"""demo: the same on an embedded problem."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console

from steincritic.cli.check import command_line, print_diagnosis, write_all
from steincritic.cli.options import FITS, Common, prepare
from steincritic.data import problem
from steincritic.diagnosis import diagnose
from steincritic.errors import InputError
from steincritic.models import GaussianMixture
from steincritic.models.base import ScoreModel
from steincritic.report.page import About
from steincritic.rng import generator
from steincritic.shapes import Points


@dataclass(frozen=True, kw_only=True)
class Demo(Common):
    """Check a model on embedded data: a report for data it does not fit, and one for its own draws."""

    problem: Literal["mixture", "digits"] = "mixture"
    """The paper's 2-D mixture, or scikit-learn's digits scored by a mixture fitted to half of them."""
    out: Path = Path("out/demo")
    """Folder for the results."""
    n: int = 300
    """Points of the 2-D mixture."""
    seed: int = 0

    def __call__(self) -> int:
        prepare(self.out)
        model, cases, image_shape = _digits() if self.problem == "digits" else _mixture(self.n)
        method = "split" if self.problem == "digits" else "auto"
        for name, title, x in cases:
            diagnosis = diagnose(model, x, seed=self.seed, method=method)
            about = About(title=title, command=command_line(), config=asdict(self))
            files = write_all(diagnosis, self.out / name, about=about, image_shape=image_shape)
            print_diagnosis(diagnosis, title=title, files=files)
        first = self.out / cases[0][0] / "report.html"
        Console().print(f"Open {first} in a browser.", highlight=False)
        return FITS


Cases = list[tuple[str, str, Points]]


def _mixture(n: int) -> tuple[ScoreModel, Cases, None]:
    pair = problem("gm-2d")
    cases = [
        ("data", "Data from p: the model misses a correlation", pair.data.sample(n, seed=1)),
        ("control", "Control: the model's own draws", pair.model.sample(n, seed=2)),
    ]
    return pair.model, cases, None


def _digits() -> tuple[ScoreModel, Cases, tuple[int, int]]:
    """Gray levels are whole numbers, so noise of one level makes them continuous."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.mixture import GaussianMixture as Fitted
    except ImportError:
        raise InputError("the digits come with scikit-learn: pip install 'steincritic[sklearn]'") from None
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
