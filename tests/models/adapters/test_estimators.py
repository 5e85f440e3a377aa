"""Distributions of scipy.stats, estimators of scikit-learn, kernel densities, scores by differences."""

import numpy as np
import pytest
import torch
from scipy import stats

import steincritic as sc
from model_contract import COVARIANCE, MEAN, TWO, ModelContract, cases, own
from steincritic.errors import InputError, ModelError
from steincritic.models import NumericDensity, as_model
from steincritic.models.adapters.kernel_density import KernelDensity

pytest.importorskip("sklearn")
from sklearn import mixture, neighbors
from sklearn.linear_model import LinearRegression

DATA = TWO.sample(400, seed=0).numpy()
VARIANCES = np.diag(COVARIANCE)


def fitted_mixture(kind="full", name="GaussianMixture"):
    return getattr(mixture, name)(n_components=3, covariance_type=kind, random_state=0).fit(DATA)


def fitted_kernels():
    return neighbors.KernelDensity(bandwidth=0.4).fit(DATA, sample_weight=np.linspace(0.5, 2.0, 400))


NORMAL = stats.multivariate_normal(MEAN, COVARIANCE)
SKEWED = stats.skewnorm(3.0, loc=100.0, scale=0.01)
KERNELS = stats.gaussian_kde(DATA.T, weights=np.linspace(1, 2, 400))
LIMIT = stats.multivariate_t(MEAN, COVARIANCE, df=np.inf)
CASES = {
    "normal": lambda: own(NORMAL, mean=MEAN, variance=VARIANCES),
    "normal, a number": lambda: own(stats.multivariate_normal(1.0, 4.0), mean=[1.0], variance=[4.0]),
    "t": lambda: own(stats.multivariate_t(MEAN, COVARIANCE, df=5), mean=MEAN),
    "t, no limit": lambda: own(LIMIT, mean=MEAN, variance=VARIANCES),
    "skewed numbers": lambda: own(SKEWED, mean=[SKEWED.mean()], variance=[SKEWED.var()]),
    "kernels of scipy": lambda: own(KERNELS, 5_000),
    "full": lambda: own(fitted_mixture()),
    "tied": lambda: own(fitted_mixture("tied")),
    "diagonal": lambda: own(fitted_mixture("diag")),
    "spherical": lambda: own(fitted_mixture("spherical")),
    "bayesian mixture": lambda: own(fitted_mixture("full", "BayesianGaussianMixture")),
    "kernels of scikit-learn": lambda: own(fitted_kernels(), 5_000),
}
given, case = cases(CASES)


class TestContract(ModelContract):
    pass


@pytest.mark.parametrize(
    ("make", "log_prob"),
    [
        (lambda: NORMAL, "logpdf"),
        (lambda: stats.multivariate_t([0.5, -1.0], COVARIANCE[:2, :2], df=5), "logpdf"),
        (lambda: KERNELS, "logpdf"),
        (lambda: fitted_mixture("full"), "score_samples"),
        (lambda: fitted_mixture("tied"), "score_samples"),
        (lambda: fitted_mixture("diag"), "score_samples"),
        (lambda: fitted_mixture("spherical"), "score_samples"),
        (fitted_kernels, "score_samples"),
    ],
)
def test_the_log_density_is_kept(make, log_prob):
    obj = make()
    model = as_model(obj)
    x = model.sample(20, seed=1)
    asked = x.numpy().T if obj is KERNELS else x.numpy()
    torch.testing.assert_close(model.log_prob(x), torch.as_tensor(getattr(obj, log_prob)(asked)))


def test_equal_weights_of_a_kernel_density_are_exact():
    points = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    given, equal = (KernelDensity(points, [[1.0]], w) for w in ([1.0, 1.0, 1.0], None))
    torch.testing.assert_close(given.log_prob(points), equal.log_prob(points), rtol=0, atol=1e-15)


def test_differences_are_as_good_as_a_formula():
    model = as_model(stats.norm(5.0, 1e-3))
    x = model.sample(100, seed=0)
    torch.testing.assert_close(model.score(x), (5.0 - x) / 1e-6, rtol=1e-7, atol=1e-5)  # of up to 3,000
    with pytest.raises(ModelError, match=r"must return shape \(100,\)"):
        NumericDensity(lambda rows: rows, 1).log_prob(x)
    with pytest.raises(InputError, match="scale must be positive"):
        NumericDensity(lambda rows: rows, 1, scale=0.0)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: stats.multivariate_normal, "has no parameters yet"),
        (lambda: stats.wishart(3, np.eye(2)), "got wishart_frozen"),
        (lambda: stats.vonmises(1.0), "vonmises lives on"),
        (lambda: stats.poisson(3.0), "poisson is discrete"),
        (lambda: stats.norm([0.0, 1.0]), "freeze one at a time"),
        (lambda: mixture.GaussianMixture(2), r"is not fitted: call fit\(x\) first"),
        (lambda: neighbors.KernelDensity(), "is not fitted"),
        (lambda: neighbors.KernelDensity(kernel="tophat").fit(DATA), "needs kernel='gaussian'"),
        (lambda: neighbors.KernelDensity(metric="manhattan").fit(DATA), "Euclidean"),
        (LinearRegression, "got LinearRegression"),
    ],
)
def test_what_has_no_score_is_refused(make, word):
    with pytest.raises(InputError, match=word):
        as_model(make())


@pytest.mark.parametrize(
    ("frozen", "slope"),
    [
        (stats.expon(1.0, 2.0), lambda x: -0.5 + 0 * x),
        (stats.uniform(), lambda x: 0 * x),
        (stats.beta(0.5, 2.0), lambda x: -0.5 / x - 1 / (1 - x)),
        (stats.gamma(0.5), lambda x: -0.5 / x - 1),
        (stats.halfnorm(), lambda x: -x),
        (stats.truncnorm(-1, 2), lambda x: -x),
    ],
    ids=lambda value: value.dist.name if hasattr(value, "dist") else "",
)
def test_a_distribution_with_ends_has_its_score_up_to_them(frozen, slope):
    model = as_model(frozen)
    low, high = frozen.support()
    x = torch.tensor([*frozen.ppf([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6])]).double()[:, None]
    assert bool(((x > low) & (x < high)).all())
    # finite differences: 1e-9 of the score, and what rounding of x leaves of the distance to the upper end
    torch.testing.assert_close(model.score(x), slope(x), rtol=1e-5, atol=1e-7)


def test_a_dirichlet_of_scipy_is_that_of_torch():
    model = as_model(stats.dirichlet([1.0, 2.0, 3.0]))
    x = model.sample(3, seed=0)
    torch.testing.assert_close(model.score(x), torch.tensor([0.0, 1.0, 2.0]).double() / x)


class Frame:
    """As much of a pandas frame as is asked of one here."""

    def __init__(self, values, columns):
        self.values, self.columns = values, columns

    def to_numpy(self):
        return self.values

    def __getitem__(self, names):
        return Frame(self.values[:, [self.columns.index(name) for name in names]], names)


@pytest.fixture(params=[fitted_mixture, fitted_kernels])
def named(request):
    """Fitted on a frame with the columns weight and height; scikit-learn keeps their names."""
    fitted = request.param()
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
    compared = sc.compare([named, named], swapped, test="none")
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
    other = fitted_mixture()
    other.feature_names_in_ = np.array(["height", "weight"], dtype=object)
    with pytest.raises(InputError, match=r"in another order: \(height, weight\) and \(weight, height\)"):
        sc.compare([named, other], Frame(DATA[:60], ["height", "weight"]), test="none")
