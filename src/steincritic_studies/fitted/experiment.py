"""Level and power of tests of fitted models, beside one that takes the fit for fixed, and beside [key2025].

Each test fits the family to its data, and the family is fitted anew to every null set.

- *refitted*: quick lenses. For normal laws what they see of null sets has one law whatever the data, so the
  tests of a cell choose their 999 null sets from shared ones, drawn from another member of the family: if the
  law were not one, the level would show it. For mixtures each test has 99 null sets and 100 reference sets of
  its own.
- *default*: `gof_test(sc.Fitted(fit, x), x)`, each test with null sets of its own.
- *composite KSD*: one RBF kernel at the median distance, 99 null sets for each test.
- *naive*: quick lenses, with the fitted model taken for fixed.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from steincritic.data.points import ScoredPoints, score_points
from steincritic.gof.combined import Combined
from steincritic.gof.fitted import Fitted
from steincritic.gof.kernel import Ksd
from steincritic.gof.result import GofResult
from steincritic.gof.test import GofTest
from steincritic.models.base import SamplingModel
from steincritic.models.mixture import GaussianMixture
from steincritic.models.normal_fit import FitNormal
from steincritic.rng import Source, derive
from steincritic.shapes import Points
from steincritic_studies.fitted.figures import draw_fitted, fitted_table
from steincritic_studies.fitted.mixture import FitMixture
from steincritic_studies.study import Context, Outcome, Study

LEVEL = 0.05
FAMILIES: dict[str, Callable[[Any], Any]] = {
    "normal, mean": FitNormal("identity"),
    "normal, mean and covariance": FitNormal("full"),
    "2 components": FitMixture(2),
    "5 components": FitMixture(5),
}
_POOL = 4000  # null sets that tests of a normal law choose theirs from


def method(name: str, *, tiny: bool) -> GofTest:
    """A test with null sets of its own."""
    few = 19 if tiny else 99
    if name == "composite KSD":
        return Ksd(threshold="fresh", draws=few)
    if name == "default" and not tiny:
        return Combined(critics=None, engine="serial")
    return Combined(critics=None, draws=few, reference=few + 1, stop_early=False, engine="serial")


@dataclass(frozen=True, kw_only=True)
class FittedJob:
    """Some tests of one method on datasets of one kind."""

    family: str
    truth: str
    d: int
    n: int
    method: str
    tests: int
    part: int
    seed: int
    tiny: bool = False


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A family, its data, and the tests of each method."""

    family: str
    d: int
    n: int
    truth: str
    tests: dict[str, int]


def _cells() -> Iterator[Problem]:
    normal: list[tuple[str, int, int, tuple[str, ...]]] = []
    normal += [("normal, mean", d, 50, ("t(3)", "t(5)")) for d in (2, 5, 10, 20, 50)]
    normal += [("normal, mean and covariance", d, 50, ("t(3)", "t(5)")) for d in (2, 5, 10, 20)]
    normal += [("normal, mean and covariance", 10, 200, ("t(5)",))]
    normal += [("normal, mean and covariance", 1, n, ("t(2)",)) for n in (20, 50)]
    for family, d, n, truths in normal:
        level = {"refitted": 2000, "composite KSD": 500, "naive": 200}
        level |= {"default": 2000} if (d, n) == (5, 50) and family.endswith("covariance") else {}
        yield Problem(family=family, d=d, n=n, truth="null", tests=level)
        for truth in truths:
            power = {"refitted": 2000, "composite KSD": 500}
            yield Problem(family=family, d=d, n=n, truth=truth, tests=power)
    for family, n, runs, found in (
        ("2 components", 50, 2000, 200),
        ("2 components", 200, 250, 100),
        ("5 components", 200, 200, 50),
    ):
        level = {"refitted": runs, "composite KSD": min(runs, 500), "naive": 200 if n == 50 else 50}
        level |= {"default": 2000} if n == 50 else {}
        yield Problem(family=family, d=2, n=n, truth="null", tests=level)
        for truth in ("skewed", "missing"):
            power = {"refitted": found, "composite KSD": found}
            yield Problem(family=family, d=2, n=n, truth=truth, tests=power)


@dataclass(frozen=True, kw_only=True)
class FittedModels:
    """Cells, and tests of a job with null sets of their own."""

    cells: tuple[Problem, ...]
    part: int = 50
    tiny: bool = False


FULL = FittedModels(cells=tuple(_cells()))
_EACH = {"refitted": 4, "default": 2, "composite KSD": 2, "naive": 2}
TINY = FittedModels(
    cells=(
        Problem(family="normal, mean and covariance", d=2, n=30, truth="null", tests=_EACH),
        Problem(family="normal, mean", d=2, n=30, truth="t(3)", tests={"refitted": 4, "composite KSD": 2}),
        Problem(family="2 components", d=2, n=40, truth="null", tests={"refitted": 2, "naive": 2}),
    ),
    part=2,
    tiny=True,
)


def run(config: FittedModels, context: Context) -> Outcome:
    start = time.perf_counter()
    rows = context.sweep(run_fitted_job, list(_jobs(config, context.seed)))
    seconds = {"total": time.perf_counter() - start, "jobs": float(sum(row["seconds"] for row in rows))}
    return Outcome({"rows": rows}, seconds)


def _jobs(config: FittedModels, seed: int) -> Iterator[FittedJob]:
    for cell in config.cells:
        for name, count in cell.tests.items():
            size = count if _is_shared(cell.family, name) else min(count, config.part)
            for part in range(count // size):
                yield FittedJob(
                    family=cell.family,
                    truth=cell.truth,
                    d=cell.d,
                    n=cell.n,
                    method=name,
                    tests=size,
                    part=part,
                    seed=seed,
                    tiny=config.tiny,
                )


def _is_shared(family: str, name: str) -> bool:
    return name == "refitted" and family.startswith("normal")


def run_fitted_job(job: FittedJob) -> dict[str, Any]:
    start = time.perf_counter()
    own = derive(job.seed, job.family, job.truth, job.d, job.n, job.part)
    shared = _is_shared(job.family, job.method)
    results = _together(job, own) if shared else [_alone(job, derive(own, t)) for t in range(job.tests)]
    lenses = {reading.lens for result in results for reading in result.readings}
    return {
        **{name: getattr(job, name) for name in ("family", "truth", "d", "n", "method", "tests")},
        "null_pool": _POOL if shared else 0,
        "rejections": sum(result.rejected for result in results),
        "by_lens": {
            lens: sum(r.pvalue <= LEVEL for result in results for r in result.readings if r.lens == lens)
            for lens in sorted(lenses)
        },
        "seconds": time.perf_counter() - start,
        "device": "CPU",
    }


def _alone(job: FittedJob, seed: int) -> GofResult:
    x = _data(job, seed)
    fit = FAMILIES[job.family]
    model: SamplingModel = fit(x) if job.method == "naive" else Fitted(fit, x)
    test = method(job.method, tiny=job.tiny)
    if isinstance(test, Combined):  # null sets of its own, where usually tests of one shape have the same
        test = replace(test, null_seed=derive(seed, "null"), cache=False)
    (result,) = test.run(model, score_points(model, x).alone(), level=LEVEL, seeds=[derive(seed, "test")])
    return result


def _data(job: FittedJob, seed: int) -> Points:
    x: Points = truth_of(job.family, job.truth, job.d).sample(job.n, seed=derive(seed, "data"))
    return x.double()


class _Shared(Fitted):
    """Its null sets are those of any data."""

    def anew(self, datasets: ScoredPoints) -> tuple[Fitted, ScoredPoints]:
        return self, datasets


def _together(job: FittedJob, seed: int) -> list[GofResult]:
    """Tests of many datasets, with null sets of another member of the family: shifted, and with a covariance
    far from theirs where it is fitted."""
    x = torch.stack([_data(job, derive(seed, t)) for t in range(job.tests)])
    other = Source(seed, "another member").normals(job.n, job.d, dtype=torch.float64)
    fit = FAMILIES[job.family]
    if getattr(fit, "whole", False):
        other = other.cumsum(-1) * torch.linspace(1, 3, job.d, dtype=torch.float64)
    model = _Shared(fit, other + 7)
    few: dict[str, Any] = {"draws": 19, "reference": 20} if job.tiny else {"null_pool": _POOL}
    test = Combined(critics=None, stop_early=False, null_seed=seed, cache=False, **few)
    seeds = [derive(seed, "test", t) for t in range(job.tests)]
    return test.run(model, model.refit(x), level=LEVEL, seeds=seeds)


@dataclass(frozen=True)
class Tailed:
    """A multivariate t."""

    dim: int
    freedom: int

    def sample(self, n: int, *, seed: int = 0) -> Points:
        z = Source(seed, "student").normals(n, self.dim + self.freedom, dtype=torch.float64)
        return z[:, : self.dim] / z[:, self.dim :].square().mean(1, keepdim=True).sqrt()


@dataclass(frozen=True)
class Skewed:
    """A mixture whose first component has gamma distributed columns of the same mean and spread."""

    mixture: GaussianMixture

    def sample(self, n: int, *, seed: int = 0) -> Points:
        source = Source(seed, "skewed")
        component = source.choices(self.mixture.weights, n)
        z = source.normals(n, self.mixture.dim, dtype=torch.float64)
        u = 1 - source.uniforms(2, n, self.mixture.dim, dtype=torch.float64)
        gamma = (-u.log()).sum(0)
        z = torch.where(component[:, None] == 0, (gamma - 2) / 2**0.5, z)
        factors = torch.linalg.cholesky(self.mixture.covariances)[component]
        x: Points = self.mixture.means[component] + (factors @ z[..., None])[..., 0]
        return x


def truth_of(family: str, truth: str, d: int) -> Any:
    """What the data are drawn from."""
    if truth.startswith("t("):
        return Tailed(d, int(truth[2:-1]))
    if family.startswith("normal"):
        return GaussianMixture(torch.zeros(1, d, dtype=torch.float64))
    mixture = _circle(int(family[0]))
    return {"null": mixture, "skewed": Skewed(mixture), "missing": _with_another(mixture)}[truth]


def _circle(k: int) -> GaussianMixture:
    """Components on a circle, narrow along different directions."""
    angle = 2 * torch.pi * torch.arange(k, dtype=torch.float64) / k
    means = (2.5 if k == 2 else 5.0) * torch.stack([angle.cos(), angle.sin()], 1)
    along = torch.stack([(angle / 2).cos(), (angle / 2).sin()], 1)
    covariances = 0.5 * torch.eye(2, dtype=torch.float64) + 0.8 * along[:, :, None] * along[:, None]
    return GaussianMixture(means, covariances)


def _with_another(mixture: GaussianMixture) -> GaussianMixture:
    """A further component, between the others or beside them, with a fifth of the weight."""
    k = len(mixture.means)
    place = torch.tensor([[0.0, 4.0 if k == 2 else 0.0]], dtype=torch.float64)
    one = 0.5 * torch.eye(2, dtype=torch.float64)[None]
    weights = torch.cat([0.8 * mixture.weights, torch.tensor([0.2], dtype=torch.float64)])
    return GaussianMixture(torch.cat([mixture.means, place]), torch.cat([mixture.covariances, one]), weights)


STUDY = Study(
    name="fitted",
    title="Tests of models that were fitted to the tested data",
    takes="90 minutes on one core",
    full=FULL,
    tiny=TINY,
    run=run,
    table=fitted_table,
    figures=draw_fitted,
)
