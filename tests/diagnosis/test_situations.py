"""The doctor's advice: each situation is recognized, and ordinary data get none."""

import numpy as np
import pytest
import torch

import steincritic as sc
from steincritic.diagnosis.doctor.doctor import doctor
from steincritic.diagnosis.doctor.patient import Patient
from steincritic.diagnosis.doctor.situations import situations
from steincritic.rng import generator

Q = sc.models.GaussianMixture(torch.zeros(1, 2, dtype=torch.float64))
N = 1_000


def told(checkup):
    return {finding.name: finding.detail for finding in checkup.advice}


def advice(x=None, model=Q, draws=None):
    return dict(situations(Patient(model=model, draws=draws, data=x, seed=0)))


ORDINARY = {
    "normal": Q,
    "correlated": sc.models.GaussianMixture([[1.0, 3.0]], [[[1.0, 0.8], [0.8, 1.0]]]),
    "near modes": sc.models.GaussianMixture([[0.0, 0.0], [2.0, 1.0]], [1.0, 0.5]),
    "20-D": sc.models.GaussianMixture(torch.ones(1, 20, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_data_get_no_advice(name):
    """Of 10 datasets of each: by chance at most one in a thousand looks fitted."""
    model = ORDINARY[name]
    found = [
        advice(model.sample(n, seed=k), model, model.sample(2000, seed=100 + k))
        for k in range(5)
        for n in (60, 800)
    ]
    assert sum(map(bool, found)) <= 1, found


def test_advice_is_neither_failure_nor_warning():
    checkup = doctor(Q, Q.sample(12_000, seed=1), n=N)
    assert checkup.ok and list(told(checkup)) == ["many rows"]
    assert not any(finding.status == "advice" for finding in checkup.problems)
    assert "many rows (advice): With 12,000 rows" in checkup.summary()
    assert "--tolerance 0.05" in told(checkup)["many rows"]
    assert checkup.to_dict()["checks"][-1]["status"] == "advice"


def test_a_target_column_is_one_more_than_the_model_has_dimensions():
    x = np.random.default_rng(0).normal(size=(100, 3))
    checkup = doctor(Q, x, n=N)
    assert checkup.ok and "3 columns, the model 2 dimensions" in told(checkup)["target column"]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(x, columns=["age", "size", "price"])
    assert "--target price" in told(doctor(Q, frame, n=N))["target column"]


def test_a_score_of_two_arguments_is_that_of_a_conditional_model():
    class Regression:
        def score(self, x, y):
            return x - y

    assert "sc.ConditionalModel" in told(doctor(Regression()))["target column"]


def test_a_model_that_was_fitted_to_the_rows_is_told():
    x = Q.sample(400, seed=3)
    fitted = sc.models.GaussianMixture(x.mean(0)[None], torch.cov(x.T, correction=0)[None])
    assert "--fitted" in told(doctor(fitted, x, n=N))["fitted to these rows"]
    assert "fitted to these rows" not in told(doctor(fitted, Q.sample(400, seed=4), n=N))


def uniforms(n, *shape):
    return 1 - torch.rand(n, *shape, generator=generator(1, "uniform"), dtype=torch.float64)


BOUNDED = {
    "exponential": (lambda n: -uniforms(n, 2).log(), "x1 0 inf"),
    "half-normal": (lambda n: Q.sample(n, seed=2).abs(), "x1 0 inf"),
    "log-normal": (lambda n: Q.sample(n, seed=2).exp(), "x1 0 inf"),
    "uniform on the unit square": (lambda n: uniforms(n, 2), "x1 0 1"),
    "uniform elsewhere": (lambda n: 3 + 2 * uniforms(n, 1), "x1 3 5"),
    "beta": (lambda n: uniforms(n, 3, 2).median(1).values, "x1 0 1"),
    "simplex": (lambda n: torch.softmax(Q.sample(n, seed=2), 1), "--bounds simplex"),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_columns_are_told_with_their_bounds(name):
    draw, bounds = BOUNDED[name]
    x = draw(1500)
    model = sc.models.GaussianMixture(torch.zeros(1, x.shape[1], dtype=torch.float64))
    assert bounds in advice(x, model)["bounded columns"]


def test_separated_modes_are_counted():
    far = sc.models.GaussianMixture([[-5.0, 0.0], [5.0, 0.0], [0.0, 9.0]], weights=[0.5, 0.3, 0.2])
    found = told(doctor(far, n=N * 2))["separated modes"]
    assert "3 separated modes (5" in found and "do not see wrong weights" in found
