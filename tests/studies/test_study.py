"""Every study: how it is found, its tiny form, and its committed record, from which it can be drawn again."""

import tomllib
from dataclasses import fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
import torch

from steincritic.cli.reproduce import GROUP
from steincritic.errors import InputError
from steincritic.files import plain
from steincritic_studies.paper.mixtures import STUDY_2D, STUDY_10D, STUDY_25D
from steincritic_studies.paper.published import GM_2D, GM_10D, GM_25D
from steincritic_studies.record import Record
from steincritic_studies.study import Context, Study

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
POINTS = [EntryPoint(name, value, GROUP) for name, value in PROJECT["entry-points"][GROUP].items()]
STUDIES = {point.name: point.load() for point in POINTS}
TABLES = [STUDY_2D, STUDY_10D, STUDY_25D]
RESULTS = ROOT / "results"

SWEEP = {"rows", "published", "timings"}
PROMISED = {
    "gm-1d": {"grid", "optimal", "critics", "partly_trained", "statistics"},
    "gm-2d": {"rows", "ceilings", "fields"},
    "gm-10d": {"rows", "ceilings"},
    "gm-25d": {"rows", "ceilings"},
    "adaptive": {"rows"},
    "ksd-50d": SWEEP,
    "ksd-50d-easy": SWEEP,
    "ksd-bandwidth": SWEEP,
    "splits": SWEEP,
    "rbm-benchmark": SWEEP,
    "calibration": {"rows", "levels"},
    "streams": {"rows", "level"},
    "planted-faults": {"rows", "fdr"},
    "fault-zoo": {"rows", "default", "tests"},
    "level": {"rows"},
    "level-of-chains": {"rows"},
    "level-without-draws": {"rows"},
    "fitted": {"rows"},
    "fault-sentences": {"rows"},
    "lazy-training": {"rows", "corollary", "staged"},
    "posterior-checks": {"rows", "mixing", "diagnoses"},
    "posteriordb": {"rows", "planted", "posteriors"},
    "image-models": {"rows", "models", "published"},
    "small-images": {"rows", "models", "published"},
    "auto-staging": {"rows"},
    "learn-ebm": {"rows", "pictures", "level"},
    "conditional": {"rows", "level"},
    "lc2st": {"rows", "moments"},
    "tolerance": {"rows"},
    "bounded": {"rows", "changes", "demanded"},
    "far-modes": {"rows"},
    "mnist": {"rows", "null", "gallery", "map", "machine"},
}
POWERS = ("power_exact", "power_stochastic")
ROW = {
    "scheme",
    "staging",
    "published",
    *POWERS,
    "mse_q",
    "mse_q_published_scale",
    "stopping_epoch",
    "curves",
}


def tiny_record(name, folder, *, seed=0, **options):
    """The record of a tiny run, as it comes back from its file."""
    context = Context(device=torch.device("cpu"), seed=seed, jobs=folder / "jobs", **options)
    STUDIES[name].record(context, tiny=True).save(folder / "record.json")
    return Record.load(folder / "record.json")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return {name: tiny_record(name, tmp_path_factory.mktemp(name)) for name in STUDIES}


@pytest.fixture(autouse=True)
def _cache_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def without_seconds(value):
    """Results less what the clock says."""
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k != "seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", STUDIES)
def test_a_record_holds_what_it_promises(records, name):
    record = records[name]
    assert record.name == name and record.command == f"steincritic reproduce {name} --tiny"
    assert set(record.results) == PROMISED[name]
    assert set(record.config) == {"type", *(field.name for field in fields(STUDIES[name].tiny))}
    assert record.seconds and all(value > 0 for value in record.seconds.values())
    assert {"python", "torch", "device", "threads"} <= set(record.environment)


@pytest.mark.parametrize(
    "name", {study.run: name for name, study in STUDIES.items()}.values()
)  # one per program
def test_the_seed_decides_all_results(records, name, tmp_path):
    again = tiny_record(name, tmp_path)
    assert without_seconds(again.results) == without_seconds(records[name].results)


def test_another_seed_gives_other_results(records, tmp_path):
    assert tiny_record("gm-1d", tmp_path, seed=1).results != records["gm-1d"].results


@pytest.mark.parametrize("study", TABLES, ids=lambda study: study.name)
def test_a_row_of_a_mixture_table_is_complete(records, study):
    rows, config = records[study.name].results["rows"], study.tiny
    assert [row["scheme"] for row in rows] == list(config.schemes)
    for row in rows:
        assert set(row) == ROW
        trained_with_probes = study.name != "gm-2d"  # in two dimensions the divergence is exact
        for key in POWERS if trained_with_probes else POWERS[:1]:
            assert len(row[key]["values"]) == config.replicas and 0 <= row[key]["mean"] <= 1
        for curve in row["curves"].values():
            assert len(curve["mean"]) == len(curve["sd"]) == config.epochs
        quarter = [0.25 * value for value in row["mse_q"]["values"]]
        assert row["mse_q_published_scale"]["values"] == pytest.approx(quarter, rel=1e-6)  # digits kept
        assert 1 <= row["stopping_epoch"]["mean"] <= config.epochs
    ceilings = records[study.name].results["ceilings"]
    assert set(ceilings) == {"optimal critic", "likelihood ratio"}
    for ceiling in ceilings.values():
        assert ceiling["interval"][0] <= ceiling["power"] <= ceiling["interval"][1]


def test_adaptive_rows_hold_every_scheme_and_lambda_never_rises(records):
    rows, config = records["adaptive"].results["rows"], STUDIES["adaptive"].tiny
    assert [row["scheme"] for row in rows] == list(config.schemes)
    for row in rows:
        assert set(row["curves"]) == {"mse_p", "mse_q", "lam"} and set(row["lowest"]) == {"mse_p", "mse_q"}
        lam = row["curves"]["lam"]["mean"]
        assert lam == sorted(lam, reverse=True)


def test_one_dimension_counts_every_statistic_once(records):
    config, results = STUDIES["gm-1d"].tiny, records["gm-1d"].results
    for counts in results["statistics"]["counts"].values():
        assert sum(counts) == config.statistics
    assert [critic["epochs"] for critic in results["critics"]] == list(config.shown_epochs)
    for critic in results["critics"]:
        scaled = [critic["lam"] * value for value in critic["critic"]]
        assert scaled == pytest.approx(critic["scaleless"], rel=1e-5, abs=1e-7)  # float32 rounding


@pytest.mark.parametrize("name", ["ksd-50d", "ksd-50d-easy", "ksd-bandwidth", "splits", "rbm-benchmark"])
def test_rows_of_a_power_curve_are_rates(records, name):
    rows = records[name].results["rows"]
    assert rows
    for row in rows:
        assert row["power"] == pytest.approx(row["rejections"] / row["trials"], rel=1e-6)  # digits kept
        assert row["interval"][0] <= row["power"] <= row["interval"][1]


def test_calibration_has_every_method_on_every_problem_with_controls_marked(records):
    rows, config = records["calibration"].results["rows"], STUDIES["calibration"].tiny
    wanted = [(p, m) for p in config.problems for m in config.methods]
    assert [(row["problem"], row["method"]) for row in rows] == wanted
    assert any(row["control"] for row in rows) and not any(row["control"] and row["exact"] for row in rows)
    for row in rows:
        assert [rate["level"] for rate in row["rates"]] == records["calibration"].results["levels"]
        assert all(rate["rejections"] == round(rate["rate"] * row["runs"]) for rate in row["rates"])


def test_training_is_watched_and_resumed(tmp_path, records):
    epochs = []
    options = {
        "checkpoint": tmp_path / "critics.safetensors",
        "callbacks": [lambda epoch, of, row: epochs.append(epoch)],
    }
    tiny_record("gm-10d", tmp_path, **options)
    assert epochs == list(range(STUDIES["gm-10d"].tiny.epochs))
    assert tiny_record("gm-10d", tmp_path, **options).results == records["gm-10d"].results
    assert 0 not in epochs[STUDIES["gm-10d"].tiny.epochs :]  # the first epoch was not trained again


@pytest.mark.parametrize(
    ("published", "scheme", "power", "mse_q"),
    [
        (GM_2D, "1e-1", 0.825, 0.021),
        (GM_10D, "staged 0.80", 0.928, 0.088),
        (GM_25D, "staged 0.85", 1.000, 0.190),
    ],
)
def test_published_numbers_are_those_of_the_papers_tables(published, scheme, power, mse_q):
    assert (published[scheme].power, published[scheme].mse_q) == (power, mse_q)


@pytest.mark.parametrize("study", TABLES, ids=lambda study: study.name)
def test_every_row_of_a_full_table_has_its_published_twin(study):
    assert set(study.full.schemes) == set(study.full.published)
    assert set(study.tiny.schemes) <= set(study.full.schemes)


def rows_of_table(text):
    """The cells of the rows of the document's first table, less header and rule."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    assert len({len(cells) for cells in table}) == 1, "a table is a rectangle"
    return table[2:]


@pytest.mark.parametrize("name", STUDIES)
def test_tables_and_figures_are_drawn_from_the_record_alone(records, tmp_path, name):
    record = records[name]
    shown = STUDIES[name].show(record, tmp_path)
    (table, *figures), text = shown.files, shown.table
    assert table.read_text() == text
    assert rows_of_table(text) and f"`{record.command}` (seed 0)" in text
    assert "None" not in text and "nan" not in text
    assert figures and all(path.read_bytes().startswith(b"\x89PNG") for path in figures)


@pytest.mark.parametrize("name", ["gm-1d", "gm-2d", "gm-10d", "gm-25d", "adaptive"])
def test_a_table_has_one_line_per_scheme(records, name):
    results = records[name].results
    wanted = (
        [row["scheme"] for row in results["rows"]] if "rows" in results else results["statistics"]["mean"]
    )
    assert [cells[0] for cells in rows_of_table(STUDIES[name].table(records[name]))] == list(wanted)


def test_a_published_number_stands_beside_ours(records):
    rows = {cells[0]: cells for cells in rows_of_table(STUDIES["gm-25d"].table(records["gm-25d"]))}
    ours = plain(records["gm-25d"].results["rows"][1]["power_exact"]["mean"])
    assert rows["staged 0.90"][1] == "0.995 (0.002)"
    assert rows["staged 0.90"][3].startswith(f"{ours:.3f} ± ")


def draw_again(study, folder):
    return study.reproduce(
        folder,
        tiny=False,
        device=torch.device("cpu"),
        seed=0,
        resume=None,
        engine="serial",
        address=None,
        redraw=True,
    )


def test_the_record_of_another_study_is_refused(records, tmp_path):
    records["gm-1d"].save(tmp_path / "record.json")
    with pytest.raises(InputError, match="is a record of 'gm-1d', not of 'gm-2d'"):
        draw_again(STUDIES["gm-2d"], tmp_path)
    assert draw_again(STUDIES["gm-1d"], tmp_path).files[0] == tmp_path / "record.json"


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_an_entry_point_gives_the_study_of_its_name(point):
    study = point.load()
    assert isinstance(study, Study) and study.name == point.name and study.title


def test_the_installed_package_registers_what_the_project_says():
    installed = {(point.name, point.value) for point in entry_points(group=GROUP)}
    assert installed >= {(point.name, point.value) for point in POINTS}, "install the package again"


def test_every_study_has_its_committed_record_and_every_record_its_study():
    assert {path.parent.name for path in RESULTS.glob("*/record.json")} == set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_the_committed_table_is_drawn_from_the_committed_record(name):
    record = Record.load(RESULTS / name / "record.json")
    assert record.name == name and record.command == f"steincritic reproduce {name}"
    assert STUDIES[name].table(record) == (RESULTS / name / "table.md").read_text()
