"""The 1-D mixture: raw statistics in both roles beside the published one, seconds of the bootstrap."""

from dataclasses import replace

import pytest
import torch

from studies.paper.one_dimension import CODE, STUDY, TEXT, run
from studies.study import Context


@pytest.fixture(scope="module")
def results():
    short = replace(STUDY.tiny.training, epochs=60, learning_rate=1e-2)
    config = replace(STUDY.tiny, trained=1000, training=short, tested_epochs=(30,), statistics=500)
    return run(config, Context(device=torch.device("cpu"))).results


def test_the_scaled_statistic_is_the_raw_one_times_lambda(results):
    for row in results["statistics"]:
        assert row["scaled_mean"] == pytest.approx(row["lam"] * row["mean"]["data"], rel=1e-5)  # float32
        assert row["critic"] == pytest.approx(row["scaleless"] / row["lam"], rel=1e-5)


def test_each_role_has_its_own_critic_and_power(results):
    text, code = results["statistics"]
    assert (text["roles"], code["roles"]) == (TEXT, CODE)
    # the optimum changes its sign with the roles, and trained critics are on its side
    (left, right) = (torch.as_tensor(row["scaleless"]) for row in (text, code))
    gap = torch.as_tensor(results["optimal"])
    assert float((left * gap).mean()) > 0 > float((right * gap).mean())
    for row in (text, code):
        assert row["mean"]["data"] > row["quantile95"]["model, fresh"]
        assert all(abs(row["mean"][name]) < row["mean"]["data"] / 2 for name in row["quantile95"])
        assert all(power > 0.05 for power in row["power"].values())


def test_seconds_of_both_bootstraps_are_kept(results):
    assert [row["dim"] for row in results["speed"]] == [1, 50]
    assert all(value > 0 for row in results["speed"] for value in row["seconds"].values())
