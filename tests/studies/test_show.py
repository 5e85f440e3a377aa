"""What studies of rates share: parts that are added up, tables spread out, rates marked as they should be."""

from dataclasses import dataclass

import pytest
import torch

from steincritic.gof.power import Rate
from studies.cells import Cell, Plan, counted, joined, rates
from studies.record import hardware
from studies.show import band, high, pivot, rate_bound, shown
from studies.study import Context


def test_parts_are_added_up_alone_and_by_name():
    rows = [
        {"n": 5, "runs": 10, "rejections": {"a": 1, "b": 2}, "power": 0.1},
        {"n": 7, "runs": 1, "rejections": {"a": 1}, "power": 0.2},
        {"n": 5, "runs": 30, "rejections": {"a": 2}, "power": 0.3},
    ]
    assert joined(rows, by=("n",)) == [
        {"n": 5, "runs": 40, "rejections": {"a": 3, "b": 2}, "power": 0.3},
        rows[1],
    ]


def test_a_table_has_a_line_a_value_and_a_gap_where_nothing_was_measured():
    rows = [{"m": "a", "n": 1, "v": 3}, {"m": "b", "n": 2, "v": 4}, {"m": "a", "n": 2, "v": 5}]
    table = pivot(rows, {"method": "m"}, "n", lambda row: str(row["v"]), title="n = {}".format)
    assert table == "| method | n = 1 | n = 2 |\n| --- | --- | --- |\n| a | 3 | 5 |\n| b | – | 4 |"


def test_rates_are_bold_where_an_exact_test_would_lie_below():
    assert shown(Rate(5, 100)) == "0.05 [0.02, 0.11]"
    least = int(rate_bound(0.05, 1000) * 1000)
    assert high(Rate(least, 1000)) == f"{least / 1000:.3f} (1000)"
    assert high(Rate(least + 1, 1000)).startswith("**")
    assert not high(Rate(least + 1, 1000), is_null=False).startswith("**")


@pytest.mark.parametrize("tests", [200, 2000])
def test_shared_null_sets_widen_the_band(tests):
    alone, shared = band(tests), band(tests, 400)
    assert shared[0] < alone[0] < 0.05 < alone[1] < shared[1]
    assert rate_bound(0.05, tests, 400) > rate_bound(0.05, tests)


@dataclass(frozen=True, kw_only=True)
class Toy(Plan):
    def cells(self):
        return [Cell(problem=name, runs=2, part=part, gpu=name == "b") for name in "ab" for part in (0, 1)]


@counted
def count(cell):
    device = torch.device(cell.device)
    return [{"problem": cell.problem, "runs": cell.runs, "seed": cell.seed, "on": device.type}]


def test_cells_know_seed_and_device_of_the_run(tmp_path):
    context = Context(device=torch.device("meta"), seed=3, jobs=tmp_path)
    rows = rates(count, by=("problem",))(Toy(), context).results["rows"]
    assert [(row["problem"], row["runs"], row["seed"], row["on"]) for row in rows] == [
        ("a", 4, 3, "cpu"),
        ("b", 4, 3, "meta"),
    ]
    assert {row["device"] for row in rows} == {hardware("cpu")} and all(row["seconds"] >= 0 for row in rows)
