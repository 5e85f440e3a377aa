"""The doctor: wrong adapters are caught and named, right ones pass, whatever the seed."""

import json
import random

import numpy as np
import pytest
import torch
from torch import distributions as dist
from torch import nn

from steincritic.data.points import sample_points
from steincritic.diagnosis.doctor.doctor import doctor
from steincritic.diagnosis.doctor.identity import stein_identity
from steincritic.errors import InputError
from steincritic.models import DistributionModel, GaussianMixture, LogDensity, PairModel
from steincritic.rng import generator

N = 5_000
NORMAL = GaussianMixture([[0.0]])
Q = GaussianMixture([[0.0, 0.0], [2.0, 1.0]], [1.0, 0.5])
X = Q.sample(60, seed=9)


def found(checkup):
    """{name: status} of all that is not in order."""
    return {f.name: f.status for f in checkup.checks if f.status in ("warning", "failed")}


def detail(checkup, name):
    return next(f.detail for f in checkup.checks if f.name == name)


def pair(score, sampler=Q):
    return PairModel(score, lambda n, seed: sampler.sample(n, seed=seed))


def with_sampler(log_prob, sample):
    model = LogDensity(log_prob)
    model.sample = lambda n, *, seed=0: sample(n, seed)
    return model


# Right models.

HEALTHY = {
    "1-D": GaussianMixture([[-1.0], [1.0]]),
    "2-D": Q,
    "float32": Q.to(torch.float32),
    "pair": pair(Q.score),
    "log-density": with_sampler(Q.log_prob, lambda n, seed: Q.sample(n, seed=seed)),
    "normal": dist.Normal(torch.zeros(3), torch.ones(3)),
    "multivariate": dist.MultivariateNormal(torch.zeros(3).double(), torch.eye(3).double()),
    "kinks": dist.Laplace(torch.zeros(2), torch.ones(2)),
    "heavy tails": dist.Cauchy(0.0, 1.0),
    "skewed": dist.Gumbel(0.0, 1.0),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_right_model_passes_every_check(name):
    checkup = doctor(HEALTHY[name], n=N)
    assert checkup.ok and found(checkup) == {} and checkup.n == N


@pytest.mark.parametrize("name", ["Gamma", "Beta", "LogNormal"])
def test_a_bounded_support_whose_density_vanishes_is_at_most_doubtful(name):
    model = getattr(dist, name)(*(torch.tensor(v).double() for v in (3.0, 2.0)))
    assert doctor(DistributionModel(model), n=N).ok
    assert found(doctor(model, n=N)) == {}  # in coordinates without bounds


@pytest.mark.parametrize("x", [X, X.numpy(), X.float()])
def test_without_a_sampler_the_data_are_looked_at(x):
    checkup = doctor(LogDensity(lambda y: -0.5 * (y * y).sum(-1)), x=x)
    assert checkup.ok and found(checkup) == {} and checkup.n == 0
    skipped = {f.name for f in checkup.checks if f.status == "skipped"}
    assert "Stein's identity" in skipped and "score and log-density" not in skipped


def test_an_energy_network_in_single_precision_has_the_right_gradient():
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        energy = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
    assert found(doctor(energy, x=X.float())) == {}  # it is asked in its own precision


def test_digits_that_float32_cannot_hold_are_reported():
    checkup = doctor(GaussianMixture([[1e4 / 3, -1e4 / 3]], 1e-6), n=N)
    assert found(checkup) == {"dtypes": "warning"} and "test in float64" in detail(checkup, "dtypes")


def test_false_alarms_are_rare():
    """Stein's identity has at most 1e-3 of them: among 300, five or more have chance 2e-5."""
    alarms = 0
    for model in (NORMAL, Q, GaussianMixture([[0.0] * 5])):
        alarms += sum(
            not stein_identity(sample_points(model, 2_000, seed=s), slowness=1.0).holds for s in range(100)
        )
    assert alarms <= 4
    assert sum(found(doctor(Q, n=500, seed=s)) != {} for s in range(10)) == 0


def test_heavy_tails_are_doubtful_at_most():
    """The score of this density, 0.2/x - 1, has no variance: a mean over few draws says nothing."""
    gamma = dist.Gamma(torch.tensor(1.2).double(), torch.tensor(1.0).double())
    statuses = [found(doctor(DistributionModel(gamma), n=2_000, seed=s)) for s in range(15)]
    assert {s.get("Stein's identity", "passed") for s in statuses} == {"passed", "warning"}
    assert all("failed" not in s.values() for s in statuses)


# Wrong scores.


@pytest.mark.parametrize("model", [NORMAL, Q, GaussianMixture([[0.0] * 10])])
def test_a_score_five_per_cent_too_large_is_seen_with_the_default_draws(model):
    checkup = doctor(pair(lambda x: 1.05 * model.score(x), model))
    assert found(checkup) == {"Stein's identity": "failed"} and checkup.n == 50_000
    assert "times as large as it should be" in detail(checkup, "Stein's identity")


def test_a_wrong_sign_is_named():
    checkup = doctor(pair(lambda x: -Q.score(x)), n=N)
    assert found(checkup) == {"Stein's identity": "failed"}
    assert "its sign is wrong" in detail(checkup, "Stein's identity")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1.05, -1.0])
def test_the_log_density_tells_a_wrong_score_without_draws(factor, dtype):
    class Wrong:
        def score(self, x):
            return factor * Q.score(x)

        def log_prob(self, x):
            return Q.log_prob(x.to(dtype)).to(x.dtype)

    checkup = doctor(Wrong(), x=X)
    turned = {"sign of the score": "failed"} if factor < 0 else {}
    assert found(checkup) == {"score and log-density": "failed"} | turned
    assert "times the gradient" in detail(checkup, "score and log-density")


# Support and space.


def exponential(n, seed):
    return -torch.rand(n, 1, generator=generator(seed), dtype=torch.float64).log()


def uniform(n, seed):
    return torch.rand(n, 3, generator=generator(seed), dtype=torch.float64)


BOUNDED = {
    "exponential": PairModel(lambda x: -torch.ones_like(x), exponential),
    "uniform": PairModel(torch.zeros_like, uniform),
    "half-normal": PairModel(lambda x: -x, lambda n, seed: NORMAL.sample(n, seed=seed).abs()),
    "torch's exponential": DistributionModel(dist.Exponential(torch.tensor(2.0).double())),
    "torch's half-normal": DistributionModel(dist.HalfNormal(torch.tensor(1.0).double())),
}


WITHIN = {"uniform": {0: (0, 1), "x2": (0, 1), "x3": (0, 1)}, "half-normal": [(0, None)] * NORMAL.dim}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_missing_boundary_factor_is_caught(name):
    checkup = doctor(BOUNDED[name], n=N)
    assert found(checkup) == {"Stein's identity": "failed", "edges of the support": "failed"}
    assert "boundary term" in detail(checkup, "edges of the support")
    assert f'--bounds "x1 0 {"1" if name == "uniform" else "inf"}' in detail(checkup, "edges of the support")
    assert found(doctor(BOUNDED[name], n=N, bounds=WITHIN.get(name, [(0, None)]))) == {}


FREE = GaussianMixture([[0.2, 0.0]], 0.25)


def constrained(n, seed):
    return FREE.sample(n, seed=seed).exp()


MIXED_UP = {
    "unconstrained score, constrained draws": (FREE.score, constrained, "logarithms of the draws"),
    "constrained score, unconstrained draws": (
        lambda x: (FREE.score(x.log()) - 1) / x,
        lambda n, seed: FREE.sample(n, seed=seed),
        "exponentials of the draws",
    ),
    "derivative by log x": (lambda x: FREE.score(x.log()), constrained, "derivative by log x"),
    "no Jacobian": (lambda x: FREE.score(x.log()) / x, constrained, "without the Jacobian"),
    "logits": (FREE.score, lambda n, seed: FREE.sample(n, seed=seed).sigmoid(), "logits of the draws"),
    "one column of two": (
        FREE.score,
        lambda n, seed: torch.cat([FREE.sample(n, seed=seed)[:, :1], constrained(n, seed)[:, 1:]], 1),
        "Of x_2, the score fits the logarithms",
    ),
}


@pytest.mark.parametrize("name", MIXED_UP)
def test_spaces_that_are_mixed_up_are_named(name):
    score, sample, words = MIXED_UP[name]
    checkup = doctor(PairModel(score, sample), n=N)
    assert found(checkup)["one space"] == "failed" and words in detail(checkup, "one space")


def test_data_that_stop_are_seen_without_a_sampler():
    checkup = doctor(PairModel(BOUNDED["exponential"].score), x=exponential(300, 1))
    assert '--bounds "x1 0 inf"' in detail(checkup, "edges of the support")


def test_a_simplex_is_a_plane():
    checkup = doctor(DistributionModel(dist.Dirichlet(torch.full((3,), 3.0))), n=N)
    assert "leave one column out" in detail(checkup, "edges of the support")


@pytest.mark.parametrize(
    ("column", "status"), [(X[:, 1].round(), "warning"), ((X[:, 1] > 0) + 0.5, "warning")]
)
def test_discrete_columns_are_named(column, status):
    x = torch.stack([X[:, 0], column], 1)
    checkup = doctor(Q, x=x, n=500)
    assert found(checkup).get("continuous columns") == status


def test_data_outside_the_support_are_reported():
    checkup = doctor(LogDensity(lambda x: x.log().sum(-1) - x.sum(-1)), x=X)
    assert found(checkup)["finite values"] == "failed" and "of 60 rows of x" in detail(
        checkup, "finite values"
    )


# Dtypes, rows, errors.


def test_single_precision_for_double_is_caught():
    checkup = doctor(pair(lambda x: Q.score(x).float()), n=N)
    assert found(checkup) == {"dtypes": "failed"} and "float32 score" in detail(checkup, "dtypes")


def test_double_for_single_is_a_doubt():
    assert found(doctor(pair(lambda x: Q.score(x).double()), n=N)) == {"dtypes": "warning"}


def network(*layers):
    return nn.Sequential(nn.Linear(2, 16), *layers, nn.Linear(16, 1)).double()


ROWS = {
    "dropout": (network(nn.Dropout(0.5)), "from one call to the next"),
    "layers over the batch": (lambda x: -((x - x.mean(0)) ** 2).sum(-1), "with the rows beside it"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_one_score(name):
    model, words = ROWS[name]
    checkup = doctor(model, x=X)
    assert found(checkup)["rows by themselves"] == "failed"
    assert words in detail(checkup, "rows by themselves")


def test_a_score_that_changes_its_argument_is_caught():
    assert found(doctor(pair(lambda x: x.neg_(), GaussianMixture([[0.0, 0.0]])), n=N)) == {
        "rows by themselves": "failed"
    }


def away(*_):
    raise OSError("the server is away\nsecond line")


@pytest.mark.parametrize(
    ("model", "name", "words"),
    [
        (pair(away), "shape", "raised OSError: the server is away."),
        (PairModel(Q.score, away), "seeded sampling", "raised OSError: the server is away."),
        (pair(lambda x: x[:, :1]), "shape", "got (48, 1)"),
        (PairModel(Q.score, lambda n, seed: torch.zeros(2, n)), "seeded sampling", "must return shape"),
        (LogDensity(lambda x: torch.zeros(len(x)), dim=2), "shape", "does not depend on x"),
    ],
)
def test_what_the_model_raises_is_a_finding(model, name, words):
    checkup = doctor(model, None if hasattr(model, "sample") else X, n=500)
    assert found(checkup) == {name: "failed"} and words in detail(checkup, name)


def test_a_broken_sampler_leaves_the_checks_on_data():
    checkup = doctor(PairModel(Q.score, away), x=X)
    assert found(checkup) == {"seeded sampling": "failed"} and len(checkup.checks) > 8


def test_what_the_caller_got_wrong_is_raised():
    with pytest.raises(InputError, match="no points to look at: pass x"):
        doctor(LogDensity(Q.log_prob))
    with pytest.raises(InputError, match="2 dimensions"):
        doctor(Q, x=X[:, :1])
    with pytest.raises(InputError, match="n must be a whole number of at least 500"):
        doctor(Q, n=10)


# Samplers.


def unseeded(n, seed):
    return torch.as_tensor(np.random.standard_normal((n, 2)))


def stored(n, seed):
    rows = torch.randint(0, 500, (n,), generator=generator(seed))
    return GaussianMixture([[0.0, 0.0]]).sample(500)[rows]


def always_the_same(n, seed):
    return GaussianMixture([[0.0, 0.0]]).sample(n, seed=3)


@pytest.mark.parametrize(
    ("sample", "status"), [(unseeded, "failed"), (always_the_same, "failed"), (stored, "warning")]
)
def test_the_seed_alone_decides(sample, status):
    assert found(doctor(PairModel(lambda x: -x, sample), n=N))["seeded sampling"] == status


def test_global_generators_are_left_as_they_were():
    before = np.random.get_state()[1].copy(), random.getstate()
    doctor(PairModel(lambda x: -x, unseeded), n=500)
    assert np.array_equal(np.random.get_state()[1], before[0]) and random.getstate() == before[1]


def chain(n, seed):
    """An autoregression of correlation 0.9: one draw in 19 counts."""
    noise = torch.randn(n, 1, generator=generator(seed), dtype=torch.float64)
    x = noise.clone()
    for i in range(1, n):
        x[i] = 0.9 * x[i - 1] + 0.19**0.5 * noise[i]
    return x


def test_a_slow_chain_is_reported_and_its_identity_is_judged_by_what_it_is_worth():
    checkup = doctor(PairModel(lambda x: -x, chain), n=N)
    assert found(checkup) == {"independent draws": "warning"}
    worth = int(detail(checkup, "independent draws").split("worth ")[1].split()[0])
    assert 0.5 * N / 19 < worth < 2 * N / 19


def test_repeated_draws_are_reported():
    def repeating(n, seed):
        return Q.sample(n, seed=seed)[torch.randint(0, n, (n,), generator=generator(seed, "again"))]

    assert "repeat another one" in detail(doctor(PairModel(Q.score, repeating), n=N), "independent draws")


# The result.


def test_the_result_is_plain_and_repeatable():
    checkup = doctor(pair(lambda x: -Q.score(x)), n=500, seed=4)
    assert checkup == doctor(pair(lambda x: -Q.score(x)), n=500, seed=4)
    plain = checkup.to_dict()
    assert json.loads(json.dumps(plain)) == plain and plain["ok"] is False and plain["seed"] == 4
    first, *rest = checkup.summary().splitlines()
    assert first.startswith("The adapter cannot be trusted yet: 1 failed")
    assert rest[0].startswith("Stein's identity (failed): Score and sampler disagree")


def test_weights_of_separate_modes_are_said_to_be_unseen():
    far = GaussianMixture([[0.0, 0.0], [9.0, 0.0]])
    assert "weights of the 2 separate modes" in detail(doctor(far, n=N), "Stein's identity")
    alone = doctor(PairModel(far.score), far.sample(300, seed=1))
    assert "Give the model a sampler" in detail(alone, "Stein's identity")
    assert "separate" not in detail(doctor(Q, n=N), "Stein's identity")


def test_a_normalized_net_in_single_precision_has_no_wrong_score():
    """Its log-density, less a constant in double precision, is still rounded as a float32 is."""
    first, second = (torch.randn(*shape, generator=generator(0)) for shape in ((2, 64), (64, 1)))

    def log_density(x):
        y = x.float()
        return (((y @ first).tanh() @ second)[..., 0] - y.square().sum(-1)).to(x)

    model = LogDensity(lambda x: log_density(x) - 1 / 3, dim=2)
    x = GaussianMixture(torch.zeros(1, 2), 0.5).sample(500, seed=1)
    status = {check.name: check.status for check in doctor(model, x=x).checks}
    assert status["score and log-density"] == "passed"


def test_an_energy_with_its_sign_turned_fails_beside_data():
    x = GaussianMixture(torch.zeros(1, 2)).sample(300, seed=1)
    turned = doctor(LogDensity(lambda y: 0.5 * y.square().sum(-1)), x=x)
    assert found(turned)["sign of the score"] == "failed"
    assert "Is its sign turned" in detail(turned, "sign of the score")
    assert "sign of the score" not in found(doctor(LogDensity(lambda y: -0.5 * y.square().sum(-1)), x=x))
