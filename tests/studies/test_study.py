"""Every study: a tiny run leaves what its committed record holds; table and figures come from the record."""

from pathlib import Path

import pytest
import torch

from steincritic.errors import InputError
from studies import NAMES, load_study
from studies.paper.mixtures import Job
from studies.paper.published import GM_2D, GM_10D, GM_25D
from studies.record import Record
from studies.study import Context

RESULTS = Path(__file__).parents[2] / "results"
WAITING = {"regularization"}  # studies whose full run is still to be made
RECORDED = [name for name in NAMES if name not in WAITING]


@pytest.fixture(autouse=True)
def _cache_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tiny_record(name, folder, *, seed=0, **options):
    """The record of a tiny run, as it comes back from its file."""
    context = Context(device=torch.device("cpu"), seed=seed, jobs=folder / "jobs", **options)
    load_study(name).record(context, tiny=True).save(folder / "record.json")
    return Record.load(folder / "record.json")


def committed(name):
    return Record.load(RESULTS / name / "record.json")


def without_seconds(value):
    """Results less what the clock says."""
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k != "seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def tables_of(text):
    """Rows of cells of each table, less header and rule."""
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    return [[line.strip("|").split("|") for line in block] for block in blocks]


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_run_leaves_its_record_and_all_that_is_shown_comes_from_it(name, tmp_path):
    study, record = load_study(name), tiny_record(name, tmp_path)
    assert study.name == record.name == name and record.command == f"python -m studies {name} --tiny"
    assert name in WAITING or set(record.results) == set(committed(name).results)
    assert set(record.config) == {"type", *vars(study.tiny)} and {*vars(study.tiny)} == {*vars(study.full)}
    assert record.seconds and all(value >= 0 for value in record.seconds.values())
    table, *figures = study.show(record, tmp_path / "shown")
    text = table.read_text()
    assert f"`{record.command}` (seed 0)" in text
    tables = tables_of(text)
    assert tables and all(len(rows) > 2 and len({len(cells) for cells in rows}) == 1 for rows in tables)
    assert "None" not in text and "nan" not in text
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures)


@pytest.mark.parametrize("name", ["gm-1d", "tolerance"])
def test_the_seed_decides_all_results(name, tmp_path):
    results = [
        without_seconds(tiny_record(name, tmp_path / str(k), seed=seed).results)
        for k, seed in enumerate((0, 0, 1))
    ]
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize("name", RECORDED)
def test_the_committed_table_is_drawn_from_the_committed_record(name):
    record = committed(name)
    assert record.name == name and record.command == f"python -m studies {name}"
    assert load_study(name).table(record) == (RESULTS / name / "table.md").read_text()


def test_every_record_has_its_study():
    assert {path.parent.name for path in RESULTS.glob("*/record.json")} == set(RECORDED)


def test_the_record_of_another_study_is_refused(tmp_path):
    committed("gm-1d").save(tmp_path / "record.json")
    with pytest.raises(InputError, match="is a record of 'gm-1d', not of 'gm-2d'"):
        load_study("gm-2d").reproduce(tmp_path, None)


def test_a_table_is_made_scheme_by_scheme_and_goes_on_where_it_was(tmp_path, monkeypatch):
    first = tiny_record("gm-10d", tmp_path)
    monkeypatch.setattr("studies.paper.mixtures.fit_bank", None)  # nothing is trained again
    again = tiny_record("gm-10d", tmp_path)
    assert again.results == first.results and again.seconds == first.seconds
    assert "total" not in first.seconds  # which would be that of whoever gathers
    for row in first.results["rows"]:
        ways = [power for rule in row["rules"].values() for power in rule["power"].values()]
        assert len(ways) == 4 and all(0 <= power["mean"] <= 1 for power in ways)
        assert len({*row["rules"]["common epoch"]["epoch"]["values"]}) == 1
        assert all(len(curve["mean"]) == 4 for curve in row["curves"].values())


def test_seconds_and_hardware_are_those_of_the_jobs(tmp_path, monkeypatch):
    first = tiny_record("splits", tmp_path)
    monkeypatch.setattr("studies.record.hardware", lambda device: "another machine")
    again = tiny_record("splits", tmp_path)
    assert again.environment["device"] == first.environment["device"] != "another machine"
    assert again.seconds == first.seconds


def test_a_kept_job_knows_its_device():
    jobs = {
        repr(Job(config=load_study("gm-2d").tiny, scheme="1e-3", seed=0, device=d)) for d in ("cpu", "cuda")
    }
    assert len(jobs) == 2


@pytest.mark.parametrize(
    ("study", "published", "scheme", "power", "epoch", "mse_q"),
    [
        ("gm-2d", GM_2D, "1e-1", 0.825, 30, 0.021),
        ("gm-10d", GM_10D, "staged 0.80", 0.928, 50, 0.088),
        ("gm-25d", GM_25D, "staged 0.85", 1.000, 50, 0.190),
    ],
)
def test_published_numbers_are_those_of_the_papers_tables(study, published, scheme, power, epoch, mse_q):
    row = published[scheme]
    assert (row.power, row.epoch, row.mse_q) == (power, epoch, mse_q)
    config = load_study(study)
    assert set(config.tiny.schemes) < set(config.full.schemes) == set(published)
