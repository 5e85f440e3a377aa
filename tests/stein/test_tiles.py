import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, jacfwd

from steincritic.data import ScoredPoints
from steincritic.errors import InputError
from steincritic.rng import Source, generator
from steincritic.stein import tiles
from steincritic.stein.kernels import IMQ, RBF
from steincritic.stein.tiles import ksd, random_signs, stein_kernel, stein_sums, tile_size

KERNELS = [RBF(), RBF(bandwidth=0.8), IMQ(), IMQ(scale="median", exponent=-0.3, factor=0.5)]
ROUNDING = {"rtol": 1e-10, "atol": 1e-10}  # float64, sums of at most a few thousand terms of order 1


def normals(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed, "test"), dtype=torch.float64)


def scored_points(n, d=3, *, seed=0):
    """Points with a score that no simple model has, so that no term of u vanishes by symmetry."""
    x = normals(n, d, seed=seed)
    return ScoredPoints(x, torch.sin(x @ normals(d, d, seed=seed + 1)) - x)


def signs_for(n, draws=7):
    return random_signs(n, draws, flip=0.5, source=Source(0, "signs"))


def by_differentiation(k, points):
    """u(x, y) = k s·s' + s·∇_y k + s'·∇_x k + tr ∇_x ∇_y k for every pair."""

    def u(x, s, y, t):
        by_x, by_y = grad(k, 0), grad(k, 1)
        trace = jacfwd(lambda z: by_x(x, z))(y).trace()
        return k(x, y) * (s @ t) + s @ by_y(x, y) + t @ by_x(x, y) + trace

    rows = list(zip(points.x, points.score, strict=True))
    return torch.stack([torch.stack([u(*a, *b) for b in rows]) for a in rows])


@pytest.mark.parametrize("d", [1, 4])
def test_stein_kernel_equals_differentiation_of_the_kernel(d):
    points = scored_points(6, d)
    for kernel, k in [
        (RBF(bandwidth=1.3), lambda x, y: torch.exp(-(x - y).square().sum() / (2 * 1.3**2))),
        (IMQ(scale=0.7, exponent=-0.3), lambda x, y: (0.49 + (x - y).square().sum()) ** -0.3),
    ]:
        torch.testing.assert_close(stein_kernel(points, kernel), by_differentiation(k, points), **ROUNDING)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_v_is_not_negative_and_u_is_without_the_diagonal(kernel):
    points = scored_points(30)
    u = stein_kernel(points, kernel)
    assert ksd(points, kernel) == pytest.approx(float(u.mean()), rel=1e-10)
    assert ksd(points, kernel) > 0
    assert float(torch.linalg.eigvalsh(u)[0]) > -1e-10  # u is a kernel: no negative eigenvalue
    assert ksd(points, kernel, "u") == pytest.approx(float((u.sum() - u.trace()) / 870), rel=1e-10)


@given(n=st.integers(2, 23), tile=st.integers(1, 25))
def test_tiles_of_any_size_give_the_same_sums(n, tile):
    points = scored_points(n)
    cut = stein_sums(points, KERNELS, signs=signs_for(n), tile=tile)
    whole = stein_sums(points, KERNELS, signs=signs_for(n), tile=n)
    for name in ("diagonal", "pairs", "signed"):
        torch.testing.assert_close(getattr(cut, name), getattr(whole, name), **ROUNDING)


def test_stacked_datasets_equal_datasets_one_by_one():
    sets = [scored_points(12, seed=k) for k in range(5)]
    stack = ScoredPoints(torch.stack([p.x for p in sets]), torch.stack([p.score for p in sets]))
    together = stein_sums(stack, KERNELS, signs=signs_for(12), tile=5)
    for m, points in enumerate(sets):
        alone = stein_sums(points, KERNELS, signs=signs_for(12), tile=5)
        for name in ("diagonal", "pairs", "signed"):
            torch.testing.assert_close(getattr(together, name)[m], getattr(alone, name), **ROUNDING)


@pytest.mark.parametrize("tile", [4, 19])
def test_bootstrap_equals_the_dense_quadratic_form(tile):
    points, signs = scored_points(19), signs_for(19)
    sums = stein_sums(points, [RBF()], signs=signs, tile=tile)
    u, e = stein_kernel(points, RBF()), signs.double()
    quadratic = (e @ u * e).sum(-1)
    torch.testing.assert_close(sums.bootstrap("v")[0], quadratic / 19**2, **ROUNDING)
    torch.testing.assert_close(sums.bootstrap("u")[0], (quadratic - u.trace()) / (19 * 18), **ROUNDING)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_signs_all_alike_tie_with_the_statistic(dtype):
    one = torch.ones(1, 37, dtype=torch.int8)
    sums = stein_sums(scored_points(37).to(dtype), KERNELS, signs=torch.cat([one, -one]), tile=10)
    for kind in ("v", "u"):
        assert torch.equal(sums.bootstrap(kind), sums.statistic(kind)[:, None].expand(-1, 2))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_order_place_and_direction_do_not_matter(kernel):
    points = scored_points(25)
    value = ksd(points, kernel)
    order = torch.randperm(25, generator=generator(0, "order"))
    assert ksd(points[order], kernel) == pytest.approx(value, rel=1e-10)
    moved = ScoredPoints(points.x + 1e4, points.score)
    assert ksd(moved, kernel) == pytest.approx(value, rel=1e-9)  # x + 1e4 itself keeps 12 digits
    turn = torch.linalg.qr(normals(3, 3, seed=9)).Q
    assert ksd(ScoredPoints(points.x @ turn, points.score @ turn), kernel) == pytest.approx(value, rel=1e-10)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_float32_keeps_four_digits(kernel):
    points, signs = scored_points(300, 10), signs_for(300)
    double = stein_sums(points, [kernel], signs=signs)
    single = stein_sums(points.to(torch.float32), [kernel], signs=signs)
    assert single.pairs.dtype == torch.float64
    torch.testing.assert_close(single.statistic("v"), double.statistic("v"), rtol=1e-4, atol=0)
    torch.testing.assert_close(single.bootstrap("v"), double.bootstrap("v"), rtol=1e-4, atol=1e-4)


def test_signs_are_fair_and_flip_as_often_as_asked():
    for flip in (0.5, 0.1):
        signs = random_signs(500, 400, flip=flip, source=Source(0, "signs")).double()
        assert set(signs.unique().tolist()) == {-1.0, 1.0}
        flips = (signs[:, 1:] != signs[:, :-1]).double()
        error = (flip * (1 - flip) / flips.numel()) ** 0.5
        assert abs(float(flips.mean()) - flip) < 5 * error
        assert abs(float(signs[:, 0].mean())) < 5 / 400**0.5
        assert abs(float(signs[:, -1].mean())) < 5 / 400**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "draws"), [(10, 0), (2500, 500), (100_000, 2000)])
def test_tile_size_keeps_to_the_workspace(n, draws, dtype):
    like = torch.empty(0, dtype=dtype)
    t = tile_size(n, sets=1, draws=draws, like=like)
    assert 1 <= t <= n
    assert (10 * t * t + 6 * draws * t) * like.element_size() <= tiles.WORKSPACE["cpu"]


def test_a_bootstrap_beyond_memory_is_refused_with_what_fits(monkeypatch):
    like = torch.empty(0, dtype=torch.float64)
    monkeypatch.setattr(tiles, "available_memory", lambda device: 2**30)
    tiles.check_memory(20_000, 50, 999, like)
    with pytest.raises(InputError, match=r"at most \d+ draws fit") as refused:
        tiles.check_memory(20_000, 50, 10**6, like)
    fits = int(str(refused.value).split("at most ")[1].split()[0])
    tiles.check_memory(20_000, 50, fits, like)


@pytest.mark.gpu
def test_cuda_agrees_with_the_cpu():
    points, signs = scored_points(700, 10), signs_for(700)
    here = stein_sums(points, KERNELS, signs=signs)
    there = stein_sums(points.to("cuda"), KERNELS, signs=signs.to("cuda"), tile=256)
    for kind in ("v", "u"):
        torch.testing.assert_close(there.statistic(kind).cpu(), here.statistic(kind), **ROUNDING)
        torch.testing.assert_close(there.bootstrap(kind).cpu(), here.bootstrap(kind), **ROUNDING)
