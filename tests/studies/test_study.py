"""Every study: a tiny run leaves what its committed record holds; table and figures come from the record."""

from pathlib import Path

import pytest
import torch

from steincritic.errors import InputError
from studies import NAMES, load_study
from studies.paper.published import GM_2D, GM_10D, GM_25D
from studies.record import Record
from studies.study import Context

RESULTS = Path(__file__).parents[2] / "results"


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
    assert set(record.results) == set(committed(name).results)
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


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_table_is_drawn_from_the_committed_record(name):
    record = committed(name)
    assert record.name == name and record.command == f"python -m studies {name}"
    assert load_study(name).table(record) == (RESULTS / name / "table.md").read_text()


def test_every_record_has_its_study():
    assert {path.parent.name for path in RESULTS.glob("*/record.json")} == set(NAMES)


def test_the_record_of_another_study_is_refused(tmp_path):
    committed("gm-1d").save(tmp_path / "record.json")
    with pytest.raises(InputError, match="is a record of 'gm-1d', not of 'gm-2d'"):
        load_study("gm-2d").reproduce(tmp_path, None)


def test_training_is_watched_and_resumed(tmp_path):
    epochs, tiny = [], load_study("gm-10d").tiny
    last = tiny.training.epochs
    options = {
        "checkpoint": tmp_path / "critics.safetensors",
        "callbacks": [lambda epoch, of, row: epochs.append(epoch)],
    }
    first = tiny_record("gm-10d", tmp_path, **options)
    assert epochs == list(range(last))
    assert tiny_record("gm-10d", tmp_path, **options).results == first.results
    assert 0 not in epochs[last:]  # the first epoch was not trained again
    for row in first.results["rows"]:
        for key in ("power_exact", "power_stochastic"):
            assert len(row[key]["values"]) == tiny.replicas and 0 <= row[key]["mean"] <= 1
        assert all(len(curve["mean"]) == last for curve in row["curves"].values())


@pytest.mark.parametrize(
    ("study", "published", "scheme", "power", "mse_q"),
    [
        ("gm-2d", GM_2D, "1e-1", 0.825, 0.021),
        ("gm-10d", GM_10D, "staged 0.80", 0.928, 0.088),
        ("gm-25d", GM_25D, "staged 0.85", 1.000, 0.190),
    ],
)
def test_published_numbers_are_those_of_the_papers_tables(study, published, scheme, power, mse_q):
    assert (published[scheme].power, published[scheme].mse_q) == (power, mse_q)
    config = load_study(study)
    assert set(config.tiny.schemes) < set(config.full.schemes) == set(published)
