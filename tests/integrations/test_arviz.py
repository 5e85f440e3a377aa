"""Results as groups of ArviZ, and draws of ArviZ as they come."""

import sys

import numpy as np
import pytest
import torch

import steincritic as sc
from steincritic.integrations import to_arviz

Q = sc.models.GaussianMixture([[0.0, 0.0]])


def chains(slow):
    """Four chains of 300 draws; slow ones are autoregressions with the same law."""
    noise = Q.sample(4 * 300, seed=1).view(4, 300, 2)
    x, rho = noise.clone(), 0.9 if slow else 0.0
    for t in range(1, 300):
        x[:, t] = rho * x[:, t - 1] + (1 - rho**2) ** 0.5 * noise[:, t]
    return x


@pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")
@pytest.mark.parametrize("slow", [False, True])
def test_the_witness_stands_beside_chain_and_draw(slow):
    pytest.importorskip("xarray")
    x = chains(slow)
    result = sc.check_draws(Q, x)
    group = to_arviz(result)["steincritic"].to_dataset()
    assert group.sizes["chain"] == 4 and (group.sizes["draw"] < 300) == slow
    chosen = group.draw.values.tolist()
    np.testing.assert_array_equal(x[:, chosen].flatten(0, 1), result.data.x)  # the very draws
    np.testing.assert_array_equal(group.witness.values.ravel(), result.points.witness)
    assert group.attrs["rejected"] == 0 and group.attrs["verdict"] == result.test.verdict


def test_thinned_draws_keep_their_numbers():
    pytest.importorskip("xarray")
    x = chains(False)
    result = sc.check_draws(Q, x, thin=7, test="ksd")
    group = to_arviz(result)["steincritic"].to_dataset()
    assert group.draw.values.tolist() == list(range(0, 300, 7))
    np.testing.assert_array_equal(x[:, ::7].flatten(0, 1), result.data.x)


def test_rows_of_a_check_are_one_chain():
    pytest.importorskip("xarray")
    result = sc.check(Q, Q.sample(60, seed=1) + 1.0, test="ksd")
    group = to_arviz(result)["steincritic"].to_dataset()
    assert group.witness.shape == group.pvalue.shape == (1, 60) and group.attrs["rejected"] == 1
    assert group.attrs["findings"].splitlines() == list(result.findings)


@pytest.mark.filterwarnings("ignore")  # ArviZ's own
def test_inference_data_and_trees_are_taken_and_given(tmp_path):
    xarray = pytest.importorskip("xarray")
    draws = {"mu": chains(False)[..., 0].numpy(), "tau": chains(False)[..., 1].exp().numpy()}
    posterior = xarray.Dataset({name: (("chain", "draw"), values) for name, values in draws.items()})
    given = [xarray.DataTree.from_dict({"posterior": posterior})]
    arviz = pytest.importorskip("arviz")
    if hasattr(arviz, "InferenceData"):
        given.append(arviz.InferenceData(posterior=posterior))
    for data in given:
        result = sc.check_draws(Q, data, names=["mu", "log tau"])
        joined = to_arviz(result, data)
        assert type(joined) is type(data) and joined.steincritic.witness.shape == (4, 300)
        assert set(joined.posterior.data_vars) == {"mu", "tau"} and not hasattr(data, "steincritic")
        assert sc.check_draws(Q, joined, names=["mu", "log tau"]).test.pvalue == result.test.pvalue


def test_what_cannot_take_a_group_is_refused(monkeypatch):
    result = sc.check(Q, Q.sample(60, seed=1), test="ksd")
    if "xarray" in sys.modules:
        with pytest.raises(sc.InputError, match="onto must be an InferenceData or a DataTree, got list"):
            to_arviz(result, [torch.zeros(2)])
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(sc.InputError, match="pip install arviz"):
        to_arviz(result)
