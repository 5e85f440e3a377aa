"""Which column is y: by name or number, in frames, tables, arrays and files."""

import numpy as np
import pytest
import torch

from steincritic.data.conditional import at_rows
from steincritic.data.points import ScoredPoints
from steincritic.errors import InputError
from steincritic.models.conditional import ConditionalModel

NAMED = ConditionalModel(
    lambda x, y: x[:, :1] - y, lambda x, seed: x[:, :1], columns=("age", "dose"), targets=("y",)
)
MODEL = ConditionalModel(lambda x, y: x[:, :1] - y, lambda x, seed: x[:, :1])
X = np.arange(12.0).reshape(4, 3) ** 2


class Frame:
    """What a frame is to us."""

    columns = ("dose", "y", "age")

    def __init__(self, **columns):
        self._columns = dict(zip(self.columns, X.T, strict=True)) | columns

    def __getitem__(self, name):
        return self._columns[name]

    def to_numpy(self):
        return np.column_stack(list(self._columns.values()))


@pytest.mark.parametrize("target", [1, -2, [1], "x2"])
def test_targets_come_last(target):
    model, table = at_rows(MODEL, X, target)
    assert np.array_equal(table.x, X[:, [0, 2, 1]]) and table.columns == ("x1", "x3", "x2")
    assert torch.equal(model.rows, torch.tensor(X[:, [0, 2]])) and model.targets == 1


def test_covariates_come_in_the_order_that_the_model_knows_and_targets_are_its_own():
    model, table = at_rows(NAMED, Frame(), None)
    assert table.columns == ("age", "dose", "y") and model.covariates == 2
    assert np.array_equal(table.x, X[:, [2, 0, 1]])


def test_whole_numbers_and_truth_values_of_a_frame_are_fine():
    _, table = at_rows(
        MODEL, Frame(age=np.array([1, 2, 3, 4]), dose=np.array([True, False, True, True])), "y"
    )
    assert table.x.dtype == np.float64 and table.x[1, 0] == 0


def test_files_keep_their_rows(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in X))
    model, table = at_rows(MODEL, path, "b")
    assert table.columns == ("a", "c", "b") and table.rows.name(0) == "0 (line 2)"
    assert len(model) == 4


def test_several_targets_and_given_names():
    model, table = at_rows(MODEL, torch.tensor(X), ["p", "r"], names=["p", "q", "r"])
    assert model.targets == 2 and table.columns == ("q", "p", "r")


@pytest.mark.parametrize(
    ("model", "x", "target", "says"),
    [
        (MODEL, X, None, "which column is y: pass target"),
        (MODEL, X, "z", "no target column 'z'; they have x1, x2, x3"),
        (MODEL, X, "x22", "did you mean x2"),
        (MODEL, X, 3, "from 0 to 2, got 3"),
        (MODEL, X, True, "no target column"),
        (MODEL, X, [], "each column of y once"),
        (MODEL, X, [1, "x2"], "each column of y once"),
        (MODEL, X, [0, 1, 2], "needs covariates"),
        (MODEL, X * [1, 0, 1], 1, "target 'x2' is constant"),
        (NAMED, Frame(), "dose", "knows the covariates age, dose, the data have y, age"),
        (MODEL, ScoredPoints(torch.zeros(3, 2), torch.zeros(3, 2)), 1, "not ScoredPoints"),
        (ConditionalModel(lambda x, y: y), X, 1, "has no sampler"),
        (MODEL, Frame(age=np.array(["a", "b", "c", "d"])), "y", "column 'age' must hold numbers"),
    ],
)
def test_bad_input_is_refused_in_one_line(model, x, target, says):
    with pytest.raises(InputError, match=says) as error:
        at_rows(model, x, target)
    assert "\n" not in str(error.value)
