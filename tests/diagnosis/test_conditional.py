"""What check says of y given x: in the user's units, once per fault, and nothing under the model."""

import re
from dataclasses import replace

import pytest
import torch

import steincritic as sc
from steincritic.diagnosis.doctor.doctor import doctor
from steincritic.errors import InputError
from steincritic.rng import Source

NAMES = ["age", "dose", "sex", "y"]
N = 400


def mean(x):
    return 2 * x[:, :1] + 1


def normals(seed, n=N):
    return Source(seed, "noise").normals(n, 1, dtype=torch.float64)


MODEL = sc.ConditionalModel(lambda x, y: mean(x) - y, lambda x, seed: mean(x) + normals(seed, len(x)).to(x))
QUICK = sc.Combined(critics=None, cache=False, draws=199, reference=100)
AGE = 50 + 10 * Source(1, "age").normals(N, 1, dtype=torch.float64)
X = torch.cat([AGE, normals(2), (normals(3) > 0).double()], 1)


def checked(residual, **options):
    data = torch.cat([X, mean(X) + residual], 1)
    return sc.check(MODEL, data, target="y", names=NAMES, test=QUICK, **options)


FAULTS = {
    "shift by overall": (lambda e: e + 0.4, "too large on average$", 0.4),
    "shift by region": (lambda e: e - 1.2 * (AGE > 57), "y is .* too small on average for age >", -1.2),
    "shift by slope": (lambda e: e + 0.4 * X[:, 1:2], "y grows by .* per unit of dose more", 0.4),
    "shift by square": (lambda e: e + 0.3 * (X[:, 1:2] ** 2 - 1), "y bends up with dose", 0.3),
    "shift by product": (lambda e: e + 0.5 * X[:, 1:2] * (X[:, 2:] - 0.5), "dose times sex", 0.5),
    "spread by overall": (lambda e: 1.4 * e, "The spread of y is .* times the model's", 1.4),
    "spread by region": (lambda e: e * (1 + (AGE > 57)), "For age > .* the spread of y is .* times", 2.0),
    "spread by slope": (
        lambda e: e * (0.35 * X[:, 1:2]).exp(),
        "The spread of y grows by .* per unit of dose",
        35,
    ),
    "skewness by overall": (
        lambda e: ((0.4 * e).exp() - 1.083) / 0.451,
        "y is skewed further to the right",
        None,
    ),
}


@pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")
@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_told_first_with_its_size(kind):
    change, sentence, size = FAULTS[kind]
    found = checked(change(normals(4)))
    assert found.rejected
    first = found.seen[0]
    assert re.search(sentence, str(first)), str(first)
    if size is not None:  # skewness is told of all x, or of a region where it is larger by chance
        assert first.kind == kind
        low, high = first.interval
        width = high - low
        assert low - width < size < high + width  # within three times the 95 % interval


def test_one_fault_is_told_once():
    assert [f.kind for f in checked(normals(4) + 0.4).seen] == ["shift by overall"]


def test_nothing_is_said_under_the_model():
    found = checked(normals(5))
    assert not found.rejected and not found.findings and found.missing is None and not found.regions


def test_rows_whose_y_is_far_off_at_their_x_are_listed():
    residual = normals(6)
    residual[[3, 77, 250]] += 8.0
    found = checked(residual)
    assert {3, 77, 250} <= set(found.points.flagged.tolist()) and len(found.points) <= 8
    assert found.fisher.lower >= 0 and [c.name for c in found.coordinates] == ["y"]


def test_a_covariate_that_is_far_out_is_no_point_that_is_not_explained():
    """Its y is as the model says at that x."""
    x = X.clone()
    x[0, 0] = 500.0
    residual = 1.6 * normals(7)
    residual[0] = 0.1
    found = sc.check(MODEL, torch.cat([x, mean(x) + residual], 1), target=3, test=QUICK)
    assert found.rejected and 0 not in found.points.flagged.tolist()


def test_a_report_is_written(tmp_path):
    found = checked(normals(4) * (1 + (AGE > 57)) + 0.4 * X[:, 1:2])
    files = found.save(tmp_path)
    assert [file.name for file in files] == ["report.html", "result.json", "witness.csv"]
    page = files[0].read_text()
    assert "less model mean" in page and "the spread of y is" in page


def test_two_targets_and_their_correlation():
    two = sc.ConditionalModel(
        lambda x, y: x[:, :1] - y,
        lambda x, seed: x[:, :1] + Source(seed, "two").normals(len(x), 2, dtype=x.dtype),
    )
    e = Source(8, "two").normals(N, 2, dtype=torch.float64)
    e[:, 1] = 0.5 * e[:, 0] + 0.75**0.5 * e[:, 1]
    data = torch.cat([X[:, 1:], X[:, 1:2] + e], 1)
    found = sc.check(two, data, target=["a", "b"], names=["dose", "sex", "a", "b"], test=QUICK)
    assert str(found.seen[0]).startswith("a and b given x: correlation 0.")


def with_sampler(sample, score=MODEL.score):
    return sc.ConditionalModel(score, sample)


@pytest.mark.parametrize(
    ("model", "name", "says"),
    [
        (
            with_sampler(lambda x, seed: normals(seed, len(x)), lambda x, y: -y),
            "draws at x",
            "do not change with x",
        ),
        (
            with_sampler(lambda x, seed: mean(x) + normals(0, len(x))),
            "seeded sampling",
            "does not use its seed",
        ),
        (with_sampler(MODEL._sample, lambda x, y: 2 * (mean(x) - y)), "Stein's identity", "disagree"),
        (with_sampler(MODEL._sample, lambda x, y: (mean(x) - y).T), "shape", "shape"),
        (with_sampler(MODEL._sample, lambda x, y: y.mean() - y), "shape", "depends on the other rows"),
    ],
)
def test_the_doctor_says_what_is_wrong(model, name, says):
    found = doctor(model, torch.cat([X, mean(X)], 1), target=3)
    assert any(f.name == name and says in f.detail and f.status != "passed" for f in found.checks), (
        found.summary()
    )


def test_the_doctor_passes_a_right_model_and_wants_data():
    assert not doctor(MODEL, torch.cat([X, mean(X)], 1), target=3).problems
    with pytest.raises(InputError, match="pass x"):
        doctor(MODEL, target=3)
    with pytest.raises(InputError, match="target="):
        doctor(MODEL)


def test_a_spread_that_is_not_there_is_told_where_the_model_has_it():
    """The model's variance has a bump that the data lack: seen along the model's own spread."""

    def mean(x):
        return x[:, 0] - x[:, 1]

    def spread(x):
        return (1 + 10 * torch.exp(-((x - 1.5) ** 2).sum(1) / 1.28)).sqrt()

    x = torch.randn(700, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = torch.cat([x, sc.models.Regression(mean).sample(x, seed=1)], 1)
    found = sc.check(sc.models.Regression(mean, spread), data, target=3, test=replace(QUICK, reference=400))
    told = found.seen[0]
    assert told.kind == "spread by predicted spread" and told.estimate < 0.8
    assert told.sentence.startswith("Where the model's spread of x4 is above ")
