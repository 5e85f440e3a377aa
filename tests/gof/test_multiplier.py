"""The combined test of models that cannot be sampled."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import steincritic as sc
from steincritic.data.frame import Whitening
from steincritic.data.points import ScoredPoints
from steincritic.gof import multiplier, views
from steincritic.gof.combined import Combined
from steincritic.gof.multiplier import Plan
from steincritic.gof.power import trials_of
from steincritic.gof.serial import Blocks
from steincritic.gof.views import Halves, View, hall
from steincritic.lenses import Cells, Critics, Dependence, Field, Kernels, Moments
from steincritic.models.density import PairModel
from steincritic.rng import Source, generator
from steincritic.stein.tiles import random_signs

LENSES = Combined(critics=None, draws=99, reference=60)
quiet = pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
pytestmark = quiet


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def scored(x: Tensor) -> ScoredPoints:
    """Under the standard normal model."""
    return ScoredPoints(x, -x)


def narrow(dim: int, condition: float) -> tuple[Tensor, Tensor]:
    """Axes of a covariance, each of the length of its standard deviation, and its inverse."""
    basis = torch.linalg.qr(normal(dim, dim, seed=7)).Q
    sd = torch.logspace(-math.log10(condition) / 2, 0, dim, dtype=torch.float64)
    return basis * sd, (basis / sd**2) @ basis.T


def test_under_signs_a_mean_is_the_slow_formula():
    x, clip, n = normal(24, 2), 3.0, 24
    halves = Halves.of(scored(x))
    view = View.of(Moments(clip=clip), halves, seed=0)
    signs = random_signs(n, 5, flip=0.5, source=Source(1))
    measured = view.under(signs, 5)
    values = torch.zeros(n, dtype=torch.float64)  # of the field that clips the first coordinate, along it
    for i in range(n):
        other = x[12:] if i < 12 else x[:12]
        location, scale = other[:, 0].mean(), other[:, 0].std()
        y, s = (x[i, 0] - location) / scale, -x[i, 0] * scale
        size = 1 + (y / clip) ** 2
        values[i] = y / size.sqrt() * s + size**-1.5
    length = values.square().sum().sqrt()
    z = (signs.double() * values).sum(-1) / length
    third = (signs.double() * values**3).sum(-1) / length**3 * (1 + views._UNSEEN / n)
    corrected = views._corrected(signs, _lengths(view), view._sums(Blocks.single(n)))[
        :, 2
    ]  # after two shifts
    torch.testing.assert_close(corrected, hall(z, third), rtol=1e-5, atol=1e-5)  # float32 values
    observed = hall(values.sum() / length, (values**3).sum() / length**3 * (1 + views._UNSEEN / n))
    torch.testing.assert_close(measured.entries[2], observed, rtol=1e-5, atol=1e-5)


def _lengths(view: View) -> Tensor:
    return (
        torch.cat([values for _, values in view._sums(Blocks.single(sum(map(len, view.halves))))])
        .square()
        .sum(0)
        .sqrt()
    )


def test_some_points_and_some_signs_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch):
    points = scored(normal(50, 3)).alone()
    (whole,) = LENSES.run(None, points, level=0.05, seeds=[1])
    monkeypatch.setattr(views, "_HELD", 200)  # three or four rows, and as many draws
    (parts,) = LENSES.run(None, points, level=0.05, seeds=[1])
    assert parts.statistic == pytest.approx(whole.statistic, rel=1e-4)  # float32 sums in another order
    torch.testing.assert_close(parts.null_distribution, whole.null_distribution, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("n", "frequencies"), [(60, 20_000), (2000, 100)], ids=["by pairs", "by waves"])
def test_kernels_with_all_signs_alike_are_those_of_the_data(n: int, frequencies: int):
    points = scored(normal(n, 2) + 0.5).to(torch.float32)
    prepared = Kernels(frequencies=frequencies).prepare(points, n=n, seed=0)
    entries = prepared.entries(points.alone(), (0,))[0]
    signed = prepared.signed(points, torch.ones(1, n, dtype=torch.int8))[0].to(entries)
    torch.testing.assert_close(signed, entries, rtol=0.05, atol=5e-3)  # 20,000 frequencies for a kernel


@pytest.mark.parametrize(("shift", "runs", "bounds"), [(0.0, 400, (3, 44)), (0.5, 40, (15, 40))])
def test_the_level_holds_at_small_n(shift: float, runs: int, bounds: tuple[int, int]):
    """3 to 44 of 400 tests of 40 points reject at 5 % but once in a million, and so 14 of 40 at most."""
    x = normal(runs, 40, 2, seed=2) + shift
    test = replace(LENSES, lenses=(Moments(), Dependence(), Kernels()))
    rejections = trials_of(PairModel(lambda y: -y), x, test, seed=3).rate().rejections
    assert bounds[0] <= rejections <= bounds[1]


@pytest.mark.parametrize("corrected", [True, False])
def test_the_level_of_a_skewed_model_needs_the_correction(corrected: bool, monkeypatch: pytest.MonkeyPatch):
    """Gumbel coordinates, 200 tests of 40 points: more than 28 rejections at 5 % once in a million."""
    if not corrected:
        monkeypatch.setattr(views, "hall", lambda z, third: z)
        monkeypatch.setattr(multiplier, "CLIP", None)
    u = torch.rand(200, 40, 6, generator=generator(4), dtype=torch.float64)
    x, model = -(-u.log()).log(), PairModel(lambda y: (-y).exp() - 1)
    rejections = trials_of(model, x, replace(LENSES, lenses=(Moments(),)), seed=5).rate().rejections
    assert (rejections <= 28) == corrected


@pytest.mark.parametrize("dim", [3, 6])
def test_a_small_shift_of_a_narrow_posterior_is_found(dim: int):
    """A third of a standard deviation along the longest axis: 7 standard errors at n = 500."""
    axes, precision = narrow(dim, 1e6)
    model = PairModel(lambda y: -y @ precision)
    x = normal(4, 500, dim, seed=6) @ axes.T
    assert trials_of(model, x + 0.33 * axes[:, -1], LENSES, seed=1).pvalues.max() <= 0.02
    assert trials_of(model, x, LENSES, seed=1).pvalues.max() > 0.05


def test_whitening_by_scores_is_exact_for_a_normal_model_and_any_sample():
    axes, precision = narrow(4, 1e3)
    x = normal(9, 4, seed=8) @ torch.randn(4, 4, generator=generator(3), dtype=torch.float64)
    whitening = Whitening.by_scores(ScoredPoints(x, -(x - 1) @ precision))
    torch.testing.assert_close(whitening.root @ whitening.root, axes @ axes.T, rtol=1e-6, atol=1e-9)


def test_the_level_is_shared_with_a_critic():
    x = normal(1, 60, 2, seed=1)
    test = replace(LENSES, critics=Critics(), draws=99)
    (open_,) = test.run(None, scored(x), level=0.05, seeds=[1])
    assert open_.spent == 0.025 and open_.threshold == "bootstrap-t" and not open_.exact
    assert open_.pvalue > 0.025 and "did not decide" in " ".join(open_.notes)
    (decided,) = test.run(None, scored(x + 2), level=0.05, seeds=[1])
    assert decided.spent == 0 and decided.rejected and decided.threshold == "multiplier"
    assert decided.test == open_.test == "combined" and decided.readings and decided.examined.draws is None


def test_few_points_are_looked_at_by_lenses_alone_and_fewer_are_refused():
    test = replace(LENSES, critics=Critics())
    assert not Plan.of(test, 39, 0.05).trains and Plan.of(test, 40, 0.05).trains
    assert not Plan.of(replace(test, slowness=2.0), 400, 0.05).trains
    with pytest.raises(sc.InputError, match="at least 20"):
        test.run(None, scored(normal(1, 19, 2)), level=0.05, seeds=[0])


def test_lenses_that_need_draws_are_left_out_and_named():
    (result,) = LENSES.run(None, scored(normal(1, 50, 2)), level=0.05, seeds=[0])
    assert "cells (needs draws of the model)" in " ".join(result.notes)
    with pytest.raises(sc.InputError, match="no lens can look"):
        replace(LENSES, lenses=(Cells(),)).run(None, scored(normal(1, 50, 2)), level=0.05, seeds=[0])
    value = Field(lambda x: x[:, 0], name="level")
    with pytest.raises(sc.InputError, match="'level' compares a value per point"):
        replace(LENSES, lenses=(value,)).run(None, scored(normal(1, 50, 2)), level=0.05, seeds=[0])
    field = replace(LENSES, lenses=(Field(lambda x: x, name="spread"),))
    assert field.run(None, scored(2 * normal(1, 50, 2)), level=0.05, seeds=[0])[0].rejected
