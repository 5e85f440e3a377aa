"""Numbers for fixed seeds still come out, to 1e-6: a drift that no law would notice.

`python tests/test_golden.py` prints the answers of the present code in the form of golden.json. A difference
is a defect, or is listed in CHANGELOG.md.
"""

import json
import math
import sys
import warnings
from pathlib import Path

import pytest
import torch

import steincritic as sc
from steincritic.data import problem

PAIR = problem("gm-2d")
Q, X = PAIR.model, PAIR.data.sample(120, seed=3)
FIVE = sc.models.GaussianMixture([[0.0] * 5])
FOREIGN = torch.cat(
    [
        FIVE.sample(270, seed=5),
        FIVE.sample(30, seed=6) * 0.2 + torch.tensor([4.0, 4.0, 0.0, 0.0, 0.0]),
    ]
)
SHORT = sc.Training(epochs=10)
CROSSFIT = sc.CrossFit(draws=19, training=SHORT, look=2, cache=False)


def split(threshold):
    return sc.Split(training=SHORT, draws=99, threshold=threshold)


TESTS = {
    "combined": lambda: sc.gof_test(Q, X, sc.Combined(draws=99, cache=False), seed=1),
    "combined, no sampler": lambda: sc.gof_test((Q.score, None), X, seed=3),
    "crossfit": lambda: sc.gof_test(Q, X, CROSSFIT, seed=1),
    "split, default": lambda: sc.gof_test(Q, X, "split", seed=1),
    "split, paced, 9000 points": lambda: sc.gof_test(Q, Q.sample(9000, seed=9), "split", seed=2),
    "split, permutation": lambda: sc.gof_test(Q, X, split("permutation"), seed=2),
    "split, pooled": lambda: sc.gof_test(Q, X, split("pooled"), seed=2),
    "split, bootstrap-t": lambda: sc.gof_test(Q, X, split("bootstrap-t"), seed=2),
    "ksd, flip": lambda: sc.gof_test(Q, X, sc.Ksd(flip=0.2, draws=99), seed=1),
    "ksdagg": lambda: sc.gof_test(Q, X, "ksdagg", seed=1),
}


def of_test(result):
    return {
        "statistic": result.statistic,
        "pvalue": result.pvalue,
        "null": result.null_distribution[:5].tolist(),
        "threshold": result.threshold,
    }


def of_check(result):
    return {
        "pvalue": result.test.pvalue,
        "flagged": result.points.flagged.tolist(),
        "witness": result.points.witness[:5].tolist(),
        "coordinates": [[c.name, c.z, c.pvalue, c.share] for c in result.coordinates],
        "regions": [[r.rule, r.kind, r.count, r.expected, r.pvalue] for r in result.regions],
    }


def chains():
    x, source = torch.zeros(2, 300, 2, dtype=torch.float64), torch.Generator().manual_seed(0)
    for k in range(1, 300):
        noise = torch.randn(2, 2, generator=source, dtype=torch.float64)
        x[:, k] = 0.6 * x[:, k - 1] + 0.8 * noise
    return x


def draws_checked():
    result = sc.check_draws(sc.models.GaussianMixture([[0.0, 0.0]]), chains(), names=["mu", "log tau"])
    return of_check(result) | {"mixing": result.test.settings["mixing"]}


def critic():
    fitted = sc.fit_critic(Q, X, training=SHORT, seed=3)
    return {
        "witness": fitted.witness(X)[:5].tolist(),
        "field": fitted.field(X)[:2].tolist(),
        "loss": fitted.history["loss"][-1].item(),
    }


def watched():
    states = list(sc.watch(FIVE, [FIVE.sample(60, seed=k) + 0.4 for k in range(4)], seed=1))
    return {"log_wealth": [state.log_wealth for state in states], "rejected_at": states[-1].rejected_at}


CASES = {
    **{name: lambda make=make: of_test(make()) for name, make in TESTS.items()},
    "calibrate, ksd": lambda: {"pvalues": sc.calibrate(Q, 40, "ksd", runs=10, seed=4).pvalues.tolist()},
    "critic": critic,
    "check": lambda: of_check(sc.check(FIVE, FOREIGN, test="ksd", seed=1)),
    "check, no sampler": lambda: of_check(sc.check((FIVE.score, None), FOREIGN, test="ksd", seed=1)),
    "check draws": draws_checked,
    "watch": watched,
}
SHIPPED = Path(__file__).parent / "golden.json"


def assert_same(now, before, where=""):
    if isinstance(before, dict):
        for key, value in before.items():
            assert_same(now[key], value, f"{where}/{key}")
    elif isinstance(before, list):
        assert len(now) == len(before), where
        for k, value in enumerate(before):
            assert_same(now[k], value, f"{where}[{k}]")
    elif isinstance(before, float):  # rounding through training: of a number, or of a sum that cancels
        assert math.isclose(now, before, rel_tol=1e-6, abs_tol=2e-6), f"{where}: {now} for {before}"
    else:
        assert now == before, f"{where}: {now} for {before}"


@pytest.mark.filterwarnings("ignore::steincritic.DoubtfulWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_library_gives_the_numbers_it_gave(name):
    assert_same(CASES[name](), json.loads(SHIPPED.read_text())[name], name)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    json.dump({name: case() for name, case in CASES.items()}, sys.stdout, indent=1)
