"""Level and power of tests of fitted models, beside one that takes the fit for fixed, and beside [key2025].

Each test fits the family to its data and refits it to every null set. Tests have 99 null sets and 100
reference sets, all of them looked at, but for "default", which is what `gof_test` does by itself.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from steincritic.data.points import score_points
from steincritic.gof.choose import choose_test
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
_REFITTED = "refitted"


def methods(*, tiny: bool) -> dict[str, GofTest]:
    """Of each, whether the null sets are refitted is decided by the model that it gets."""
    few = 19 if tiny else 99
    lenses = Combined(critics=None, draws=few, reference=few + 1, stop_early=False, engine="serial")
    return {_REFITTED: lenses, "naive": lenses, "composite KSD": Ksd(threshold="fresh", draws=few)}


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
class FittedModels:
    """Which cells, and tests of each.

    Args:
        cells: family, d, n and truths, the null problem first.
        runs: tests of a null problem, and of another.
        naive: tests that take the fit for fixed.
        default: null problems that the test is run on as it is by default.
        part: tests of a job.
    """

    cells: tuple[tuple[str, int, int, tuple[str, ...]], ...]
    runs: tuple[int, int] = (2000, 500)
    naive: int = 500
    default: tuple[tuple[str, int, int], ...] = ()
    part: int = 100
    tiny: bool = False


_TAILS = ("null", "t(3)", "t(5)")
_FAULTS = ("null", "skewed", "missing")
FULL = FittedModels(
    cells=(
        *(("normal, mean", d, 50, _TAILS) for d in (2, 5, 10, 20, 50)),
        *(("normal, mean and covariance", d, 50, _TAILS) for d in (2, 5, 10, 20)),
        ("normal, mean and covariance", 10, 200, ("null", "t(5)")),
        ("normal, mean and covariance", 1, 50, ("null", "t(2)")),
        ("2 components", 2, 50, _FAULTS),
        ("2 components", 2, 200, _FAULTS),
        ("5 components", 2, 200, _FAULTS),
        ("5 components", 2, 500, _FAULTS),
    ),
    default=(
        ("normal, mean", 10, 50),
        ("normal, mean and covariance", 5, 50),
        ("2 components", 2, 50),
    ),
)
TINY = FittedModels(
    cells=(("normal, mean and covariance", 2, 30, ("null", "t(3)")), ("2 components", 2, 40, ("null",))),
    runs=(4, 4),
    naive=4,
    default=(),
    part=2,
    tiny=True,
)


def run(config: FittedModels, context: Context) -> Outcome:
    start = time.perf_counter()
    rows = context.sweep(run_fitted_job, list(_jobs(config, context.seed)))
    seconds = {"total": time.perf_counter() - start, "jobs": float(sum(row["seconds"] for row in rows))}
    return Outcome({"rows": rows}, seconds)


def _jobs(config: FittedModels, seed: int) -> Iterator[FittedJob]:
    for family, d, n, truths in config.cells:
        for truth in truths:
            tests = {name: config.runs[truth != "null"] for name in methods(tiny=config.tiny)}
            tests["naive"] = config.naive if truth == "null" else 0
            if truth == "null" and (family, d, n) in config.default:
                tests["default"] = config.runs[0]
            for method, count in tests.items():
                for part in range(count // config.part):
                    yield FittedJob(
                        family=family,
                        truth=truth,
                        d=d,
                        n=n,
                        method=method,
                        tests=config.part,
                        part=part,
                        seed=seed,
                        tiny=config.tiny,
                    )


def run_fitted_job(job: FittedJob) -> dict[str, Any]:
    start = time.perf_counter()
    own = derive(job.seed, job.family, job.truth, job.d, job.n, job.part)
    results = [_tested(job, derive(own, t)) for t in range(job.tests)]
    lenses = {reading.lens for result in results for reading in result.readings}
    return {
        **{name: getattr(job, name) for name in ("family", "truth", "d", "n", "method", "tests")},
        "rejections": sum(result.rejected for result in results),
        "by_lens": {
            lens: sum(r.pvalue <= LEVEL for result in results for r in result.readings if r.lens == lens)
            for lens in sorted(lenses)
        },
        "seconds": time.perf_counter() - start,
        "device": "CPU",
    }


def _tested(job: FittedJob, seed: int) -> GofResult:
    x = truth_of(job.family, job.truth, job.d).sample(job.n, seed=derive(seed, "data")).double()
    fit = FAMILIES[job.family]
    model: SamplingModel = fit(x) if job.method == "naive" else Fitted(fit, x)
    test = methods(tiny=job.tiny).get(job.method) or choose_test(None, model, job.n)[0]
    # null sets have a seed of their own in each test, as data and null sets of one seed would be alike
    test = _seeded(test, derive(seed, "null"))
    (result,) = test.run(model, score_points(model, x).alone(), level=LEVEL, seeds=[derive(seed, "test")])
    return result


def _seeded(test: GofTest, seed: int) -> GofTest:
    from dataclasses import replace

    return replace(test, null_seed=seed, cache=False) if isinstance(test, Combined) else test


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
    takes="2 hours on one core",
    full=FULL,
    tiny=TINY,
    run=run,
    table=fitted_table,
    figures=draw_fitted,
)
