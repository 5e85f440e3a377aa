"""Lenses on residuals: their mean is zero under the model at any x, and they equal slow sums."""

import math

import pytest
import torch

from reference import Z_MAX
from steincritic.data.frame import RowFrame
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.lenses.conditional import Functions, ResidualKernels, ResidualMoments
from steincritic.models.conditional import AtRows, ConditionalModel
from steincritic.rng import Source

N, P, T = 25, 2, 2
X = torch.cat([Source(1, "x").normals(N, 1, dtype=torch.float64), torch.arange(N).double()[:, None] % 2], 1)


def mean(x):
    return torch.cat([3 * x[:, :1], x.sum(1, keepdim=True)], 1)


def model_of(shift=0.0):
    return ConditionalModel(
        lambda x, y: mean(x) - y,
        lambda x, seed: mean(x) + shift * x[:, 1:] + Source(seed, "y").normals(len(x), T, dtype=x.dtype),
    )


AT = AtRows(model_of(), X, targets=T)
DRAWS = sample_points(AT, 100 * N, seed=7)
FRAME = RowFrame.of(DRAWS.cut(N).x, P)
LENSES = [ResidualMoments(covariates=P), ResidualKernels(covariates=P)]


def prepared(lens):
    return lens.prepare(FRAME.enter(DRAWS), n=N, seed=3)


def datasets(count, shift=0.0, seed=11):
    x = AtRows(model_of(shift), X, targets=T).sample(count * N, seed=seed)
    return FRAME.enter(ScoredPoints(x, AT.score(x)).cut(N))


@pytest.mark.parametrize("lens", LENSES, ids=lambda lens: lens.name)
@pytest.mark.parametrize(("shift", "is_model"), [(0.0, True), (0.5, False)])
def test_entries_have_mean_zero_under_the_model_alone(lens, shift, is_model):
    entries = prepared(lens).entries(datasets(2000, shift), ())
    z = entries.mean(0) / (entries.std(0) / math.sqrt(len(entries)))
    assert (float(z.abs().max()) < Z_MAX) == is_model


def test_moments_equal_the_slow_sums():
    ready, sets = prepared(LENSES[0]), datasets(1)
    y, s = sets.x[0, :, P:], sets.score[0, :, P:]
    slow = {
        "shift": s,
        "spread": y * s + 1,
        "skewness": (y**2 - 1) * s + 2 * y,
        "tails": (y**3 - 3 * y) * s + 3 * y**2 - 3,
        "pair": (y[:, :1] * s[:, 1:] + y[:, 1:] * s[:, :1]) / 2,
    }
    parts = ready.parts(ready.entries(sets, ())[0])
    for (kind, group), part in parts.items():
        h = ready.functions.groups[group]
        for m in range(h.shape[1]):
            torch.testing.assert_close(part[m], (h[:, m : m + 1] * slow[kind]).mean(0))


def test_kernels_equal_the_sum_over_pairs():
    ready, sets = prepared(LENSES[1]), datasets(1)
    y, s = sets.x[0, :, P:], sets.score[0, :, P:]
    w = ready.frequencies.to(y)
    total = 0.0
    for i in range(N):
        for j in range(N):
            if i == j:
                continue
            of_x = (ready.x[1][i] * ready.x[1][j]).sum()
            for one in w:
                a, b = (one * y[i]).sum(), (one * y[j]).sum()
                u = torch.cat([a.cos() * s[i] - a.sin() * one, a.sin() * s[i] + a.cos() * one])
                v = torch.cat([b.cos() * s[j] - b.sin() * one, b.sin() * s[j] + b.cos() * one])
                total += float(of_x * (u * v).sum()) / (len(w) * N * (N - 1))
    assert float(ready.entries(sets, ())[0, 1]) == pytest.approx(total, rel=1e-9)  # rounding


def test_functions_of_x_tell_its_values_apart_and_no_more():
    found = Functions.of(torch.cat([X, torch.ones(N, 1)], 1), seed=0)
    assert found.linear == (0, 1)  # a constant column says nothing
    assert found.groups["curve"].shape[1] == 6  # none of a column of two values
    assert sum(region.column == 1 for region in found.regions) == 2
    assert all(bool(group.isfinite().all()) for group in found.groups.values())


def test_far_values_of_a_covariate_count_by_their_ranks():
    x = X.clone()
    x[0, 0] = 1e6
    assert float(Functions.of(x, seed=0).groups["slope"][:, 0].abs().max()) < 4
