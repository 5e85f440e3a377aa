"""The reports that tests of the page and of the browser look at, made once."""

from dataclasses import dataclass

import pytest
import torch

from steincritic.diagnosis.check import check
from steincritic.diagnosis.check_result import CheckResult
from steincritic.models import GaussianMixture
from steincritic.report.page import About, render
from steincritic.rng import generator

AWKWARD = ('<b>&"x', "income", "a rather long name, in $ per m$")


@dataclass(frozen=True, eq=False)
class Case:
    diagnosis: CheckResult
    about: About
    image_shape: tuple[int, ...] | None

    def render(self) -> str:
        return render(self.diagnosis, about=self.about, image_shape=self.image_shape)


@pytest.fixture(scope="session")
def cases():
    """Data that do not fit, that fit, images, one column, a model without a sampler."""
    space, line, image = (GaussianMixture([[0.0] * d]) for d in (3, 1, 64))
    far = space.sample(160, seed=1)
    far[torch.rand(160, generator=generator(1)) < 0.5, 0] += 2.5
    images = image.sample(80, seed=3)
    images[:, 20:28] += 1.5
    made = {
        "rejected": (space, far, AWKWARD, None),
        "fits": (space, space.sample(120, seed=2), None, None),
        "images": (image, images, None, (8, 8)),
        "line": (line, 1.6 * line.sample(150, seed=4) + 0.5, None, None),
        "no-sampler": ((torch.neg, None), space.sample(120, seed=5) + 0.7, None, None),
    }
    return {
        name: Case(
            check(model, x, test="ksd", names=names, seed=7),
            About(
                title=f"{name}.csv against models.py:q",
                command=f"steincritic check {name}.csv --model 'models.py:q'",
                config={"level": 0.05, "note": "</pre><script>alert(1)</script>"},
            ),
            shape,
        )
        for name, (model, x, names, shape) in made.items()
    }


@pytest.fixture(scope="session")
def pages(cases):
    return {name: case.render() for name, case in cases.items()}
