"""What is read off the critics of the digits, against slow or known answers."""

import pytest
import torch

from reference import Z_MAX
from steincritic.errors import InputError
from steincritic.rng import generator
from steincritic_studies.digits.data import as_pixels, from_pixels
from steincritic_studies.digits.mnist import STUDY
from steincritic_studies.digits.planted import UnusedRows
from steincritic_studies.digits.readings import (
    embedding,
    gallery,
    histogram,
    listed,
    mean_test,
    power_proxy,
    roc_area,
)


def normal(*shape, seed):
    return torch.randn(*shape, generator=generator(seed, "mnist tests"), dtype=torch.float64)


def test_the_power_proxy_is_the_mean_over_the_two_standard_errors():
    data, null = normal(3, 40, seed=0) + 1, 2 * normal(3, 40, seed=1)
    for k, value in enumerate(power_proxy(data, null).tolist()):
        spread = sum(float(((w - w.mean()) ** 2).sum()) ** 0.5 / 40 for w in (data[k], null[k]))
        assert value == pytest.approx(float(data[k].mean()) / spread, rel=1e-12)  # rounding


def test_the_roc_area_counts_pairs():
    values = torch.tensor([0.0, 1.0, 1.0, 2.0, 3.0, 3.0])
    positive = torch.tensor([False, True, False, True, False, True])
    pairs = [(a, b) for a in values[positive].tolist() for b in values[~positive].tolist()]
    wanted = sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)
    assert roc_area(values, positive) == pytest.approx(wanted, rel=1e-12)  # rounding
    assert roc_area(values, values > 2) == 1.0 and roc_area(-values, values > 2) == 0.0


def test_far_points_are_listed_and_near_ones_hardly():
    foreign = torch.arange(1000) < 50
    values, reference = normal(1000, seed=2) + 8 * foreign, normal(5000, seed=3)
    found = listed(values, foreign, reference, 0.1)
    assert found["recall"] == 1 and found["listed"] >= 50
    # mean 0.1 (1 - 0.05) of about 55 listed, binomial spread 0.04
    assert found["false_share"] < 0.1 + Z_MAX * 0.04
    nothing = listed(normal(1000, seed=4), foreign, reference, 1e-6)
    assert nothing == {"listed": 0, "false_share": 0.0, "recall": 0.0}


@pytest.mark.parametrize(("shift", "rejected"), [(0.0, False), (1.0, True)])
def test_the_test_sees_a_shift_and_nothing_else(shift, rejected):
    judged, pool = normal(4000, seed=5) + shift, normal(5000, seed=6)
    found, null = mean_test(normal(100, seed=7) + shift, judged, pool, draws=199, seed=8)
    assert len(null) == 199 and (found["pvalue"] <= 0.05) == rejected
    assert (found["separation"] > Z_MAX) == rejected  # the shift is ten standard errors
    assert (found["power"] > 0.99) == rejected
    counted = histogram(null, found["statistic"])
    assert int(counted["counts"].sum()) == 199 and len(counted["edges"]) == len(counted["counts"]) + 1


def test_the_gallery_shows_both_ends_in_order():
    values = torch.tensor([0.5, -1.0, 3.0, 2.0])
    ends = gallery(normal(4, 6, seed=9), values, torch.tensor([False, False, True, False]), 2)
    assert [image["witness"] for image in ends["highest"]] == [3.0, 2.0]
    assert [image["witness"] for image in ends["lowest"]] == [-1.0, 0.5]
    assert [image["foreign"] for image in ends["highest"]] == [True, False]


def test_pixels_are_two_digits_each():
    (text,) = as_pixels(torch.tensor([[-20.0, 20.0, 0.0]]))
    assert text == "00ff80"
    assert (255 * from_pixels(text, (1, 3))).tolist() == [[0, 255, 128]]


def test_a_map_keeps_all_foreign_points():
    pytest.importorskip("sklearn")
    foreign = torch.arange(60) < 7
    drawn = embedding(normal(60, 60, seed=10), normal(60, seed=11), foreign, kept=20, seed=1)
    assert {len(column) for column in drawn.values()} == {20} and sum(drawn["foreign"]) == 7
    assert all(0 <= value <= 999 for value in drawn["x"] + drawn["y"])


def test_no_row_is_taken_twice():
    rows = UnusedRows(torch.arange(10), "things")
    assert torch.cat([rows.take(3), rows.take(7)]).tolist() == list(range(10))
    with pytest.raises(InputError, match="10 things are too few: 11 are needed"):
        rows.take(1)


def test_the_full_settings_are_those_of_the_paper():
    full = STUDY.full
    assert (full.hidden, full.sweeps, full.share, full.replicas) == (100, 2000, 0.03, 10)
    assert (full.trained, full.batch_size, full.epochs, full.width) == (2000, 100, 25, 512)
    assert (full.learning_rate, full.validated, full.tested, full.judged) == (1e-3, 1000, 100, 6000)
    *constant, staged = full.schemes.values()
    assert [s.initial for s in constant] == [1e-3, 1e-2, 1e-1, 1.0, 2.0]
    assert all(s.decay == 1 for s in constant)
    assert (staged.initial, staged.floor, staged.decay, staged.every) == (0.5, 1e-3, 0.9, 20)


def test_without_mnist_the_command_says_how_to_get_it(run, tmp_path, monkeypatch):
    monkeypatch.setenv("STEINCRITIC_DATA", str(tmp_path / "none"))
    code, _, error = run(f"reproduce mnist --device cpu --out {tmp_path / 'out'}")
    assert code == 2 and len(error.splitlines()) == 2  # how long it takes, and why not
    assert str(tmp_path / "none") in error and "fetch_mnist" in error
    assert not (tmp_path / "out").exists()
