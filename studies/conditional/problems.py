"""Wrong conditional models by their published names, the kernel tests published with them, and a ceiling.

KCSD [jitkrittum2020] is the U-statistic of k(x, x') times the Stein kernel of y, with Gaussian kernels at the
median distances of x and of y (of at most 600 rows), and 400 bootstrap draws with multinomial weights. FSCD
has features at five places of x in place of k, trained for power. Likelihood ratios are the ceiling.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steincritic.models import Regression
from steincritic.rng import Source, derive, generator
from steincritic.shapes import PerPoint, Points
from steincritic.stein.kernels import squared_distances

_HEIGHT, _CENTER, _WIDTH = 10.0, 1.5, 0.8  # of the bump of the variance
BOOTSTRAPS, MEDIAN_ROWS = 400, 600
_TRAINED, _STEPS = 0.3, 200  # share of rows, steps of Adam


@dataclass(frozen=True)
class Problem:
    """A model of y given x, what the data follow instead, and how x is spread."""

    name: str
    dim: int  # of x
    sizes: tuple[int, ...]
    model: Regression
    truth: Regression
    statistic: Callable[[Points, Points], PerPoint]  # of the fitted likelihood ratio, (b, n) y to (b,)

    def covariates(self, n: int, *, seed: int) -> Points:
        source = Source(seed, "covariates")
        if self.dim == 1:
            return 4 * source.uniforms(n, 1, dtype=torch.float64) - 2
        return source.normals(n, self.dim, dtype=torch.float64)

    def data(self, n: int, *, seed: int, is_null: bool = False) -> tuple[Points, Points]:
        x = self.covariates(n, seed=derive(seed, "x"))
        return x, (self.model if is_null else self.truth).sample(x, seed=derive(seed, "y"))


def problems() -> dict[str, Problem]:
    """By their published names; 500 rows are ours."""
    return {"quad_vs_lin_d1": _quadratic()} | {f"g_het_dx{dim}": _spike(dim) for dim in (3, 4, 5, 10)}


def _quadratic() -> Problem:
    """A line for what bends a little: mean x + 1, in truth 0.1 x² more; x uniform on [-2, 2]."""

    def ratio(x: Points, y: Tensor) -> Tensor:
        """Twice the log likelihood ratio with the best coefficient of x²."""
        bend, residual = x[:, 0] ** 2, y - x[:, 0] - 1
        return (residual @ bend) ** 2 / (bend @ bend)

    model, truth = Regression(lambda x: x + 1), Regression(lambda x: x + 1 + 0.1 * x**2)
    return Problem("quad_vs_lin_d1", 1, (100, 400, 500, 700, 1000), model, truth, ratio)


def _spike(dim: int) -> Problem:
    """Variance 1 + 10 exp(-|x - 1.5|² / (2 · 0.8²)) for what has variance 1; x standard normal."""

    def bump(x: Points) -> PerPoint:
        return (-((x - _CENTER) ** 2).sum(1) / (2 * _WIDTH**2)).exp()

    def mean(x: Points) -> Points:
        return x.sum(1) - 1

    def ratio(x: Points, y: Tensor) -> Tensor:
        """The largest log likelihood ratio over heights of the bump, from none to twice the model's."""
        heights = _HEIGHT * torch.arange(0, 2.01, 0.1, dtype=x.dtype)[:, None]
        variance, squares = 1 + heights * bump(x), (y - mean(x)) ** 2  # (h, n), (b, n)
        log_density = -0.5 * (squares @ (1 / variance).T + variance.log().sum(1))  # (b, h)
        return log_density.amax(1) - log_density[:, 10]

    model = Regression(mean, lambda x: (1 + _HEIGHT * bump(x)).sqrt())
    return Problem(f"g_het_dx{dim}", dim, (300, 700, 1100, 1500), model, Regression(mean), ratio)


def kcsd_pvalue(x: Points, y: Points, score: Points, *, seed: int) -> float:
    """The published test: a share of the bootstrap draws, so it can be 0; reject below the level."""
    near = gaussian(squared_distances(x), median_square(x, seed=seed))
    return bootstrap_pvalue(near * stein_gram(y, score, median_square(y, seed=seed + 1)), seed=seed)


def fscd_pvalue(x: Points, y: Points, score: Points, *, places: int = 5, seed: int) -> float:
    """Places of x and both bandwidths trained for power on 3 rows of 10, tested on the others."""
    order = torch.randperm(len(x), generator=generator(seed, "split"))
    cut = int(_TRAINED * len(x))
    train, test = order[:cut], order[cut:]
    drawn = torch.randn(places, x.shape[1], generator=generator(seed, "places"), dtype=x.dtype)
    covariance = torch.cov(x[train].T).reshape(x.shape[1], -1)
    at = x[train].mean(0) + drawn @ torch.linalg.cholesky(covariance).T
    widths = torch.tensor([median_square(x, seed=seed), median_square(y, seed=seed + 1)], dtype=x.dtype)
    with torch.enable_grad():
        at, widths = _trained(x[train], y[train], score[train], at, widths)
    return bootstrap_pvalue(_at_places(x[test], y[test], score[test], at, widths), seed=seed)


def _at_places(x: Points, y: Points, score: Points, at: Points, widths: Tensor) -> Tensor:
    features = gaussian(((x[:, None] - at) ** 2).sum(-1), widths[0])
    return features @ features.T / len(at) * stein_gram(y, score, widths[1])


def _trained(x: Points, y: Points, score: Points, at: Points, widths: Tensor) -> tuple[Points, Tensor]:
    """Adam on mean over standard deviation, kept within the published bounds."""
    most, low, high = 10 * widths, x.min() - 2 * x.std(), x.max() + 2 * x.std()
    at, widths = at.clone().requires_grad_(), widths.clone().requires_grad_()
    optimizer = torch.optim.Adam([at, widths], lr=1e-2)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        gram = _at_places(x, y, score, at, widths)
        (-gram.mean() / (2 * gram.mean(1).std() + 1e-4)).backward()
        optimizer.step()
        with torch.no_grad():
            at.clamp_(low, high)
            widths.copy_(torch.minimum(widths.clamp(min=0.1), most))
    return at.detach(), widths.detach()


def stein_gram(y: Points, score: Points, squared: float | Tensor) -> Tensor:
    """(n, n) values of the Stein kernel in y, of a Gaussian kernel with squared bandwidth `squared`."""
    r, own = squared_distances(y), (y * score).sum(1)
    crossed = y @ score.T  # y_i . s_j
    pulled = own[:, None] + own - crossed - crossed.T  # (y_i - y_j) . (s_i - s_j)
    inside = score @ score.T + (pulled + y.shape[1] - r / squared) / squared
    return gaussian(r, squared) * inside


def bootstrap_pvalue(gram: Tensor, *, seed: int, draws: int = BOOTSTRAPS) -> float:
    """How often a draw with multinomial weights exceeds the U-statistic of the gram matrix."""
    n = len(gram)
    hollow = gram - gram.diag().diag()
    picks = Source(seed, "bootstrap").integers(n, draws, n)
    weights = torch.zeros(draws, n, dtype=gram.dtype).scatter_add_(1, picks, torch.ones_like(picks).to(gram))
    weights = (weights - 1) / n
    null = n * ((weights @ hollow) * weights).sum(1)
    return float((null > hollow.sum() / (n - 1)).double().mean())


def median_square(x: Points, *, seed: int) -> float:
    """The squared median distance of at most 600 rows."""
    rows = torch.randperm(len(x), generator=generator(seed, "median"))[:MEDIAN_ROWS]
    return float(torch.pdist(x[rows]).median() ** 2)


def gaussian(r: Tensor, squared: float | Tensor) -> Tensor:
    return (r / (-2 * squared)).exp()


def ratio_pvalues(problem: Problem, x: Points, y: Points, *, draws: int, seed: int) -> dict[str, float]:
    """Exact p-values of likelihood ratios, by null draws of y at the same x.

    "known" is against the truth, so the most powerful test; "fitted" against the best of a family.
    """
    null = problem.model.sample(x.repeat(draws, 1), seed=seed).view(draws, len(x))
    ys = torch.cat((y.T, null))  # (1 + b, n)

    def log_ratio(ys: Tensor) -> Tensor:
        mean, scale = (part[:, 0] for part in problem.model.moments(x))
        right_mean, right_scale = (part[:, 0] for part in problem.truth.moments(x))
        return (((ys - mean) / scale) ** 2 - ((ys - right_mean) / right_scale) ** 2).sum(1)

    values = {"known": log_ratio(ys), "fitted": problem.statistic(x, ys)}
    return {name: float((value >= value[0]).double().mean()) for name, value in values.items()}
