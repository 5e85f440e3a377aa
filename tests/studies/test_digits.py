"""Digits: the logit transform, the files of MNIST, the models that learn digits, what is read off critics."""

import gzip
import math
import struct
from dataclasses import replace
from hashlib import sha256

import pytest
import torch

from reference import Z_MAX, z_of_mean
from steincritic.errors import FileFormatError, InputError
from steincritic.models import GaussianBernoulliRBM, GaussianMixture
from steincritic.rng import generator
from studies.digits.claims import _faster
from studies.digits.data import (
    MNIST_FILES,
    Digits,
    as_pixels,
    from_logits,
    from_pixels,
    mnist,
    small_digits,
    to_logits,
)
from studies.digits.machine import SHORT_FIT, MachineFit, fit_machine, machine_of
from studies.digits.mnist import _lead
from studies.digits.models import FlowFit, RescaledModel, _bits, learn, model_of
from studies.digits.readings import embedding, mean_test, power_proxy, ranking
from studies.study import Context

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
CPU = Context(device=torch.device("cpu"))


def packed(array):
    """In the idx format, as MNIST is distributed."""
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.to(torch.uint8).numpy().tobytes())


def some_digits(n=6, *, levels=256, seed=0):
    pixels = torch.randint(levels, (n, 4, 5), generator=generator(seed, "pixels")).to(torch.uint8)
    return Digits(pixels, torch.arange(n) % 3, levels)


def normal(*shape, seed):
    return torch.randn(*shape, generator=generator(seed, "mnist tests"), dtype=torch.float64)


@pytest.mark.parametrize("levels", [256, 17])
def test_logits_of_images_give_the_images_back(levels):
    digits = some_digits(50, levels=levels)
    x = digits.logits(seed=2)
    assert x.shape == (50, 20) and x.dtype == torch.float32
    # single precision near white: the noise may cross into the next level by rounding only
    back = (levels * from_logits(x.double())).floor().clamp(max=levels - 1).view(50, 4, 5)
    assert torch.equal(back.to(torch.uint8), digits.pixels)
    assert torch.equal(x, digits.logits(seed=2)) and not torch.equal(x, digits.logits(seed=3))


def test_the_noise_is_uniform_over_its_level():
    x = to_logits(torch.full((20_000,), 100), levels=256, generator=generator(4))
    noise = 256 * from_logits(x) - 100
    assert abs(z_of_mean(noise, 0.5)) < Z_MAX and abs(z_of_mean(noise**2, 1 / 3)) < Z_MAX


def test_far_points_are_black_or_white_and_pixels_two_digits_each():
    assert from_logits(torch.tensor([-1e4, 1e4, 0.0])).tolist() == [0.0, 1.0, 0.5]
    (text,) = as_pixels(torch.tensor([[-20.0, 20.0, 0.0]]))
    assert text == "00ff80"
    assert (255 * from_pixels(text, (1, 3))).tolist() == [[0, 255, 128]]


def test_files_with_the_right_checksums_are_taken_and_no_others(tmp_path, monkeypatch):
    digits = some_digits()
    monkeypatch.setenv("STEINCRITIC_DATA", str(tmp_path))
    with pytest.raises(InputError, match=rf"no {LABELS} in .*STEINCRITIC_DATA.*fetch_mnist"):
        mnist()
    for name, array in {IMAGES: digits.pixels, LABELS: digits.labels}.items():
        (tmp_path / name).write_bytes(packed(array))
        monkeypatch.setitem(MNIST_FILES, name, sha256(packed(array)).hexdigest())
    read = mnist()
    assert torch.equal(read.pixels, digits.pixels) and torch.equal(read.labels, digits.labels)
    (tmp_path / IMAGES).write_bytes((tmp_path / IMAGES).read_bytes()[:-9])
    with pytest.raises(FileFormatError, match=IMAGES):
        mnist()


def test_a_rescaled_model_is_the_model_in_other_units():
    location, scale = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0]).double()
    whole = GaussianMixture([[1.0, -2.0]], [[[0.25, 0.0], [0.0, 9.0]]])
    model = RescaledModel(GaussianMixture([[0.0, 0.0]]), location, scale)
    x = whole.sample(12, seed=0)
    torch.testing.assert_close(model.score(x), whole.score(x))
    draws = model.sample(20_000, seed=1)
    # five standard errors of a mean
    assert bool(((draws.mean(0) - location).abs() < 5 * scale / 20_000**0.5).all())


class Logistic:
    """Independent logistic pixels, which the logit makes uniform: log2(levels) bits each."""

    location, scale = torch.zeros(64).double(), torch.ones(64).double()

    def log_prob(self, x):
        return (torch.nn.functional.logsigmoid(x) + torch.nn.functional.logsigmoid(-x)).sum(1)


def test_uniform_images_cost_all_their_bits():
    pytest.importorskip("sklearn")
    bits = _bits(Logistic, small_digits()[:50], seed=0)
    assert bits == pytest.approx(math.log2(17), abs=1e-4)  # the edge of 1e-6 that keeps logits finite


@pytest.mark.parametrize("name", ["flow", "machine"])
def test_a_model_learns_digits_is_kept_and_sampled(name, tmp_path):
    pytest.importorskip("sklearn")
    if name == "flow":
        pytest.importorskip("zuko")
        fit = FlowFit(transforms=2, hidden=(32,), steps=60, batch_size=64, copies=1)
    else:
        fit = MachineFit(hidden=16, sweeps=50, steps=50, batch_size=64, log_every=20)
    digits, common = small_digits(), {"context": CPU, "seed": 0}
    learned, facts = learn(fit, digits[:900], digits[900:], tmp_path / "file", **common)
    if name == "flow":
        assert facts["bits_per_pixel"] < math.log2(17)  # better than uniform
    model = model_of(fit, learned)
    x = model.sample(7, seed=3)
    assert x.shape == (7, 64) and bool(model.score(x).isfinite().all())
    again, same = learn(fit, digits[:900], digits[900:], tmp_path / "file", **common)
    assert same == facts and torch.equal(model_of(fit, again).score(x), model.score(x))
    with pytest.raises(InputError, match="other data or settings"):
        learn(replace(fit, steps=61), digits[:900], digits[900:], tmp_path / "file", **common)


@pytest.mark.parametrize("fit", [MachineFit(learning_rate=1e-2, batch_size=100), SHORT_FIT])
def test_the_machine_learns_what_its_start_does_not_know(fit):
    """Score matching on digits held out: half the squared score plus its divergence, lower if nearer."""
    pytest.importorskip("sklearn")
    digits, fit = small_digits(), replace(fit, hidden=16, sweeps=50, steps=300)
    learned, facts = fit_machine(fit, digits[:900], digits[900:], CPU, 0)
    assert facts["fisher_held_out"][-1] < facts["fisher_held_out"][0]
    x = digits[900:1000].logits(seed=1)

    def matching(model):
        y = x.clone().requires_grad_()
        score = model.score(y)
        divergence = sum(
            torch.autograd.grad(s.sum(), y, retain_graph=True)[0][:, j] for j, s in enumerate(score.T)
        )
        return float((0.5 * score.square().sum(1) + divergence).detach().mean())

    start = GaussianBernoulliRBM(torch.zeros(64, 1), x.mean(0), [0.0])
    assert matching(machine_of(fit, learned)) < matching(start) - 5


def test_the_power_proxy_is_the_mean_over_the_two_standard_errors():
    data, null = normal(3, 40, seed=0) + 1, 2 * normal(3, 40, seed=1)
    for k, value in enumerate(power_proxy(data, null).tolist()):
        spread = sum(float(((w - w.mean()) ** 2).sum()) ** 0.5 / 40 for w in (data[k], null[k]))
        assert value == pytest.approx(float(data[k].mean()) / spread, rel=1e-12)  # rounding


def test_far_points_are_ranked_first_and_listed_and_near_ones_hardly():
    foreign = torch.arange(1000) < 50
    values, reference = normal(1000, seed=2) + 8 * foreign, normal(5000, seed=3)
    ranks = ranking(values, foreign, reference, shown=12, fdr=0.1)
    assert ranks["recall"] == 1 and ranks["listed"] >= 50 and ranks["highest"] == 12
    # mean 0.1 (1 - 0.05) of about 55 listed, binomial spread 0.04
    assert ranks["false_share"] < 0.1 + Z_MAX * 0.04
    above = (
        (values[foreign][:, None] > values[~foreign]).double().mean()
    )  # the chance that a foreign one leads
    assert ranks["roc_area"] == pytest.approx(float(above), rel=1e-12)
    nothing = ranking(normal(1000, seed=4), foreign, reference, shown=12, fdr=1e-6)
    assert (nothing["listed"], nothing["false_share"], nothing["recall"]) == (0, 0.0, 0.0)


@pytest.mark.parametrize(("shift", "rejected"), [(0.0, False), (1.0, True)])
def test_the_test_sees_a_shift_and_nothing_else(shift, rejected):
    judged, pool = normal(4000, seed=5) + shift, normal(5000, seed=6)
    test, null = mean_test(normal(100, seed=7) + shift, judged, pool, draws=199, seed=8)
    assert len(null) == 199 and (test["pvalue"] <= 0.05) == rejected
    assert (test["separation"] > Z_MAX) == rejected  # the shift is ten standard errors
    assert (test["power"] > 0.99) == rejected


def test_a_map_keeps_all_foreign_points():
    pytest.importorskip("sklearn")
    foreign = torch.arange(60) < 7
    drawn = embedding(normal(60, 60, seed=10), normal(60, seed=11), foreign, kept=20, seed=1)
    assert {len(column) for column in drawn.values()} == {20} and sum(drawn["foreign"]) == 7
    assert all(0 <= value <= 999 for value in drawn["x"] + drawn["y"])


def test_without_mnist_the_command_says_how_to_get_it(reproduce, tmp_path, monkeypatch):
    monkeypatch.setenv("STEINCRITIC_DATA", str(tmp_path / "none"))
    code, _, error = reproduce(f"mnist --device cpu --out {tmp_path / 'out'}")
    assert code == 2 and len(error.splitlines()) == 1
    assert str(tmp_path / "none") in error and "fetch_mnist" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("intervals", "verdict"),
    [
        ([[0.1, 0.5], [0.2, 0.4]], "agrees"),
        ([[0.1, 0.5], [-0.3, -0.1]], "differs"),
        ([[0.1, 0.5], [-0.3, 0.1]], "cannot be told"),
    ],
)
def test_a_verdict_on_the_early_epochs_goes_by_the_intervals(intervals, verdict):
    leads = [
        {"scheme": str(k), "early": {"mean": sum(ends) / 2, "interval": ends}}
        for k, ends in enumerate(intervals)
    ]
    *_, told, why = _faster(leads, "early", "P̂", "rises faster", "because")
    assert told == verdict and bool(why) == (verdict != "agrees")


def test_a_lead_is_over_machines_and_critic_by_critic():
    staged, other = {"values": [[1.0, 3.0], [2.0, 4.0], [6.0, 8.0]]}, {"values": [[1.0, 1.0]] * 3}
    keys = ("early_power_proxy", "early_discrepancy", "last_power_proxy")
    rows = (dict.fromkeys(keys, value) | {"scheme": "1"} for value in (staged, other))
    lead = _lead(*rows)["early_power_proxy"]
    assert lead["machines"] == [1, 2, 6] and lead["mean"] == 3
    half = 4.3027 * (7 / 3) ** 0.5  # Student's t at 2 degrees of freedom, variance 7 of three means
    assert lead["interval"] == pytest.approx([3 - half, 3 + half], rel=1e-4)
