"""What the library and its commands gave, for fixed seeds, before the house was rebuilt; how to ask again.

`golden.json` was written by the code before tests became values. `python tests/golden/cases.py` prints the
answers of the present code in the same form; a difference is a defect, or is listed in CHANGELOG.md.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

import steincritic as sc
from steincritic.data import problem

PAIR = problem("gm-2d")
Q = PAIR.model
X, OWN = PAIR.data.sample(120, seed=3), Q.sample(120, seed=4)
FIVE = sc.models.GaussianMixture([[0.0] * 5])
Y = FIVE.sample(60, seed=1) * 1.2
FOREIGN = torch.cat(
    [
        FIVE.sample(270, seed=5),
        FIVE.sample(30, seed=6) * 0.2 + torch.tensor([4.0, 4.0, 0.0, 0.0, 0.0]),
    ]
)
SHORT = sc.Training(epochs=10)
CROSSFIT = sc.CrossFit(draws=19, training=SHORT, look=2, cache=False)
EARLY = sc.CrossFit(draws=19, training=SHORT, look=2, cache=False, stop_early=3)
NO_SAMPLER = (Q.score, None)


def split(**settings):
    return sc.Split(training=SHORT, draws=99, **settings)


TESTS = {
    "crossfit": lambda: sc.gof_test(Q, X, CROSSFIT, seed=1),
    "crossfit 5-D": lambda: sc.gof_test(FIVE, Y, CROSSFIT, seed=2),
    "crossfit early stop": lambda: sc.gof_test(Q, OWN, EARLY, seed=1),
    "crossfit null data level .1": lambda: sc.gof_test(Q, OWN, CROSSFIT, seed=5, level=0.1),
    "automatic": lambda: sc.gof_test(FIVE, Y[:40], CROSSFIT, seed=3),
    "automatic, few points": lambda: sc.gof_test(FIVE, Y[:12], seed=3),
    "automatic, no sampler": lambda: sc.gof_test(NO_SAMPLER, X, seed=3),
    "automatic, no sampler, few points": lambda: sc.gof_test(NO_SAMPLER, X[:30], seed=3),
    "automatic, scored points": lambda: sc.gof_test(None, sc.ScoredPoints(X, Q.score(X)), seed=3),
    "split, default": lambda: sc.gof_test(Q, X, "split", seed=1),
    **{
        f"split, {threshold}": lambda threshold=threshold: sc.gof_test(
            Q, X, split(threshold=threshold), seed=2
        )
        for threshold in ("fresh", "permutation", "pooled", "bootstrap-t", "z")
    },
    "split, share .3, raw units": lambda: sc.gof_test(Q, X, split(train=0.3, standardize=False), seed=2),
    "split, paced, 9000 points": lambda: sc.gof_test(Q, Q.sample(9000, seed=9), "split", seed=2),
    "ksd": lambda: sc.gof_test(Q, X, "ksd", seed=1),
    "ksd, fresh, u, imq": lambda: sc.gof_test(
        Q, X, sc.Ksd(kernel=sc.IMQ(), statistic="u", threshold="fresh", draws=99), seed=1
    ),
    "ksd, flip": lambda: sc.gof_test(Q, X, sc.Ksd(flip=0.2, draws=99), seed=1),
    "ksdagg": lambda: sc.gof_test(Q, X, "ksdagg", seed=1),
    "ksdagg, fresh": lambda: sc.gof_test(FIVE, Y, sc.KsdAgg(threshold="fresh", draws=99), seed=1),
    "fssd": lambda: sc.gof_test(Q, X, "fssd", seed=1),
    "fssd, random, fresh": lambda: sc.gof_test(
        Q, X, sc.Fssd(choice="random", threshold="fresh", draws=99), seed=1
    ),
}


def tested(result):
    return {
        "statistic": result.statistic,
        "pvalue": result.pvalue,
        "rejected": result.rejected,
        "exact": result.exact,
        "n": result.n,
        "null": result.null_distribution[:5].tolist(),
        "threshold": result.threshold,
        "method": result.test,
    }


def checked(result):
    return {
        "pvalue": result.test.pvalue,
        "lower": result.fisher_lower_bound,
        "estimate": result.fisher.estimate,
        "flagged": result.points.flagged.tolist(),
        "witness": result.points.witness[:5].tolist(),
        "coordinates": [[c.name, c.z, c.pvalue, c.share] for c in result.coordinates],
        "regions": [[r.rule, r.kind, r.count, r.expected, r.pvalue] for r in result.regions],
        "missing": None if result.missing is None else len(result.missing),
    }


def chains():
    x, source = torch.zeros(2, 300, 2, dtype=torch.float64), torch.Generator().manual_seed(0)
    for k in range(1, 300):
        noise = torch.randn(2, 2, generator=source, dtype=torch.float64)
        x[:, k] = 0.6 * x[:, k - 1] + 0.8 * noise
    return x


def check_draws():
    result = sc.check_draws(sc.models.GaussianMixture([[0.0, 0.0]]), chains(), names=["mu", "log tau"])
    return checked(result) | {"mixing": result.test.settings["mixing"]}


def compare():
    models = [sc.models.GaussianMixture([[0.1, 0.0]]), sc.models.GaussianMixture([[1.0, 0.0]]), Q]
    training = sc.Training(epochs=10, selection="monitor")
    result = sc.compare(models, OWN, test="ksd", training=training, seed=2, units="raw")
    return {
        "ranking": [list(group) for group in result.ranking],
        "estimates": result.estimates.tolist(),
        "lower": result.lower_bounds.tolist(),
        "differences": result.differences.tolist(),
        "critical": result.critical,
        "pvalues": list(result.pvalues),
    }


def critic():
    fitted = sc.fit_critic(Q, X, training=SHORT, seed=3)
    return {
        "witness": fitted.witness(X)[:5].tolist(),
        "field": fitted.field(X)[:2].tolist(),
        "loss": fitted.history["loss"][-1].item(),
    }


def watched():
    states = list(sc.watch(FIVE, [FIVE.sample(60, seed=k) + 0.4 for k in range(4)], seed=1))
    return {
        "log_wealth": [state.log_wealth for state in states],
        "rejected_at": states[-1].rejected_at,
        "pvalue": states[-1].pvalue,
    }


def watched_truncated():
    test = sc.Sequential(bets="truncated", training=SHORT)
    states = sc.watch(FIVE, [FIVE.sample(60, seed=k) for k in range(3)], seed=1, test=test)
    return {"log_wealth": [state.log_wealth for state in states]}


def doctored(model):
    words = {"passed": "ok", "warning": "doubtful"}  # as they were called
    found = sc.doctor(model, n=5000, seed=1).checks
    return {"checks": [[f.name, words.get(f.status, f.status)] for f in found]}


def too_large():
    return sc.models.PairModel(lambda z: 1.1 * Q.score(z), lambda n, seed: Q.sample(n, seed=seed))


def energy():
    learning = sc.Learning(steps=30, critic_steps=2)
    fitted = sc.fit_energy(sc.EnergyMLP(hidden=(16, 16)), Q.sample(300, seed=1), learning=learning, seed=1)
    return {"score": fitted.model.score(X[:3]).tolist()}


def discrepancies():
    points = sc.ScoredPoints(X, Q.score(X))
    return {
        "v": float(sc.ksd(points, kernel=sc.RBF(bandwidth=1.0), statistic="v")),
        "u": float(sc.ksd(points, kernel=sc.IMQ(), statistic="u")),
    }


def staged():
    training = sc.Training(epochs=8, selection="monitor")
    fitted = sc.fit_critic(Q, X, training=training, staging="auto", seed=3)
    return {"witness": fitted.witness(X)[:5].tolist()}


CASES = {
    **{name: lambda make=make: tested(make()) for name, make in TESTS.items()},
    "ksd number": discrepancies,
    "power, ksd": lambda: {"pvalues": sc.power(Q, PAIR.data, 50, "ksd", trials=10, seed=4).pvalues.tolist()},
    "power, ksdagg": lambda: {
        "pvalues": sc.power(Q, PAIR.data, 50, "ksdagg", trials=4, seed=4).pvalues.tolist()
    },
    "power, fssd": lambda: {"pvalues": sc.power(Q, PAIR.data, 50, "fssd", trials=4, seed=4).pvalues.tolist()},
    "calibrate, ksd": lambda: {"pvalues": sc.calibrate(Q, 40, "ksd", runs=10, seed=4).pvalues.tolist()},
    "critic": critic,
    "critic, auto staging, monitor": staged,
    "check": lambda: checked(sc.check(FIVE, FOREIGN, test="ksd", seed=1, units="raw")),
    "check, no sampler": lambda: checked(
        sc.check((FIVE.score, None), FOREIGN, test="ksd", seed=1, units="raw")
    ),
    "check, not rejected": lambda: checked(sc.check(Q, OWN, test="ksd", seed=1, units="raw")),
    "check draws": check_draws,
    "compare": compare,
    "doctor": lambda: doctored(Q),
    "doctor, score too large": lambda: doctored(too_large()),
    "watch": watched,
    "watch, truncated": watched_truncated,
    "fit energy": energy,
}


def files(folder: Path) -> None:
    """What the commands are run on."""
    np.save(folder / "x.npy", X.numpy())
    np.save(folder / "x0.npy", OWN.numpy())
    np.save(folder / "few.npy", X[:12].numpy())
    np.save(folder / "big.npy", Q.sample(9000, seed=9)[:1000].numpy())
    np.savetxt(folder / "s.csv", (X + 1).numpy(), delimiter=",")
    (folder / "bad.csv").write_text("a,b\n1.0,2.0\nx,3\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    json.dump({name: case() for name, case in CASES.items()}, sys.stdout, indent=1)
