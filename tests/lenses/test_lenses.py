"""Lenses: entries are averages of Stein values, and evidence is a p-value in disguise."""

import math

import pytest
import torch

import steincritic as sc
from steincritic.data.frame import Frame
from steincritic.data.points import ScoredPoints, sample_points
from steincritic.lenses import Cells, Dependence, Field, Kernels, Modes, Moments
from steincritic.lenses.lens import (
    Scale,
    Tail,
    combined,
    directions,
    leave_one_out,
    normal_evidence,
)
from steincritic.rng import generator
from steincritic.stein.divergence import exact
from steincritic.stein.kernels import RBF
from steincritic.stein.operator import stein_values
from steincritic.stein.tiles import stein_sums

MODEL = sc.models.GaussianMixture([[-1.0, 0.0, 0.5], [1.0, 0.3, 0.0]])
DIM = 3
LENSES = [Moments(), Modes(), Dependence(), Kernels(frequencies=8)]


def stack(sets, n, *, seed=0, shift=0.0):
    x = MODEL.sample(sets * n, seed=seed) + shift
    return ScoredPoints(x, MODEL.score(x)).cut(n)


def prepared(lens, n=20):
    return lens.prepare(sample_points(MODEL, 400, seed=1), n=n, seed=0)


def unit(j):
    return torch.eye(DIM, dtype=torch.float64)[j]


def test_moments_are_means_of_stein_values_of_polynomial_fields():
    points = stack(2, 15)
    moments = prepared(Moments())
    parts = moments.parts(moments.entries(points, ()))
    fields = {
        "shift": lambda j: lambda x: x * 0 + unit(j),
        "skewness": lambda j: lambda x: (x[..., j : j + 1] ** 2 - 1) * unit(j),
        "tails": lambda j: lambda x: (x[..., j : j + 1] ** 3 - 3 * x[..., j : j + 1]) * unit(j),
    }
    for kind, field in fields.items():
        for j in range(DIM):
            slow = stein_values(points.score, *exact(field(j), points.x)).mean(-1)
            torch.testing.assert_close(parts[kind][:, j], slow)
    for j in range(DIM):
        for k in range(DIM):
            pair = exact(lambda x, j=j, k=k: x[..., j : j + 1] * unit(k), points.x)
            torch.testing.assert_close(
                parts["second"][:, DIM * j + k], stein_values(points.score, *pair).mean(-1)
            )
    radial = exact(lambda x: x * (x.square().sum(-1, keepdim=True) - DIM - 2), points.x)
    torch.testing.assert_close(parts["alike"][:, 4], stein_values(points.score, *radial).mean(-1) / DIM)


def test_modes_are_means_of_stein_values_of_gated_fields():
    points, modes = stack(2, 15), prepared(Modes())
    entries = modes.entries(points, ())
    slow = []
    for gate in range(2):
        for k in range(DIM):
            field = lambda x, gate=gate, k=k: modes.gates(x)[gate][0] * unit(k)  # noqa: E731
            slow.append(stein_values(points.score, *exact(field, points.x)).mean(-1))
    torch.testing.assert_close(entries[:, : 2 * DIM], torch.stack(slow, -1))


def test_kernels_are_u_statistics_of_the_kernel_that_the_frequencies_make():
    points, kernels = stack(1, 12), prepared(Kernels(frequencies=5, octaves=2), n=12)
    for k, entry in enumerate(kernels.entries(points, ())[0]):
        w = 2**k * kernels.frequencies
        x, s = points.x[0], points.score[0]
        angle = (x @ w.T)[:, :, None]
        values = torch.cat(
            [angle.cos() * s[:, None] - angle.sin() * w, angle.sin() * s[:, None] + angle.cos() * w], -1
        )
        gram = torch.einsum("ifd,jfd->ij", values, values) / len(w)
        torch.testing.assert_close(entry, (gram.sum() - gram.trace()) / (12 * 11))


def test_kernels_of_few_points_are_sums_over_pairs():
    points, kernels = stack(3, 30), prepared(Kernels(), n=30)
    rbf = [RBF(bandwidth=h * kernels.median) for h in kernels.bandwidths]
    slow = torch.stack([stein_sums(one, rbf).statistic("u") for one in points.each()])
    torch.testing.assert_close(kernels.entries(points, ()), slow)
    assert not prepared(Kernels(), n=401).by_pairs


def test_directions_are_the_ends_of_the_spectrum():
    noise = torch.randn(4, 40, 40, generator=generator(0, "noise"), dtype=torch.float64)
    noise[1, 0, 0] -= 30  # wide along the first axis
    noise[2] += 1.5  # narrow along the diagonal
    wide, narrow = directions(noise)
    both = (noise + noise.mT) / 2
    both = both + (2**0.5 - 1) * torch.diag_embed(both.diagonal(dim1=-2, dim2=-1))
    ends = torch.linalg.eigvalsh(both)
    torch.testing.assert_close(wide, -ends[:, 0], rtol=0.15, atol=0)
    torch.testing.assert_close(narrow, ends[:, -1], rtol=0.15, atol=0)
    assert int(wide.argmax()) == 1 and int(narrow.argmax()) == 2


@pytest.mark.parametrize("lens", LENSES, ids=lambda lens: lens.name)
def test_entries_vanish_only_under_the_model(lens):
    ready = prepared(lens, n=200)
    z = lambda points: Scale.of(ready.entries(stack(60, 200, seed=3), ())).see(ready.entries(points, ()))  # noqa: E731
    own, shifted = (z(stack(60, 200, seed=5, shift=by)).plain.mean(0).abs().max() for by in (0.0, 1.0))
    assert float(own) < 1.2  # the largest of some dozen means of 60 standard values, twice over
    assert float(shifted) > 3


def test_every_point_is_in_one_cell_of_each_partition_and_too_many_cells_are_left_out():
    cells = prepared(Cells(counts=(2, 5, 25)), n=20)
    assert [part.number for part in cells.parts] == ["cell of 2", "cell of 5"]
    entries = cells.entries(stack(3, 20), ())
    for gaps, part in zip(entries.split([2, 5], -1), cells.parts, strict=True):
        counts = gaps * (20 * part.shares).sqrt() + 20 * part.shares
        torch.testing.assert_close(counts.sum(-1), torch.full((3,), 20.0), rtol=1e-4, atol=1e-3)
    assert prepared(Cells(), n=3).entries(stack(2, 3), ()).shape == (2, 0)


SQUARE = torch.cartesian_prod(torch.arange(3.0), torch.arange(3.0))


@pytest.mark.parametrize(
    ("means", "modes"),
    [([[0.0, 0.0]], 1), ([[0.0, 0.0], [1.5, 0.0]], 1), ([[0.0, 0.0], [9.0, 0.0]], 2), (8 * SQUARE, 9)],
    ids=["normal", "two that touch", "two far ones", "nine"],
)
def test_modes_are_cells_that_no_draws_lie_between(means, modes):
    model = sc.models.GaussianMixture(means)
    cells = Cells().prepare(sample_points(model, 4000, seed=1), n=200, seed=0)
    assert ("weight of a mode" in {part.number for part in cells.parts}) == (modes > 1)
    if modes > 1:
        places = cells.parts[-1].places
        assert len(places) == modes
        assert float(torch.cdist(places.double(), model.means.double()).amin(0).max()) < 0.3
        torch.testing.assert_close(cells.parts[-1].shares, torch.full((modes,), 1 / modes), rtol=0.2, atol=0)


def test_leaving_one_out_is_what_the_others_say():
    values = torch.randn(300, 4, generator=generator(0, "values"), dtype=torch.float64).exp()
    seen = leave_one_out(values)
    for k in range(0, 300, 25):
        others = torch.cat([values[:k], values[k + 1 :]])
        alone = Scale.of(others).see(values[k : k + 1])
        torch.testing.assert_close(seen.plain[k], alone.plain[0])
        torch.testing.assert_close(seen.fair[k], alone.fair[0])


def test_evidence_is_minus_log_p_and_goes_on_beyond_the_largest_reference():
    source = generator(1, "reference")
    gamma = -torch.rand(2, 4000, generator=source, dtype=torch.float64).log().sum(0)
    values = torch.linspace(2, 2000, 4000, dtype=torch.float64)
    evidence = Tail.of(gamma).evidence(values)
    assert bool((evidence.diff() > 0).all()) and bool(evidence.isfinite().all())
    exact_tail = values[:60] - torch.log1p(values[:60])  # of the sum of two exponential variables
    assert float((evidence[:60] / exact_tail - 1).abs().max()) < 0.25  # three moments of 4,000 draws


def test_combining_is_a_weighted_mean_of_one_over_p():
    p = torch.tensor([[0.01, 0.5]], dtype=torch.float64)
    weights = torch.tensor([0.25, 0.75], dtype=torch.float64)
    assert float(combined(-p.log(), weights)) == pytest.approx(math.log(0.25 / 0.01 + 0.75 / 0.5))
    assert float(normal_evidence(torch.tensor(1.959964))) == pytest.approx(-math.log(0.05), abs=1e-5)


def test_a_field_is_a_vector_field_or_a_value_per_point():
    points = stack(2, 10)
    vector = Field(lambda x: x**2).prepare(points, n=10, seed=0).entries(points, ())[:, 0]
    torch.testing.assert_close(vector, stein_values(points.score, *exact(lambda x: x**2, points.x)).mean(-1))
    value = Field(lambda x: x[:, 0]).prepare(points, n=10, seed=0).entries(points, ())[:, 0]
    torch.testing.assert_close(value, points.x[..., 0].mean(-1))
    with pytest.raises(sc.InputError, match="lens 'field' must map points"):
        Field(lambda x: x[:3]).prepare(points, n=10, seed=0).entries(points, ())


def test_modes_apart_in_one_of_many_columns_are_found_by_the_scale_of_the_score():
    model = sc.models.GaussianMixture([[0.0] * 10, [10.0] + [0.0] * 9], 1.0, [0.7, 0.3])
    draws = sample_points(model, 4000, seed=1)
    draws = Frame.of(draws.x).enter(draws)
    cells = Cells().prepare(draws, n=200, seed=0)
    modes = cells.parts[-1]
    assert modes.number == "weight of a mode" and len(modes.shares) == 2
    torch.testing.assert_close(modes.shares.max().item(), 0.7, atol=0.04, rtol=0)
    assert (modes.places[0] - modes.places[1]).abs().argmax() == 0  # in the columns of the draws
    counts = modes.counts(draws.x[None].float())
    assert abs(float(counts.max()) / 4000 - 0.7) < 0.04
