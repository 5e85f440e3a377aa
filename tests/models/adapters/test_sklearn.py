"""Mixtures and kernel densities of scikit-learn."""

import numpy as np
import pytest
import torch

import steincritic as sc
from model_contract import TWO, ModelContract, cases, own
from steincritic.errors import InputError
from steincritic.models import as_model

pytest.importorskip("sklearn")
from sklearn import mixture, neighbors
from sklearn.linear_model import LinearRegression

DATA = TWO.sample(400, seed=0).numpy()
KINDS = ("full", "tied", "diag", "spherical")


def fitted_mixture(kind, name="GaussianMixture"):
    return getattr(mixture, name)(n_components=3, covariance_type=kind, random_state=0).fit(DATA)


def fitted_kernels():
    return neighbors.KernelDensity(bandwidth=0.4).fit(DATA, sample_weight=np.linspace(0.5, 2.0, 400))


CASES = {
    **{f"mixture, {kind}": lambda kind=kind: own(fitted_mixture(kind)) for kind in KINDS},
    "bayesian mixture": lambda: own(fitted_mixture("full", "BayesianGaussianMixture")),
    "kernel density": lambda: own(fitted_kernels(), 5_000),
}

given, case = cases(CASES)


class TestContract(ModelContract):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_of_scikit_learn_keeps_its_log_density(kind):
    fitted = fitted_mixture(kind)
    x = TWO.sample(50, seed=1)
    wanted = torch.as_tensor(fitted.score_samples(x.numpy()))
    torch.testing.assert_close(as_model(fitted).log_prob(x), wanted)


def test_a_kernel_density_of_scikit_learn_keeps_its_log_density():
    fitted = fitted_kernels()
    x = TWO.sample(50, seed=1)
    torch.testing.assert_close(as_model(fitted).log_prob(x), torch.as_tensor(fitted.score_samples(x.numpy())))


def test_scikit_learn_without_a_score_is_refused():
    with pytest.raises(InputError, match=r"is not fitted: call fit\(x\) first"):
        as_model(mixture.GaussianMixture(2))
    with pytest.raises(InputError, match="is not fitted"):
        as_model(neighbors.KernelDensity())
    with pytest.raises(InputError, match="needs kernel='gaussian'"):
        as_model(neighbors.KernelDensity(kernel="tophat").fit(DATA))
    with pytest.raises(InputError, match="Euclidean"):
        as_model(neighbors.KernelDensity(metric="manhattan").fit(DATA))
    with pytest.raises(InputError, match="got LinearRegression"):
        as_model(LinearRegression())


class Frame:
    """As much of a pandas frame as is asked of one here."""

    def __init__(self, values, columns):
        self.values, self.columns = values, columns

    def to_numpy(self):
        return self.values

    def __getitem__(self, names):
        return Frame(self.values[:, [self.columns.index(name) for name in names]], names)


@pytest.fixture(params=["mixture", "kernel density"])
def named(request):
    """Fitted on a frame with the columns weight and height; scikit-learn keeps their names."""
    fitted = fitted_mixture("full") if request.param == "mixture" else fitted_kernels()
    fitted.feature_names_in_ = np.array(["weight", "height"], dtype=object)
    return fitted


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")  # of its own rows
def test_columns_are_put_in_the_order_of_the_fit(named):
    x = DATA[:60]
    right, swapped = Frame(x, ["weight", "height"]), Frame(x[:, ::-1], ["height", "weight"])
    wanted, found = (sc.gof_test(named, frame, "ksd") for frame in (right, swapped))
    assert found.statistic == wanted.statistic == sc.gof_test(named, x, "ksd").statistic
    assert not wanted.notes and found.notes == ("Columns were put in the model's order: weight, height.",)
    assert as_model(named).columns == ("weight", "height")
    compared = sc.compare([named, named], swapped, test="none", training=sc.Training(epochs=2), callbacks=())
    assert compared.notes == found.notes and compared.summary().endswith(found.notes[0])


def test_findings_about_columns_in_another_order_have_the_right_names(named):
    x = DATA[:200] + np.array([9.0, 0.0])
    result = sc.check(named, Frame(x[:, ::-1], ["height", "weight"]), test="ksd")
    assert result.names == ("weight", "height") and result.coordinates[0].name == "weight"


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
def test_a_file_is_put_in_order_too(named, tmp_path):
    path = tmp_path / "x.csv"
    np.savetxt(path, DATA[:60, ::-1], delimiter=",", fmt="%.17g", header="height,weight", comments="")
    assert sc.gof_test(named, path, "ksd").statistic == sc.gof_test(named, DATA[:60], "ksd").statistic
    (tmp_path / "plain.csv").write_text(path.read_text().partition("\n")[2])  # no names, so no order
    assert not sc.gof_test(named, tmp_path / "plain.csv", "ksd").notes


def test_other_columns_are_refused_by_name(named):
    with pytest.raises(InputError, match="columns weight, height, the data have height, age; "):
        sc.gof_test(named, Frame(DATA[:60], ["height", "age"]), "ksd")
    other = fitted_mixture("full")
    other.feature_names_in_ = np.array(["height", "weight"], dtype=object)
    with pytest.raises(InputError, match=r"in another order: \(height, weight\) and \(weight, height\)"):
        sc.compare([named, other], Frame(DATA[:60], ["height", "weight"]), test="none")
