r"""Which of K models is nearest to the data, and is any of them right?

Near means a small Fisher divergence $F_q = E_p|s_q - s_p|^2$, in standard deviations of the data. With

$$F_q = E_p[|s_q|^2 + 2 \nabla \cdot s_q] + E_p|s_p|^2$$

the last term is the same for all models, so differences of models have unbiased estimates from every point,
without training (Hyvärinen 2005, score matching); they rank.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from steincritic.data.arrays import ArrayLike, as_points, check_finite
from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, arranged, reading_notes, score_points, scored, within_bounds
from steincritic.devices import DeviceLike, resolve_device
from steincritic.diagnosis.comparison import Comparison, errors_of
from steincritic.engine import EngineName, using
from steincritic.errors import DoubtfulWarning, InputError, check_level, without
from steincritic.gof.assumptions import FITTED, find_caveats
from steincritic.gof.choose import TestName, choose_test
from steincritic.gof.result import GofResult
from steincritic.gof.test import GofTest
from steincritic.models.base import Model, ModelLike, as_model
from steincritic.models.bounded import BoundedModel, coordinates_of, unbounded
from steincritic.models.coordinates import Bounds, Box
from steincritic.rng import Streams, derive, generator
from steincritic.shapes import BankPerPoint, PerPoint, Points

T = TypeVar("T")

FEWEST = 40  # points: of fewer, the central limit theorem says little
_STEP = 1e-3  # of a coordinate's spread: error of the order of a millionth, also for float32 scores
_COORDINATES = 64  # stepped along singly up to here, along random directions beyond
_DRAWS = 100_000  # of the largest |t|; its 95 % quantile is then good to half a percent


_NO_CRITICS = "leave it out; the ranking needs no critics, and fit_critic trains one"


@without(
    units="leave it out; columns are in standard deviations of the data",
    staging=_NO_CRITICS,
    network=_NO_CRITICS,
    training=_NO_CRITICS,
    callbacks=_NO_CRITICS,
)
def compare(
    models: Sequence[ModelLike] | Mapping[str, ModelLike],
    x: ArrayLike,
    *,
    test: GofTest | TestName | Literal["none"] | None = None,
    level: float = 0.05,
    seed: int = 0,
    names: Sequence[str] | None = None,
    device: DeviceLike = None,
    bounds: Bounds | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
) -> Comparison:
    """Rank models by how far the data are from them, and ask whether any of them is right.

    The ranking comes from all points: differences of Fisher divergences, paired by point, with intervals
    for all pairs at once, which rest on the central limit theorem. Nothing is trained.

    Args:
        models: two or more, each anything `as_model` takes; a mapping gives their names too.
        x: the data: tensor, array, frame or file path.
        test: how each model is tested on all points, as for `gof_test`; "none" to skip. "Any is right" is
            rejected when all models are, which needs no correction (an intersection-union test).
        level: of the intervals together, and of the test of each model.
        seed: decides every random choice.
        names: of the models; q1, q2, ... by default.
        bounds: as for `gof_test`, of all models. Where some state their own, the others are cut off there
            too, and the Fisher divergence is that in coordinates without bounds.
        engine, address: where null sets of the tests are looked at, as for `gof_test`.

    >>> import steincritic as sc
    >>> q1, q2 = sc.models.GaussianMixture([[0.1, 0.0]]), sc.models.GaussianMixture([[1.0, 0.0]])
    >>> x = sc.models.GaussianMixture([[0.0, 0.0]]).sample(300, seed=1)
    >>> sc.compare({"near": q1, "far": q2}, x, test="none").ranking
    (('near',), ('far',))
    """
    check_level(level)
    if isinstance(models, Mapping):
        names = list(models) if names is None else names
        models = list(models.values())
    labels = _checked_names(models, names)
    scorers = _of_each(as_model, models, labels)
    used = arranged(x, *scorers)
    if isinstance(used, ScoredPoints):
        raise InputError("x has the scores of one model; pass the points, and each model scores them")
    at = as_points(used)
    if len(at) < FEWEST:
        raise InputError(
            f"x has {len(at)} points; a ranking takes at least {FEWEST}: collect more, or test each "
            "model with gof_test"
        )
    at = at.to(resolve_device(device, at))
    scorers = _in_one_space(scorers, bounds, used)
    points = ScoredPoints.stack(_of_each(lambda model: scored(model, at), scorers, labels))  # (k, n, d)
    scorers = [unbounded(model) for model in scorers]
    half = len(at) // 2
    first, _ = points.split([half, len(at) - half], seed=derive(seed, "halves"))
    scale = Frame.of(first.x[0]).scale
    divergences = _of_each(
        lambda model: score_divergence(model, points.x[0], scale, seed=seed), scorers, labels
    )
    # |s_q|² + 2 ∇·s_q of each model at each point: the Fisher divergence up to a common constant
    pairs, weights = zip(points.score, divergences, strict=True), scale.square()
    values = torch.stack([s.to(div_s).square() @ weights.to(div_s) + 2 * div_s for s, div_s in pairs]).cpu()
    with using(engine, address):
        tests = _tests(test, scorers, labels, points, level=level, seed=seed)
    return Comparison(
        names=labels,
        values=values,
        critical=largest_t(values, level=level, seed=derive(seed, "largest t")),
        tests=tests,
        n=len(at),
        level=level,
        seed=seed,
        caveats=_caveats(scorers, labels, points, getattr(used, "columns", None)),
        notes=reading_notes(x, used),
    )


def _caveats(
    models: Sequence[Model], names: Sequence[str], points: ScoredPoints, columns: Sequence[object] | None
) -> tuple[str, ...]:
    """What does not look as it should in the data, and which models look fitted to them."""
    labels = None if columns is None else [str(column) for column in columns]
    texts: dict[str, None] = {}
    for model, name, model_points in zip(models, names, points.each(), strict=True):
        for caveat in find_caveats(model, model_points, labels):
            of_model = f"{name}: " if caveat.kind == FITTED else ""
            texts[f"{of_model}{caveat}"] = None
    for text in texts:
        warnings.warn(text, DoubtfulWarning, stacklevel=4)  # where compare was called, past @without
    return tuple(texts)


def _checked_names(models: Sequence[ModelLike], names: Sequence[str] | None) -> tuple[str, ...]:
    if not isinstance(models, Sequence) or isinstance(models, str):
        raise InputError(f"models must be a list of at least 2 models, got {type(models).__name__}")
    if len(models) < 2:
        raise InputError(f"models must hold at least 2 models, got {len(models)}; for one use gof_test")
    if names is None:
        return tuple(f"q{k}" for k in range(1, len(models) + 1))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"names must be a list of strings, one per model: got {names!r}")
    if len(names) != len(models):
        raise InputError(f"names must hold one name per model: got {len(names)} for {len(models)} models")
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise InputError(f"names must differ, got {twice[0]!r} more than once")
    return tuple(names)


def _of_each(look: Callable[[Any], T], models: Sequence[ModelLike], names: Sequence[str]) -> list[T]:
    """What is found of each model; what goes wrong inside names the model."""
    results = []
    for k, (model, name) in enumerate(zip(models, names, strict=True)):
        try:
            results.append(look(model))
        except InputError as error:
            raise type(error)(f"models[{k}] ({name}): {error}") from error
    return results


def _in_one_space(models: list[Model], bounds: Bounds | None, x: ArrayLike) -> list[Model]:
    """All models within the same bounds, where any has some."""
    if bounds is not None:
        return [within_bounds(model, bounds, x) for model in models]
    spaces = [within for model in models if (within := coordinates_of(model)) is not None]
    if not spaces:
        return models
    first = spaces[0]
    for other in spaces[1:]:
        same = type(first) is type(other)
        if same and isinstance(first, Box) and isinstance(other, Box):
            same = torch.equal(first.low.expand_as(other.low), other.low) and torch.equal(
                first.high.expand_as(other.high), other.high
            )
        if not same:
            raise InputError("the models end at different bounds, so that they have no score in common")
    return [BoundedModel(model, first) for model in models]


def score_divergence(model: Model, x: Points, scale: Tensor, *, seed: int) -> PerPoint:
    r"""$\sum_j r_j^2\, \partial s_j / \partial x_j$ for scales r, by central differences of the score.

    A score may come from anywhere, so no derivative of it is asked for. Up to 64 coordinates each is
    stepped along; beyond, 64 random directions give an unbiased estimate, the same for every model.
    """
    scale = scale.to(x)
    weights = scale.square()
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    directions, share = _directions(x, seed)
    for z in directions:
        ahead, behind = x + _STEP * scale * z, x - _STEP * scale * z
        change = _score_near(model, ahead) - _score_near(model, behind)
        step = torch.where(z == 0, torch.ones_like(x), (ahead - behind) * z)  # as rounding left it
        total += share * (change * weights * z / step).to(torch.float64).sum(-1)
    return total


def _score_near(model: Model, x: Points) -> Points:
    score = score_points(model, x, name="points next to x").score
    check_finite(score, name="the score next to x")
    return score


def _directions(x: Points, seed: int) -> tuple[Iterator[Tensor], float]:
    """Directions to step along, made one at a time, and the share of each in the divergence."""
    d = x.shape[1]
    if d <= _COORDINATES:
        return (row.expand_as(x) for row in torch.eye(d, dtype=x.dtype, device=x.device)), 1.0
    streams = Streams.from_seeds([derive(seed, "directions")], device=x.device)
    return (streams.signs(k, tuple(x.shape), x.dtype)[0] for k in range(_COORDINATES)), 1 / _COORDINATES


def largest_t(values: BankPerPoint, *, level: float, seed: int) -> float:
    """The 1 - level quantile of the largest |t| over all pairs of models.

    Of a multivariate t with the correlations of the paired differences: exact for normal differences.
    """
    from scipy import stats  # slow to import, so only where it is needed

    k, n = values.shape
    first, second = torch.triu_indices(k, k, 1)
    difference = values[first] - values[second]  # (pairs, n)
    difference = difference[errors_of(difference) > 0]
    if len(difference) < 2:  # one pair, or none that differs at all
        return float(stats.t.ppf(1 - level / 2, n - 1))
    eigenvalues, vectors = torch.linalg.eigh(difference.corrcoef())
    root = vectors * eigenvalues.clamp(min=0).sqrt()
    source = generator(seed)
    normal = torch.randn(_DRAWS, len(root), generator=source, dtype=values.dtype) @ root.mT
    uniform = torch.rand(_DRAWS, generator=source, dtype=values.dtype)
    spread = torch.from_numpy(stats.chi2.ppf(uniform.numpy(), n - 1)) / (n - 1)
    return float((normal.abs().amax(-1) / spread.sqrt()).sort().values[math.ceil((1 - level) * _DRAWS) - 1])


def _tests(
    test: GofTest | str | None,
    models: Sequence[Model],
    names: Sequence[str],
    points: ScoredPoints,
    *,
    level: float,
    seed: int,
) -> tuple[GofResult, ...] | None:
    if test == "none":
        return None
    results = []
    for model, name, model_points in zip(models, names, points.each(), strict=True):
        try:
            chosen, _ = choose_test(test, model, len(model_points))
            results += chosen.run(model, model_points.alone(), level=level, seeds=[seed])
        except InputError as error:
            raise type(error)(f'testing {name}: {error}; test="none" skips the tests') from error
    for doubt in dict.fromkeys(doubt for result in results for doubt in result.doubts):
        warnings.warn(doubt, DoubtfulWarning, stacklevel=4)  # where compare was called, past @without
    return tuple(results)
