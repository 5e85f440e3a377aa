"""Malformed calls: one line that names what was wrong, before any training."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

import steincritic as sc
from reference import small_module
from steincritic.data import as_points, mixture, problem, scored
from steincritic.gof.choose import gof_test
from steincritic.gof.split import Split
from steincritic.models import GaussianMixture
from steincritic.stein import Probes
from steincritic.training import fit as fit_module

Q = GaussianMixture([[0.0, 0.0]])
X = Q.sample(20, seed=0)


class Score:
    """A model of two dimensions whose score or sampler is the given function."""

    dim = 2

    def __init__(self, score=lambda x: -x, sample=lambda n, seed: torch.zeros(n, 2)) -> None:
        self.score = score
        self._sample = sample

    def sample(self, n, *, seed=0):
        return self._sample(n, seed)


def with_value(value):
    x = X.clone()
    x[3, 1] = value
    return x


def test_of(x, model=Q, **options):
    return lambda: sc.gof_test(model, x, **options)


test_of.__test__ = False  # it makes calls; it is no test


def fit_of(x=X, model=Q, **options):
    return lambda: sc.fit_critic(model, x, callbacks=[], **options)


def raises(x):
    raise OSError("the server is away\nsecond line")


FLOATS = "x must (hold floating-point|be an array of floats)"
SHAPE_OF_SCORE = "model.score must return the shape"
ADAPTIVE = {"initial": 1.0, "floor": 0.1, "decay": 0.5}
DATA = {
    "a row": (test_of(X[0]), "x must have shape"),
    "a number": (test_of(np.float64(3.0)), "x must have shape"),
    "three axes": (test_of(X[None]), "x must have shape"),
    "no rows": (test_of(X[:0]), "x must have shape"),
    "no columns": (test_of(X[:, :0]), "x must have shape"),
    "NaN": (test_of(with_value(torch.nan)), "x has NaN or infinite values in 1 of 20 rows"),
    "infinity": (test_of(with_value(torch.inf)), "x has NaN or infinite values"),
    "too many columns": (test_of(torch.zeros(9, 3)), "x has 3 columns but the model has 2"),
    "integers": (test_of(np.ones((9, 2), dtype=int)), FLOATS),
    "integer tensor": (test_of(torch.ones(9, 2, dtype=torch.int32)), FLOATS),
    "booleans": (test_of(np.ones((9, 2), dtype=bool)), FLOATS),
    "complex": (test_of(np.ones((9, 2), dtype=complex)), FLOATS),
    "objects": (test_of(np.array([[1.0, None]] * 9)), FLOATS),
    "text": (test_of([["a", "b"]] * 9), FLOATS),
    "nothing": (test_of(None), FLOATS),
    "meta tensor": (test_of(X.to("meta")), "x must be a dense array of numbers, got a meta tensor"),
    "sparse tensor": (test_of(X.to_sparse()), "x must be a dense array of numbers, got a sparse"),
    "kernel at scale 1e150": (
        test_of(X * 1e150, model=(lambda x: -x / 1e300, None), test="ksd"),
        "values of size .*: give model and data other units",
    ),
    "power of a function": (lambda: sc.power(Q, lambda n: Q.sample(n), 20), "datasets are drawn from data"),
    "device that is not there": (test_of(X, device="cuda:99"), "device 'cuda:99' cannot be used here"),
    "ragged rows": (test_of([[1.0, 2.0], [3.0]]), "x must be a rectangular"),
    "one point": (test_of(X[:1]), "at least 2 points"),
    "one point to split": (test_of(X[:1], test="split"), "x has 1 points"),
    "two points to split": (test_of(X[:2], test="split"), "x has 2 points"),
    "no scored points": (fit_of(sc.ScoredPoints(X[:0], X[:0])), "x must hold at least one point"),
    "scores of another shape": (lambda: sc.ScoredPoints(X, X[:3]), "x and score must have one shape"),
    "scored row": (lambda: sc.ScoredPoints(X[0], X[0]), "x must have shape"),
    "scored integers": (
        lambda: sc.ScoredPoints(np.ones((3, 2), dtype=int), X[:3]),
        FLOATS,
    ),
    "NaN in given scores": (fit_of(sc.ScoredPoints(X, with_value(torch.nan))), "the score at x has NaN"),
    "NaN in given points": (fit_of(sc.ScoredPoints(with_value(torch.nan), X)), "x has NaN"),
    "validation of another width": (fit_of(validation=torch.zeros(5, 3)), "validation has 3"),
    "NaN in validation": (fit_of(validation=with_value(torch.nan)), "validation has NaN"),
    "a split of more than all": (lambda: scored(Q, X).split([15, 15], seed=0), "cannot cut 20 points"),
    "one fold": (lambda: list(scored(Q, X).folds(1, seed=0)), "folds"),
}
MODELS = {
    "no model": (test_of(X, model=None), "a model must"),
    "a word for a model": (test_of(X, model="normal"), "a model must"),
    "an array for a model": (test_of(X, model=np.ones(3)), "a model must"),
    "score raises": (test_of(X, model=Score(raises)), "model.score.* raised OSError: the server is away"),
    "score of another shape": (
        test_of(X, model=Score(lambda x: x[:, :1])),
        SHAPE_OF_SCORE,
    ),
    "score of one number per row": (
        test_of(X, model=Score(lambda x: x[:, 0])),
        SHAPE_OF_SCORE,
    ),
    "score with NaN": (test_of(X, model=Score(lambda x: x / 0 * 0)), "the score at x has NaN"),
    "score of nothing": (test_of(X, model=Score(lambda x: None)), "model.score"),
    "score of integers": (test_of(X, model=Score(lambda x: x.long())), "model.score"),
    "no sampler": (
        test_of(X, model=(lambda x: -x, None), test=Split(threshold="fresh")),
        "no sample",
    ),
    "sampler of another width": (fit_of(model=Score(sample=lambda n, s: torch.zeros(n, 3))), "model.sample"),
    "sampler of too few rows": (
        fit_of(model=Score(sample=lambda n, s: torch.zeros(n - 1, 2))),
        "model.sample",
    ),
    "sampler with NaN": (fit_of(model=Score(sample=lambda n, s: torch.zeros(n, 2) / 0)), "model.sample"),
    "sampler raises": (fit_of(model=Score(sample=lambda n, s: raises(n))), "model.sample.* raised OSError"),
    "log-density of one number": (
        fit_of(model=lambda x: -(x**2).sum()),
        "log-density must return one number per row",
    ),
    "log-density without torch": (
        fit_of(model=lambda x: torch.tensor(x.detach().numpy()).sum(-1)),
        "log-density does not depend on x",
    ),
    "distribution of matrices": (
        test_of(X, model=torch.distributions.Normal(torch.zeros(2, 2), 1.0)),
        "torch distribution must describe one vector",
    ),
    "means of one axis": (lambda: GaussianMixture([0.0, 1.0]), "means must have shape"),
    "ragged means": (lambda: GaussianMixture([[0.0], [1.0, 2.0]]), "means must be an array"),
    "means with NaN": (lambda: GaussianMixture([[torch.nan]]), "means must be finite"),
    "complex means": (lambda: GaussianMixture([[1j]]), "means must be real"),
    "indefinite covariance": (
        lambda: GaussianMixture([[0.0, 0.0]], [[[1.0, 2.0], [2.0, 1.0]]]),
        r"covariances\[0\] is not positive definite",
    ),
    "negative variance": (
        lambda: GaussianMixture([[0.0]], -1.0),
        r"covariances\[0\] is not positive",
    ),
    "covariance of another shape": (
        lambda: GaussianMixture([[0.0]], [[1.0, 2.0]]),
        "covariances must be",
    ),
    "negative weights": (
        lambda: GaussianMixture([[0.0], [1.0]], 1.0, [2.0, -1.0]),
        "weights must be 2",
    ),
    "too many weights": (lambda: GaussianMixture([[0.0]], 1.0, [0.5, 0.5]), "weights must be 1"),
    "score at a row": (lambda: Q.score(X[0]), r"x must have shape .*pass x\[None\]"),
    "no draws": (lambda: Q.sample(0), "n must be a whole number"),
    "half a seed": (lambda: Q.sample(3, seed=0.5), "seed must be a whole number"),
    "unknown problem": (lambda: problem("gm-3d"), "problem must be one of"),
    "mixture of one dimension": (lambda: mixture(1), "dim >= 2"),
}
SETTINGS = {
    "test with a slip": (test_of(X, test="crosfit"), r"did you mean crossfit\?"),
    "unknown test": (test_of(X, test="magic"), "test must be one of"),
    "level of zero": (test_of(X, level=0.0), "level must lie"),
    "level of one": (test_of(X, level=1.0), "level must lie"),
    "level of five percent": (test_of(X, level=5), "level must lie"),
    "level asked of the test itself": (lambda: gof_test(Q, X, "split", level=0), "level must lie"),
    "too few draws for the level": (
        test_of(X, level=0.001, test=Split(draws=99)),
        "99 null draws cannot reach level",
    ),
    "seed of the test": (test_of(X, seed="a"), "seed must be a whole number"),
    "nothing to train on": (test_of(X, test=Split(train=0.001)), "x has 20 points"),
    "share of one": (lambda: Split(train=1.0), "train is the share"),
    "unknown threshold": (lambda: Split(threshold="normal"), "threshold must be one of"),
    "half a draw": (lambda: Split(draws=0.5), "draws must be a whole number"),
    "lambda of zero": (lambda: sc.fixed(0.0), "lambda"),
    "negative lambda": (lambda: sc.fixed(-1.0), "lambda"),
    "infinite lambda": (lambda: sc.fixed(float("inf")), "lambda"),
    "floor above the start": (lambda: sc.Staged(initial=0.1, floor=0.2, decay=0.5), "floor of lambda"),
    "decay of zero": (lambda: sc.Staged(initial=1.0, floor=0.2, decay=0.0), "decay"),
    "decay above one": (lambda: sc.Adaptive(initial=1.0, floor=0.2, decay=1.5), "decay"),
    "every zero batches": (lambda: sc.Staged(initial=1.0, floor=0.2, decay=0.5, every=0), "every"),
    "adaptive on the loss": (
        lambda: sc.Adaptive(**ADAPTIVE, on="loss"),
        "on must be one of",
    ),
    "a number for a staging": (fit_of(staging=0.4), "staging must be"),
    "adaptive without validation": (
        fit_of(staging=sc.Adaptive(**ADAPTIVE)),
        "validation",
    ),
    "no epochs": (lambda: sc.Training(epochs=0), "epochs must be"),
    "half a batch": (lambda: sc.Training(batch_size=0.5), "batch_size must be"),
    "learning rate of zero": (lambda: sc.Training(learning_rate=0.0), "learning_rate must be"),
    "unknown divergence": (lambda: sc.Training(divergence="hutch"), "divergence must be one of"),
    "unknown selection": (lambda: sc.Training(selection="best"), "selection must be one of"),
    "unknown dtype": (lambda: sc.Training(dtype="float16"), "dtype must be one of"),
    "trajectory of one point": (fit_of(X[:1], training=sc.Training(selection="trajectory")), "x has 1"),
    "no hidden layers": (lambda: sc.MLP(hidden=()), "hidden layers"),
    "three hidden layers": (lambda: sc.MLP(hidden=(4, 4, 4)), "hidden layers"),
    "hidden width of zero": (lambda: sc.MLP(hidden=(0,)), "hidden width"),
    "hidden width alone": (lambda: sc.MLP(hidden=64), "hidden must list"),
    "unknown activation": (lambda: sc.MLP(activation="relu"), "activation must be one of"),
    "dropout": (
        fit_of(network=nn.Sequential(small_module(2, seed=0), nn.Dropout(0.5))),
        "holds Dropout",
    ),
    "batch normalization": (fit_of(network=nn.BatchNorm1d(2)), "module holds BatchNorm1d"),
    "module of another width": (fit_of(network=small_module(3, seed=0)), r"module must map \(n, 2\)"),
    "module without parameters": (fit_of(network=nn.Tanh()), "module has no parameters"),
    "unknown probes": (lambda: Probes(kind="sobol"), "kind must be one of"),
}


def save_two(folder):
    np.savez(folder / "x.npz", a=X.numpy(), b=X.numpy())
    return folder / "x.npz"


def save_pickled(folder):
    np.save(folder / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return folder / "x.npy"


def save_bytes(name, content):
    def save(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return save


FILES = {
    "missing": (lambda folder: folder / "x.npy", "no such data file: .*x.npy"),
    "a folder": (lambda folder: folder, "no such data file"),
    "wrong ending": (save_bytes("x.txt", b"1.0"), r"x.txt must end in one of"),
    "two arrays": (save_two, "x.npz must hold one array, it holds 2: a, b"),
    "pickled array": (save_pickled, "x.npy cannot be read as npy"),
    "pickle named npy": (save_bytes("x.npy", pickle.dumps([1.0])), "x.npy cannot be read as npy"),
    "empty npy": (save_bytes("x.npy", b""), "x.npy cannot be read as npy"),
    "damaged npz": (save_bytes("x.npz", b"PK\x03\x04cut"), "x.npz cannot be read as npz"),
    "text column": (save_bytes("x.csv", b"a,b\n1.0,red\n2.0,blue\n"), "x.csv must hold numbers, got text"),
    "ragged csv": (save_bytes("x.csv", b"1.0,2.0\n3.0\n"), "x.csv has 1 cell in line 2"),
    "csv with a gap": (save_bytes("x.csv", b"1.0,2.0\n3.0,\n"), "x has NaN"),
    "csv with nan": (save_bytes("x.csv", b"1.0,2.0\nnan,1.0\n"), "x has NaN"),
}


@pytest.fixture(autouse=True)
def _no_training(monkeypatch):
    def trained(self, epoch):
        pytest.fail("training began before the input was refused")

    monkeypatch.setattr(fit_module._Run, "_train_epoch", trained)


def check(call, words):
    with pytest.raises(sc.InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_table_is_long():
    assert len(DATA | MODELS | SETTINGS) + len(FILES) >= 45
    assert len(DATA | MODELS | SETTINGS) == len(DATA) + len(MODELS) + len(SETTINGS)


@pytest.mark.parametrize("case", DATA | MODELS | SETTINGS)
def test_a_malformed_call_is_refused_in_one_line_that_names_the_argument(case):
    check(*(DATA | MODELS | SETTINGS)[case])


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_holds_no_points_is_refused_in_one_line_that_names_it(case, tmp_path):
    make, words = FILES[case]
    path = make(tmp_path)
    check(lambda: as_points(path), words)
    check(lambda: sc.gof_test(Q, path), words)


def test_a_missing_critic_is_refused(tmp_path):
    check(lambda: sc.load_critic(tmp_path / "critic.safetensors"), "no such file: .*critic.safetensors")
