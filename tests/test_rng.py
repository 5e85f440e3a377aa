"""Counter streams: good numbers, and nobody's neighbors matter."""

import math

import pytest
import torch

from reference import Z_MAX, z_of_mean
from steincritic import rng
from steincritic.errors import InputError
from steincritic.rng import Purpose, Source, Streams, derive, generator

STREAMS = Streams.from_seeds([1, 2, 3])
N = 20_000


def centered_uniforms(streams, purpose, step):
    return streams.bits(purpose, step, N).double() / 2**63  # (e, N) in [-1, 1)


def test_derived_seeds_are_pinned():
    # saved results depend on these values: they must never change
    assert derive(0) == 1728039588929346510
    assert derive(7, "power", 3) == 3937672578254920823


def test_the_hash_is_that_of_splitmix64():
    golden = 0x9E3779B97F4A7C15
    states = [(k * golden) % 2**64 for k in (1, 2, 3)]
    mixed = rng._mix(torch.tensor([rng._signed(state) for state in states]))
    # the first three numbers of splitmix64 seeded with 0, as published with the generator
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [value % 2**64 for value in mixed.tolist()] == published


def test_derived_seeds_depend_on_the_seed_and_on_every_name():
    seeds = [derive(0), derive(1), derive(0, "a"), derive(0, "b"), derive(0, "a", 1), derive(0, 1, "a")]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**62 for seed in seeds)


@pytest.mark.parametrize("seed", [1.0, "1", None, True])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(InputError, match="seed must be a whole number"):
        derive(seed)


def test_generators_of_one_name_agree_and_of_two_names_do_not():
    draws = [torch.rand(3, generator=generator(0, name)) for name in ("data", "data", "init")]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_a_source_counts_through_the_numbers_of_splitmix64():
    source, golden = Source(3, "counted"), 0x9E3779B97F4A7C15
    values = [source.integers(2**62, 5), source.integers(2**62, 40_000)]  # the second in parts
    keys = [rng._signed(source.key + k * golden) for k in (1, 5, 6, 40_005)]
    hashed = rng._shift_right(rng._mix(torch.tensor(keys)), 1) % 2**62
    assert torch.equal(torch.cat(values)[[0, 4, 5, 40_004]], hashed)
    assert source.hashes == 40_005


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_of_a_source_have_their_laws(dtype):
    source = Source(0, "laws")
    z, u = source.normals(N, 5, dtype=dtype), source.uniforms(N, 5, dtype=dtype)
    assert z.dtype == u.dtype == dtype and z.shape == u.shape == (N, 5)
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert abs(z_of_mean(z.double().flatten().pow(power), moment)) < Z_MAX
    assert abs(z_of_mean((z[:, :-1] * z[:, 1:]).double().flatten(), 0.0)) < Z_MAX  # two of one hash
    assert abs(z_of_mean((z[:, 0].square() * z[:, 1].square()).double(), 1.0)) < Z_MAX
    assert 0 <= float(u.min()) and float(u.max()) < 1
    for power in (1, 2, 5):
        assert abs(z_of_mean(u.double().flatten().pow(power), 1 / (power + 1))) < Z_MAX


def test_choices_and_integers_are_as_likely_as_they_should_be():
    weights = torch.tensor([0.0, 2.0, 5.0, 0.0, 3.0, 0.0])
    chosen = Source(1, "choices").choices(weights, N)
    counts = torch.bincount(chosen, minlength=6).double()
    expected = N * weights.double() / 10
    assert bool((counts[expected == 0] == 0).all())
    assert bool(((counts - expected).abs() <= Z_MAX * expected.sqrt()).all())
    counts = torch.bincount(Source(2, "integers").integers(7, N), minlength=7).double()
    assert bool(((counts - N / 7).abs() < Z_MAX * (N / 7) ** 0.5).all()) and len(counts) == 7


@pytest.mark.gpu
def test_a_gpu_draws_what_a_cpu_draws():
    for draw in (
        lambda s: s.integers(1000, 50_000),
        lambda s: s.uniforms(50_001, dtype=torch.float64),
        lambda s: s.choices(torch.tensor([1.0, 2.0, 3.0], device=s.device), 50_000),
    ):
        assert torch.equal(draw(Source(0, "a")), draw(Source(0, "a", device="cuda")).cpu())
    z, same = (Source(0, "a", device=device).normals(50_001).cpu() for device in ("cpu", "cuda"))
    torch.testing.assert_close(z, same, rtol=2e-6, atol=2e-6)  # logarithm and cosine in float32


def test_the_stream_of_a_member_does_not_depend_on_its_neighbors():
    alone, others = Streams.from_seeds([2]), Streams.from_seeds([9, 2, 4, 4])
    for step in (0, 5):
        for draw in (
            lambda s, step=step: s.normals(step, (4, 3), torch.float64),
            lambda s, step=step: s.signs(step, (4, 3), torch.float64),
            lambda s, step=step: s.permutations(step, 17),
        ):
            assert torch.equal(draw(alone)[0], draw(others)[1])
            assert torch.equal(draw(others)[2], draw(others)[3])  # the same seed is the same stream


def test_longer_streams_begin_like_shorter_ones():
    assert torch.equal(STREAMS.bits(Purpose.PROBE, 3, 10), STREAMS.bits(Purpose.PROBE, 3, 20)[:, :10])


def test_each_bit_is_fair():
    bits = STREAMS.bits(Purpose.PROBE, 0, N)
    for place in range(64):
        ones = ((bits >> place) & 1).double()
        for member in ones:
            assert abs(z_of_mean(member, 0.5)) < Z_MAX, place


def test_neighboring_numbers_and_bits_are_uncorrelated():
    u = centered_uniforms(STREAMS, Purpose.PROBE, 0)
    for lag in (1, 2, 3):
        assert all(abs(z_of_mean(row[lag:] * row[:-lag])) < Z_MAX for row in u)
    bits = STREAMS.bits(Purpose.PROBE, 0, N)[0]
    halves = [((bits >> place) & 1).double() - 0.5 for place in (0, 31, 32, 63)]
    for i, one in enumerate(halves):
        assert all(abs(z_of_mean(one * other)) < Z_MAX for other in halves[:i])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((Purpose.ORDER, 0), (Purpose.PROBE, 0)),
        ((Purpose.PROBE, 0), (Purpose.PROBE, 1)),
        ((Purpose.PROBE, 0), (Purpose.ORDER, 1)),
        ((Purpose.ORDER, 4), (Purpose.ORDER, 5)),
    ],
)
def test_purposes_and_steps_are_uncorrelated(one, other):
    u, v = centered_uniforms(STREAMS, *one), centered_uniforms(STREAMS, *other)
    for lag in (0, 1):
        assert all(abs(z_of_mean(a[lag:] * b[: N - lag])) < Z_MAX for a, b in zip(u, v, strict=True))
    assert abs(z_of_mean((u * u)[0], 1 / 3)) < Z_MAX  # uniform on [-1, 1): mean square 1/3
    assert abs(z_of_mean(u[0] * u[0])) > Z_MAX  # the twin: a stream is correlated with itself


def test_members_are_uncorrelated():
    u = centered_uniforms(Streams.from_seeds(range(6)), Purpose.PROBE, 0)
    for i in range(6):
        assert all(abs(z_of_mean(u[i] * u[j])) < Z_MAX for j in range(i))


@pytest.mark.parametrize("n", [1, 2, 40])
def test_permutations_are_permutations(n):
    orders = STREAMS.permutations(0, n)
    assert torch.equal(orders.sort(-1).values, torch.arange(n).expand(3, n))


def test_every_place_of_a_permutation_is_equally_likely():
    orders = torch.stack([STREAMS.permutations(step, 5)[0] for step in range(4_000)])
    for place in range(5):
        for thing in range(5):
            share = (orders[:, place] == thing).double()
            assert abs(z_of_mean(share, 0.2)) < Z_MAX


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normals_have_the_moments_of_the_normal_law(dtype):
    z = STREAMS.normals(2, (N, 2), dtype)
    assert z.shape == (3, N, 2) and z.dtype == dtype
    z = z.double().view(3, -1)
    for member in z:
        for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
            assert abs(z_of_mean(member**power, moment)) < Z_MAX
    assert bool(z.isfinite().all())


def test_normals_have_the_tails_of_the_normal_law():
    z = STREAMS.normals(3, (N,), torch.float64).flatten()
    for edge in (-2.0, -0.5, 1.0, 3.0):
        below = 0.5 * (1 + math.erf(edge / math.sqrt(2)))
        assert abs(z_of_mean((z < edge).double(), below)) < Z_MAX


def test_signs_are_fair_and_unit():
    signs = STREAMS.signs(1, (N,), torch.float64)
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert all(abs(z_of_mean(member)) < Z_MAX for member in signs)


def test_a_step_may_be_a_tensor():
    for step in (0, 3, 10**6):
        counted = STREAMS.bits(Purpose.PROBE, torch.tensor(step), 5)
        assert torch.equal(counted, STREAMS.bits(Purpose.PROBE, step, 5))


def test_several_steps_are_drawn_at_once():
    steps = torch.tensor([[2], [7], [8]])
    for draw in (STREAMS.normals, STREAMS.signs):
        at_once = draw(steps, (4, 3), torch.float64)
        one_by_one = [draw(step, (4, 3), torch.float64) for step in (2, 7, 8)]
        assert torch.equal(at_once, torch.stack(one_by_one))
